// Classifying with AVX2: two registers of 32 bytes.

#include "masks.hpp"

#if defined(__AVX2__)
#include "classify.hpp"

#include <immintrin.h>

namespace bpeflow {
namespace {

struct Block256 {
    __m256i halves[2];

    static Block256 load(const std::uint8_t *text) {
        const auto *from = reinterpret_cast<const __m256i *>(text);
        return {{_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)}};
    }

    Block256 lower() const { return {{_mm256_or_si256(halves[0], all(0x20)), _mm256_or_si256(halves[1], all(0x20))}}; }
    std::uint64_t equal(char byte) const {
        return mask(_mm256_cmpeq_epi8(halves[0], all(byte)), _mm256_cmpeq_epi8(halves[1], all(byte)));
    }
    std::uint64_t within(char first, char count) const {
        return mask(within(halves[0], first, count), within(halves[1], first, count));
    }
    std::uint64_t high() const { return mask(halves[0], halves[1]); }

    // AVX2 cannot compare unsigned bytes. x < count if and only if min(x, count - 1) == x.
    static __m256i within(__m256i bytes, char first, char count) {
        const __m256i moved = _mm256_sub_epi8(bytes, all(first));
        return _mm256_cmpeq_epi8(_mm256_min_epu8(moved, all(static_cast<char>(count - 1))), moved);
    }
    static __m256i all(char byte) { return _mm256_set1_epi8(byte); }
    static std::uint64_t mask(__m256i low, __m256i high) {
        return static_cast<std::uint32_t>(_mm256_movemask_epi8(low)) |
               std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(high))} << 32;
    }
};

} // namespace

void classify_avx2(const std::uint8_t *text, std::size_t blocks, Masks *masks) {
    classify_with<Block256>(text, blocks, masks);
}

} // namespace bpeflow
#endif
