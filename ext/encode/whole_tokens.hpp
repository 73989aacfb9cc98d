// The tokens that a pre-token can be as a whole.
#pragma once

#include "cache_key.hpp"
#include "filter.hpp"
#include "tokens.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bpeflow {

// A table of tokens by their bytes: of all ordinary tokens, if the vocabulary asks for it, otherwise of those that merging
// their bytes yields, so that a pre-token found here need not be merged.
class WholeTokens {
  public:
    static constexpr std::uint32_t NONE = UINT32_MAX;

    // The table has the tokens for which `included(id)` is true.
    template <typename Included>
    WholeTokens(const Tokens &ordinary, const Included &included) : tokens_(ordinary), filter_(ordinary.count()) {
        std::size_t size = 4;
        while (size < std::size_t{tokens_.count()} * 2) size *= 2;
        slots_.assign(size, {0, NONE});
        mask_ = size - 1;
        for (std::uint32_t id = 0; id < tokens_.count(); id++)
            if (tokens_.length(id) > 0 && included(id)) insert(id);
    }

    // Return the token with these bytes, NONE if there is none or it may not be taken whole.
    std::uint32_t find(const CacheKey &key) const {
        return filter_.may_have(key.hash) ? slots_[find_slot(key)].id : NONE;
    }

  private:
    struct Slot {
        std::uint32_t hash, id; // NONE in an empty slot
    };

    // Return the index of the token's slot, or of the empty slot where it belongs.
    std::size_t find_slot(const CacheKey &key) const {
        std::size_t at = key.hash & mask_;
        while (slots_[at].id != NONE && !is(slots_[at], key)) at = (at + 1) & mask_;
        return at;
    }

    bool is(const Slot &slot, const CacheKey &key) const {
        return slot.hash == static_cast<std::uint32_t>(key.hash) && tokens_.length(slot.id) == key.length() &&
               std::memcmp(tokens_.bytes(slot.id), key.bytes, key.length()) == 0;
    }

    void insert(std::uint32_t id) {
        CacheKey key;
        key.set(tokens_.bytes(id), tokens_.length(id), tokens_.length(id));
        filter_.add(key.hash);
        Slot &slot = slots_[find_slot(key)];
        if (slot.id == NONE) slot = {static_cast<std::uint32_t>(key.hash), id};
    }

    const Tokens &tokens_;    // empty for a token that ordinary text does not yield
    std::vector<Slot> slots_; // a power of two, linear probing, at most half used
    std::size_t mask_;
    Filter filter_;
};

} // namespace bpeflow
