// The scanner: cuts text into pre-tokens as the named patterns do.
//
// The patterns are in bpeflow/pretokenize/patterns.py. Python's `regex` module is the definition, and the scanner must
// equal it on every text. All five patterns are one scanner with different rules. At each position it tries the common
// alternatives of the patterns in their order:
//
//     contraction      'll                                   (in all but o200k, where words include it)
//     word             an optional character, then letters
//     number           digits, in all patterns but gpt2 at most a few
//     punctuation      an optional space, then anything else; in all patterns but gpt2 with the line ends after it
//     white space      up to the last line end, or all but the last character of a run, or the whole run
//
// Two rules of regular expressions are spelled out below where they matter: repetitions are greedy, and a failed
// alternative backtracks, so a position may be visited twice. No position is visited more often, so the time is linear
// in the text.
#pragma once

#include "characters.hpp"
#include "rules.hpp"

#include <cstddef>
#include <cstdint>

namespace bpeflow {

// Finds token ends in one text, which must be valid UTF-8.
template <const Rules &RULES> class Scanner {
  public:
    explicit Scanner(const std::uint8_t *end) : end_(end) {}

    // Return the end of the token that starts at `start`, which must be before the end of the text.
    const std::uint8_t *token_end(const std::uint8_t *start) const {
        if (RULES.contractions && *start == '\'')
            if (const std::uint8_t *end = contraction_end(start)) return end;
        const Character first = at(start);
        if (const std::uint8_t *end = word_end(start, first)) return end;
        if (first.bits & NUMBER) return number_end(start);
        if (first.bits & OTHER) return punctuation_end(start);
        if (*start == ' ') { // a space may precede punctuation and numbers; words are done
            const unsigned next = at(start + 1).bits;
            if (next & OTHER) return punctuation_end(start + 1);
            if (RULES.max_digits == 0 && next & NUMBER) return run_end(start + 1, NUMBER);
        }
        return white_space_end(start);
    }

    // Return the end of the contraction whose apostrophe is at `start`, null if there is none.
    const std::uint8_t *contraction_end(const std::uint8_t *start) const {
        const unsigned first = contraction_letter(start + 1);
        if (first == 's' || first == 'd' || first == 'm' || first == 't') return start + 2;
        if (first == LONG_S) return start + 3;
        const unsigned second = first ? contraction_letter(start + 2) : 0;
        const bool found =
            (first == 'l' && second == 'l') || (first == 'v' && second == 'e') || (first == 'r' && second == 'e');
        return found ? start + 3 : nullptr;
    }

  private:
    Character at(const std::uint8_t *position) const { return character_at(position, end_); }

    // Return the letter at `position`, in lower case if case is ignored. Any other character gives a value that no
    // contraction has, and the end of the text gives 0.
    unsigned contraction_letter(const std::uint8_t *position) const {
        if (position >= end_) return 0;
        if (!RULES.ignore_case) return *position;
        if (*position == 0xC5 && position[1] == 0xBF) return LONG_S; // ſ matches s when case is ignored
        return *position | 0x20u;
    }
    static constexpr unsigned LONG_S = 0x17F;

    // Return the first position, from `position` on, whose character has none of these bits.
    const std::uint8_t *run_end(const std::uint8_t *position, unsigned bits) const {
        for (;;) {
            while (position < end_ && *position < 0x80) {
                if (!(unicode::CLASSES[0][*position] & bits)) return position;
                position++;
            }
            const Character character = at(position);
            if (!(character.bits & bits)) return position;
            position += character.size;
        }
    }

    // Return the end of the word at `start`, including an optional preceding character. Null if none starts there.
    const std::uint8_t *word_end(const std::uint8_t *start, Character first) const {
        if constexpr (RULES.cased_words) return cased_word_end(start, first);
        if (first.bits & LETTER) return run_end(start + first.size, LETTER);
        if (!may_precede_word(start, first)) return nullptr;
        const Character second = at(start + first.size);
        return second.bits & LETTER ? run_end(start + first.size + second.size, LETTER) : nullptr;
    }

    bool may_precede_word(const std::uint8_t *position, Character character) const {
        if (!RULES.any_prefix) return *position == ' ';
        return !(character.bits & (LETTER | NUMBER)) && !is_line_end(*position);
    }

    // Words in o200k: first `[^\r\n\p{L}\p{N}]?[upper]*[lower]+`, then `[^\r\n\p{L}\p{N}]?[upper]+[lower]*`. Marks and
    // caseless letters are both upper and lower. A mark may also be the character that precedes a word.
    const std::uint8_t *cased_word_end(const std::uint8_t *start, Character first) const {
        const bool prefixed = may_precede_word(start, first);
        const CasedEnds after = cased_ends(start + (prefixed ? first.size : 0));
        const std::uint8_t *end = after.lower;
        if (!end && prefixed && first.bits & LOWER) end = start + first.size; // a single mark
        if (!end) end = after.upper;
        if (end && end < end_ && *end == '\'')
            if (const std::uint8_t *longer = contraction_end(end)) return longer;
        return end;
    }

    // The ends of `[upper]*[lower]+` and `[upper]+[lower]*`, null if they do not match.
    struct CasedEnds {
        const std::uint8_t *lower, *upper;
    };

    CasedEnds cased_ends(const std::uint8_t *start) const {
        const std::uint8_t *position = start, *after_last_lower = nullptr;
        Character character;
        while ((character = at(position)).bits & UPPER) {
            position += character.size;
            if (character.bits & LOWER) after_last_lower = position;
        }
        if (character.bits & LOWER) return {run_end(position, LOWER), nullptr};
        // [upper]* has matched everything. It backtracks as far as [lower]+ needs: to the last character that is both.
        return {after_last_lower, position > start ? position : nullptr};
    }

    const std::uint8_t *number_end(const std::uint8_t *position) const {
        if constexpr (RULES.max_digits == 0) return run_end(position, NUMBER);
        Character digit = at(position);
        for (unsigned digits = 0; digits < RULES.max_digits && digit.bits & NUMBER; digits++) {
            position += digit.size;
            digit = at(position);
        }
        return position;
    }

    // The optional space is already consumed.
    const std::uint8_t *punctuation_end(const std::uint8_t *position) const {
        position = run_end(position, OTHER);
        if (RULES.takes_line_ends)
            while (position < end_ && (is_line_end(*position) || (RULES.takes_slashes && *position == '/'))) position++;
        return position;
    }

    const std::uint8_t *white_space_end(const std::uint8_t *start) const {
        const std::uint8_t *position = start, *last = start, *after_line_end = nullptr;
        for (Character space; (space = at(position)).bits & SPACE; position += space.size) {
            last = position;
            if (is_line_end(*position)) after_line_end = position + 1;
        }
        if (RULES.whole_at_end && position == end_) return position;
        if (RULES.stops_at_line_ends && after_line_end) return after_line_end;
        if (position == end_) return position;
        return last > start ? last : position; // \s+(?!\S): the last character belongs to the next token
    }

    const std::uint8_t *end_;
};

} // namespace bpeflow
