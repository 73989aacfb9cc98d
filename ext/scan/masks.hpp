// Masks: for each class of bytes, one bit per byte of a block of 64, the first byte lowest.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bpeflow {

constexpr std::size_t BLOCK = 64;

struct Masks {
    std::uint64_t letter, digit, space, blank, line_end, apostrophe, upper; // ASCII only; `space` includes the next two
    std::uint64_t high, lead; // bytes of non-ASCII characters, and the first of each
};

} // namespace bpeflow
