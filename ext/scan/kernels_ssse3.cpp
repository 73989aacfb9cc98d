// The kernels for SSSE3: registers of 16 bytes.

#include "kernels.hpp"

#if defined(__SSSE3__)
#include "kernel_templates.hpp"

#include <tmmintrin.h>

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
    // SSE cannot compare unsigned bytes. x < count if and only if min(x, count - 1) == x.
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

struct Vector128 {
    static constexpr std::size_t SIZE = 16;
    __m128i bytes;

    static Vector128 load(const std::uint8_t *text) {
        return {_mm_loadu_si128(reinterpret_cast<const __m128i *>(text))};
    }
    static Vector128 all(std::uint8_t byte) { return {_mm_set1_epi8(static_cast<char>(byte))}; }

    Vector128 upper_halves() const { return Vector128{_mm_srli_epi16(bytes, 4)}.lower_halves(); }
    Vector128 lower_halves() const { return *this & all(0x0F); }
    Vector128 lookup(const std::uint8_t (&table)[16]) const {
        return {_mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i *>(table)), bytes)};
    }
    Vector128 minus(std::uint8_t byte) const { return {_mm_subs_epu8(bytes, all(byte).bytes)}; } // at least 0
    bool any() const { return _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128())) != 0xFFFF; }
    bool any_high() const { return _mm_movemask_epi8(bytes) != 0; }

    friend Vector128 operator&(Vector128 a, Vector128 b) { return {_mm_and_si128(a.bytes, b.bytes)}; }
    friend Vector128 operator|(Vector128 a, Vector128 b) { return {_mm_or_si128(a.bytes, b.bytes)}; }
    friend Vector128 operator^(Vector128 a, Vector128 b) { return {_mm_xor_si128(a.bytes, b.bytes)}; }
};

} // namespace

const Kernels KERNELS_SSSE3 = {
    "ssse3", classify_with<Block128>, Utf8Check<Vector128>::is_utf8, positions_scalar, find_scalar, nullptr, nullptr};

} // namespace bpeflow
#endif
