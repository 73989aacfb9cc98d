// The scanner: cuts text into pre-tokens as the named patterns do.
//
// bpeflow/pretokenize/patterns.py has the patterns; the answer of Python's `regex` module is the definition, and this
// must equal it on every text. The five are one scanner with different rules. At each place it goes through what the
// alternatives of the patterns have in common, in their order:
//
//     contraction      'll                                   (at the front in all but o200k, where words carry it)
//     word             an optional character, then letters
//     number           digits, in all patterns but gpt2 a few at a time
//     punctuation      an optional space, then anything else; in all patterns but gpt2 line ends after it
//     white space      up to the last line end, or all but the last character of a run, or what there is
//
// Two rules of regular expressions are spelled out below where they matter: a repetition takes all that it can, and an
// alternative that fails is taken back, so that a place may be looked at twice. None is looked at more often, so the
// time is linear in the text.
#pragma once

#include "characters.hpp"
#include "rules.hpp"

#include <cstddef>
#include <cstdint>

namespace bpeflow {

// Finds the ends of tokens in one text, which must be valid UTF-8.
template <const Rules &RULES> class Scanner {
  public:
    explicit Scanner(const std::uint8_t *end) : end_(end) {}

    // The end of the token that starts at `start`, which must be before the end of the text.
    const std::uint8_t *token_end(const std::uint8_t *start) const {
        if (RULES.contractions && *start == '\'')
            if (const std::uint8_t *end = contraction_end(start)) return end;
        const Character first = at(start);
        if (const std::uint8_t *end = word_end(start, first)) return end;
        if (first.bits & NUMBER) return number_end(start);
        if (first.bits & OTHER) return punctuation_end(start);
        if (*start == ' ') { // what may have a space before it; words had their turn
            const unsigned next = at(start + 1).bits;
            if (next & OTHER) return punctuation_end(start + 1);
            if (RULES.max_digits == 0 && next & NUMBER) return run_end(start + 1, NUMBER);
        }
        return white_space_end(start);
    }

    // The end of the contraction whose apostrophe is at `start`; null if there is none.
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
    Character at(const std::uint8_t *place) const { return character_at(place, end_); }

    // The letter at `place`, in lower case where case is ignored; 0 if it is none that contractions have.
    unsigned contraction_letter(const std::uint8_t *place) const {
        if (place >= end_) return 0;
        if (!RULES.ignore_case) return *place;
        if (*place == 0xC5 && place[1] == 0xBF) return LONG_S; // ſ is an s when case is ignored
        return *place | 0x20u;
    }
    static constexpr unsigned LONG_S = 0x17F;

    // The first place from `place` on whose character has none of these bits.
    const std::uint8_t *run_end(const std::uint8_t *place, unsigned bits) const {
        for (;;) {
            while (place < end_ && *place < 0x80) {
                if (!(unicode::CLASSES[0][*place] & bits)) return place;
                place++;
            }
            const Character character = at(place);
            if (!(character.bits & bits)) return place;
            place += character.size;
        }
    }

    // The end of the word at `start`, with the one character that may stand before it; null if there is none.
    const std::uint8_t *word_end(const std::uint8_t *start, Character first) const {
        if constexpr (RULES.cased_words) return cased_word_end(start, first);
        if (first.bits & LETTER) return run_end(start + first.size, LETTER);
        if (!may_precede_word(start, first)) return nullptr;
        const Character second = at(start + first.size);
        return second.bits & LETTER ? run_end(start + first.size + second.size, LETTER) : nullptr;
    }

    bool may_precede_word(const std::uint8_t *place, Character character) const {
        if (!RULES.any_prefix) return *place == ' ';
        return !(character.bits & (LETTER | NUMBER)) && !is_line_end(*place);
    }

    // o200k. First `[^\r\n\p{L}\p{N}]?[upper]*[lower]+`, then `[^\r\n\p{L}\p{N}]?[upper]+[lower]*`, where marks and
    // letters without case are both. A mark is also a character that may stand before a word.
    const std::uint8_t *cased_word_end(const std::uint8_t *start, Character first) const {
        const bool prefixed = may_precede_word(start, first);
        const CasedEnds after = cased_ends(start + (prefixed ? first.size : 0));
        const std::uint8_t *end = after.lower;
        if (!end && prefixed && first.bits & LOWER) end = start + first.size; // a mark alone
        if (!end) end = after.upper;
        if (end && end < end_ && *end == '\'')
            if (const std::uint8_t *longer = contraction_end(end)) return longer;
        return end;
    }

    // Where `[upper]*[lower]+` and `[upper]+[lower]*` end; null where they do not match.
    struct CasedEnds {
        const std::uint8_t *lower, *upper;
    };

    CasedEnds cased_ends(const std::uint8_t *start) const {
        const std::uint8_t *place = start, *after_last_lower = nullptr;
        Character character;
        while ((character = at(place)).bits & UPPER) {
            place += character.size;
            if (character.bits & LOWER) after_last_lower = place;
        }
        if (character.bits & LOWER) return {run_end(place, LOWER), nullptr};
        // [upper]* has taken all: it gives back as much as [lower]+ needs, which is up to the last that is both.
        return {after_last_lower, place > start ? place : nullptr};
    }

    const std::uint8_t *number_end(const std::uint8_t *place) const {
        if constexpr (RULES.max_digits == 0) return run_end(place, NUMBER);
        Character digit = at(place);
        for (unsigned digits = 0; digits < RULES.max_digits && digit.bits & NUMBER; digits++) {
            place += digit.size;
            digit = at(place);
        }
        return place;
    }

    // From behind the optional space on.
    const std::uint8_t *punctuation_end(const std::uint8_t *place) const {
        place = run_end(place, OTHER);
        if (RULES.takes_line_ends)
            while (place < end_ && (is_line_end(*place) || (RULES.takes_slashes && *place == '/'))) place++;
        return place;
    }

    const std::uint8_t *white_space_end(const std::uint8_t *start) const {
        const std::uint8_t *place = start, *last = start, *after_line_end = nullptr;
        for (Character space; (space = at(place)).bits & SPACE; place += space.size) {
            last = place;
            if (is_line_end(*place)) after_line_end = place + 1;
        }
        if (RULES.whole_at_end && place == end_) return place;
        if (RULES.stops_at_line_ends && after_line_end) return after_line_end;
        if (place == end_) return place;
        return last > start ? last : place; // \s+(?!\S): the last one goes with what follows
    }

    const std::uint8_t *end_;
};

} // namespace bpeflow
