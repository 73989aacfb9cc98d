// The hash of pre-tokens, and short pre-tokens as two 64-bit words. Shared by counting and encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bpeflow {

static_assert(sizeof(std::size_t) == 8);

// The first byte of a word is its lowest on every processor, so that keys can be padded and cut by shifts and masks.
inline std::uint64_t little_endian(std::uint64_t word) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(word);
#else
    return word;
#endif
}

inline std::uint64_t load_word(const std::uint8_t *bytes) {
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    return little_endian(word);
}

inline void store_word(std::uint8_t *bytes, std::uint64_t word) {
    word = little_endian(word);
    std::memcpy(bytes, &word, sizeof word);
}

// One step of the hash: multiply, then fold the upper half, which depends on all bits, into the lower half.
//
// For a given `hash`, each step maps different words to different results. So two short keys that differ in one word
// only never share all 64 bits, though they may share the bits that a table uses. wyhash does one multiplication with a
// 128-bit result, for which C++ has no portable type. These are two 64-bit ones, hidden behind the cache misses of the
// probes: keys are hashed in batches, independently of each other.
//
// Not seeded, because partitions must be the same in every process. So an adversary who chooses the text can choose
// collisions.
inline std::uint64_t hash_step(std::uint64_t hash, std::uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

// The last step brings the last byte, at the top of a word, down to the lowest bits.
inline std::uint64_t hash_end(std::uint64_t hash) {
    hash *= 0xD6E8FEB86659FD93u;
    return hash ^ hash >> 32;
}

inline std::uint64_t hash_short(const std::uint64_t (&words)[2], std::size_t length) {
    return hash_end(hash_step(hash_step(length, words[0]), words[1]));
}

// Hash more than 8 bytes.
inline std::uint64_t hash_long(const std::uint8_t *bytes, std::size_t length) {
    std::uint64_t hash = length;
    for (std::size_t i = 0; i + 8 < length; i += 8) hash = hash_step(hash, load_word(bytes + i));
    return hash_end(hash_step(hash, load_word(bytes + length - 8))); // the last 8 bytes, overlapping the ones before
}

// Size of two words in bytes: the longest short key.
constexpr std::size_t SHORT = 16;

// Load a key of up to 16 bytes into two words, padded with zeros. `readable` bytes may be read from `bytes` on. Usually
// that is more than 16, so two loads of fixed size suffice and a mask clears the bytes after the key. Near the end of
// the text only the key itself may be read.
inline void load_short(const std::uint8_t *bytes, std::size_t length, std::size_t readable, std::uint64_t (&words)[2]) {
    // The 16 bytes from `mask + 16 - length` on are 0xFF `length` times, then zeros.
    static constexpr std::uint8_t mask[32] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                              0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    if (readable >= SHORT) {
        const std::uint8_t *keep = mask + SHORT - length;
        words[0] = load_word(bytes) & load_word(keep);
        words[1] = load_word(bytes + 8) & load_word(keep + 8);
    } else {
        std::uint8_t padded[SHORT] = {};
        std::memcpy(padded, bytes, length);
        words[0] = load_word(padded);
        words[1] = load_word(padded + 8);
    }
}

} // namespace bpeflow
