// Checking that text is valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bpeflow {

// Return the size of the character at `position`, 0 if it is invalid. The Unicode Standard, table 3-7, is the
// definition: nothing overlong, no surrogates, nothing above U+10FFFF.
inline std::size_t utf8_size(const std::uint8_t *position, const std::uint8_t *end) {
    const unsigned lead = position[0];
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (static_cast<std::size_t>(end - position) < size) return 0;
    const unsigned lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (position[1] < lowest || position[1] > highest) return 0;
    for (std::size_t i = 2; i < size; i++)
        if ((position[i] & 0xC0) != 0x80) return 0;
    return size;
}

inline bool is_utf8(const std::uint8_t *position, const std::uint8_t *end) {
    constexpr std::size_t stride = 32;
    while (position < end) {
        if (static_cast<std::size_t>(end - position) >= stride) {
            std::uint64_t words[stride / 8];
            std::memcpy(words, position, stride);
            if (((words[0] | words[1] | words[2] | words[3]) & 0x8080808080808080u) == 0) {
                position += stride;
                continue;
            }
        }
        // Skip to the next non-ASCII character, then check it and all that directly follow it.
        while (position < end && *position < 0x80) position++;
        while (position < end && *position >= 0x80) {
            const std::size_t size = utf8_size(position, end);
            if (size == 0) return false;
            position += size;
        }
    }
    return true;
}

} // namespace bpeflow
