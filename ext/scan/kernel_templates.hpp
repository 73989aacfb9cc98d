// The kernels, as far as all vector instruction sets share them.
//
// Included by kernels_*.cpp, each of which is compiled for its own instruction set. This header has only templates
// over types local to those files, so that no function is compiled for one instruction set and called on another.
#pragma once

#include "kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace bpeflow {

// A block in registers. `Isa` describes an instruction set: Bytes is a register, an array of bytes for which compilers have
// operators; top_bits(registers) has a bit for each byte of a block; minus(bytes, byte) is at least 0; lookup(table, bytes)
// replaces each byte, all below 16, by that entry of the table; any(bytes) says whether one is not 0.
template <typename Isa> struct BlockOf {
    using Bytes = typename Isa::Bytes;
    Bytes registers[BLOCK / sizeof(Bytes)];

    static BlockOf load(const std::uint8_t *text) {
        BlockOf block;
        std::memcpy(block.registers, text, BLOCK);
        return block;
    }

    BlockOf lower() const {
        return each([](Bytes bytes) { return bytes | 0x20; });
    }
    std::uint64_t equal(std::uint8_t byte) const {
        return each([byte](Bytes bytes) { return Bytes(bytes == byte); }).high();
    }
    std::uint64_t within(std::uint8_t first, std::uint8_t count) const {
        const std::uint8_t last = static_cast<std::uint8_t>(count - 1);
        return each([first, last](Bytes bytes) { return Bytes(Isa::minus(bytes - first, last) == 0); }).high();
    }
    std::uint64_t high() const { return Isa::top_bits(registers); }

  private:
    template <typename Change> BlockOf each(Change change) const {
        BlockOf changed = *this;
        for (Bytes &bytes : changed.registers) bytes = change(bytes);
        return changed;
    }
};

// Classify `blocks` blocks. The methods of `Block` return masks with a bit per byte: equal(byte); within(first, count) for
// bytes from `first` to `first + count - 1`; high() for bytes above 127. lower() returns the block in lower case.
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
template <typename Isa> class Utf8Check {
    using Bytes = typename Isa::Bytes;

  public:
    static bool is_utf8(const std::uint8_t *start, const std::uint8_t *end) {
        constexpr std::ptrdiff_t few = 64;
        if (end - start < few) return KERNELS_SCALAR.is_utf8(start, end);
        const std::uint8_t *position = start + 3; // the three bytes before a vector are inspected as well
        while (position < start + 6 && (*position & 0xC0) == 0x80) position++;
        if (!KERNELS_SCALAR.is_utf8(start, position)) return false;
        Bytes errors{};
        for (; end - position >= static_cast<std::ptrdiff_t>(sizeof(Bytes)); position += sizeof(Bytes))
            errors |= errors_at(position);
        return !Isa::any(errors) && KERNELS_SCALAR.is_utf8(unfinished(position), end);
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

    static Bytes load(const std::uint8_t *text) {
        Bytes bytes;
        std::memcpy(&bytes, text, sizeof bytes);
        return bytes;
    }

    static Bytes errors_at(const std::uint8_t *position) {
        const Bytes bytes = load(position);
        if (!Isa::any(bytes & 0x80) && !((position[-1] | position[-2] | position[-3]) & 0x80)) return Bytes{};
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
        const Bytes before = load(position - 1);
        const Bytes errors = Isa::lookup(first_high, before >> 4) & Isa::lookup(first_low, before & 15) &
                             Isa::lookup(second_high, bytes >> 4);
        // The third byte of a character of three, and the third and fourth of one of four, follow a continuation byte,
        // and are marked by TWO_AFTER. Saturated, only E0 and above, or F0 and above, leave the top bit.
        const Bytes continues =
            Isa::minus(load(position - 2), 0xE0 - 0x80) | Isa::minus(load(position - 3), 0xF0 - 0x80);
        return errors ^ (continues & 0x80);
    }

    // Return the start of the character that ends at or after `position`, if it began in the three bytes before.
    static const std::uint8_t *unfinished(const std::uint8_t *position) {
        for (int back = 1; back <= 3; back++)
            if (position[-back] >= 0xC0) return position - back;
        return position;
    }
};

// Follow beliefs, for all bytes of a block at once. back<n>(bytes, before) has, for each byte, the one n before it, of which the
// first are at the end of `before`; Table(entries, sixteens) holds that many times sixteen entries, up to 256 in all.
template <typename Isa>
std::size_t follow_with(const BeliefTables &tables, const std::uint8_t *text, std::size_t blocks, Followed *followed) {
    using Bytes = typename Isa::Bytes;
    using Table = typename Isa::Table;
    static constexpr std::size_t registers = BLOCK / sizeof(Bytes), all_columns = sizeof tables.column / 16;
    static_assert(BeliefTables::HISTORY == 4);
    const std::uint8_t *const sixteens = tables.sixteens;
    const Table column(tables.column, all_columns), next(tables.next, 16), flags(tables.flags, sixteens[4]);
    std::uint8_t history[sizeof(Bytes)] = {};
    std::memcpy(std::end(history) - BeliefTables::HISTORY, text - BeliefTables::HISTORY, BeliefTables::HISTORY);
    Bytes before;
    std::memcpy(&before, history, sizeof before);
    if (Isa::any(before & 0x80)) return 0;
    before = column.get(before, all_columns);
    for (std::size_t i = 0; i < blocks; i++) {
        const BlockOf<Isa> block = BlockOf<Isa>::load(text + i * BLOCK);
        if (block.high()) return i;
        Followed &here = followed[i];
        Bytes of[registers];
        for (std::size_t n = 0; n < registers; n++) {
            const Bytes columns = column.get(block.registers[n], all_columns);
            Bytes entry = Isa::template back<4>(columns, before);
            entry = next.get(entry, sixteens[0]) + Isa::template back<3>(columns, before);
            entry = next.get(entry, sixteens[1]) + Isa::template back<2>(columns, before);
            entry = next.get(entry, sixteens[2]) + Isa::template back<1>(columns, before);
            entry = next.get(entry, sixteens[3]) + columns;
            std::memcpy(here.entries + n * sizeof entry, &entry, sizeof entry);
            of[n] = flags.get(entry, sixteens[4]);
            before = columns;
        }
        // Return the top bits, and move the ones below them there.
        const auto take = [&] {
            const std::uint64_t bits = Isa::top_bits(of);
            for (Bytes &bytes : of) bytes += bytes;
            return bits;
        };
        here.unknown = take();
        if (__builtin_popcountll(here.unknown) > Followed::MOST_UNKNOWN) return i;
        for (Bytes &bytes : of) bytes *= 4;
        here.gap_ends = take();
        here.attempt_before_previous = take();
        here.attempt_here = take();
        here.piece_before_previous = take();
        here.piece_here = take();
    }
    return blocks;
}

// Eight positions at a time, so that branches depend little on the text.
template <typename Isa>
std::size_t positions_with(const std::uint64_t *masks, std::size_t blocks, std::uint32_t first,
                           std::uint32_t *positions) {
    std::uint32_t *next = positions;
    for (std::size_t i = 0; i < blocks; i++) {
        const auto here = static_cast<std::uint32_t>(first + i * BLOCK);
        const int count = __builtin_popcountll(masks[i]);
        std::uint64_t mask = masks[i];
        for (int put = 0; put < count; put += 8)
            for (int j = put; j < put + 8; j++, mask &= mask - 1)
                next[j] = here + static_cast<std::uint32_t>(__builtin_ctzll(mask | std::uint64_t{1} << 63));
        next += count;
    }
    return static_cast<std::size_t>(next - positions);
}

template <typename Isa>
std::size_t ranks_with(const std::uint64_t *chosen, const std::uint64_t *masks, std::size_t blocks, std::uint16_t first,
                       std::uint16_t *ranks) {
    std::uint16_t *next = ranks;
    for (std::size_t i = 0; i < blocks; i++) {
        for (std::uint64_t rest = chosen[i]; rest; rest &= rest - 1) {
            const std::uint64_t before = masks[i] & ((rest & (0 - rest)) - 1);
            *next++ = static_cast<std::uint16_t>(first + __builtin_popcountll(before));
        }
        first = static_cast<std::uint16_t>(first + __builtin_popcountll(masks[i]));
    }
    return static_cast<std::size_t>(next - ranks);
}

} // namespace bpeflow
