// The kernels, as far as all vector instruction sets share them.
//
// Included by kernels_*.cpp, each of which is compiled for its own instruction set. This header has only templates
// over types local to those files, so that no function is compiled for one instruction set and called on another.
#pragma once

#include "kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace bpeflow {

// Classify `blocks` blocks.
//
// `Block` holds 64 bytes, loaded by Block::load(bytes). Its methods return masks with a bit per byte: equal(byte);
// within(first, count) for bytes from `first` to `first + count - 1`; high() for bytes above 127. lower() returns the
// block in lower case.
template <typename Block> void classify_with(const std::uint8_t *text, std::size_t blocks, Masks *masks) {
    for (std::size_t i = 0; i < blocks; i++) {
        const Block block = Block::load(text + BLOCK * i);
        const std::uint64_t blank = block.equal(' ');
        masks[i] = {
            block.lower().within('a', 26),
            block.within('0', 10),
            blank | block.within('\t', 5), // with the blank, the ASCII part of \s
            blank,
            block.equal('\n') | block.equal('\r'),
            block.equal('\''),
            block.within('A', 26),
            block.high(),
            block.within('\xC0', 64),
        };
    }
}

// Check UTF-8 by table look-up (Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte", 2021).
//
// Two adjacent bytes are wrong in one of eight ways. Three tables say for half a byte each (the upper and the lower
// half of the first, the upper half of the second) with which of these errors it agrees. The pair has the errors that
// all three agree with. Whether a third or a fourth byte of a character follows is checked separately.
//
// `Vector` holds SIZE bytes. lookup(table) replaces each byte, all below 16, by that entry of the table.
template <typename Vector> class Utf8Check {
  public:
    static bool is_utf8(const std::uint8_t *start, const std::uint8_t *end) {
        constexpr std::ptrdiff_t few = 64;
        if (end - start < few) return KERNELS_SCALAR.is_utf8(start, end);
        const std::uint8_t *position = start + 3; // the three bytes before a vector are inspected as well
        while (position < start + 6 && (*position & 0xC0) == 0x80) position++;
        if (!KERNELS_SCALAR.is_utf8(start, position)) return false;
        Vector errors = Vector::all(0);
        for (; end - position >= static_cast<std::ptrdiff_t>(Vector::SIZE); position += Vector::SIZE)
            errors = errors | errors_at(position);
        return !errors.any() && KERNELS_SCALAR.is_utf8(unfinished(position), end);
    }

  private:
    enum Error : std::uint8_t {
        TOO_SHORT = 1,   // a first byte, then no continuation byte
        TOO_LONG = 2,    // ASCII, then a continuation byte
        OVERLONG_3 = 4,  // E0, then below A0
        ABOVE_4 = 8,     // F4, then 90 or more; F5 and above, then 90 or more
        SURROGATE = 16,  // ED, then A0 or more
        OVERLONG_2 = 32, // C0 or C1
        ABOVE_5 = 64,    // F5 and above, then below 90
        OVERLONG_4 = 64, // F0, then below 90
        TWO_AFTER = 128, // two continuation bytes; an error unless a longer character continues
        ANY_LOW = TOO_SHORT | TOO_LONG | TWO_AFTER, // errors that do not depend on the lower half
    };

    static Vector errors_at(const std::uint8_t *position) {
        const Vector bytes = Vector::load(position);
        if (!bytes.any_high() && !((position[-1] | position[-2] | position[-3]) & 0x80)) return Vector::all(0);
        static constexpr std::uint8_t first_high[16] = {TOO_LONG,
                                                        TOO_LONG,
                                                        TOO_LONG,
                                                        TOO_LONG,
                                                        TOO_LONG,
                                                        TOO_LONG,
                                                        TOO_LONG,
                                                        TOO_LONG,
                                                        TWO_AFTER,
                                                        TWO_AFTER,
                                                        TWO_AFTER,
                                                        TWO_AFTER,
                                                        TOO_SHORT | OVERLONG_2,
                                                        TOO_SHORT,
                                                        TOO_SHORT | OVERLONG_3 | SURROGATE,
                                                        TOO_SHORT | ABOVE_4 | ABOVE_5};
        static constexpr std::uint8_t above = ANY_LOW | ABOVE_4 | ABOVE_5;
        static constexpr std::uint8_t first_low[16] = {ANY_LOW | OVERLONG_2 | OVERLONG_3 | OVERLONG_4,
                                                       ANY_LOW | OVERLONG_2,
                                                       ANY_LOW,
                                                       ANY_LOW,
                                                       ANY_LOW | ABOVE_4,
                                                       above,
                                                       above,
                                                       above,
                                                       above,
                                                       above,
                                                       above,
                                                       above,
                                                       above,
                                                       above | SURROGATE,
                                                       above,
                                                       above};
        static constexpr std::uint8_t after = TOO_LONG | OVERLONG_2 | TWO_AFTER;
        static constexpr std::uint8_t second_high[16] = {TOO_SHORT,
                                                         TOO_SHORT,
                                                         TOO_SHORT,
                                                         TOO_SHORT,
                                                         TOO_SHORT,
                                                         TOO_SHORT,
                                                         TOO_SHORT,
                                                         TOO_SHORT,
                                                         after | OVERLONG_3 | ABOVE_5,
                                                         after | OVERLONG_3 | ABOVE_4,
                                                         after | SURROGATE | ABOVE_4,
                                                         after | SURROGATE | ABOVE_4,
                                                         TOO_SHORT,
                                                         TOO_SHORT,
                                                         TOO_SHORT,
                                                         TOO_SHORT};
        const Vector before = Vector::load(position - 1);
        const Vector errors = before.upper_halves().lookup(first_high) & before.lower_halves().lookup(first_low) &
                              bytes.upper_halves().lookup(second_high);
        // The third byte of a character of three, and the third and fourth of one of four, follow a continuation byte,
        // and are marked by TWO_AFTER. Saturated, only E0 and above, or F0 and above, leave the top bit.
        const Vector continues =
            Vector::load(position - 2).minus(0xE0 - 0x80) | Vector::load(position - 3).minus(0xF0 - 0x80);
        return errors ^ (continues & Vector::all(0x80));
    }

    // Return the start of the character that ends at or after `position`, if it began in the three bytes before.
    static const std::uint8_t *unfinished(const std::uint8_t *position) {
        for (int back = 1; back <= 3; back++)
            if (position[-back] >= 0xC0) return position - back;
        return position;
    }
};

} // namespace bpeflow
