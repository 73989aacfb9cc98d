// A pattern: a named one, which has a fast path (scan.hpp), or one compiled from any expression.
#pragma once

#include "automaton.hpp"
#include "bpeflow.h"

#include <cstdint>
#include <vector>

namespace bpeflow {

struct Pattern {
    static constexpr std::uint32_t COMPILED = ~std::uint32_t{0};

    // Both throw Failure{BPEFLOW_BAD_ARGUMENT}.
    explicit Pattern(std::uint32_t number);
    Pattern(const bpeflow_step *given, std::uint32_t count, std::uint32_t policy);

    std::uint32_t name = COMPILED; // enum bpeflow_named_pattern
    std::uint32_t unmatched = BPEFLOW_ISOLATE;
    std::vector<Automaton> steps;  // a single one for a named pattern
    std::vector<Automaton> joined; // the same with fewer steps (join.hpp), if there are any that can be joined

    const std::vector<Automaton> &scanned() const { return joined.empty() ? steps : joined; }
};

} // namespace bpeflow

struct bpeflow_pattern {
    bpeflow::Pattern pattern;
};
