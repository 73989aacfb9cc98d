// The kernels for AVX2: registers of 32 bytes.

#include "kernels.hpp"

#if defined(__AVX2__)
#include "kernel_templates.hpp"

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

struct Vector256 {
    static constexpr std::size_t SIZE = 32;
    __m256i bytes;

    static Vector256 load(const std::uint8_t *text) {
        return {_mm256_loadu_si256(reinterpret_cast<const __m256i *>(text))};
    }
    static Vector256 all(std::uint8_t byte) { return {_mm256_set1_epi8(static_cast<char>(byte))}; }

    Vector256 upper_halves() const { return Vector256{_mm256_srli_epi16(bytes, 4)}.lower_halves(); }
    Vector256 lower_halves() const { return *this & all(0x0F); }
    Vector256 lookup(const std::uint8_t (&table)[16]) const {
        const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i *>(table));
        return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), bytes)};
    }
    Vector256 minus(std::uint8_t byte) const { return {_mm256_subs_epu8(bytes, all(byte).bytes)}; } // at least 0
    bool any() const { return _mm256_testz_si256(bytes, bytes) == 0; }
    bool any_high() const { return _mm256_movemask_epi8(bytes) != 0; }

    friend Vector256 operator&(Vector256 a, Vector256 b) { return {_mm256_and_si256(a.bytes, b.bytes)}; }
    friend Vector256 operator|(Vector256 a, Vector256 b) { return {_mm256_or_si256(a.bytes, b.bytes)}; }
    friend Vector256 operator^(Vector256 a, Vector256 b) { return {_mm256_xor_si256(a.bytes, b.bytes)}; }
};

} // namespace

const Kernels KERNELS_AVX2 = {
    "avx2", classify_with<Block256>, Utf8Check<Vector256>::is_utf8, positions_scalar, find_scalar, nullptr, nullptr};

} // namespace bpeflow
#endif
