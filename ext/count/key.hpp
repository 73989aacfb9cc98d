// Keys of the counting table: how a pre-token's bytes are stored and compared.
#pragma once

#include "hash.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bpeflow {

// A slot of the table: a pre-token and its count. At 32 bytes, two slots share a cache line and a probe costs one cache
// miss.
//
// A key of up to `inline_size` bytes is stored in `words`, padded with zeros. These are 99 % of the pre-tokens of
// English text and of code, and 93 % of multilingual text. Two such keys are equal if both words and the length are:
// the length distinguishes "a" from "a\0". For a longer key the first word is the address of its bytes and the second
// is its hash, so that bytes are compared only if they are almost certainly equal.
struct alignas(32) Slot {
    std::uint64_t words[2];
    std::int64_t count;
    std::uint32_t length; // in bytes; 0 for an empty slot, as no pre-token is empty
    std::uint32_t high;   // the upper half of the hash, which selects the partition

    static constexpr std::size_t inline_size = SHORT;

    bool empty() const { return length == 0; }

    const std::uint8_t *bytes() const {
        if (length <= inline_size) return reinterpret_cast<const std::uint8_t *>(words);
        // NOLINTNEXTLINE(performance-no-int-to-ptr): made by set_address; a union would make the slot no smaller
        return reinterpret_cast<const std::uint8_t *>(static_cast<std::uintptr_t>(words[0]));
    }

    void set_address(const std::uint8_t *bytes) { words[0] = reinterpret_cast<std::uintptr_t>(bytes); }
};
static_assert(sizeof(Slot) == 32);

inline bool same_key(const Slot &a, const Slot &b) {
    if (a.length != b.length || a.words[1] != b.words[1]) return false;
    if (a.words[0] == b.words[0]) return true;
    return a.length > Slot::inline_size && std::memcmp(a.bytes(), b.bytes(), a.length) == 0;
}

inline std::uint64_t hash_of(const Slot &slot) {
    return slot.length <= Slot::inline_size ? hash_short(slot.words, slot.length) : slot.words[1];
}

} // namespace bpeflow
