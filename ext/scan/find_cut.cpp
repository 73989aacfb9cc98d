// Finding the places where a text may be cut without changing a piece. bpeflow/pretokenize/cuts.py has the proof, and
// says what is different about text that will be normalized.

#include "automaton.hpp"
#include "bpeflow.h"
#include "characters.hpp"
#include "kernels.hpp"
#include "pattern.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace bpeflow {

namespace {

using Bytes = const std::uint8_t *;

struct Text {
    Bytes begin, end;
    std::uint32_t flags;
};

// Decode the character at `position`. Its size is 0 if it is not valid UTF-8 before `end`.
Decoded decode_checked(Bytes position, Bytes end) {
    const std::uint8_t lead = *position;
    if (lead < 0x80) return {lead, 1};
    const std::ptrdiff_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (end - position < size || !KERNELS_SCALAR.is_utf8(position, position + size)) return {0, 0};
    return decode(position);
}

bool is_letter(std::uint32_t ascii) {
    return (ascii | 0x20) - 'a' < 26;
}

// Whether a character is the same in all normalization forms, whatever is before it.
bool is_stable(std::uint32_t code_point) {
    return code_point < 0x80 || (code_point >= 0x4E00 && code_point <= 0x9FFF);
}

// Whether ASCII before marks may be composed with them.
bool is_composed(std::uint32_t code_point) {
    return is_letter(code_point) || (code_point >= '<' && code_point <= '>');
}

bool is_safe(const Pattern &pattern, std::uint32_t x, std::uint32_t w, std::uint32_t flags) {
    if (flags & BPEFLOW_NORMALIZED) {
        if (!is_stable(x) || !is_stable(w) || is_composed(w)) return false;
        if (flags & BPEFLOW_LOWERCASED && is_letter(x)) x |= 0x20;
    }
    const std::uint8_t enough = pattern.unmatched == BPEFLOW_DROP ? 1 : 2;
    for (const Automaton &step : pattern.steps) {
        const std::uint8_t cut = step.cut(x, w);
        if (cut >= enough) return true;
        if (cut == 0) return false;
    }
    return false;
}

bool is_cut(const Pattern &pattern, const Text &text, Bytes position) {
    Bytes previous = position - 1;
    while (previous > text.begin && position - previous < 4 && is_continuation(*previous)) previous--;
    const Decoded x = decode_checked(previous, text.end), w = decode_checked(position, text.end);
    return x.size == static_cast<std::size_t>(position - previous) && w.size > 0 &&
           is_safe(pattern, x.code_point, w.code_point, text.flags);
}

} // namespace

} // namespace bpeflow

std::uint64_t bpeflow_pattern_find_cut(const bpeflow_pattern *pattern, const std::uint8_t *text, std::uint64_t size,
                                       std::uint64_t start, std::uint32_t flags) {
    if (!pattern || !text) return 0;
    const bpeflow::Text searched = {text, text + size, flags};
    const std::uint64_t first = std::max<std::uint64_t>(start, 1);
    if (flags & BPEFLOW_LAST_CUT) {
        for (std::uint64_t position = size; position-- > first;)
            if (bpeflow::is_cut(pattern->pattern, searched, text + position)) return position;
    } else {
        for (std::uint64_t position = first; position < size; position++)
            if (bpeflow::is_cut(pattern->pattern, searched, text + position)) return position;
    }
    return 0;
}
