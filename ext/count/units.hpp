// Superwords: pre-tokens as the units of the tokenizer that superwords extend, that is, as the ids that it gives them.
//
// A table of units counts either all pairs of adjacent units, or *fragments*: pre-tokens cut between the units of each
// pair that is not among the frequent ones. A fragment of one unit is left out, as it has no pair.
//
// Why cutting changes no merge that learning makes. Let theta be at most the count of the last merge, and let all pairs
// that are not frequent have counts below theta. A token that ends at a unit is made by the same merges wherever it
// occurs (backends/python_backend.py, *No string becomes a token twice*), so it consists of the same units everywhere.
// Whenever two tokens are side by side with a cut between them, so are the last unit of the one and the first unit of
// the other. Hence their pair occurs at most as often as the pair of these units: less than theta times, and it is not
// merged. All occurrences of the pairs that are merged remain, so counts, order and ties do, too. And the units of a
// fragment are those that the tokenizer gives the fragment's bytes, as no merge crosses its ends in the pre-token.
#pragma once

#include "bpeflow.h"
#include "cache.hpp"
#include "failure.hpp"
#include "filter.hpp"
#include "id_writer.hpp"
#include "kernels.hpp"
#include "lookup.hpp"
#include "model.hpp"
#include "pairs.hpp"
#include "pretoken_batch.hpp"
#include "second_level.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bpeflow {

// A set of pairs of units. Most pairs that are looked up are not in it, and a filter rejects them.
class PairSet {
  public:
    PairSet(const std::uint32_t *pairs, std::uint64_t count) : filter_(count) {
        while (mask_ < 2 * count) mask_ = 2 * mask_ + 1;
        slots_.assign(mask_ + 1, none);
        for (std::uint64_t i = 0; i < count; i++) {
            const std::uint32_t left = pairs[2 * i], right = pairs[2 * i + 1];
            slots_[find(left, right)] = key(left, right);
            filter_.add(Pairs::hash(left, right));
        }
    }

    bool has(std::uint32_t left, std::uint32_t right) const {
        return filter_.may_have(Pairs::hash(left, right)) && slots_[find(left, right)] != none;
    }

  private:
    static constexpr std::uint64_t none = UINT64_MAX; // no pair, as ids are below 2^32 - 1

    static std::uint64_t key(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32 | right; }

    // Return the slot of a pair, or the empty one where it belongs.
    std::size_t find(std::uint32_t left, std::uint32_t right) const {
        std::size_t slot = Pairs::hash(left, right) & mask_;
        while (slots_[slot] != none && slots_[slot] != key(left, right)) slot = (slot + 1) & mask_;
        return slot;
    }

    Filter filter_;
    std::vector<std::uint64_t> slots_;
    std::size_t mask_ = 15;
};

// A tokenizer and its frequent pairs. Immutable but for the cache, which threads share.
struct Units {
    // `pairs` are NULL to count pairs.
    Units(const bpeflow_vocabulary &given, const std::uint32_t *pairs, std::uint64_t count)
        : model(of_pieces(given)), whole(given, model.pairs, model.ordinary), frequent(pairs, pairs ? count : 0),
          fragments(pairs != nullptr), lengths(given.tokens), cache(cache_bytes) {
        for (std::uint32_t id = 0; id < given.tokens; id++)
            lengths[id] = static_cast<std::uint32_t>(model.ordinary.length(id));
    }

    const Model model;
    const SecondLevel whole; // without any merge: where no merge joins two bytes, and which pre-tokens are whole tokens
    const PairSet frequent;
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

// Turns batches of pre-tokens into batches of pairs or of fragments.
class UnitReader {
  public:
    using Bytes = const std::uint8_t *;

    UnitReader(Units &units, const Kernels &kernels)
        : units_(units), lookup_(units.model, kernels, units.cache, Units::own_cache_bytes) {
        for (std::size_t i = 0; i <= most + beyond; i++)
            key_ends_[i] = static_cast<std::uint32_t>(sizeof(std::uint64_t) * i);
    }

    // Call emit(batch, readable_end) for the pairs or fragments of a batch of pre-tokens. Bytes up to `readable_end` may
    // be read. Fragments are in the text; pairs are only valid during the call.
    template <typename Emit> void add(const PretokenBatch &tokens, Bytes readable_end, const Emit &emit) {
        lookup_.set_readable(readable_end);
        text_ = tokens.text;
        pretokens_.clear();
        walked_ = pieces_ = emitted_ = 0;
        for (std::size_t i = 0; i < tokens.count; i++) {
            const std::uint32_t start = tokens.starts[i], end = tokens.ends[i];
            const std::size_t length = end - start;
            if (length < 2 || units_.whole.find_whole(text_ + start, length) != WholeTokens::NONE) continue;
            pretokens_.emplace_back(start, end);
            if (walked_ + 1 == pretokens_.size()) walk_ = {none, start, end, start, 0};
            cut(start, end, readable_end, emit);
        }
        if (pieces_ > 0) look_up(pieces_, readable_end, emit);
        lookup_.trim();
        if (ids_.size() > kept_ids) ids_ = {};
    }

  private:
    // Pieces looked up together, and pairs or fragments passed on together.
    static constexpr std::size_t most = 4096;
    static constexpr std::size_t beyond = 16; // elements of arrays that kernels and writers may touch
    static constexpr std::size_t kept_ids = std::size_t{1} << 18;
    static constexpr std::uint32_t none = UINT32_MAX; // no unit
    static_assert(most <= PretokenBatch::MOST);

    // Append the pieces of a pre-token. Whenever there are `most`, look up all but the last, which may continue.
    template <typename Emit> void cut(std::uint32_t start, std::uint32_t end, Bytes readable_end, const Emit &emit) {
        if (pieces_ == most) look_up(most, readable_end, emit);
        const std::uint8_t *const cuts = units_.whole.cuts();
        std::size_t pieces = pieces_;
        starts_[pieces++] = start;
        for (std::uint32_t at = start + 1; at < end;) {
            const auto stop = static_cast<std::uint32_t>(std::min<std::size_t>(end, at + (most - pieces)));
            for (; at < stop; at++) { // without a branch
                ends_[pieces - 1] = starts_[pieces] = at;
                pieces += cuts[std::size_t{text_[at - 1]} << 8 | text_[at]];
            }
            if (pieces < most) continue;
            look_up(most - 1, readable_end, emit);
            starts_[0] = starts_[most - 1];
            pieces = 1;
        }
        ends_[pieces - 1] = end;
        pieces_ = pieces;
    }

    // Look up the first `count` pieces, and emit their pairs or fragments. Then there are no pieces.
    template <typename Emit> void look_up(std::size_t count, Bytes readable_end, const Emit &emit) {
        std::size_t room = beyond;
        for (std::size_t i = 0; i < count; i++) room += ends_[i] - starts_[i];
        if (ids_.size() < room) ids_.resize(std::max(room, 8 * most));
        IdWriter<std::uint32_t> ids(ids_.data(), 0, ids_.size());
        lookup_.add({text_, starts_, ends_, count}, ids, [](std::size_t, std::uint64_t) {});
        pieces_ = 0;
        for (std::size_t first = 0; first < ids.written(); first += most) {
            const std::size_t end = std::min<std::size_t>(first + most, ids.written());
            units_.fragments ? emit_fragments(first, end) : emit_pairs(first, end);
            pass_on(readable_end, emit);
        }
    }

    // Emit the pairs of each unit and the one before it. No branch depends on the units, but at the end of a pre-token.
    void emit_pairs(std::size_t first, std::size_t end) {
        Walk walk = walk_;
        for (std::size_t i = first; i < end; i++) {
            const std::uint32_t unit = ids_[i];
            keys_[emitted_] = __builtin_bswap64(std::uint64_t{walk.left} << 32 | unit); // ordered as the ids
            emitted_ += walk.left != none;
            walk.left = unit;
            walk.at += units_.lengths[unit];
            if (walk.at >= walk.end) walk = next_pretoken(walk);
        }
        walk_ = walk;
    }

    // Emit the fragments that end before a unit, or with it if it is the last one of a pre-token.
    void emit_fragments(std::size_t first, std::size_t end) {
        Walk walk = walk_;
        for (std::size_t i = first; i < end; i++) {
            const std::uint32_t unit = ids_[i];
            const bool closed = walk.left != none && !units_.frequent.has(walk.left, unit);
            fragment_starts_[emitted_] = walk.fragment;
            fragment_ends_[emitted_] = walk.at;
            emitted_ += closed && walk.joined > 1;
            walk.fragment = closed ? walk.at : walk.fragment;
            walk.joined = closed ? 1 : walk.joined + 1;
            walk.left = unit;
            walk.at += units_.lengths[unit];
            if (walk.at < walk.end) continue;
            fragment_starts_[emitted_] = walk.fragment;
            fragment_ends_[emitted_] = walk.at;
            emitted_ += walk.joined > 1; // then none ended before the unit
            walk = next_pretoken(walk);
        }
        walk_ = walk;
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

    template <typename Emit> void pass_on(Bytes readable_end, const Emit &emit) {
        const auto *const keys = reinterpret_cast<Bytes>(keys_);
        if (units_.fragments)
            emit(PretokenBatch{text_, fragment_starts_, fragment_ends_, emitted_}, readable_end);
        else // a key is short, so the table copies it
            emit(PretokenBatch{keys, key_ends_, key_ends_ + 1, emitted_}, keys + sizeof keys_);
        emitted_ = 0;
    }

    Units &units_;
    Lookup lookup_;
    Bytes text_ = nullptr;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pretokens_; // of the batch, those that have pieces
    std::size_t pieces_ = 0, emitted_ = 0;
    std::uint32_t starts_[most + beyond], ends_[most + beyond]; // of pieces
    std::vector<std::uint32_t> ids_;                            // of pieces

    Walk walk_;
    std::size_t walked_ = 0; // pre-tokens

    std::uint32_t fragment_starts_[most + beyond], fragment_ends_[most + beyond];
    std::uint64_t keys_[most + beyond];
    std::uint32_t key_ends_[most + 1 + beyond];
};

} // namespace bpeflow
