// Pre-tokens as keys of the counting table: how their bytes are held, compared and hashed.
#pragma once

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

    static constexpr std::size_t inline_size = 16;

    bool empty() const { return length == 0; }

    const std::uint8_t *bytes() const {
        if (length <= inline_size) return reinterpret_cast<const std::uint8_t *>(words);
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

inline std::uint64_t load_word(const std::uint8_t *bytes) {
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    return word;
}

// The hash: multiply, and fold the upper half, which depends on all bits, into the lower one. For a given `hash` each
// step maps different words to different results, so two short keys that differ in one word only collide, if at all,
// in the bits that a table looks at, never in all 64. Two multiplications of 64 bits instead of wyhash's one with a
// result of 128 bits, which C++ has no portable name for; the time hides behind the probes (keys are hashed in batches,
// independently of each other).
//
// Not seeded: partitions must be the same in every process. So who chooses the text can choose collisions.
inline std::uint64_t hash_step(std::uint64_t hash, std::uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

// The last step carries the last byte, at the top of a word, down to the lowest bits.
inline std::uint64_t hash_end(std::uint64_t hash) {
    hash *= 0xD6E8FEB86659FD93u;
    return hash ^ hash >> 32;
}

inline std::uint64_t hash_short(const std::uint64_t (&words)[2], std::size_t length) {
    return hash_end(hash_step(hash_step(length, words[0]), words[1]));
}

// Of more than 8 bytes.
inline std::uint64_t hash_long(const std::uint8_t *bytes, std::size_t length) {
    std::uint64_t hash = length;
    for (std::size_t i = 0; i + 8 < length; i += 8) hash = hash_step(hash, load_word(bytes + i));
    return hash_end(hash_step(hash, load_word(bytes + length - 8))); // the last 8, some of them a second time
}

inline std::uint64_t hash_of(const Slot &slot) {
    return slot.length <= Slot::inline_size ? hash_short(slot.words, slot.length) : slot.words[1];
}

// Copies up to 16 bytes to two words and zeros behind them. There are `readable` bytes from `bytes` on, `length` of
// them the key's: usually more than 16, so that two loads of fixed size do, and what follows the key is masked away.
// Near the end of the text only the key itself may be touched.
inline void load_short(const std::uint8_t *bytes, std::size_t length, std::size_t readable, std::uint64_t (&words)[2]) {
    // 16 bytes from `mask + 16 - length` on are `length` times 0xFF and then zeros, in either byte order.
    static constexpr std::uint8_t mask[32] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                              0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    if (readable >= Slot::inline_size) {
        const std::uint8_t *keep = mask + Slot::inline_size - length;
        words[0] = load_word(bytes) & load_word(keep);
        words[1] = load_word(bytes + 8) & load_word(keep + 8);
    } else {
        words[0] = words[1] = 0;
        std::memcpy(words, bytes, length);
    }
}

} // namespace bpeflow
