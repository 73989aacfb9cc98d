// Encoding pre-tokens of many words in two levels. second_level.hpp proves that it gives the ids of merging them whole.
//
// Pre-tokens are cut into pieces where no merge of the first level joins two bytes. Pieces are looked up as otherwise
// pre-tokens are, which yields units. Units are cut into runs where no late merge joins two of them. Runs are looked up in
// the same cache, or merged. A piece is about as long as a word and recurs as often, and nine of ten runs are known, while a
// pre-token of many words hardly ever recurs.
#pragma once

#include "failure.hpp"
#include "id_writer.hpp"
#include "lookup.hpp"
#include "merging.hpp"
#include "pretoken_batch.hpp"
#include "second_level.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bpeflow {

class TwoLevels {
  public:
    using Bytes = const std::uint8_t *;

    TwoLevels(const SecondLevel &second, Lookup &lookup) : second_(second), lookup_(lookup), merging_(second.pairs()) {}

    // Write the ids of a batch of pre-tokens.
    template <typename Ids> void add(const PretokenBatch &tokens, Ids &ids) {
        pieces_ = tokens_ = pending_ = 0;
        for (std::size_t i = 0; i < tokens.count; i++) {
            const Bytes start = tokens.text + tokens.starts[i], end = tokens.text + tokens.ends[i];
            const std::uint32_t whole = second_.find_whole(start, static_cast<std::size_t>(end - start));
            if (whole == WholeTokens::NONE) {
                cut(start, end, ids);
            } else {
                encode_pieces(ids);
                ids.put(&whole, 1);
            }
        }
        encode_pieces(ids);
    }

    // Release the memory that a very long pre-token took.
    void trim() {
        merging_.trim();
        if (units_.size() * sizeof(std::uint32_t) > kept_memory) units_ = {};
        if (run_starts_.size() * sizeof(std::uint32_t) > kept_memory) run_starts_ = run_lasts_ = {};
    }

  private:
    // Bytes that are cut before their pieces are looked up. With fewer, few pieces are looked up together.
    static constexpr std::size_t window = 4096;
    static constexpr std::size_t longest = UINT32_MAX / 2; // of a piece and a window, in bytes: offsets have 31 bits
    static constexpr std::size_t beyond = 32;              // elements of arrays that the kernels and writers may touch
    static constexpr std::size_t kept_memory = std::size_t{1} << 20;
    static_assert(window < PretokenBatch::MOST);

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

    // The runs that are complete.
    struct Runs {
        TwoLevels &levels;

        std::size_t start(std::size_t i) const { return levels.run_starts_[i]; }
        std::size_t end(std::size_t i) const { return levels.run_lasts_[i] + std::size_t{1}; }
        void set(std::size_t i, CacheKey &key) const {
            key.set_units(levels.units_.data() + start(i), end(i) - start(i));
        }
        Lookup::Made encode(const CacheKey &key) const {
            levels.merging_.merge(reinterpret_cast<const std::uint32_t *>(key.bytes),
                                  key.length() / sizeof(std::uint32_t));
            return {levels.merging_.ids(), levels.merging_.count()};
        }
    };

    // Cut a pre-token into pieces, after those of the pre-tokens before it.
    template <typename Ids> void cut(Bytes start, Bytes end, Ids &ids) {
        if (pieces_ > 0 && (room_ == 0 || start != base_ + starts_[pieces_])) encode_pieces(ids);
        if (pieces_ == 0) {
            base_ = start;
            starts_[0] = 0;
            room_ = window;
        }
        room_--;
        for (Bytes at = start + 1;;) {
            const Bytes stop = at + std::min(room_, static_cast<std::size_t>(end - at));
            find_pieces(at, stop);
            room_ -= static_cast<std::size_t>(stop - at);
            at = stop;
            if (at == end) break;
            encode_pieces(ids);
            room_ = window;
            if (static_cast<std::size_t>(at - base_) > longest - window) throw Failure{BPEFLOW_TOO_LARGE};
        }
        starts_[++pieces_] = static_cast<std::uint32_t>(end - base_);
        ends_[tokens_++] = static_cast<std::uint32_t>(pieces_);
    }

    // Start a piece at each cut in a stretch of a pre-token, without branches, which could not be predicted.
    void find_pieces(Bytes at, Bytes stop) {
        const std::uint8_t *const cuts = second_.cuts();
        std::uint32_t *next = starts_ + pieces_ + 1;
        for (; at < stop; at++) {
            *next = static_cast<std::uint32_t>(at - base_);
            next += cuts[std::size_t{at[-1]} << 8 | *at];
        }
        pieces_ = static_cast<std::size_t>(next - starts_) - 1;
    }

    // Write the ids of the pieces, all of which are complete. If the last pre-token is not, its last units wait, as more may
    // be joined to them.
    template <typename Ids> void encode_pieces(Ids &ids) {
        if (pieces_ == 0) return;
        look_up();
        join(ids);
        base_ += starts_[pieces_];
        pieces_ = tokens_ = starts_[0] = 0;
    }

    // Append the units of the pieces. Make `ends_` numbers of units.
    void look_up() {
        const std::size_t room = pending_ + starts_[pieces_] + beyond;
        if (units_.size() < room) units_.resize(std::max(room, 2 * window));
        UnitWriter units{units_.data(), piece_ends_, pending_};
        lookup_.add({base_, starts_, starts_ + 1, pieces_}, units);
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
        lookup_.replace(units_.data(), end, Runs{*this}, runs, ids);
        pending_ = known_ - end;
        if (end > 0) std::copy_n(units_.data() + end, pending_, units_.data()); // a long run is not copied each time
    }

    const SecondLevel &second_;
    Lookup &lookup_;
    Merging merging_;
    Bytes base_ = nullptr;                      // the start of the first piece
    std::size_t room_ = 0;                      // bytes that are left of the window
    std::uint32_t starts_[window + beyond];     // of pieces, as offsets from `base_`, and the end of the last one
    std::uint32_t piece_ends_[window + beyond]; // in units
    std::uint32_t ends_[window];                // of the pre-tokens that are complete, in pieces, then in units
    std::vector<std::uint32_t> units_;          // `known_` are in use, of which `pending_` were there before
    std::vector<std::uint32_t> run_starts_, run_lasts_;
    std::size_t pieces_ = 0, tokens_ = 0, pending_ = 0, known_ = 0;
};

} // namespace bpeflow
