// One character of a text: its class, by the generated tables, and its size.
#pragma once

#include "unicode_tables.hpp"

#include <cstddef>
#include <cstdint>

namespace bpeflow {

constexpr unsigned LETTER = unicode::LETTER, NUMBER = unicode::NUMBER, SPACE = unicode::SPACE, OTHER = unicode::OTHER,
                   UPPER = unicode::UPPER, LOWER = unicode::LOWER;

// A character's class, bits of the above, and its size in bytes; both 0 at the end of the text.
struct Character {
    unsigned bits, size;
};

inline bool is_continuation(std::uint8_t byte) {
    return (byte & 0xC0) == 0x80;
}

inline bool is_line_end(std::uint8_t byte) {
    return byte == '\r' || byte == '\n';
}

// The character at `place` of a text that ends at `end` and is valid UTF-8.
inline Character character_at(const std::uint8_t *place, const std::uint8_t *end) {
    if (place == end) return {0, 0};
    const std::uint32_t lead = *place;
    if (lead < 0x80) return {unicode::CLASSES[0][lead], 1};
    const unsigned size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    std::uint32_t code_point = lead & (0xFFu >> (size + 1));
    for (unsigned i = 1; i < size; i++) code_point = code_point << 6 | (place[i] & 0x3Fu);
    return {unicode::CLASSES[unicode::BLOCKS[code_point >> 8]][code_point & 255], size};
}

} // namespace bpeflow
