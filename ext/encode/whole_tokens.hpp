// The tokens that a pre-token can be as a whole.
#pragma once

#include "cache_key.hpp"
#include "filter.hpp"
#include "strings.hpp"
#include "tokens.hpp"

#include <cstdint>

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

} // namespace bpeflow
