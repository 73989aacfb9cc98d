// A vocabulary, prepared for encoders and decoders. Immutable.
#pragma once

#include "bpeflow.h"
#include "pairs.hpp"
#include "second_level.hpp"
#include "tokens.hpp"
#include "whole_tokens.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>

namespace bpeflow {

struct Model {
    // Prepare a vocabulary, which must be valid.
    explicit Model(const bpeflow_vocabulary &given)
        : tokens(given.token_data, given.token_offsets, given.tokens),
          ordinary(given.ordinary_data, given.ordinary_offsets, given.tokens),
          pairs(given.byte_ids, given.merges, static_cast<std::uint32_t>(given.first_level), ordinary),
          second_level(given.first_level < given.merge_count ? new SecondLevel(given, ordinary) : nullptr),
          whole_tokens(ordinary, given.whole_tokens && !second_level), short_tokens(ordinary, whole_tokens, pairs) {}

    Model(const Model &) = delete; // its members refer to each other
    Model &operator=(const Model &) = delete;

    // Return whether a vocabulary keeps the rules of bpeflow.h.
    static bool is_valid(const bpeflow_vocabulary &given) {
        const auto known = [&given](std::uint32_t id) { return id < given.tokens; };
        return given.token_data && Tokens::are_valid(given.token_offsets, given.tokens) && given.ordinary_data &&
               Tokens::are_valid(given.ordinary_offsets, given.tokens) && given.byte_ids &&
               std::all_of(given.byte_ids, given.byte_ids + 256, known) && given.merge_count < UINT32_MAX &&
               given.first_level <= given.merge_count &&
               (given.merge_count == 0 ||
                (given.merges && std::all_of(given.merges, given.merges + 3 * given.merge_count, known)));
    }

    const Tokens tokens;                                   // the bytes of each id
    const Tokens ordinary;                                 // the pre-token that each id may be as a whole
    const Pairs pairs;                                     // of the first level
    const std::unique_ptr<const SecondLevel> second_level; // null if there is only one
    const WholeTokens whole_tokens;                        // of the first level
    const ShortTokens short_tokens;
};

} // namespace bpeflow
