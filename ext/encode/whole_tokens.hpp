// The tokens that a pre-token may be as a whole.
#pragma once

#include "bpeflow.h"
#include "merging.hpp"
#include "tokens.hpp"
#include "words.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace bpeflow {

// A table of the tokens by their bytes: of all ordinary ones where the vocabulary says that a token is taken whole, and
// else of those that merging their bytes yields, so that a pre-token that is found here need not be merged.
class WholeTokens {
  public:
    static constexpr std::uint32_t NONE = UINT32_MAX;

    WholeTokens(Tokens ordinary, bool all, const Pairs &pairs) : tokens_(std::move(ordinary)) {
        std::size_t size = 4;
        while (size < std::size_t{tokens_.count()} * 2) size *= 2;
        slots_.assign(size, {0, NONE});
        mask_ = size - 1;
        Merging merging(pairs);
        for (std::uint32_t id = 0; id < tokens_.count(); id++) {
            if (tokens_.length(id) == 0) continue;
            if (!all) {
                merging.merge(tokens_.bytes(id), tokens_.length(id));
                if (merging.count() != 1 || merging.ids()[0] != id) continue;
            }
            insert(id);
        }
    }

    // The token of these bytes; NONE if there is none that may be taken whole.
    std::uint32_t find(const std::uint8_t *bytes, std::size_t length) const {
        return slots_[place(bytes, length, hash(bytes, length))].id;
    }

  private:
    struct Slot {
        std::uint32_t hash, id; // empty if NONE
    };

    static std::uint32_t hash(const std::uint8_t *bytes, std::size_t length) {
        if (length > SHORT) return static_cast<std::uint32_t>(hash_long(bytes, length));
        std::uint64_t words[2];
        load_short(bytes, length, length, words);
        return static_cast<std::uint32_t>(hash_short(words, length));
    }

    // The token's slot, or the empty one where it belongs.
    std::size_t place(const std::uint8_t *bytes, std::size_t length, std::uint32_t hash) const {
        std::size_t at = hash & mask_;
        while (slots_[at].id != NONE && !(slots_[at].hash == hash && is(slots_[at].id, bytes, length)))
            at = (at + 1) & mask_;
        return at;
    }

    bool is(std::uint32_t id, const std::uint8_t *bytes, std::size_t length) const {
        return tokens_.length(id) == length && std::memcmp(tokens_.bytes(id), bytes, length) == 0;
    }

    void insert(std::uint32_t id) {
        const std::uint32_t hashed = hash(tokens_.bytes(id), tokens_.length(id));
        Slot &slot = slots_[place(tokens_.bytes(id), tokens_.length(id), hashed)];
        if (slot.id == NONE) slot = {hashed, id};
    }

    const Tokens tokens_;     // empty where ordinary text does not yield it
    std::vector<Slot> slots_; // a power of two of them, probed one after another; at most half are used
    std::size_t mask_;
};

} // namespace bpeflow
