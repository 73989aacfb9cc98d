// The records of the counting table, and the keys that are looked up in it.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"
#include "hash.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace bpeflow {

// A pre-token in the table. Its bytes follow, padded with zeros to a multiple of 4. Rounding to 8, and the half of the hash
// that selects the partition, would take a fifth more memory.
struct __attribute__((packed, aligned(4))) Pretoken {
    std::int64_t count;
    std::uint32_t length; // in bytes

    static constexpr std::size_t unit = 4;      // records are made of such units
    static constexpr std::size_t slack = SHORT; // bytes after the last record that may be read

    static std::size_t units(std::size_t length) { return sizeof(Pretoken) / unit + (length + unit - 1) / unit; }

    const std::uint8_t *bytes() const { return reinterpret_cast<const std::uint8_t *>(this + 1); }
    std::uint8_t *bytes() { return reinterpret_cast<std::uint8_t *>(this + 1); }

    // Copy the bytes of a pre-token with the length of this one.
    void set_bytes(const std::uint8_t *from) {
        std::memset(bytes() + (std::size_t{length} - 1) / unit * unit, 0, unit);
        std::memcpy(bytes(), from, length);
    }

    static std::uint64_t load_unit(const std::uint8_t *bytes) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes, unit);
        return little_endian(word);
    }

    void add(std::int64_t more) {
        if (count > std::numeric_limits<std::int64_t>::max() - more) throw Failure{BPEFLOW_OVERFLOW};
        count += more;
    }

    // Reads no other record, which another thread may change meanwhile.
    std::uint64_t hash() const {
        if (length > SHORT) return hash_long(bytes(), length);
        static constexpr std::uint8_t zeros[unit] = {};
        const auto load = [this](std::size_t at) { return load_unit(at < length ? bytes() + at : zeros); }; // no branch
        return hash_short({load(0) | load(4) << 32, load(8) | load(12) << 32}, length);
    }

    // Return whether two records are of the same pre-token. Reads no others either.
    bool is(const Pretoken &other) const {
        return length == other.length && std::memcmp(bytes(), other.bytes(), length) == 0;
    }
};
static_assert(sizeof(Pretoken) == 3 * Pretoken::unit);

// One of several partitions, the same in every process. Partitions go by the upper half of the hash and buckets by the
// lower half, so a table with the pre-tokens of a single partition fills as evenly as any other.
inline std::uint32_t partition_of(std::uint64_t hash, std::uint32_t partitions) {
    return static_cast<std::uint32_t>((hash >> 32) * partitions >> 32);
}

// A pre-token to count. Up to 16 bytes (99 % of the pre-tokens of English text and of code, and 93 % of multilingual
// text) are stored in `words`, padded with zeros. Longer ones must stay in place while the key is used.
struct Key {
    std::uint64_t words[2];
    std::uint64_t hash;
    const std::uint8_t *bytes;
    std::int64_t count;
    std::uint32_t length;

    // `readable` bytes may be read from `token` on.
    void set(const std::uint8_t *token, std::size_t size, std::size_t readable, std::int64_t times) {
        if (size >= std::numeric_limits<std::uint32_t>::max()) throw Failure{BPEFLOW_TOO_LARGE};
        if (size <= SHORT) {
            load_short(token, size, readable, words);
            hash = hash_short(words, size);
        } else {
            hash = hash_long(token, size);
        }
        bytes = token;
        count = times;
        length = static_cast<std::uint32_t>(size);
    }

    // Return whether a record is of this pre-token. Zeros at the end do not count as different, but then the lengths
    // differ.
    bool is(const Pretoken &record) const {
        if (length > SHORT) return record.length == length && std::memcmp(record.bytes(), bytes, length) == 0;
        std::uint64_t others[2];
        load_short(record.bytes(), length, SHORT, others);
        return ((record.length ^ length) | (others[0] ^ words[0]) | (others[1] ^ words[1])) == 0;
    }

    void write(Pretoken &record) const {
        record.count = count;
        record.length = length;
        if (length > SHORT) {
            record.set_bytes(bytes);
        } else {
            store_word(record.bytes(), words[0]);
            store_word(record.bytes() + 8, words[1]); // in part where the next record will be
        }
    }
};

} // namespace bpeflow
