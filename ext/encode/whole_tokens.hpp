// The tokens that a pre-token becomes as a whole.
#pragma once

#include "cache_key.hpp"
#include "filter.hpp"
#include "kernels.hpp"
#include "merging.hpp"
#include "pairs.hpp"
#include "strings.hpp"
#include "tokens.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bpeflow {

// A table of the tokens that a pre-token becomes regardless of merges: all ordinary tokens, if the vocabulary asks for
// it, otherwise none.
class WholeTokens {
  public:
    static constexpr std::uint32_t NONE = Strings::NONE;

    WholeTokens(const Tokens &ordinary, bool all)
        : count_(all ? ordinary.count() : 0), filter_(count_),
          tokens_(ordinary.bytes(0), ordinary.offsets(), count_, 0, [&](const CacheKey &key, std::uint32_t id) {
              if (ordinary.length(id) == 0) return false;
              filter_.add(key.hash);
              return true;
          }) {}

    bool empty() const { return count_ == 0; }

    // Return the token with these bytes, the lowest of several, or NONE.
    std::uint32_t find(const CacheKey &key) const { return filter_.may_have(key.hash) ? tokens_.find(key) : NONE; }

    std::uint32_t find(const std::uint8_t *bytes, std::size_t length) const {
        if (empty()) return NONE;
        CacheKey key;
        key.set(bytes, length, length);
        return find(key);
    }

  private:
    std::uint32_t count_;
    Filter filter_; // before the table, which fills it
    Strings tokens_;
};

// The front of encoding: the tokens of up to 8 bytes that a pre-token with their bytes becomes, in a direct-mapped table,
// small enough for the L2 cache. Of tokens with the same slot, the one with the lowest id gets it, as it is the most
// frequent. The table never changes, so all encoders of a model share it.
class ShortTokens {
  public:
    ShortTokens(const Tokens &ordinary, const WholeTokens &whole, const Pairs &pairs) : keys_(size), ids_(size + 1) {
        Merging merging(pairs);
        for (std::uint32_t id = 0; id < ordinary.count(); id++) {
            const std::size_t length = ordinary.length(id);
            const std::uint8_t *const bytes = ordinary.bytes(id);
            if (length == 0 || length > 8 || bytes[length - 1] == 0) continue;
            CacheKey key;
            key.set(bytes, length, length);
            const std::uint64_t word = key.words[0];
            const std::size_t slot = keys().slot_of(word);
            if (keys_[slot] != 0) continue;
            const std::uint32_t token = whole.find(key);
            if (token != id && (token != WholeTokens::NONE || !merging.yields(bytes, length, id))) continue;
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
