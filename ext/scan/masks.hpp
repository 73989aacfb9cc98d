// Masks: for each class of bytes, one bit per byte of a block of 64, the first byte lowest.
//
// classify_*.cpp compute them, one version per instruction set. The version is selected at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bpeflow {

constexpr std::size_t BLOCK = 64;

struct Masks {
    std::uint64_t letter, digit, space, blank, line_end, apostrophe, upper; // ASCII only; `space` includes the next two
    std::uint64_t high;                                                     // bytes of non-ASCII characters
};

// Computes the masks of `blocks` blocks.
using Classify = void (*)(const std::uint8_t *text, std::size_t blocks, Masks *masks);

void classify_avx512(const std::uint8_t *text, std::size_t blocks, Masks *masks);
void classify_avx2(const std::uint8_t *text, std::size_t blocks, Masks *masks);
void classify_sse2(const std::uint8_t *text, std::size_t blocks, Masks *masks);
void classify_neon(const std::uint8_t *text, std::size_t blocks, Masks *masks);
void classify_scalar(const std::uint8_t *text, std::size_t blocks, Masks *masks);

} // namespace bpeflow
