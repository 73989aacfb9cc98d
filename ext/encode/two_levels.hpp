// Encoding pre-tokens of many words in two levels. second_level.hpp proves that it gives the ids of merging them whole.
//
// Pre-tokens are cut into pieces where no merge of the first level joins two bytes. Pieces are looked up as otherwise
// pre-tokens are, which yields units. Units are cut into runs where no late merge joins two of them. Runs are looked up in
// the same cache, or merged. A piece is about as long as a word and recurs as often, and nine of ten runs are known, while a
// pre-token of many words hardly ever recurs.
#pragma once

#include "failure.hpp"
#include "id_writer.hpp"
#include "kernels.hpp"
#include "lookup.hpp"
#include "merging.hpp"
#include "pretoken_batch.hpp"
#include "second_level.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bpeflow {

class TwoLevels {
  public:
    using Bytes = const std::uint8_t *;

    TwoLevels(const SecondLevel &second, const Kernels &kernels, Lookup &lookup)
        : second_(second), kernels_(kernels), lookup_(lookup), merging_(second.pairs(), kernels) {}

    // Write the ids of a batch of pre-tokens.
    template <typename Ids> void add(const PretokenBatch &tokens, Ids &ids) {
        for (std::size_t i = 0, next; i < tokens.count; i = next) {
            const Bytes start = tokens.text + tokens.starts[i], end = tokens.text + tokens.ends[i];
            next = i + 1;
            if (put_whole(start, end, ids)) continue;
            while (next < tokens.count && tokens.starts[next] == tokens.ends[next - 1] && !is_whole(tokens, next))
                next++;
            encode(tokens.text, tokens.starts + i, next - i, tokens.text + tokens.ends[next - 1], ids);
        }
    }

    // Write the ids of one pre-token, of any length.
    template <typename Ids> void add(Bytes start, Bytes end, Ids &ids) {
        const std::uint32_t at_start = 0;
        if (!put_whole(start, end, ids)) encode(start, &at_start, 1, end, ids);
    }

    // Release the memory that a very long pre-token took.
    void trim() {
        merging_.trim();
        if (units_.size() * sizeof(std::uint32_t) > kept_memory) units_ = {};
        if (joints_.size() * sizeof(std::uint64_t) > kept_memory) joints_ = lasts_ = {};
        if (run_starts_.size() * sizeof(std::uint32_t) > kept_memory) run_starts_ = run_lasts_ = {};
    }

  private:
    static constexpr std::size_t bits = 64; // of a word
    // A window of bytes is cut at a time. With a smaller one, few pieces are looked up together.
    static constexpr std::size_t words = 64, window = words * bits;
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

    bool is_whole(const PretokenBatch &tokens, std::size_t i) const {
        return second_.find_whole(tokens.text + tokens.starts[i], tokens.ends[i] - tokens.starts[i]) !=
               WholeTokens::NONE;
    }

    template <typename Ids> bool put_whole(Bytes start, Bytes end, Ids &ids) const {
        const std::uint32_t id = second_.find_whole(start, static_cast<std::size_t>(end - start));
        if (id == WholeTokens::NONE) return false;
        ids.put(&id, 1);
        return true;
    }

    // Write the ids of `count` pre-tokens that follow one another, from text + starts[0] to `end`.
    template <typename Ids>
    void encode(Bytes text, const std::uint32_t *starts, std::size_t count, Bytes end, Ids &ids) {
        const std::uint32_t *next = starts + 1, *const last = starts + count;
        pending_ = starts_[0] = 0;
        piece_ = text + *starts;
        Bytes stop;
        for (Bytes at = piece_; at < end; at = stop) {
            stop = at + std::min(window, static_cast<std::size_t>(end - at));
            if (static_cast<std::size_t>(stop - piece_) > longest) throw Failure{BPEFLOW_TOO_LARGE};
            find_cuts(at, stop);
            ended_ = 0;
            for (; next < last && text + *next < stop; next++) set_end(static_cast<std::size_t>(text + *next - at));
            std::size_t pieces = 1 + kernels_.positions(cuts_, words, offset(at), starts_ + 1);
            count_pieces();
            if (stop == end) {
                starts_[pieces] = offset(end);
                ends_[ended_++] = static_cast<std::uint32_t>(pieces);
            } else {
                pieces--; // the last one may continue
            }
            if (pieces == 0) continue;
            look_up(pieces);
            join(ids);
        }
    }

    std::uint32_t offset(Bytes position) const { return static_cast<std::uint32_t>(position - piece_); }

    // Set the bit of each byte of a window at which a piece starts.
    void find_cuts(Bytes at, Bytes stop) {
        const std::size_t known = at == piece_; // the first piece starts here, and no byte is before it
        const auto length = static_cast<std::size_t>(stop - at);
        for (std::size_t word = 0; word < words; word++) {
            const std::size_t start = word * bits;
            if (start + bits <= length && start >= known) {
                cuts_[word] = 0;
                for (std::size_t bit = 0; bit < bits; bit += 8) cuts_[word] |= cuts(at + start + bit, 0, 8) << bit;
            } else {
                cuts_[word] = cuts(at + start, start < known, std::min(bits, length - std::min(start, length)));
            }
        }
    }

    // Return the bits of some bytes. Called with constants, it has neither a loop nor a branch.
    std::uint64_t cuts(Bytes at, std::size_t first, std::size_t end) const {
        std::uint64_t word = 0;
        for (std::size_t bit = first; bit < end; bit++)
            word |= std::uint64_t{second_.cuts()[std::size_t{*(at + bit - 1)} << 8 | at[bit]]} << bit;
        return word;
    }

    // Note that a pre-token ends before byte `i` of a window, and the next one starts there.
    void set_end(std::size_t i) {
        cuts_[i / bits] |= std::uint64_t{1} << i % bits;
        ends_[ended_++] = static_cast<std::uint32_t>(i);
    }

    // Replace the ends of pre-tokens in bytes by the numbers of pieces up to there.
    void count_pieces() {
        std::size_t before[words], pieces = 1; // up to each word
        for (std::size_t word = 0; word < words; word++) {
            before[word] = pieces;
            pieces += count_bits(cuts_[word]);
        }
        for (std::size_t end = 0; end < ended_; end++) {
            const std::size_t i = ends_[end], word = i / bits;
            ends_[end] = static_cast<std::uint32_t>(before[word] +
                                                    count_bits(cuts_[word] & ((std::uint64_t{1} << i % bits) - 1)));
        }
    }

    // Count the bits of a word, without the instruction that not all processors have, or the call that replaces it.
    static std::size_t count_bits(std::uint64_t word) {
        constexpr std::uint64_t each = 0x0101010101010101u;
        word -= word >> 1 & each * 0x55;
        word = (word & each * 0x33) + (word >> 2 & each * 0x33);
        return static_cast<std::size_t>(((word + (word >> 4)) & each * 0x0F) * each >> 56);
    }

    // Append the units of pieces. Make `ends_` numbers of units.
    void look_up(std::size_t pieces) {
        const std::size_t room = pending_ + starts_[pieces] + beyond;
        if (units_.size() < room) units_.resize(std::max(room, 2 * window));
        UnitWriter units{units_.data(), piece_ends_, pending_};
        lookup_.add({piece_, starts_, starts_ + 1, pieces}, units);
        for (std::size_t i = 0; i < ended_; i++) ends_[i] = piece_ends_[ends_[i] - 1];
        known_ = units.written;
        if (known_ >= UINT32_MAX) throw Failure{BPEFLOW_TOO_LARGE};
        piece_ += starts_[pieces];
    }

    // Write the ids of all units but the last ones, if more may be joined to them: `pending_` units, all of which are joined.
    template <typename Ids> void join(Ids &ids) {
        const bool closed = ended_ > 0 && ends_[ended_ - 1] == known_;
        const std::size_t limit =
            closed ? known_ : known_ - 1; // units of which is known whether the next one is joined
        find_joints(limit);
        const auto [runs, end] = find_runs(limit);
        lookup_.replace(units_.data(), end, Runs{*this}, runs, ids);
        pending_ = known_ - end;
        if (end > 0) std::copy_n(units_.data() + end, pending_, units_.data()); // a long run is not copied each time
    }

    // Set the bit of each unit before `limit` that can be joined to the next one. The first bit is that of unit `first_`.
    void find_joints(std::size_t limit) {
        first_ = pending_ > 0 ? pending_ - 1 : 0;
        joints_.assign((limit - first_) / bits + 1, 0);
        std::size_t unit = first_;
        for (std::uint64_t &word : joints_) {
            const std::uint32_t *const units = units_.data() + unit;
            const std::size_t count = std::min(bits, limit - unit);
            for (std::size_t i = 0; i < count; i++)
                word |= std::uint64_t{second_.can_join(units[i], units[i + 1])} << i;
            unit += count;
        }
        for (std::size_t end = 0; end < ended_; end++) {
            const std::size_t i = ends_[end] - 1 - first_;
            joints_[i / bits] &= ~(std::uint64_t{1} << i % bits);
        }
    }

    // Find the runs of joined units that end before `limit`. Return their number, and the start of a run that may
    // continue, `limit` if there is none.
    std::pair<std::size_t, std::size_t> find_runs(std::size_t limit) {
        const std::size_t most = (limit - first_) / 2 + 2 + beyond;
        if (run_starts_.size() < most) run_starts_.resize(most), run_lasts_.resize(most);
        lasts_.resize(joints_.size());
        const bool began = pending_ > 1; // the first run, before this window
        std::uint64_t joined = began;    // whether the first unit of a word is joined to the one before
        for (std::size_t i = 0; i < joints_.size(); i++) {
            const std::uint64_t after = joints_[i] << 1 | joined;
            joined = joints_[i] >> (bits - 1);
            lasts_[i] = after & ~joints_[i];
            joints_[i] &= ~after; // the first units of runs are left
        }
        const std::size_t last = limit - first_;
        lasts_[last / bits] &= ~(std::uint64_t{1} << last % bits);
        const auto first = static_cast<std::uint32_t>(first_);
        run_starts_[0] = 0;
        const std::size_t starts =
            began + kernels_.positions(joints_.data(), joints_.size(), first, run_starts_.data() + began);
        const std::size_t runs = kernels_.positions(lasts_.data(), lasts_.size(), first, run_lasts_.data());
        return {runs, starts > runs ? run_starts_[runs] : limit};
    }

    const SecondLevel &second_;
    const Kernels &kernels_;
    Lookup &lookup_;
    Merging merging_;
    Bytes piece_ = nullptr;                         // the first one whose units are not known
    std::uint64_t cuts_[words];                     // of a window
    std::uint32_t starts_[window + 1 + beyond];     // of pieces, as offsets from `piece_`
    std::uint32_t piece_ends_[window + 1 + beyond]; // in units
    std::uint32_t ends_[window + 1];                // of pre-tokens, in bytes, then in pieces, then in units
    std::vector<std::uint32_t> units_;              // `known_` are in use
    std::vector<std::uint64_t> joints_, lasts_;     // of units, from number `first_` on
    std::vector<std::uint32_t> run_starts_, run_lasts_;
    std::size_t ended_ = 0, pending_ = 0, known_ = 0, first_ = 0;
};

} // namespace bpeflow
