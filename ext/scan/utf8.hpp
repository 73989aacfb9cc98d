// Checking that text is UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bpeflow {

// The size of the character at `place`, 0 if there is none: as the Unicode Standard, table 3-7, has it, so that nothing
// is overlong, a surrogate, or above U+10FFFF.
inline std::size_t utf8_size(const std::uint8_t *place, const std::uint8_t *end) {
    const unsigned lead = place[0];
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (static_cast<std::size_t>(end - place) < size) return 0;
    const unsigned lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (place[1] < lowest || place[1] > highest) return 0;
    for (std::size_t i = 2; i < size; i++)
        if ((place[i] & 0xC0) != 0x80) return 0;
    return size;
}

inline bool is_utf8(const std::uint8_t *place, const std::uint8_t *end) {
    constexpr std::size_t stride = 32;
    while (place < end) {
        if (static_cast<std::size_t>(end - place) >= stride) {
            std::uint64_t words[stride / 8];
            std::memcpy(words, place, stride);
            if (((words[0] | words[1] | words[2] | words[3]) & 0x8080808080808080u) == 0) {
                place += stride;
                continue;
            }
        }
        // Up to the next character beyond ASCII, and through all that follow it.
        while (place < end && *place < 0x80) place++;
        while (place < end && *place >= 0x80) {
            const std::size_t size = utf8_size(place, end);
            if (size == 0) return false;
            place += size;
        }
    }
    return true;
}

} // namespace bpeflow
