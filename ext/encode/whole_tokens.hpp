// The tokens that a pre-token can be as a whole.
#pragma once

#include "cache_key.hpp"
#include "filter.hpp"
#include "kernels.hpp"
#include "strings.hpp"
#include "tokens.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bpeflow {

// A table of tokens by their bytes: of all ordinary tokens, if the vocabulary asks for it, otherwise of those that merging
// their bytes yields, so that a pre-token found here need not be merged.
class WholeTokens {
  public:
    static constexpr std::uint32_t NONE = Strings::NONE;

    // The table has the tokens for which `included(id)` is true. `ordinary` is empty for other tokens.
    template <typename Included>
    WholeTokens(const Tokens &ordinary, const Included &included)
        : filter_(ordinary.count()), tokens_(ordinary.bytes(0), ordinary.offsets(), ordinary.count(), 0,
                                             [&](const CacheKey &key, std::uint32_t id) {
                                                 if (ordinary.length(id) == 0 || !included(id)) return false;
                                                 filter_.add(key.hash);
                                                 return true;
                                             }) {}

    // Return the token with these bytes, NONE if there is none or it may not be taken whole.
    std::uint32_t find(const CacheKey &key) const { return filter_.may_have(key.hash) ? tokens_.find(key) : NONE; }

  private:
    Filter filter_; // before the table, which fills it
    Strings tokens_;
};

// The front of encoding: those tokens of up to 8 bytes, in a direct-mapped table, small enough for the L2 cache. Of tokens
// with the same slot, the one with the lowest id gets it, as it is the most frequent. The table never changes, so all
// encoders of a model share it.
class ShortTokens {
  public:
    ShortTokens(const Tokens &ordinary, const WholeTokens &whole) : keys_(size), ids_(size + 1) {
        for (std::uint32_t id = 0; id < ordinary.count(); id++) {
            const std::size_t length = ordinary.length(id);
            const std::uint8_t *const bytes = ordinary.bytes(id);
            if (length == 0 || length > 8 || bytes[length - 1] == 0) continue;
            CacheKey key;
            key.set(bytes, length, length);
            const std::uint64_t word = key.words[0];
            const std::size_t slot = keys().slot_of(word);
            if (keys_[slot] != 0 || whole.find(key) != id) continue;
            keys_[slot] = word;
            ids_[slot] = id;
        }
    }

    KeyTable keys() const { return {keys_.data(), bits}; }
    const std::uint32_t *ids() const { return ids_.data(); } // by slot

  private:
    static constexpr unsigned bits = 15; // 2^14 and 2^16 slots differ by less than the noise
    static constexpr std::size_t size = std::size_t{1} << bits;

    std::vector<std::uint64_t> keys_;
    std::vector<std::uint32_t> ids_;
};

} // namespace bpeflow
