// Looking up pre-tokens: the ids of each, from the table of short tokens, a cache, or by merging.
#pragma once

#include "cache.hpp"
#include "id_writer.hpp"
#include "kernels.hpp"
#include "merging.hpp"
#include "model.hpp"
#include "pretoken_batch.hpp"
#include "reserved.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace bpeflow {

// The borders between texts among the ids given to `Lookup::replace`: none, as all belong to one text.
struct NoBorders {
    template <typename Ids> void pass(std::size_t, std::size_t, const Ids &) const {}
};

// Most pre-tokens are short tokens, which are looked up in the model. The others are looked up in the cache that all
// encoders of the model share and, once that is full, in a private cache. The runs of a second level are looked up there,
// too. Tried: copies of the records found last, in a table that fits in the L2 cache, before the shared cache. On a Zen 4
// known text took 4-10 % longer.
class Lookup {
  public:
    using Bytes = const std::uint8_t *;

    // Ids that are valid until others are made.
    struct Made {
        const std::uint32_t *ids;
        std::size_t count;
    };

    // Share a cache, and use up to `own_bytes` for a private one.
    Lookup(const Model &model, const Kernels &kernels, Cache &shared, std::uint64_t own_bytes)
        : model_(model), kernels_(kernels), merging_(model.pairs, model.short_tokens.keys(),
                                                     model.whole_tokens.empty() ? model.short_tokens.ids() : nullptr),
          shared_(shared), own_bytes_(own_bytes) {}

    // Bytes before `end` may be read from now on.
    void set_readable(Bytes end) { text_end_ = end; }

    // Write the ids of a batch of pre-tokens, one after another, and report their ends to `borders`; see `replace`.
    template <typename Ids, typename Borders = NoBorders>
    void add(const PretokenBatch &tokens, Ids &ids, Borders borders = {}) {
        const std::size_t looked_up = tokens.with_words(text_end_);
        const ShortTokens &known = model_.short_tokens;
        std::size_t misses =
            kernels_.find(known.keys(), tokens.text, tokens.starts, tokens.ends, looked_up, slots_, misses_);
        typename Ids::Id *const given = given_ids<typename Ids::Id>();
        for (std::size_t i = 0; i < looked_up; i++) given[i] = static_cast<typename Ids::Id>(known.ids()[slots_[i]]);
        for (std::size_t i = looked_up; i < tokens.count; i++) misses_[misses++] = static_cast<std::uint32_t>(i);
        replace(given, tokens.count, Misses{*this, tokens}, misses, ids, borders);
    }

    // Write `count` given ids, of which some stretches are replaced by the ids of their keys. Stretch i is from start(i) to
    // end(i), set(i, key) sets its key, and encode(key) returns its ids if no cache has them. Up to `FEW` more ids are
    // read. Before given ids from `done` to `end` are written, borders.pass(done, end, ids) is called.
    template <typename Given, typename Stretches, typename Ids, typename Borders = NoBorders>
    void replace(const Given *given, std::size_t count, const Stretches &stretches, std::size_t number, Ids &to,
                 Borders borders = {}) {
        Ids ids = to; // a copy, which stays in registers
        // When the private cache is full, it starts over: frequent pre-tokens soon return, and no bookkeeping of their
        // frequency is needed. No record of it is awaited now.
        if (own_ && own_->full()) own_->clear();
        std::size_t done = 0;
        for (std::size_t begin = 0; begin < number + 2 * group; begin += group) {
            for (std::size_t i = begin; i < std::min(begin + group, number); i++) {
                CacheKey &key = keys_[i % awaited];
                stretches.set(i, key);
                shared_.prefetch(key);
                if (own_) own_->prefetch(key);
            }
            if (begin < group) continue;
            for (std::size_t i = begin - group; i < std::min(begin, number); i++) guess(i % awaited);
            if (begin < 2 * group) continue;
            for (std::size_t i = begin - 2 * group; i < std::min(begin - group, number); i++) {
                const std::size_t start = stretches.start(i);
                borders.pass(done, start, ids);
                ids.put_run(given + done, start - done);
                put(stretches, keys_[i % awaited], records_[i % awaited], ids);
                done = stretches.end(i);
            }
        }
        borders.pass(done, count, ids);
        ids.put_run(given + done, count - done);
        to = ids;
    }

    // Release the memory that a very long pre-token took.
    void trim() { merging_.trim(); }

  private:
    // While the index entries of one group are prefetched, the records of the group before are, too, and the one before
    // that is looked up. In smaller groups, memory has not answered by then. In larger ones, it has too many requests at a
    // time.
    static constexpr std::size_t group = 16;
    static constexpr std::size_t awaited = 4 * group; // more than three groups, and a power of two

    // The pre-tokens of a batch that are not short tokens.
    struct Misses {
        Lookup &lookup;
        const PretokenBatch &tokens;

        std::size_t start(std::size_t i) const { return lookup.misses_[i]; }
        std::size_t end(std::size_t i) const { return start(i) + 1; }
        void set(std::size_t i, CacheKey &key) const {
            const std::uint32_t from = tokens.starts[start(i)];
            lookup.set(key, tokens.text + from, tokens.ends[start(i)] - from);
        }
        Made encode(const CacheKey &key) const { return lookup.encode(key); }
    };

    void set(CacheKey &key, Bytes token, std::size_t length) const {
        key.set(token, length, static_cast<std::size_t>(text_end_ - token));
    }

    template <typename Id> Id *given_ids() {
        if constexpr (sizeof(Id) == sizeof *short_ids_)
            return short_ids_;
        else
            return slots_; // in place
    }

    Made encode(const CacheKey &key) {
        whole_ = model_.whole_tokens.find(key);
        if (whole_ != WholeTokens::NONE) return {&whole_, 1};
        merging_.merge(key.bytes, key.length());
        return {merging_.ids(), merging_.count()};
    }

    // Find the record that a key probably has, and prefetch it.
    void guess(std::size_t i) {
        const Cache::Record *record = shared_.guess(keys_[i]);
        if (own_ && !record) record = own_->guess(keys_[i]);
        records_[i] = record;
    }

    // Write the ids of a key, given the record that was guessed.
    template <typename Stretches, typename Ids>
    void put(const Stretches &stretches, const CacheKey &key, const Cache::Record *record, Ids &ids) {
        if (!record || !record->is_of(key)) record = find(key);
        if (!record) {
            const Made made = stretches.encode(key);
            keep(key, made);
            ids.put(made.ids, made.count);
        } else if (record->count() <= Cache::MOST) {
            ids.put_few(record->ids, record->count());
        } else {
            ids.put_many(record->first(), record->many());
        }
    }

    const Cache::Record *find(const CacheKey &key) const {
        const Cache::Record *const record = shared_.find(key);
        return record || !own_ ? record : own_->find(key);
    }

    void keep(const CacheKey &key, const Made &made) {
        if (!shared_.full()) {
            shared_.insert(key, made.ids, made.count);
            return;
        }
        if (!own_) own_ = std::make_unique<Cache>(own_bytes_);
        own_->insert(key, made.ids, made.count);
    }

    const Model &model_;
    const Kernels &kernels_;
    Merging merging_;
    Cache &shared_;
    std::unique_ptr<Cache> own_; // since the shared one is full
    const std::uint64_t own_bytes_;
    Bytes text_end_ = nullptr;
    std::uint32_t whole_ = WholeTokens::NONE; // the token that was made
    CacheKey keys_[awaited];
    const Cache::Record *records_[awaited]; // null if none has the tag of the key
    std::uint32_t slots_[PretokenBatch::MOST + FEW], misses_[PretokenBatch::MOST + 8];
    std::uint16_t short_ids_[PretokenBatch::MOST + FEW];
};

} // namespace bpeflow
