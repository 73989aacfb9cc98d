// Keys of the tables in which encoding looks pre-tokens up.
#pragma once

#include "hash.hpp"

#include <cstddef>
#include <cstdint>

namespace bpeflow {

// A pre-token to look up. Its bytes stay in the text.
//
// A key of up to `longest` bytes is stored in `words`, with its length in the remaining byte. For a longer key the
// first word is the hash and the second is the length. The keys of units and of text differ, even if their bytes are equal.
struct CacheKey {
    std::uint64_t words[2], hash;
    const std::uint8_t *bytes;

    static constexpr std::size_t longest = SHORT - 1;
    static constexpr unsigned length_shift = 56; // position of a short key's length, in four bits
    static constexpr unsigned count_shift = 60;  // position of a slot's number of ids; 0 in a key

    // Set the key. `readable` bytes may be read from `text` on.
    void set(const std::uint8_t *text, std::size_t size, std::size_t readable) {
        bytes = text;
        if (size <= longest) {
            std::uint64_t loaded[2];
            load_short(text, size, readable, loaded);
            words[0] = loaded[0];
            words[1] = loaded[1] | std::uint64_t{size} << length_shift;
            hash = hash_words();
        } else {
            hash = hash_long(text, size);
            words[0] = hash;
            words[1] = size;
        }
    }

    bool is_short() const { return words[1] >> length_shift != 0; }
    std::size_t length() const { return is_short() ? words[1] >> length_shift : words[1]; }
    std::uint64_t hash_words() const { return hash_end(hash_step(hash_step(0, words[0]), words[1])); }
};

} // namespace bpeflow
