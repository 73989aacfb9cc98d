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

// The borders between the texts of the pre-tokens given to `Lookup::add`: none, as all are of one text.
struct NoBorders {
    template <typename Ids> void pass(std::size_t, std::size_t, const Ids &) const {}
};

// Most pre-tokens are short tokens, which are looked up in the model. The others are looked up in the cache that all
// encoders of the model share and, once that is full, in a private cache. Tried: copies of the records found last, in a
// table that fits in the L2 cache, before the shared cache. On a Zen 4 known text took 4-10 % longer.
class Lookup {
  public:
    using Bytes = const std::uint8_t *;

    // Share a cache, and use up to `own_bytes` for a private one.
    Lookup(const Model &model, const Kernels &kernels, Cache &shared, std::uint64_t own_bytes)
        : model_(model), kernels_(kernels), merging_(model.pairs, model.short_tokens.keys(),
                                                     model.whole_tokens.empty() ? model.short_tokens.ids() : nullptr),
          shared_(shared), own_bytes_(own_bytes) {}

    // Bytes before `end` may be read from now on.
    void set_readable(Bytes end) { text_end_ = end; }

    // Write the ids of a batch of pre-tokens, one after another. Before those from the pre-token `done` to `end` are
    // written, of which each has one id, call borders.pass(done, end, ids).
    template <typename Ids, typename Borders = NoBorders>
    void add(const PretokenBatch &tokens, Ids &ids, Borders borders = {}) {
        const std::size_t looked_up = tokens.with_words(text_end_);
        const ShortTokens &known = model_.short_tokens;
        std::size_t misses =
            kernels_.find(known.keys(), tokens.text, tokens.starts, tokens.ends, looked_up, slots_, misses_);
        typename Ids::Id *const given = given_ids<typename Ids::Id>();
        for (std::size_t i = 0; i < looked_up; i++) given[i] = static_cast<typename Ids::Id>(known.ids()[slots_[i]]);
        for (std::size_t i = looked_up; i < tokens.count; i++) misses_[misses++] = static_cast<std::uint32_t>(i);
        replace(given, tokens, misses, ids, borders);
    }

    // Release the memory that a very long pre-token took.
    void trim() { merging_.trim(); }

  private:
    // While the index entries of one group are prefetched, the records of the group before are, too, and the one before
    // that is looked up. In smaller groups, memory has not answered by then. In larger ones, it has too many requests at a
    // time.
    static constexpr std::size_t group = 16;
    static constexpr std::size_t awaited = 4 * group; // more than three groups, and a power of two

    // Write an id for each pre-token, but look up the `number` misses. Up to `FEW` more ids are read.
    template <typename Ids, typename Borders>
    void replace(const typename Ids::Id *given, const PretokenBatch &tokens, std::size_t number, Ids &to,
                 Borders borders) {
        Ids ids = to; // a copy, which stays in registers
        // When the private cache is full, it starts over: frequent pre-tokens soon return, and no bookkeeping of their
        // frequency is needed. No record of it is awaited now.
        if (own_ && own_->full()) own_->clear();
        std::size_t done = 0;
        for (std::size_t begin = 0; begin < number + 2 * group; begin += group) {
            for (std::size_t i = begin; i < std::min(begin + group, number); i++) {
                CacheKey &key = keys_[i % awaited];
                const std::uint32_t start = tokens.starts[misses_[i]], end = tokens.ends[misses_[i]];
                const Bytes token = tokens.text + start;
                key.set(token, end - start, static_cast<std::size_t>(text_end_ - token));
                shared_.prefetch(key);
                if (own_) own_->prefetch(key);
            }
            if (begin < group) continue;
            for (std::size_t i = begin - group; i < std::min(begin, number); i++) guess(i % awaited);
            if (begin < 2 * group) continue;
            for (std::size_t i = begin - 2 * group; i < std::min(begin - group, number); i++) {
                const std::size_t at = misses_[i];
                borders.pass(done, at, ids);
                ids.put_run(given + done, at - done);
                put(keys_[i % awaited], records_[i % awaited], ids);
                done = at + 1;
            }
        }
        borders.pass(done, tokens.count, ids);
        ids.put_run(given + done, tokens.count - done);
        to = ids;
    }

    template <typename Id> Id *given_ids() {
        if constexpr (sizeof(Id) == sizeof *short_ids_)
            return short_ids_;
        else
            return slots_; // in place
    }

    // Find the record that a key probably has, and prefetch it.
    void guess(std::size_t i) {
        const Cache::Record *record = shared_.guess(keys_[i]);
        if (own_ && !record) record = own_->guess(keys_[i]);
        records_[i] = record;
    }

    // Write the ids of a key, given the record that was guessed.
    template <typename Ids> void put(const CacheKey &key, const Cache::Record *record, Ids &ids) {
        if (!record || !record->is_of(key)) record = find(key);
        if (!record) {
            encode(key, ids);
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

    // Write the ids of a key that no cache has.
    template <typename Ids> void encode(const CacheKey &key, Ids &ids) {
        const std::uint32_t whole = model_.whole_tokens.find(key);
        const bool merges = whole == WholeTokens::NONE;
        if (merges) merging_.merge(key.bytes, key.length());
        const std::uint32_t *const made = merges ? merging_.ids() : &whole;
        const std::size_t count = merges ? merging_.count() : 1;
        keep(key, made, count);
        ids.put(made, count);
    }

    void keep(const CacheKey &key, const std::uint32_t *ids, std::size_t count) {
        if (!shared_.full()) {
            shared_.insert(key, ids, count);
            return;
        }
        if (!own_) own_ = std::make_unique<Cache>(own_bytes_);
        own_->insert(key, ids, count);
    }

    const Model &model_;
    const Kernels &kernels_;
    Merging merging_;
    Cache &shared_;
    std::unique_ptr<Cache> own_; // since the shared one is full
    const std::uint64_t own_bytes_;
    Bytes text_end_ = nullptr;
    CacheKey keys_[awaited];
    const Cache::Record *records_[awaited]; // null if none has the tag of the key
    std::uint32_t slots_[PretokenBatch::MOST + FEW], misses_[PretokenBatch::MOST + 8];
    std::uint16_t short_ids_[PretokenBatch::MOST + FEW];
};

} // namespace bpeflow
