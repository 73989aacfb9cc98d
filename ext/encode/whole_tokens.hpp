// The tokens that a pre-token may be as a whole.
#pragma once

#include "bpeflow.h"
#include "cache_key.hpp"
#include "filter.hpp"
#include "merging.hpp"
#include "tokens.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bpeflow {

// A table of the tokens by their bytes: of all ordinary ones where the vocabulary says that a token is taken whole, and
// else of those that merging their bytes yields, so that a pre-token that is found here need not be merged.
class WholeTokens {
  public:
    static constexpr std::uint32_t NONE = UINT32_MAX;

    WholeTokens(const Tokens &ordinary, bool all, const Pairs &pairs) : tokens_(ordinary), filter_(ordinary.count()) {
        std::size_t size = 4;
        while (size < std::size_t{tokens_.count()} * 2) size *= 2;
        slots_.assign(size, {0, NONE});
        mask_ = size - 1;
        Merging merging(pairs);
        for (std::uint32_t id = 0; id < tokens_.count(); id++)
            if (tokens_.length(id) > 0 && (all || merging.yields(tokens_.bytes(id), tokens_.length(id), id)))
                insert(id);
    }

    // The token of these bytes; NONE if there is none that may be taken whole.
    std::uint32_t find(const CacheKey &key) const { return filter_.may_have(key.hash) ? slots_[place(key)].id : NONE; }

  private:
    struct Slot {
        std::uint32_t hash, id; // empty if NONE
    };

    // The token's slot, or the empty one where it belongs.
    std::size_t place(const CacheKey &key) const {
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
        Slot &slot = slots_[place(key)];
        if (slot.id == NONE) slot = {static_cast<std::uint32_t>(key.hash), id};
    }

    const Tokens &tokens_;    // empty where ordinary text does not yield it
    std::vector<Slot> slots_; // a power of two of them, probed one after another; at most half are used
    std::size_t mask_;
    Filter filter_;
};

} // namespace bpeflow
