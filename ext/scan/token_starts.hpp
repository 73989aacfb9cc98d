// Finding the token starts in a block of 64 bytes, by bit algebra on its masks, for all of its tokens at once.
//
// A token starts
// * where a class begins, unless the preceding character belongs to the token;
// * at the first and at the last character of a run of white space;
// * after anything of limited length: a group of digits, a contraction.
//
// A block is *odd* if the algebra cannot decide it. The compiled pattern then cuts it (step_scan.hpp). Blocks are odd because of
// non-ASCII white space, non-ASCII digits in patterns that count digits and, in o200k, marks and caseless letters mixed
// with upper case.
#pragma once

#include "characters.hpp"
#include "kernels.hpp"
#include "rules.hpp"

#include <cstddef>
#include <cstdint>

namespace bpeflow {

inline unsigned lowest(std::uint64_t mask) {
    return static_cast<unsigned>(__builtin_ctzll(mask));
}

inline unsigned highest(std::uint64_t mask) {
    return 63 - static_cast<unsigned>(__builtin_clzll(mask));
}

template <const Rules &RULES> class TokenStarts {
    using Mask = std::uint64_t;

  public:
    // The text ends at `end`.
    explicit TokenStarts(const std::uint8_t *end) : end_(end) {}

    // Start over at `start`, where a token starts. No pattern has a lookbehind, so the rest is cut as if the text began
    // there.
    void begin_at(const std::uint8_t *start) {
        last_ = {};
        start_ = start;
    }

    // Return the token starts of a block: the one after that of the last call, or the one that contains the position
    // passed to begin_at. `text` is the mask of the bytes that belong to the text. If odd() is true afterwards, the
    // result is meaningless.
    Mask of(const Masks &block_masks, const std::uint8_t *block, Mask text) {
        Kinds now(block_masks);
        if (text != ~Mask{0}) now.keep(text);
        odd_ = block_masks.high ? add_wide_characters(now, block_masks, block) : 0;
        if (start_) {
            now.keep(~Mask{0} << (start_ - block));
            odd_ &= now.text;
            start_ = nullptr;
        }
        now.other = ~(now.letter | now.digit | now.space) & now.text;

        const Mask starts = plain_starts(now, block);
        const Mask apostrophes =
            block_masks.apostrophe & (RULES.cased_words ? before(now.letter, last_.letter) & now.text : starts);
        const Mask cut = cut_contractions(starts, apostrophes, now, block);
        last_ = now;
        return cut;
    }

    bool odd() const { return odd_ != 0; }

  private:
    // The classes of the characters in a block, one bit per byte. All bytes of a character have the same bits, except
    // in `inner`.
    struct Kinds {
        Mask letter = 0, digit = 0, space = 0, other = 0; // each byte is in exactly one of these
        Mask blank = 0, line_end = 0;
        Mask upper = 0, caseless = 0; // letters; `upper` excludes `caseless`
        Mask inner = 0;               // bytes of a character after its first
        Mask text = ~Mask{0};         // the bytes that belong to the text
        // Results that the next block needs.
        Mask eaten = 0;      // line ends that belong to the preceding punctuation
        Mask prefix = 0;     // the first character of punctuation, if it may precede a word
        Mask covered = 0;    // of the next block: bytes inside a contraction, where no token starts
        Mask closed = 0;     // … bytes after a contraction, where a token starts
        unsigned digits = 0; // digits in the number at the end of the block, modulo those per token

        Kinds() = default;
        explicit Kinds(const Masks &masks)
            : letter(masks.letter), digit(masks.digit), space(masks.space), blank(masks.blank),
              line_end(masks.line_end), upper(masks.upper) {}

        void keep(Mask kept) {
            for (Mask *mask : {&letter, &digit, &space, &blank, &line_end, &upper, &caseless, &inner, &text})
                *mask &= kept;
        }
    };

    // For each byte, the bit of the byte before it. `last` is the mask of the previous block.
    static Mask before(Mask mask, Mask last) { return mask << 1 | last >> 63; }

    static Mask begins(Mask mask, Mask last) { return mask & ~before(mask, last); }

    // For each byte, whether white space or the end of the text follows. Otherwise a run of white space gives up its
    // last character.
    Mask space_after(const Kinds &now, const std::uint8_t *block) const {
        const std::uint8_t *const next = block + BLOCK;
        const bool last = now.space >> 63 && (next == end_ || character_at(next, end_).bits & SPACE);
        return (now.space | ~now.text) >> 1 | Mask{last} << 63;
    }

    // Add the non-ASCII characters to their masks. Return their bytes that make the block odd.
    Mask add_wide_characters(Kinds &now, const Masks &masks, const std::uint8_t *block) const {
        Mask letter = 0, digit = 0, odd = 0, upper = 0, caseless = 0; // of first bytes
        const auto add = [&](unsigned at, unsigned bits) {
            const auto where = [&](bool is) { return Mask{is} << at; };
            letter |= where(bits & LETTER);
            if (bits & (NUMBER | SPACE)) { // rare
                digit |= where(bits & NUMBER);
                odd |= where(bits & (RULES.max_digits == 0 ? SPACE : SPACE | NUMBER));
            }
            if constexpr (RULES.cased_words) {
                const unsigned both = bits & (UPPER | LOWER);
                odd |= where(both && !(bits & LETTER)); // a mark
                upper |= where(both == UPPER);
                caseless |= where(both == (UPPER | LOWER));
            }
        };
        const bool readable = end_ - block >= static_cast<std::ptrdiff_t>(BLOCK + 2);
        for (Mask leads = masks.lead; leads; leads &= leads - 1) {
            const unsigned at = lowest(leads);
            const std::uint8_t *const position = block + at;
            if (readable && *position < 0xF0)
                add(at, class_of_two_or_three(position));
            else
                add(at, character_at(position, end_).bits);
        }
        now.inner = masks.high & ~masks.lead;
        // A character can continue from the previous block.
        const auto whole = [&](Mask firsts, Mask last) {
            firsts |= last >> 63 & now.inner;
            for (int i = 0; i < 3; i++) firsts |= firsts << 1 & now.inner;
            return firsts;
        };
        now.letter |= whole(letter, last_.letter);
        now.digit |= whole(digit, last_.digit);
        if constexpr (RULES.cased_words) {
            now.upper |= whole(upper, last_.upper);
            now.caseless |= whole(caseless, last_.caseless);
        }
        return odd ? whole(odd, 0) : 0;
    }

    // Return the token starts, ignoring contractions.
    Mask plain_starts(Kinds &now, const std::uint8_t *block) {
        if constexpr (RULES.any_prefix)
            return starts_with_prefixes(now, block);
        else
            return starts_with_spaces(now, block);
    }

    // gpt2: one space may precede a word, a number or punctuation.
    Mask starts_with_spaces(const Kinds &now, const std::uint8_t *block) const {
        const Mask classes =
            begins(now.letter, last_.letter) | begins(now.digit, last_.digit) | begins(now.other, last_.other);
        return (classes & ~before(now.blank, last_.blank)) | begins(now.space, last_.space) |
               (now.space & ~space_after(now, block));
    }

    // The other patterns: one character of almost any class may precede a word, and punctuation includes the line ends
    // after it.
    Mask starts_with_prefixes(Kinds &now, const std::uint8_t *block) {
        const Mask after_blank = before(now.blank, last_.blank);
        const Mask punctuation = begins(now.other, last_.other) & ~after_blank;
        now.prefix = whole_characters(punctuation, now);
        const Mask eating = now.line_end & (before(now.other, last_.other) | last_.eaten >> 63);
        now.eaten =
            now.line_end & ~(now.line_end + eating); // the addition carries through each run that starts with `eating`
        if (RULES.takes_slashes) find_slashes(now, block);

        const Mask inline_space = now.space & ~now.line_end;
        const Mask words = begins(now.letter, last_.letter) & ~before(now.prefix, last_.prefix) &
                           ~before(inline_space, last_.space & ~last_.line_end);
        return words | inner_words(now) | numbers(now) | punctuation | white_space(now, inline_space, block);
    }

    // Return all bytes of the characters that begin at `firsts`, and of a prefix that began in the previous block.
    Mask whole_characters(Mask firsts, const Kinds &now) const {
        Mask whole = firsts | (last_.prefix >> 63 & now.inner);
        if (now.inner)
            for (int i = 0; i < 3; i++) whole |= whole << 1 & now.inner;
        return whole;
    }

    // o200k: punctuation also includes slashes after its line ends. Mark those as odd.
    void find_slashes(const Kinds &now, const std::uint8_t *block) {
        for (Mask after = before(now.eaten, last_.eaten) & now.other; after; after &= after - 1)
            if (block[lowest(after)] == '/') odd_ |= after;
        if (now.eaten >> 63 && block + BLOCK < end_ && block[BLOCK] == '/') odd_ |= now.eaten;
    }

    // Return the starts of words that directly follow another word: in o200k, upper case after lower case.
    Mask inner_words(const Kinds &now) {
        if (!RULES.cased_words) return 0;
        odd_ |= now.upper & before(now.caseless, last_.caseless);
        return now.upper & before(lower(now), lower(last_));
    }

    static Mask lower(const Kinds &kinds) { return kinds.letter & ~kinds.upper & ~kinds.caseless; }

    // Return the starts of numbers, which have at most `max_digits` digits.
    Mask numbers(Kinds &now) const {
        if (RULES.max_digits == 1) return now.digit;
        Mask starts = begins(now.digit, last_.digit);
        const bool goes_on = last_.digit >> 63 && now.digit & 1;
        const Mask fourths = now.digit & now.digit << 1 & now.digit << 2 & now.digit << 3;
        if (!fourths && !goes_on && !(now.digit >> 63)) return starts; // no run is too long, in this block or the next
        for (Mask left = now.digit; left;) {
            const unsigned first = lowest(left), length = run_length(left >> first);
            const unsigned held = first == 0 && goes_on ? last_.digits : 0;
            for (unsigned i = (RULES.max_digits - held) % RULES.max_digits; i < length; i += RULES.max_digits)
                starts |= Mask{1} << (first + i);
            now.digits = (held + length) % RULES.max_digits;
            left &= first + length < 64 ? ~Mask{0} << (first + length) : 0;
        }
        return starts;
    }

    static unsigned run_length(Mask mask) { return ~mask ? lowest(~mask) : 64; }

    // Return the starts in white space. A run is one token up to its last line end. Of the rest, the last character
    // belongs to the token after it.
    Mask white_space(const Kinds &now, Mask inline_space, const std::uint8_t *block) const {
        const Mask free = now.space & ~now.eaten;
        Mask starts = begins(free, last_.space & ~last_.eaten) | (inline_space & ~space_after(now, block));
        Mask after_line_end = inline_space & before(now.line_end & ~now.eaten, last_.line_end & ~last_.eaten);
        for (; after_line_end; after_line_end &= after_line_end - 1)
            if (!line_end_follows(block + lowest(after_line_end))) starts |= after_line_end & (0 - after_line_end);
        return starts;
    }

    // Return whether a line end, or the end of the text if it counts as one, follows in the rest of a run of white
    // space.
    bool line_end_follows(const std::uint8_t *position) const {
        for (Character space; (space = character_at(position, end_)).bits & SPACE; position += space.size)
            if (is_line_end(*position)) return true;
        return RULES.whole_at_end && position == end_;
    }

    // Apply contractions to the token starts. A contraction is a token or, in o200k, the end of one. Either way the
    // next token starts after it.
    Mask cut_contractions(Mask starts, Mask apostrophes, Kinds &now, const std::uint8_t *block) const {
        Mask covered = last_.covered, closed = last_.closed;
        for (; apostrophes; apostrophes &= apostrophes - 1) {
            const unsigned at = lowest(apostrophes);
            if (RULES.cased_words && closed >> at & 1) continue; // a word includes only one
            const unsigned size = contraction_size(block + at);
            if (size == 0) continue;
            const Mask bytes = (Mask{1} << size) - (RULES.cased_words ? 1 : 2);
            covered |= bytes << at;
            if (at > 0) now.covered |= bytes >> (64 - at);
            if (at + size < 64)
                closed |= Mask{1} << (at + size);
            else
                now.closed |= Mask{1} << (at + size - 64);
        }
        return (starts & ~covered) | closed;
    }

    // Return the size of the contraction whose apostrophe is at `start`, 0 if there is none.
    unsigned contraction_size(const std::uint8_t *start) const {
        const unsigned first = contraction_letter(start + 1);
        if (first == 's' || first == 'd' || first == 'm' || first == 't') return 2;
        if (first == LONG_S) return 3;
        const unsigned second = first ? contraction_letter(start + 2) : 0;
        const bool found =
            (first == 'l' && second == 'l') || (first == 'v' && second == 'e') || (first == 'r' && second == 'e');
        return found ? 3 : 0;
    }

    // Return the letter at `position`, in lower case if case is ignored. Any other character gives a value that no
    // contraction has, and the end of the text gives 0.
    unsigned contraction_letter(const std::uint8_t *position) const {
        if (position >= end_) return 0;
        if (!RULES.ignore_case) return *position;
        if (*position == 0xC5 && position[1] == 0xBF) return LONG_S; // ſ matches s when case is ignored
        return *position | 0x20u;
    }
    static constexpr unsigned LONG_S = 0x17F;

    const std::uint8_t *end_;
    Kinds last_;
    const std::uint8_t *start_ = nullptr;
    Mask odd_ = 0;
};

} // namespace bpeflow
