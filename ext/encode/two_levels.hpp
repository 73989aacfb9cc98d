// Encoding pre-tokens of many words in two levels. second_level.hpp proves that it gives the ids of merging them whole.
//
// Pre-tokens are cut into pieces, which are looked up as otherwise pre-tokens are. This yields units. Units are cut into runs
// where no late merge joins two of them. Runs are merged. Most are of two or three units, so the table of the late merges is
// faster than a cache of runs, which is larger.
#pragma once

#include "failure.hpp"
#include "id_writer.hpp"
#include "lookup.hpp"
#include "merging.hpp"
#include "pieces.hpp"
#include "pretoken_batch.hpp"
#include "second_level.hpp"
#include "whole_tokens.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bpeflow {

class TwoLevels {
  public:
    TwoLevels(const SecondLevel &second, Pieces &pieces, Lookup &lookup)
        : second_(second), lookup_(lookup), merging_(second.pairs()), pieces_(pieces) {}

    // Write the ids of a batch of pre-tokens.
    template <typename Ids> void add(const PretokenBatch &tokens, Ids &ids) {
        const auto encode_pieces = [&](const PretokenBatch &pieces) { encode(pieces, ids); };
        pieces_.clear();
        tokens_ = pending_ = 0;
        for (std::size_t i = 0; i < tokens.count; i++) {
            const std::uint32_t start = tokens.starts[i], end = tokens.ends[i];
            const std::uint32_t whole = second_.whole_tokens().find(tokens.text + start, end - start);
            if (whole == WholeTokens::NONE) {
                pieces_.add(tokens.text, start, end, encode_pieces);
                ends_[tokens_++] = static_cast<std::uint32_t>(pieces_.count());
            } else {
                pieces_.finish(tokens.text, encode_pieces);
                ids.put(&whole, 1);
            }
        }
        pieces_.finish(tokens.text, encode_pieces);
    }

    // Release the memory that a very long pre-token took.
    void trim() {
        merging_.trim();
        if (units_.size() * sizeof(std::uint32_t) > kept_memory) units_ = {};
        if (run_starts_.size() * sizeof(std::uint32_t) > kept_memory) run_starts_ = run_lasts_ = {};
    }

  private:
    static constexpr std::size_t beyond = 32; // elements of arrays that the writers may touch
    static constexpr std::size_t least_room = 8192, kept_memory = std::size_t{1} << 20;

    // Where the units of pieces are written, and the number of units up to the end of each piece.
    struct UnitWriter {
        using Id = std::uint32_t;

        std::uint32_t *units, *ends;
        std::size_t written;

        // Write pieces of one unit each.
        void put_run(const std::uint32_t *ids, std::size_t count) {
            for (std::size_t first = 0; first < count; first += RUN)
                for (std::size_t i = first; i < first + RUN; i++) {
                    units[written + i] = ids[i];
                    ends[i] = static_cast<std::uint32_t>(written + i + 1);
                }
            written += count;
            ends += count;
        }

        void put_few(const std::uint32_t (&ids)[4], std::size_t count) {
            std::copy_n(ids, 4, units + written);
            *ends++ = static_cast<std::uint32_t>(written += count);
        }

        void put(const std::uint32_t *ids, std::size_t count) {
            std::copy_n(ids, count, units + written);
            *ends++ = static_cast<std::uint32_t>(written += count);
        }

        void put_many(const std::uint32_t *ids, std::size_t count) { put(ids, count); }
    };

    // Write the ids of complete pieces. If the last pre-token is not, its last units wait, as more may be joined to them.
    template <typename Ids> void encode(const PretokenBatch &pieces, Ids &ids) {
        look_up(pieces);
        join(ids);
        tokens_ = 0;
    }

    // Append the units of pieces. Make `ends_` numbers of units.
    void look_up(const PretokenBatch &pieces) {
        std::size_t room = pending_ + beyond;
        for (std::size_t i = 0; i < pieces.count; i++) room += pieces.ends[i] - pieces.starts[i];
        if (units_.size() < room) units_.resize(std::max(room, least_room));
        UnitWriter units{units_.data(), piece_ends_, pending_};
        lookup_.add(pieces, units);
        for (std::size_t i = 0; i < tokens_; i++) ends_[i] = piece_ends_[ends_[i] - 1];
        known_ = units.written;
        if (known_ >= UINT32_MAX) throw Failure{BPEFLOW_TOO_LARGE};
    }

    // Write the ids of all units, or of all but the `pending_` last ones, which are joined.
    template <typename Ids> void join(Ids &ids) {
        std::size_t unit = pending_ > 0 ? pending_ - 1 : 0, runs = 0;
        const std::size_t most = (known_ - unit) / 2 + 3;
        if (run_starts_.size() < most) run_starts_.resize(most), run_lasts_.resize(most);
        std::size_t joined = pending_ > 1; // `unit` to the one before, 1 or 0
        run_starts_[0] = 0;
        const auto pass = [&](std::size_t to_next) { // without branches, too
            run_starts_[runs + joined] = run_lasts_[runs] = static_cast<std::uint32_t>(unit);
            runs += joined & ~to_next;
            joined = to_next;
        };
        const auto pass_until = [&](std::size_t last) {
            for (; unit < last; unit++) pass(second_.can_join(units_[unit], units_[unit + 1]));
        };
        for (std::size_t i = 0; i < tokens_; i++) {
            pass_until(ends_[i] - std::size_t{1});
            pass(false);
            unit++;
        }
        std::size_t end = known_;
        if (unit < known_) { // of a pre-token that is not complete: nothing is known of the last one and the next
            pass_until(known_ - 1);
            end = joined ? run_starts_[runs] : unit;
        }
        merge(runs, end, ids);
        pending_ = known_ - end;
        if (end > 0) std::copy_n(units_.data() + end, pending_, units_.data()); // a long run is not copied each time
    }

    // Write the ids of the first `end` units, of which the runs are merged. Most runs are of two units.
    template <typename Ids> void merge(std::size_t runs, std::size_t end, Ids &to) {
        const Pairs &pairs = second_.pairs();
        Ids ids = to; // a copy, which stays in registers
        std::size_t done = 0;
        for (std::size_t run = 0; run < runs; run++) {
            const std::size_t start = run_starts_[run], count = run_lasts_[run] + std::size_t{1} - start;
            const std::uint32_t *const units = units_.data() + start;
            ids.put_run(units_.data() + done, start - done);
            if (count == 2) { // without branches
                const Merge merge = pairs.find(units[0], units[1]);
                const bool merges = merge != NO_MERGE;
                const std::uint32_t made[4] = {merges ? made_by(merge) : units[0], units[1]};
                ids.put_few(made, 2 - merges);
            } else {
                merging_.merge(units, count, ids);
            }
            done = start + count;
        }
        ids.put_run(units_.data() + done, end - done);
        to = ids;
    }

    const SecondLevel &second_;
    Lookup &lookup_;
    Merging merging_;
    Pieces &pieces_;
    std::uint32_t piece_ends_[PretokenBatch::MOST + beyond]; // in units
    std::uint32_t ends_[PretokenBatch::MOST]; // of the pre-tokens that are complete, in pieces, then in units
    std::vector<std::uint32_t> units_;        // `known_` are in use, of which `pending_` were there before
    std::vector<std::uint32_t> run_starts_, run_lasts_;
    std::size_t tokens_ = 0, pending_ = 0, known_ = 0;
};

} // namespace bpeflow
