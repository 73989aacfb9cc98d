// One thread's part of a list of occurrences.
#pragma once

#include "neighbours.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace bpeflow {

// The results of one thread that merges its part of a list.
struct Part {
    Neighbours before, after;
    std::unique_ptr<std::uint32_t[]> positions; // [merged]; positions of the merged occurrences
    std::uint64_t merged = 0, capacity = 0;

    // Make room for this many tokens and occurrences. Only between merges.
    void reserve(std::size_t tokens, std::size_t occurrences) {
        before.reserve(tokens, occurrences);
        after.reserve(tokens, occurrences);
        if (occurrences <= capacity) return;
        capacity = occurrences + occurrences / 4;
        positions.reset(); // first, so that only one exists at a time
        positions.reset(new std::uint32_t[capacity]);
    }

    std::uint64_t memory() const { return before.memory() + after.memory() + capacity * sizeof(std::uint32_t); }
};

} // namespace bpeflow
