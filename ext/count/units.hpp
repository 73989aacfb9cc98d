// Superwords: pre-tokens as the units of the tokenizer that superwords extend, that is, as the ids that it gives them.
//
// A table of units counts either all pairs of adjacent units, by *cell* (see below), or *fragments*: pre-tokens cut
// between the units of each pair that is not in a frequent cell. A fragment of one unit is left out, as it has no pair.
//
// Why cutting changes no merge that learning makes. Let theta be at most the count of the last merge, and let all cells
// that are not frequent have counts below theta, and so do their pairs. A token that ends at a unit is made by the same
// merges wherever it occurs (backends/python_backend.py, *No string becomes a token twice*), so it consists of the same
// units everywhere.
// Whenever two tokens are side by side with a cut between them, so are the last unit of the one and the first unit of
// the other. Hence their pair occurs at most as often as the pair of these units: less than theta times, and it is not
// merged. All occurrences of the pairs that are merged remain, so counts, order and ties do, too. And the units of a
// fragment are those that the tokenizer gives the fragment's bytes, as no merge crosses its ends in the pre-token.
#pragma once

#include "bpeflow.h"
#include "cache.hpp"
#include "failure.hpp"
#include "id_writer.hpp"
#include "kernels.hpp"
#include "lookup.hpp"
#include "model.hpp"
#include "pages.hpp"
#include "pairs.hpp"
#include "pieces.hpp"
#include "pretoken_batch.hpp"
#include "table.hpp"
#include "whole_tokens.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace bpeflow {

// Pairs of units by *cell*: all pairs with the same hash are counted together. The counts take the same memory for any
// corpus, and most are in the cache. They exceed those of single pairs, so a few places are not cut that could be.
namespace cells {

// There are 4 % more distinct fragments on 250 MB of text, and 12 % more on 1.1 GB, than if each pair were counted alone
// (16,384 merges, three pairs for each). With a quarter of the cells there are 18 % more on 250 MB, and counting cells
// takes four fifths of the time.
constexpr unsigned bits = 22;
constexpr std::size_t number = std::size_t{1} << bits;
constexpr std::size_t KEY = 4; // bytes of a cell in a table

inline std::uint32_t of(std::uint32_t left, std::uint32_t right) {
    return static_cast<std::uint32_t>(Pairs::hash(left, right) >> (64 - bits));
}

// A set of cells.
class Set {
  public:
    Set(const std::uint32_t *cells, std::uint64_t count) {
        for (std::uint64_t i = 0; i < count; i++) {
            if (cells[i] >= number) throw Failure{BPEFLOW_BAD_ARGUMENT};
            words_[cells[i] / 64] |= std::uint64_t{1} << cells[i] % 64;
        }
    }

    bool has(std::uint32_t cell) const { return words_[cell / 64] >> cell % 64 & 1; }

  private:
    std::vector<std::uint64_t> words_ = std::vector<std::uint64_t>(number / 64);
};

// The counts of cells since they were last given to a table.
class Counts {
  public:
    // Count cells. `cells` has as many readable elements as are prefetched after the last one. When the counts may not fit
    // any more, they are given to the table.
    void add(const std::uint32_t *cells, std::size_t count, Table &table) {
        if (count > std::numeric_limits<std::uint32_t>::max() - total_) give_to(table);
        total_ += count;
        for (std::size_t i = 0; i < count; i++) {
            __builtin_prefetch(counts() + cells[i + ahead], 1);
            used_ += counts()[cells[i]]++ == 0;
        }
    }

    // Add the counts to a table, with cells as big-endian numbers of 4 bytes.
    void give_to(Table &table) {
        if (total_ == 0) return;
        for (std::uint32_t cell = 0; cell < number; cell++) {
            std::uint32_t &count = counts()[cell];
            if (count == 0) continue;
            std::uint8_t key[8]; // the table copies it
            for (unsigned i = 0; i < KEY; i++) key[i] = static_cast<std::uint8_t>(cell >> (24 - 8 * i));
            table.add(key, KEY, sizeof key, count);
            count = 0;
        }
        table.flush();
        total_ = used_ = 0;
    }

    std::size_t used() const { return used_; } // cells with a count

    static constexpr std::size_t ahead = 16; // in fewer steps, memory has not answered

  private:
    std::uint32_t *counts() { return reinterpret_cast<std::uint32_t *>(pages_.data()); }

    Pages pages_{number * sizeof(std::uint32_t)};
    std::uint64_t total_ = 0;
    std::size_t used_ = 0;
};

} // namespace cells

// A tokenizer and its frequent cells. Immutable but for the cache, which threads share.
struct Units {
    // `frequent_cells` are NULL to count pairs.
    Units(const bpeflow_vocabulary &given, const std::uint32_t *frequent_cells, std::uint64_t count)
        : model(of_pieces(given)), whole(model.ordinary, given.whole_tokens),
          frequent(frequent_cells, frequent_cells ? count : 0), fragments(frequent_cells != nullptr),
          lengths(given.tokens), cache(cache_bytes) {
        for (std::uint32_t id = 0; id < given.tokens; id++)
            lengths[id] = static_cast<std::uint32_t>(model.ordinary.length(id));
    }

    const Model model;
    const WholeTokens whole;
    const cells::Set frequent;
    const bool fragments;               // or pairs
    std::vector<std::uint32_t> lengths; // of units, in bytes
    Cache cache;

    // A piece between two places where no merge joins the bytes is about as long as a word. With a smaller cache more of
    // them are merged again, with a larger one the cache takes a good part of the memory of small tables.
    static constexpr std::uint64_t cache_bytes = std::uint64_t{1} << 26, own_cache_bytes = cache_bytes / 4;

  private:
    // Whole tokens are pre-tokens, not pieces of them.
    static bpeflow_vocabulary of_pieces(bpeflow_vocabulary given) {
        given.whole_tokens = 0;
        given.first_level = given.merge_count;
        return given;
    }
};

// Counts the pairs or the fragments of pre-tokens.
class UnitReader {
  public:
    using Bytes = const std::uint8_t *;

    UnitReader(Units &units, const Kernels &kernels, Table &table)
        : units_(units), lookup_(units.model, kernels, units.cache, Units::own_cache_bytes), pieces_(units.model.pairs),
          table_(table) {}

    // Count the pairs or fragments of a batch of pre-tokens. Bytes up to `readable_end` may be read. Fragments must stay
    // in place until the table is flushed.
    void count(const PretokenBatch &tokens, Bytes readable_end) {
        lookup_.set_readable(readable_end);
        text_ = tokens.text;
        pretokens_.clear();
        pieces_.clear();
        walked_ = 0;
        const auto look_up_pieces = [&](const PretokenBatch &pieces) { look_up(pieces, readable_end); };
        for (std::size_t i = 0; i < tokens.count; i++) {
            const std::uint32_t start = tokens.starts[i], end = tokens.ends[i];
            const std::size_t length = end - start;
            if (length < 2 || units_.whole.find(text_ + start, length) != WholeTokens::NONE) continue;
            pretokens_.emplace_back(start, end);
            if (walked_ + 1 == pretokens_.size()) walk_ = {none, start, end, start, 0};
            pieces_.add(text_, start, end, look_up_pieces);
        }
        pieces_.finish(text_, look_up_pieces);
        lookup_.trim();
        if (ids_.size() > kept_ids) ids_ = {};
    }

    cells::Counts &pairs() { return pairs_; }
    const cells::Counts &pairs() const { return pairs_; }

  private:
    static constexpr std::size_t most = 4096; // units whose pairs or fragments are counted together
    static constexpr std::size_t beyond = 16; // elements of arrays that kernels and writers may touch
    static constexpr std::size_t kept_ids = std::size_t{1} << 18;
    static constexpr std::uint32_t none = UINT32_MAX; // no unit

    // Look up pieces, and count their pairs or fragments.
    void look_up(const PretokenBatch &pieces, Bytes readable_end) {
        std::size_t room = beyond;
        for (std::size_t i = 0; i < pieces.count; i++) room += pieces.ends[i] - pieces.starts[i];
        if (ids_.size() < room) ids_.resize(std::max(room, 8 * most));
        IdWriter<std::uint32_t> ids(ids_.data(), 0, ids_.size());
        lookup_.add(pieces, ids);
        for (std::size_t first = 0; first < ids.written(); first += most) {
            const std::size_t end = std::min<std::size_t>(first + most, ids.written());
            units_.fragments ? count_fragments(first, end, readable_end) : count_pairs(first, end);
        }
    }

    // Count the pairs of each unit and the one before it. No branch depends on the units, but at the end of a pre-token.
    void count_pairs(std::size_t first, std::size_t end) {
        std::size_t found = 0;
        Walk walk = walk_;
        for (std::size_t i = first; i < end; i++) {
            const std::uint32_t unit = ids_[i];
            cells_[found] = cells::of(walk.left, unit);
            found += walk.left != none;
            walk.left = unit;
            walk.at += units_.lengths[unit];
            if (walk.at >= walk.end) walk = next_pretoken(walk);
        }
        walk_ = walk;
        pairs_.add(cells_, found, table_);
    }

    // Count the fragments that end before a unit, or with it if it is the last one of a pre-token. Again no branch
    // depends on the units.
    void count_fragments(std::size_t first, std::size_t end, Bytes readable_end) {
        std::size_t found = 0;
        Walk walk = walk_;
        for (std::size_t i = first; i < end; i++) {
            const std::uint32_t unit = ids_[i];
            const bool closed = (walk.left != none) & !units_.frequent.has(cells::of(walk.left, unit));
            fragment_starts_[found] = walk.fragment;
            fragment_ends_[found] = walk.at;
            found += closed & (walk.joined > 1);
            walk.fragment = closed ? walk.at : walk.fragment;
            walk.joined = closed ? 1 : walk.joined + 1;
            walk.left = unit;
            walk.at += units_.lengths[unit];
            if (walk.at < walk.end) continue;
            fragment_starts_[found] = walk.fragment;
            fragment_ends_[found] = walk.at;
            found += walk.joined > 1; // then none ended before the unit
            walk = next_pretoken(walk);
        }
        walk_ = walk;
        table_.count({text_, fragment_starts_, fragment_ends_, found}, readable_end);
    }

    // A position in the pre-tokens, between two units.
    struct Walk {
        std::uint32_t left = none;              // the unit before it in the pre-token
        std::uint32_t at = 0, end = 0;          // the position, and the end of the pre-token
        std::uint32_t fragment = 0, joined = 0; // the start of a fragment, and its number of units so far
    };

    // Return the start of the next pre-token, if there is one yet.
    Walk next_pretoken(const Walk &walk) {
        if (walk.at > walk.end) throw Failure{BPEFLOW_BAD_ARGUMENT}; // a merge whose result is not its parts
        if (++walked_ == pretokens_.size()) return {};
        const auto &[start, end] = pretokens_[walked_];
        return {none, start, end, start, 0};
    }

    Units &units_;
    Lookup lookup_;
    Bytes text_ = nullptr;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pretokens_; // of the batch, those that have pieces
    Pieces pieces_;
    std::vector<std::uint32_t> ids_; // of pieces

    Walk walk_;
    std::size_t walked_ = 0; // pre-tokens

    std::uint32_t fragment_starts_[most + beyond], fragment_ends_[most + beyond];
    Table &table_;
    std::uint32_t cells_[most + cells::Counts::ahead] = {};
    cells::Counts pairs_;
};

} // namespace bpeflow
