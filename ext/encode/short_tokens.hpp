// The front of encoding: tokens of up to 8 bytes that a pre-token can be as a whole.
#pragma once

#include "cache_key.hpp"
#include "kernels.hpp"
#include "tokens.hpp"
#include "whole_tokens.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bpeflow {

// A direct-mapped table, small enough for the L2 cache. Of tokens with the same slot, the one with the lowest id gets
// it, as it is the most frequent. The table never changes, so all encoders of a model share it.
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
