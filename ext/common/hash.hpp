// Short strings as two words, and the hash that both tables of pre-tokens go by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bpeflow {

// Supported platforms are x86-64 and arm64. CacheKey, for one, relies on the byte order.
static_assert(sizeof(std::size_t) == 8 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

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

// The bytes of two words.
constexpr std::size_t SHORT = 16;

// Copies up to 16 bytes to two words and zeros behind them. There are `readable` bytes from `bytes` on, `length` of
// them the key's: usually more than 16, so that two loads of fixed size do, and what follows the key is masked away.
// Near the end of the text only the key itself may be touched.
inline void load_short(const std::uint8_t *bytes, std::size_t length, std::size_t readable, std::uint64_t (&words)[2]) {
    // 16 bytes from `mask + 16 - length` on are `length` times 0xFF and then zeros, in either byte order.
    static constexpr std::uint8_t mask[32] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                              0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    if (readable >= SHORT) {
        const std::uint8_t *keep = mask + SHORT - length;
        words[0] = load_word(bytes) & load_word(keep);
        words[1] = load_word(bytes + 8) & load_word(keep + 8);
    } else {
        words[0] = words[1] = 0;
        std::memcpy(words, bytes, length);
    }
}

} // namespace bpeflow
