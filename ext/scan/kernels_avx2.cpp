// The kernels for AVX2: registers of 32 bytes.

#include "kernels.hpp"

#if defined(__AVX2__)
#include "kernel_templates.hpp"

#include <immintrin.h>

namespace bpeflow {
namespace {

struct Avx2 {
    using Bytes = std::uint8_t __attribute__((vector_size(32)));

    static std::uint64_t top_bits(const Bytes (&block)[2]) {
        const auto mask = [](Bytes bytes) { return static_cast<std::uint32_t>(_mm256_movemask_epi8(__m256i(bytes))); };
        return mask(block[0]) | std::uint64_t{mask(block[1])} << 32;
    }
    static Bytes minus(Bytes bytes, std::uint8_t byte) {
        return Bytes(_mm256_subs_epu8(__m256i(bytes), _mm256_set1_epi8(static_cast<char>(byte))));
    }
    static Bytes lookup(const std::uint8_t (&table)[16], Bytes bytes) {
        const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i *>(table));
        return Bytes(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), __m256i(bytes)));
    }
    static bool any(Bytes bytes) { return _mm256_testz_si256(__m256i(bytes), __m256i(bytes)) == 0; }
};

} // namespace

const Kernels KERNELS_AVX2 = {
    "avx2", classify_with<BlockOf<Avx2>>, Utf8Check<Avx2>::is_utf8, positions_scalar, find_scalar, nullptr, nullptr};

} // namespace bpeflow
#endif
