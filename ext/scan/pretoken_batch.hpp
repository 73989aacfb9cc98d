// What every scanner passes on: pre-tokens in batches.
#pragma once

#include "kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace bpeflow {

// Blocks classified at a time. With fewer, each call does little work. With more, text and masks leave the L1 cache in
// between.
constexpr std::size_t BLOCKS_AT_ONCE = 32;

// Pre-tokens of a text, from left to right: number i is the bytes from text + starts[i] to text + ends[i].
struct PretokenBatch {
    const std::uint8_t *text;
    const std::uint32_t *starts, *ends; // [count]
    std::size_t count;

    // Return the number of pre-tokens, from the first on, from whose start 8 bytes can be read before `readable_end`.
    std::size_t with_words(const std::uint8_t *readable_end) const {
        std::size_t number = count;
        while (number > 0 && readable_end - (text + starts[number - 1]) < 8) number--;
        return number;
    }

    static constexpr std::size_t MOST = 4096 + BLOCKS_AT_ONCE * BLOCK;
};

} // namespace bpeflow
