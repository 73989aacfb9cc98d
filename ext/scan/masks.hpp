// Masks: what kinds of bytes a block of 64 holds, one bit for each byte, the first byte lowest.
//
// Which instructions make them is chosen when the program runs; classify_*.cpp has a version for each kind.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bpeflow {

constexpr std::size_t BLOCK = 64;

struct Masks {
    std::uint64_t letter, digit, space, blank, line_end, apostrophe, upper; // of ASCII; `space` has the other two
    std::uint64_t high;                                                     // bytes of characters beyond ASCII
};

// Classifies the bytes of `blocks` blocks.
using Classify = void (*)(const std::uint8_t *text, std::size_t blocks, Masks *masks);

void classify_avx512(const std::uint8_t *text, std::size_t blocks, Masks *masks);
void classify_avx2(const std::uint8_t *text, std::size_t blocks, Masks *masks);
void classify_sse2(const std::uint8_t *text, std::size_t blocks, Masks *masks);
void classify_neon(const std::uint8_t *text, std::size_t blocks, Masks *masks);
void classify_scalar(const std::uint8_t *text, std::size_t blocks, Masks *masks);

} // namespace bpeflow
