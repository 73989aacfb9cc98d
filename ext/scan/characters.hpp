// Decoding one character of a text: its class from the generated tables, and its size.
#pragma once

#include "unicode_tables.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace bpeflow {

constexpr unsigned LETTER = unicode::LETTER, NUMBER = unicode::NUMBER, SPACE = unicode::SPACE, OTHER = unicode::OTHER,
                   UPPER = unicode::UPPER, LOWER = unicode::LOWER;

// The class of a character (bits of the constants above) and its size in bytes. Both are 0 at the end of the text.
struct Character {
    unsigned bits, size;
};

inline bool is_continuation(std::uint8_t byte) {
    return (byte & 0xC0) == 0x80;
}

inline bool is_line_end(std::uint8_t byte) {
    return byte == '\r' || byte == '\n';
}

struct Decoded {
    std::uint32_t code_point, size;
};

// Decode the character at `position`, which must be valid and is not ASCII.
inline Decoded decode(const std::uint8_t *position) {
    const std::uint32_t lead = *position, size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    std::uint32_t code_point = lead & (0xFFu >> (size + 1));
    for (std::uint32_t i = 1; i < size; i++) code_point = code_point << 6 | (position[i] & 0x3Fu);
    return {code_point, size};
}

// Return the character at `position` in a text that ends at `end` and is valid UTF-8.
inline Character character_at(const std::uint8_t *position, const std::uint8_t *end) {
    if (position == end) return {0, 0};
    if (*position < 0x80) return {unicode::CLASSES[0][*position], 1};
    const Decoded decoded = decode(position);
    return {unicode::CLASSES[unicode::BLOCKS[decoded.code_point >> 8]][decoded.code_point & 255], decoded.size};
}

// The places of rows of 64 classes in unicode::CLASSES, by the first two bytes of a character of two or three bytes (the
// lower six bits of each).
using Rows = std::array<std::uint16_t, std::size_t{64} * 64>;
static_assert(sizeof(unicode::CLASSES) <= 1 << 16);

constexpr Rows make_rows() {
    Rows rows{};
    for (std::uint32_t lead = 0xC0; lead < 0xF0; lead++)
        for (std::uint32_t second = 0; second < 64; second++) {
            const std::uint32_t code_point = lead < 0xE0 ? (lead & 0x1F) << 6 : (lead & 0x0F) << 12 | second << 6;
            rows[(lead & 63) << 6 | second] =
                static_cast<std::uint16_t>(unicode::BLOCKS[code_point >> 8] << 8 | (code_point & 0xC0));
        }
    return rows;
}

inline constexpr Rows ROWS = make_rows();

// Return the class of a character of two or three bytes, without branches. Three bytes must be readable.
inline unsigned class_of_two_or_three(const std::uint8_t *position) {
    const auto *classes = reinterpret_cast<const std::uint8_t *>(unicode::CLASSES);
    const unsigned row = ROWS[(position[0] & 63u) << 6 | (position[1] & 63u)];
    const unsigned last = position[0] < 0xE0 ? position[1] : position[2];
    return classes[row | (last & 63)];
}

} // namespace bpeflow
