// Classifying with SSE2, which every x86-64 processor has: four registers of 16 bytes.

#include "masks.hpp"

#if defined(__SSE2__)
#include "classify.hpp"

#include <emmintrin.h>

namespace bpeflow {
namespace {

struct Block128 {
    __m128i quarters[4];

    static Block128 load(const std::uint8_t *text) {
        const auto *from = reinterpret_cast<const __m128i *>(text);
        return {
            {_mm_loadu_si128(from), _mm_loadu_si128(from + 1), _mm_loadu_si128(from + 2), _mm_loadu_si128(from + 3)}};
    }

    Block128 lower() const {
        return each([](__m128i bytes) { return _mm_or_si128(bytes, all(0x20)); });
    }
    std::uint64_t equal(char byte) const {
        return each([byte](__m128i bytes) { return _mm_cmpeq_epi8(bytes, all(byte)); }).high();
    }
    // SSE2 cannot compare unsigned bytes. x < count if and only if min(x, count - 1) == x.
    std::uint64_t within(char first, char count) const {
        return each([first, count](__m128i bytes) {
                   const __m128i moved = _mm_sub_epi8(bytes, all(first));
                   return _mm_cmpeq_epi8(_mm_min_epu8(moved, all(static_cast<char>(count - 1))), moved);
               })
            .high();
    }
    std::uint64_t high() const {
        std::uint64_t mask = 0;
        for (int i = 3; i >= 0; i--) mask = mask << 16 | static_cast<std::uint16_t>(_mm_movemask_epi8(quarters[i]));
        return mask;
    }

    template <typename Change> Block128 each(Change change) const {
        return {{change(quarters[0]), change(quarters[1]), change(quarters[2]), change(quarters[3])}};
    }
    static __m128i all(char byte) { return _mm_set1_epi8(byte); }
};

} // namespace

void classify_sse2(const std::uint8_t *text, std::size_t blocks, Masks *masks) {
    classify_with<Block128>(text, blocks, masks);
}

} // namespace bpeflow
#endif
