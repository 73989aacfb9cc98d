// A vocabulary as encoders and decoders use it. It never changes.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"
#include "pairs.hpp"
#include "tokens.hpp"
#include "whole_tokens.hpp"

#include <algorithm>
#include <cstdint>

namespace bpeflow {

struct Model {
    // Throws Failure{BPEFLOW_BAD_ARGUMENT} for a vocabulary that breaks the rules of the header.
    explicit Model(const bpeflow_vocabulary &given)
        : tokens(checked(given).token_data, given.token_offsets, given.tokens),
          ordinary(given.ordinary_data, given.ordinary_offsets, given.tokens),
          pairs(given.byte_ids, given.merges, static_cast<std::uint32_t>(given.merge_count), ordinary),
          whole_tokens(ordinary, given.whole_tokens != 0, pairs) {}

    Model(const Model &) = delete; // its members refer to each other
    Model &operator=(const Model &) = delete;

    const Tokens tokens, ordinary; // what ids stand for; what pre-tokens they may be
    const Pairs pairs;
    const WholeTokens whole_tokens;

  private:
    static const bpeflow_vocabulary &checked(const bpeflow_vocabulary &given) {
        const auto known = [&given](std::uint32_t id) { return id < given.tokens; };
        const auto ascending = [&given](const std::int64_t *offsets) {
            return offsets && offsets[0] == 0 && std::is_sorted(offsets, offsets + given.tokens + 1);
        };
        const bool sound = given.tokens > 0 && given.tokens < UINT32_MAX && given.token_data &&
                           ascending(given.token_offsets) && given.ordinary_data && ascending(given.ordinary_offsets) &&
                           given.byte_ids && std::all_of(given.byte_ids, given.byte_ids + 256, known) &&
                           given.merge_count < UINT32_MAX &&
                           (given.merge_count == 0 ||
                            (given.merges && std::all_of(given.merges, given.merges + 3 * given.merge_count, known)));
        if (!sound) throw Failure{BPEFLOW_BAD_ARGUMENT};
        return given;
    }
};

} // namespace bpeflow
