// Cutting text into pieces by the steps of a compiled pattern.
#pragma once

#include "attempts.hpp"
#include "automaton.hpp"
#include "bpeflow.h"
#include "failure.hpp"
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

    // Call found(start) for the tokens that start after `start`, where one starts, up to the first at `stop` or later.
    // The pattern must match all text, and at most 4096 tokens may start before `stop`.
    template <typename Found> void cut_until(Bytes start, Bytes stop, Bytes end, const Found &found) {
        begin_at(start);
        scan(start, stop, end);
        for (const std::uint32_t *each = offsets_ + 1; each < put_; each++) found(base_ + *each);
    }

  private:
    // The start of an attempt to match, and whether it is in a gap.
    struct Place {
        Bytes position;
        bool in_gap;
    };

    // Blocks whose beliefs are followed at a time.
    static constexpr std::size_t BLOCKS = 16;
    // Bytes until the next try where tries fail. Blocks with characters beyond ASCII and unknown ones come in runs.
    static constexpr std::size_t MOST_SKIPPED = 16 * BLOCK;
    // Bytes until the next try after a special transition.
    static constexpr std::size_t STOPPED = 16;
    // Pieces that are passed on at a time, or a few more; and how many more.
    static constexpr std::size_t some = 4096, beyond = (BLOCKS + 1) * BLOCK;
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
        attempts_.begin(start, end);
        Place place{start, false};
        if (automaton_.has_transducer() && start < stop)
            place = automaton_.has_loops() ? run<true>(start, stop, end) : run<false>(start, stop, end);
        walk(place, stop);
        if (place.in_gap) put_gap(place.position);
    }

    template <bool LOOPS> Place run(Bytes start, Bytes stop, Bytes end) {
        return automaton_.has_gaps() ? run<true, LOOPS>(start, stop, end) : run<false, LOOPS>(start, stop, end);
    }

    // Run the transducer up to the end of the text or, if that is not `stop`, up to the last 8 bytes before `stop`. Return
    // the start of the attempt that is under way then.
    template <bool GAPS, bool LOOPS> Place run(Bytes start, Bytes stop, Bytes end) {
        const Automaton &automaton = automaton_;
        const std::uint16_t *const moves = automaton.moves(), *const pair_moves = automaton.pair_moves();
        const std::uint8_t *const flags_of = automaton.flags(), *const pair_flags_of = automaton.pair_flags();
        const std::uint16_t *const first_of = automaton.first_of_pair(), *const second_of = automaton.second_of_pair();
        Bytes position = start, attempt = start, previous = start, base = base_;
        Bytes next_block = kernels_.follow && automaton.beliefs().made() ? start + BeliefTables::HISTORY : stop;
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
                    const auto blocks = std::min(BLOCKS, static_cast<std::size_t>(last_word + 8 - position) / BLOCK);
                    Followed followed[BLOCKS];
                    const std::size_t known = kernels_.follow(automaton.beliefs().tables(), position, blocks, followed);
                    const std::size_t read = read_unknown(position, config, followed, known);
                    if (read == 0) {
                        next_block = position + skipped;
                        skipped = std::min(2 * skipped, MOST_SKIPPED);
                    } else {
                        put_ = put;
                        put_blocks<GAPS>(position, previous, attempt, followed, (read + BLOCK - 1) / BLOCK);
                        put = put_;
                        position += read;
                        skipped = BLOCK;
                        next_block = read == blocks * BLOCK ? position : position + STOPPED;
                        previous = position - 1;
                        continue;
                    }
                }
                const std::uint64_t word = load_word(position);
                if (LOOPS && automaton.is_looped(word) && automaton.info(config) & Automaton::LOOPS) {
                    previous = position + 7;
                    position += 8;
                    continue;
                }
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

    static std::size_t number_of_bits(std::uint64_t mask) { // without an instruction that some processors lack
        mask -= mask >> 1 & 0x5555555555555555u;
        mask = (mask & 0x3333333333333333u) + (mask >> 2 & 0x3333333333333333u);
        return ((mask + (mask >> 4)) & 0x0F0F0F0F0F0F0F0Fu) * 0x0101010101010101u >> 56;
    }

    // Read the unknown transitions in blocks that beliefs have been followed through, the first of which begins at
    // `position`, in a given configuration. Return the number of bytes before the first special one, or that of all, and
    // set the configuration after them.
    std::size_t read_unknown(Bytes position, std::size_t &config, Followed *followed, std::size_t blocks) const {
        const std::uint8_t *const flags_of = automaton_.flags();
        const std::uint16_t *const moves = automaton_.moves();
        std::size_t at = 0; // the configuration before it is `config`
        for (std::size_t i = 0; i < blocks; i++) {
            std::uint64_t places = followed[i].unknown;
            if (i + 1 == blocks) places |= std::uint64_t{1} << 63;
            for (; places; places &= places - 1) {
                const std::size_t to = i * BLOCK + static_cast<std::size_t>(__builtin_ctzll(places));
                std::size_t from = to;
                std::uint8_t known = Beliefs::NONE;
                for (;; from--) {
                    known = automaton_.beliefs().config(followed[from / BLOCK].entries[from % BLOCK]);
                    if (known != Beliefs::NONE || from <= at) break;
                }
                if (known != Beliefs::NONE) config = known * automaton_.row();
                for (at = from;; at++) {
                    const std::size_t transition = config + automaton_.ascii_class(position[at]);
                    const unsigned flags = flags_of[transition];
                    if (flags & Automaton::SPECIAL) {
                        followed[at / BLOCK].stop(at % BLOCK);
                        return at;
                    }
                    config = moves[transition];
                    if (at == to) {
                        followed[i].set(at % BLOCK, flags);
                        break;
                    }
                    if (followed[at / BLOCK].unknown >> at % BLOCK & 1) followed[at / BLOCK].set(at % BLOCK, flags);
                }
                at++;
            }
        }
        return blocks * BLOCK;
    }

    // Put the boundaries in blocks that beliefs have been followed through. The first block begins at `position`.
    template <bool GAPS>
    void put_blocks(Bytes position, Bytes previous, Bytes &attempt, const Followed *followed, std::size_t blocks) {
        if (GAPS && followed[0].gap_ends & 1) note_gap(put_);
        *put_ = static_cast<std::uint32_t>(previous - base_);
        put_ += followed[0].piece_before_previous & 1;
        if (GAPS && followed[0].attempt_before_previous & 1) attempt = previous;
        std::uint64_t starts[BLOCKS];
        std::uint32_t *put = put_;
        for (std::size_t i = 0; i < blocks; i++) {
            const Followed &here = followed[i];
            const auto shifted = [&](std::uint64_t Followed::*of) {
                return here.*of >> 1 | (i + 1 < blocks ? followed[i + 1].*of << 63 : 0);
            };
            starts[i] = here.piece_here | shifted(&Followed::piece_before_previous);
            if (!GAPS) continue;
            for (std::uint64_t gaps = shifted(&Followed::gap_ends); gaps; gaps &= gaps - 1)
                note_gap(put + number_of_bits(starts[i] & ((gaps & -gaps) - 1)));
            put += number_of_bits(starts[i]);
            if (const std::uint64_t attempts = here.attempt_here | shifted(&Followed::attempt_before_previous))
                attempt = position + i * BLOCK + 63 - __builtin_clzll(attempts);
        }
        put_ += kernels_.positions(starts, blocks, static_cast<std::uint32_t>(position - base_), put_);
    }

    // Match at a place where the transducer has lost track. If that read far beyond the match, continue with the automaton,
    // as the transducer would read the same text once for each token.
    Place match_again(Place place) {
        const Bytes read = advance(place);
        if (read - place.position > static_cast<std::ptrdiff_t>(Attempts::FAR)) walk(place, read);
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
        bool ascending = base_ + offsets_[1] > first_; // not with any tables
        for (std::size_t i = 1; i < pieces; i++) ascending &= offsets_[i] < offsets_[i + 1];
        if (!ascending) throw Failure{BPEFLOW_BAD_ARGUMENT};
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
        for (std::size_t i = 0; i < gaps_; i++)
            sink_.unmatched.add(start_of(gap_ends_[i] - 1u), start_of(gap_ends_[i]));
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
