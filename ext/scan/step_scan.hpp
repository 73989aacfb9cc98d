// Cutting text into pieces by the steps of a compiled pattern.
#pragma once

#include "attempts.hpp"
#include "automaton.hpp"
#include "bpeflow.h"
#include "failure.hpp"
#include "followed_blocks.hpp"
#include "hash.hpp"
#include "kernels.hpp"
#include "pretoken_batch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace bpeflow {

// The text that a pattern does not match.
struct Unmatched {
    std::uint64_t bytes = 0;
    const std::uint8_t *start = nullptr, *end = nullptr; // of the first stretch

    void add(const std::uint8_t *from, const std::uint8_t *to) {
        bytes += static_cast<std::uint64_t>(to - from);
        if (start && start < from) return;
        start = from;
        end = to;
    }
};

// What becomes of the pieces of the last step.
struct PieceSink {
    void (*emit)(const void *context, const PretokenBatch &batch);
    const void *context;
    std::uint32_t policy; // enum bpeflow_unmatched
    Unmatched unmatched;
};

// One step of a pattern. It cuts each text that it is given into pieces: matches, and the *gaps* between them. It passes
// them on to the next step, or to the sink, some thousands at a time. Pieces of any size are passed to the next step.
class StepScan {
  public:
    using Bytes = const std::uint8_t *;

    // The last step has no `next`.
    StepScan(const Kernels &kernels, const Automaton &automaton, StepScan *next, PieceSink &sink)
        : kernels_(kernels), automaton_(automaton), next_(next), sink_(sink), attempts_(automaton) {
        begin_at(nullptr);
    }

    // Cut a text. `matched` says whether it is part of a match of an earlier step.
    void cut(Bytes text, Bytes end, bool matched) {
        if (text != last()) {
            pass_on();
            begin_at(text);
        }
        counts_gaps_ = sink_.policy == BPEFLOW_DROP || !matched;
        scan(text, end, end);
    }

    // Pass on the pieces that are left.
    void finish() {
        pass_on();
        if (next_) next_->finish();
    }

  protected:
    // The start of an attempt to match, and whether it is in a gap.
    struct Place {
        Bytes position;
        bool in_gap;
    };

    // Bytes until the next try where tries fail. Blocks with characters beyond ASCII and unknown ones come in runs.
    static constexpr std::size_t MOST_SKIPPED = 16 * BLOCK;
    // Pieces that are passed on at a time, or a few more; and how many more.
    static constexpr std::size_t some = 4096, beyond = (BLOCKS_AT_ONCE + 1) * BLOCK;
    static_assert(FollowedBlocks::MOST <= BLOCKS_AT_ONCE);
    // The hot loop covers at most this many bytes before it makes sure that the next ones have offsets.
    static constexpr std::ptrdiff_t stretch = 1 << 16;
    static constexpr std::ptrdiff_t greatest_offset = std::numeric_limits<std::int32_t>::max();

    void begin_at(Bytes start) {
        base_ = first_ = start;
        offsets_[0] = 0;
        put_ = offsets_ + 1;
        gaps_ = 0;
    }

    void scan(Bytes start, Bytes stop, Bytes end) {
        // A character alone is a match or a gap: in sequences such as DeepSeek's, "a1b2" is cut into such pieces.
        if (const Automaton::Class only = automaton_.class_at(start);
            only.size == static_cast<std::size_t>(end - start)) {
            automaton_.matches_alone(only.number) ? put(end) : put_gap(end);
            return;
        }
        attempts_.begin(start, end);
        Place place{start, false};
        if (automaton_.has_transducer() && start < stop)
            place = automaton_.has_gaps() ? run<true>(start, stop, end) : run<false>(start, stop, end);
        walk(place, stop);
        if (place.in_gap) put_gap(place.position);
    }

    // Run the transducer up to the end of the text or, if that is not `stop`, up to the last 8 bytes before `stop`. Return
    // the start of the attempt that is under way then.
    template <bool GAPS> Place run(Bytes start, Bytes stop, Bytes end) {
        const Automaton &automaton = automaton_;
        const std::uint16_t *const moves = automaton.moves(), *const pair_moves = automaton.pair_moves();
        const std::uint8_t *const flags_of = automaton.flags(), *const pair_flags_of = automaton.pair_flags();
        const std::uint16_t *const first_of = automaton.first_of_pair(), *const second_of = automaton.second_of_pair();
        Bytes position = start, attempt = start, previous = start, base = base_;
        Bytes next_block = kernels_.follow && automaton.beliefs().made() ? start + BeliefTables::HISTORY : stop;
        FollowedBlocks blocks(kernels_, automaton);
        std::size_t config = 0, skipped = BLOCK;
        std::uint32_t *put = put_;
        const auto offset_of = [&base](Bytes of) { return static_cast<std::uint32_t>(of - base); };
        // Read two ASCII characters. Return false if they must be read one by one.
        const auto read_two = [&](std::uint64_t two, Bytes here) __attribute__((always_inline)) {
            const std::size_t index = config + first_of[two & 127] + second_of[two >> 8 & 127];
            const unsigned flags = pair_flags_of[index];
            if (__builtin_expect(flags & Automaton::PAIR_RARE, 0)) {
                if (flags & Automaton::PAIR_ONE_BY_ONE) {
                    position = here;
                    return false;
                }
                if (GAPS && flags & Automaton::PAIR_GAP_ENDS) note_gap(put);
                *put = offset_of(previous);
                put += (flags & Automaton::PAIR_PIECE_BEFORE_PREVIOUS) != 0;
                if (GAPS && flags & Automaton::PAIR_ATTEMPT_BEFORE_PREVIOUS) attempt = previous;
            }
            config = pair_moves[index];
            *put = offset_of(here);
            put += flags & Automaton::PAIR_PIECE_HERE;
            *put = offset_of(here + 1);
            put += (flags & Automaton::PAIR_PIECE_INSIDE) / Automaton::PAIR_PIECE_INSIDE;
            if (GAPS) attempt = flags & Automaton::PAIR_ATTEMPT_HERE ? here : attempt;
            if (GAPS) attempt = flags & Automaton::PAIR_ATTEMPT_INSIDE ? here + 1 : attempt;
            previous = here + 1;
            return true;
        };
        // Match again from the start of the attempt.
        const auto again = [&]() __attribute__((always_inline)) {
            put_ = put;
            const bool in_gap = automaton.info(config) & Automaton::IN_GAP;
            const Place place = match_again({GAPS ? std::max(attempt, last()) : last(), in_gap});
            put = put_;
            base = base_;
            position = attempt = previous = place.position;
            config = place.in_gap ? automaton.after_gap() : 0;
            next_block = std::max(next_block, position + BeliefTables::HISTORY);
        };
        const auto put_before_previous = [&](unsigned flags) __attribute__((always_inline)) {
            if (GAPS && flags & Automaton::GAP_ENDS) note_gap(put);
            *put = offset_of(previous);
            put += (flags & Automaton::PIECE_BEFORE_PREVIOUS) != 0;
            if (GAPS && flags & Automaton::ATTEMPT_BEFORE_PREVIOUS) attempt = previous;
        };
        const auto read_one = [&]() __attribute__((always_inline)) {
            const Automaton::Class character = automaton.class_at(position);
            const std::size_t index = config + character.number;
            const unsigned flags = flags_of[index];
            if (__builtin_expect(flags & Automaton::RARE, 0)) {
                if (flags & Automaton::SPECIAL) return again();
                put_before_previous(flags);
            }
            config = moves[index];
            *put = offset_of(position);
            put += flags & Automaton::PIECE_HERE;
            if (GAPS) attempt = flags & Automaton::ATTEMPT_HERE ? position : attempt;
            previous = position;
            position += character.size;
        };
        while (stop - position >= 8) {
            put_ = put;
            make_room(previous, position + stretch);
            put = put_;
            base = base_;
            const Bytes last_word = position + std::min(stop - position, stretch) - 8;
            while (position <= last_word) {
                if (static_cast<std::size_t>(put - offsets_) > some) {
                    put_ = put;
                    pass_on();
                    put = put_;
                    base = base_;
                }
                if (position >= next_block) {
                    if (position >= blocks.end()) {
                        const bool found = blocks.follow(position, last_word + 8);
                        next_block = found ? position : position + skipped;
                        skipped = found ? BLOCK : std::min(2 * skipped, MOST_SKIPPED);
                    }
                    if (position < blocks.end()) {
                        const auto from = static_cast<std::size_t>(position - blocks.text());
                        const std::size_t to = blocks.read_unknown(from, config);
                        if (to > from) {
                            put_before_previous(blocks.before_previous(from));
                            put_ = put;
                            put_blocks<GAPS>(blocks, from, to, attempt);
                            put = put_;
                            position = blocks.text() + to;
                            previous = position - 1;
                        }
                        if (position < blocks.end()) again();
                        continue;
                    }
                }
                const std::uint64_t word = load_word(position);
                Bytes one_by_one = position + 8;
                if ((word & 0x8080808080808080u) == 0) {
                    const Bytes here = position;
                    if (read_two(word, here) && read_two(word >> 16, here + 2) && read_two(word >> 32, here + 4) &&
                        read_two(word >> 48, here + 6)) {
                        position += 8;
                        continue;
                    }
                    one_by_one = position + 1;
                }
                while (position < one_by_one) read_one();
            }
        }
        put_ = put;
        if (stop == end) {
            make_room(previous, end);
            put = put_;
            base = base_;
            unsigned flags = 0;
            do {
                while (position < end) read_one();
                flags = flags_of[config + automaton.end_column()];
                if (flags & Automaton::SPECIAL) again();
            } while (flags & Automaton::SPECIAL);
            put_before_previous(flags);
            *put = offset_of(end);
            put_ = put + (flags & Automaton::PIECE_HERE);
            return {end, last() != end};
        }
        if (!GAPS) return {last(), false};
        const unsigned info = automaton.info(config);
        return {info & Automaton::FRESH ? position : std::max(attempt, last()), (info & Automaton::IN_GAP) != 0};
    }

    // Put the boundaries that the transitions from number `from` to `to` of some blocks reveal.
    template <bool GAPS>
    void put_blocks(const FollowedBlocks &blocks, std::size_t from, std::size_t to, Bytes &attempt) {
        const std::size_t first = from / BLOCK, count = (to - 1) / BLOCK + 1 - first;
        std::uint64_t pieces[FollowedBlocks::MOST], gaps[FollowedBlocks::MOST], attempts = 0;
        Bytes attempts_text = blocks.text();
        for (std::size_t i = 0; i < count; i++) {
            const FollowedBlocks::Starts here = blocks.starts(first + i, from, to);
            pieces[i] = here.pieces;
            gaps[i] = here.gaps;
            if (!GAPS || here.attempts == 0) continue;
            attempts = here.attempts;
            attempts_text = blocks.text() + (first + i) * BLOCK;
        }
        if (attempts) attempt = attempts_text + 63 - __builtin_clzll(attempts);
        const auto number = static_cast<std::uint16_t>(put_ - offsets_);
        if (GAPS && counts_gaps_) gaps_ += kernels_.ranks(gaps, pieces, count, number, gap_ends_ + gaps_);
        const Bytes text = blocks.text() + first * BLOCK;
        put_ += kernels_.positions(pieces, count, static_cast<std::uint32_t>(text - base_), put_);
    }

    // Match at a place where the transducer has lost track. If that read far beyond the match, continue with the automaton,
    // as the transducer would read the same text once for each token.
    Place match_again(Place place) {
        const Bytes read = advance(place);
        if (read - place.position > Attempts::FAR) walk(place, read);
        return place;
    }

    void walk(Place &place, Bytes stop) {
        while (place.position < stop) advance(place);
    }

    // Match at a place, and move it to the end of the match, or by one character. Return the end of the text read.
    Bytes advance(Place &place) {
        const Attempts::Result result = attempts_.match(place.position);
        if (result.end) {
            if (place.in_gap) put_gap(place.position);
            put(result.end);
            place = {result.end, false};
        } else {
            place = {place.position + automaton_.class_at(place.position).size, true};
        }
        return result.read;
    }

    // ---- boundaries ----

    // The last boundary.
    Bytes last() const { return put_ == offsets_ + 1 ? first_ : base_ + put_[-1]; }

    void put_gap(Bytes end) {
        make_room(end, end);
        note_gap(put_);
        *put_++ = static_cast<std::uint32_t>(end - base_);
    }

    void put(Bytes boundary) {
        make_room(boundary, boundary);
        *put_++ = static_cast<std::uint32_t>(boundary - base_);
    }

    // Note that the next boundary ends a gap.
    void note_gap(const std::uint32_t *put) {
        if (counts_gaps_) gap_ends_[gaps_++] = static_cast<std::uint16_t>(put - offsets_);
    }

    // Make sure that there is room for another boundary, and that positions from `start` to `end` have offsets.
    void make_room(Bytes start, Bytes end) {
        if (static_cast<std::size_t>(put_ - offsets_) > some) pass_on();
        if (start >= base_ && end - base_ <= greatest_offset) return;
        pass_on();
        if (start < base_ || end - base_ > greatest_offset) base_ = start;
    }

    // Pass on the pieces so far.
    void pass_on() {
        const auto pieces = static_cast<std::size_t>(put_ - offsets_) - 1;
        if (pieces == 0) return;
        // Unless the tables are wrong, offsets ascend: all are below 2^31, and the difference of two is not.
        std::uint32_t either = offsets_[1], both = base_ + offsets_[1] > first_ ? ~std::uint32_t{0} : 0;
        for (std::size_t i = 1; i < pieces; i++) {
            either |= offsets_[i + 1];
            both &= offsets_[i] - offsets_[i + 1];
        }
        if ((either | ~both) >> 31) throw Failure{BPEFLOW_BAD_ARGUMENT};
        const Bytes end = last();
        if (next_)
            pass_to_next(pieces);
        else
            pass_to_sink(pieces);
        begin_at(end);
    }

    Bytes start_of(std::size_t piece) const { return piece == 0 ? first_ : base_ + offsets_[piece]; }

    void pass_to_next(std::size_t pieces) {
        std::size_t gap = 0;
        for (std::size_t i = 0; i < pieces; i++) {
            const bool is_gap = gap < gaps_ && gap_ends_[gap] == i + 1;
            const Bytes start = start_of(i), end = start_of(i + 1);
            gap += is_gap;
            if (is_gap && sink_.policy == BPEFLOW_DROP)
                sink_.unmatched.add(start, end);
            else
                next_->cut(start, end, !is_gap);
        }
    }

    void pass_to_sink(std::size_t pieces) {
        const bool drops = sink_.policy == BPEFLOW_DROP;
        if (gaps_ > 0 && sink_.policy == BPEFLOW_UNMATCHED_ERROR) throw Failure{BPEFLOW_UNMATCHED};
        const bool drops_first = drops && gaps_ > 0 && gap_ends_[0] == 1;
        if (base_ != first_ && !drops_first) throw Failure{BPEFLOW_TOO_LARGE};
        count_gaps();
        if (!drops || gaps_ == 0) {
            sink_.emit(sink_.context, {base_, offsets_, offsets_ + 1, pieces});
            return;
        }
        std::uint32_t ends[some + beyond];
        std::size_t kept = 0, gap = 0;
        for (std::size_t i = 0; i < pieces; i++) {
            ends[kept] = offsets_[i + 1];
            offsets_[kept] = offsets_[i];
            const bool is_gap = gap < gaps_ && gap_ends_[gap] == i + 1;
            gap += is_gap;
            kept += !is_gap;
        }
        sink_.emit(sink_.context, {base_, offsets_, ends, kept});
    }

    void count_gaps() {
        if (gaps_ == 0) return;
        sink_.unmatched.add(start_of(gap_ends_[0] - 1u), start_of(gap_ends_[0]));
        for (std::size_t i = 1; i < gaps_; i++)
            sink_.unmatched.bytes += offsets_[gap_ends_[i]] - offsets_[gap_ends_[i] - 1u];
    }

    const Kernels &kernels_;
    const Automaton &automaton_;
    StepScan *const next_;
    PieceSink &sink_;
    Attempts attempts_;
    bool counts_gaps_ = true;
    Bytes first_;        // the start of the first piece
    Bytes base_;         // the position whose offset is 0: `first_`, unless that is too far back
    std::uint32_t *put_; // the end of the offsets
    std::size_t gaps_;
    std::uint32_t offsets_[some + beyond]; // of boundaries: piece i is from number i to number i + 1
    std::uint16_t gap_ends_[some + beyond];
};

} // namespace bpeflow
