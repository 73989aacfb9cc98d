// Pre-tokens as keys of the counting table: how their bytes are held and compared.
#pragma once

#include "hash.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bpeflow {

// A pre-token and its count: what a table's slot holds. With 32 bytes two slots share a cache line, and a probe costs
// one cache miss.
//
// Up to `inline_size` bytes stand in `words` itself, followed by zeros: 99 % of the pre-tokens of English text and of
// code are so short, 93 % of multilingual text. They are equal if both words and the length are; the length tells "a"
// from "a\0". Of a longer one the first word is the address of its bytes and the second its hash, so that bytes are
// compared only where they are all but certain to be equal.
struct alignas(32) Slot {
    std::uint64_t words[2];
    std::int64_t count;
    std::uint32_t length; // in bytes; 0 is an empty slot, for no pre-token is empty
    std::uint32_t high;   // the upper half of the hash, which partitions go by

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
