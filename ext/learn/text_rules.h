/* Which texts may become a token: limits of words and of colons. C11 and C++17.
 *
 * The words of a token are those of its text, its bytes decoded from UTF-8 without incomplete characters, as Python's
 * `len(token.decode(errors="ignore").split())`. `allowed_text` in bpeflow/backends/base.py has the proof
 * that a string that is allowed has only parts that are allowed. A token is read byte by byte, as it consists of several. */
#ifndef BPEFLOW_LEARN_TEXT_RULES_H
#define BPEFLOW_LEARN_TEXT_RULES_H

#include <stdbool.h>
#include <stdint.h>

struct text_rules {
    uint64_t max_words; /* UINT64_MAX for no limit */
    bool colon_rule;    /* no colon and then a space */
};

static inline bool text_rules_any(const struct text_rules *rules) {
    return rules->max_words != UINT64_MAX || rules->colon_rule;
}

/* A text read so far. Initially all zero. */
struct text_state {
    uint64_t words;
    bool in_word;
    uint8_t last;       /* 0 before the first byte */
    uint8_t missing;    /* bytes of the character that has begun */
    uint32_t shortest;  /* the first code point of as many bytes */
    uint32_t character; /* the bits read so far */
};

/* Return whether str.split separates words at a character. */
static inline bool is_white_space(uint32_t character) {
    if (character <= ' ') return character == ' ' || (character >= 9 && character <= 13) || character >= 28;
    if (character >= 0x2000 && character <= 0x200A) return true;
    switch (character) {
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
        return true;
    default:
        return false;
    }
}

/* Read a byte; true if it completes a character. Bytes that may follow a first byte only, but follow none, are left
 * out, so a sequence that encodes no character is left out whole or byte by byte with the same result. */
static inline bool text_decode(struct text_state *state, uint8_t byte) {
    if ((byte & 0xC0) != 0x80) {
        state->missing = (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0);
        state->shortest = byte < 0xC0 ? 0 : byte < 0xE0 ? 0x80 : byte < 0xF0 ? 0x800 : 0x10000;
        state->character = byte < 0xC0 ? byte : byte < 0xE0 ? byte - 0xC0u : byte < 0xF0 ? byte - 0xE0u : byte - 0xF0u;
    } else {
        if (state->missing == 0) return false;
        state->character = state->character << 6 | (byte & 0x3F);
        state->missing--;
    }
    bool surrogate = state->character >= 0xD800 && state->character <= 0xDFFF;
    return state->missing == 0 && state->character >= state->shortest && state->character <= 0x10FFFF && !surrogate;
}

/* Read more of a text; false if the rules forbid it. */
static inline bool text_read(struct text_state *state, const struct text_rules *rules, const uint8_t *bytes,
                             uint64_t length) {
    for (uint64_t i = 0; i < length; i++) {
        if (rules->colon_rule && state->last == ':' && bytes[i] == ' ') return false;
        state->last = bytes[i];
        if (!text_decode(state, bytes[i])) continue;
        bool begins = !state->in_word;
        state->in_word = !is_white_space(state->character);
        if (begins && state->in_word && ++state->words > rules->max_words) return false;
    }
    return true;
}

#endif
