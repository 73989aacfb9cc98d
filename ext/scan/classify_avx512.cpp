// Classifying with AVX-512BW: one register of 64 bytes, and comparisons that return masks.

#include "masks.hpp"

#if defined(__AVX512BW__)
#include "classify.hpp"

#include <immintrin.h>

namespace bpeflow {
namespace {

struct Block512 {
    __m512i bytes;

    static Block512 load(const std::uint8_t *text) { return {_mm512_loadu_si512(text)}; }

    Block512 lower() const { return {_mm512_or_si512(bytes, all(0x20))}; }
    std::uint64_t equal(char byte) const { return _mm512_cmpeq_epi8_mask(bytes, all(byte)); }
    std::uint64_t within(char first, char count) const {
        return _mm512_cmplt_epu8_mask(_mm512_sub_epi8(bytes, all(first)), all(count));
    }
    std::uint64_t high() const { return _mm512_movepi8_mask(bytes); }

    static __m512i all(char byte) { return _mm512_set1_epi8(byte); }
};

} // namespace

void classify_avx512(const std::uint8_t *text, std::size_t blocks, Masks *masks) {
    classify_with<Block512>(text, blocks, masks);
}

} // namespace bpeflow
#endif
