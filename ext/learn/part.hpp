// A part of a list of occurrences: what one thread merges.
#pragma once

#include "neighbours.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace bpeflow {

// What one thread notes while it merges its part of a list.
struct Part {
    Neighbours before, after;
    std::unique_ptr<std::uint32_t[]> positions; // [merged], of the occurrences
    std::uint64_t merged = 0, capacity = 0;

    // Makes room for that many tokens and occurrences. Only between merges.
    void reserve(std::size_t tokens, std::size_t occurrences) {
        before.reserve(tokens, occurrences);
        after.reserve(tokens, occurrences);
        if (occurrences <= capacity) return;
        capacity = occurrences + occurrences / 4;
        positions.reset(); // first, so that both are never there at once
        positions.reset(new std::uint32_t[capacity]);
    }

    std::uint64_t memory() const { return before.memory() + after.memory() + capacity * sizeof(std::uint32_t); }
};

} // namespace bpeflow
