// Pre-tokens as keys of the tables that encoding looks them up in.
#pragma once

#include "hash.hpp"

#include <cstddef>
#include <cstdint>

namespace bpeflow {

// A pre-token to be looked up. Its bytes stay where they are in the text.
//
// One of up to `longest` bytes stands in `words` itself, and its length in the byte that it leaves free. Of a longer one
// the first word is the hash and the second the length.
struct CacheKey {
    std::uint64_t words[2], hash;
    const std::uint8_t *bytes;

    static constexpr std::size_t longest = SHORT - 1;
    static constexpr unsigned length_shift = 56; // the length of a short one, in four bits
    static constexpr unsigned count_shift = 60;  // how many ids there are, which is a slot's and 0 in a key

    // From `text` on `readable` bytes may be read.
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
