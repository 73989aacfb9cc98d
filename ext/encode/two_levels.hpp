// Encoding pre-tokens of many words in two levels. second_level.hpp proves that it gives the ids of merging them whole.
//
// Pre-tokens are cut into pieces where no merge of the first level joins two bytes. Pieces are looked up as otherwise
// pre-tokens are, which yields units. Units are cut into runs where no late merge joins two of them, and runs are merged.
// A piece is about as long as a word and recurs as often; a pre-token of many words hardly ever does.
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
        if (joints_.size() * sizeof(std::uint64_t) > kept_memory) joints_ = {};
    }

  private:
    static constexpr std::size_t bits = 64; // of a word
    // A window of bytes is cut at a time. With a smaller one, few pieces are looked up together.
    static constexpr std::size_t words = 64, window = words * bits;
    static constexpr std::size_t longest = UINT32_MAX / 2; // of a piece and a window, in bytes: offsets have 31 bits
    static constexpr std::size_t beyond = 16;              // elements of arrays that the kernels and writers may touch
    static constexpr std::size_t kept_memory = std::size_t{1} << 20;
    static_assert(window < PretokenBatch::MOST);

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
            const std::uint32_t *const first = next;
            for (; next < last && text + *next < stop; next++) set_cut(static_cast<std::size_t>(text + *next - at));
            std::size_t pieces = 1 + kernels_.positions(cuts_, words, offset(at), starts_ + 1);
            find_ends(text, first, next, at);
            if (stop == end) {
                starts_[pieces] = offset(end);
                ends_.push_back(pieces);
            } else {
                pieces--; // the last one may go on
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

    void set_cut(std::size_t i) { cuts_[i / bits] |= std::uint64_t{1} << i % bits; }

    // Set `ends_` to the number of pieces at the end of each pre-token before those from `first` to `last`.
    void find_ends(Bytes text, const std::uint32_t *first, const std::uint32_t *last, Bytes at) {
        ends_.clear();
        std::size_t pieces = 1, word = 0;
        for (; first < last; first++) {
            const auto i = static_cast<std::size_t>(text + *first - at);
            for (; word < i / bits; word++) pieces += count_bits(cuts_[word]);
            ends_.push_back(pieces + count_bits(cuts_[word] & ((std::uint64_t{1} << i % bits) - 1)));
        }
    }

    static std::size_t count_bits(std::uint64_t word) { return static_cast<std::size_t>(__builtin_popcountll(word)); }

    // Append the units of pieces. Make `ends_` numbers of units.
    void look_up(std::size_t pieces) {
        const std::size_t room = pending_ + starts_[pieces] + beyond;
        if (units_.size() < room) units_.resize(std::max(room, 2 * window));
        IdWriter<std::uint32_t> units(units_.data(), pending_, units_.size());
        std::size_t more = pending_, end = 0; // units than pieces
        lookup_.add({piece_, starts_, starts_ + 1, pieces}, units, [&](std::size_t piece, std::size_t written) {
            for (; end < ends_.size() && ends_[end] <= piece; end++) ends_[end] += more;
            more = written - (piece + 1);
        });
        for (; end < ends_.size(); end++) ends_[end] += more;
        known_ = units.written();
        piece_ += starts_[pieces];
    }

    // Write the ids of all units but the last ones, if more may be joined to them: `pending_` units, all of which are joined.
    template <typename Ids> void join(Ids &ids) {
        const bool closed = !ends_.empty() && ends_.back() == known_;
        const std::size_t limit =
            closed ? known_ : known_ - 1; // units of which is known whether the next one is joined
        find_joints(limit);
        std::size_t start = 0, run = pending_ > 1 ? 0 : next_joint(0, limit, true);
        for (;;) {
            ids.put_run(units_.data() + start, run - start);
            start = run;
            if (run == limit) break;
            const std::size_t last = next_joint(std::max(run, first_), limit, false);
            if (last == limit) break;
            put_run(units_.data() + run, last + 1 - run, ids);
            start = last + 1;
            run = next_joint(start, limit, true);
        }
        pending_ = known_ - start;
        if (start > 0)
            std::copy_n(units_.data() + start, pending_, units_.data()); // a long run is not copied each time
    }

    // Write the ids of a run, whose units are overwritten. Most are short.
    template <typename Ids> void put_run(std::uint32_t *units, std::size_t count, Ids &ids) {
        if (count <= Merging::SHORT) return ids.put_run(units, merging_.merge_short(units, count));
        merging_.merge(units, count);
        ids.put(merging_.ids(), merging_.count());
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
        for (const std::size_t end : ends_) {
            const std::size_t i = end - 1 - first_;
            joints_[i / bits] &= ~(std::uint64_t{1} << i % bits);
        }
    }

    // Return the first unit from `unit` on whose bit is `joined`, `limit` if there is none before.
    std::size_t next_joint(std::size_t unit, std::size_t limit, bool joined) const {
        const std::uint64_t flipped = joined ? 0 : ~std::uint64_t{0};
        for (std::size_t i = unit - first_; unit < limit; unit = first_ + (i = (i / bits + 1) * bits))
            if (const std::uint64_t word = (joints_[i / bits] ^ flipped) >> i % bits)
                return std::min(unit + static_cast<std::size_t>(__builtin_ctzll(word)), limit);
        return limit;
    }

    const SecondLevel &second_;
    const Kernels &kernels_;
    Lookup &lookup_;
    Merging merging_;
    Bytes piece_ = nullptr;                     // the first one whose units are not known
    std::uint64_t cuts_[words];                 // of a window
    std::uint32_t starts_[window + 1 + beyond]; // of pieces, as offsets from `piece_`
    std::vector<std::size_t> ends_;             // of pre-tokens, in pieces, then in units
    std::vector<std::uint32_t> units_;          // `known_` are in use
    std::vector<std::uint64_t> joints_;
    std::size_t pending_ = 0, known_ = 0, first_ = 0;
};

} // namespace bpeflow
