// Looking up pre-tokens: the ids of each, from the table of short tokens, a cache, or by merging.
#pragma once

#include "cache.hpp"
#include "kernels.hpp"
#include "merging.hpp"
#include "model.hpp"
#include "pretoken_batch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace bpeflow {

// The borders between texts among the ids given to `Lookup::replace`: none, as all belong to one text.
struct NoBorders {
    template <typename Ids> void pass(std::size_t, std::size_t, const Ids &) const {}
};

// Most pre-tokens are short tokens, which are looked up in the model. The others are collected in a batch and looked up
// in the cache that all encoders of the model share and, once that is full, in a private cache. The runs of a second
// level are looked up there, too.
class Lookup {
  public:
    using Bytes = const std::uint8_t *;

    // Share a cache, and use up to `own_bytes` for a private one.
    Lookup(const Model &model, const Kernels &kernels, Cache &shared, std::uint64_t own_bytes)
        : model_(model), kernels_(kernels), merging_(model.pairs, kernels), shared_(shared), own_bytes_(own_bytes) {}

    // Bytes before `end` may be read from now on.
    void set_readable(Bytes end) { text_end_ = end; }

    // Write the ids of a batch of pre-tokens, one after another, and tell `borders` where they are; see `replace`.
    template <typename Ids, typename Borders = NoBorders>
    void add(const PretokenBatch &tokens, Ids &ids, Borders borders = {}) {
        const std::size_t looked_up = tokens.with_words(text_end_);
        const ShortTokens &known = model_.short_tokens;
        std::size_t misses =
            kernels_.find(known.keys(), tokens.text, tokens.starts, tokens.ends, looked_up, ids_, misses_);
        for (std::size_t i = 0; i < looked_up; i++) ids_[i] = known.ids()[ids_[i]];
        for (std::size_t i = looked_up; i < tokens.count; i++) misses_[misses++] = static_cast<std::uint32_t>(i);
        replace(ids_, tokens.count, Misses{*this, tokens}, misses, ids, borders);
    }

    // Write the ids of one pre-token, of any length.
    template <typename Ids> void add(Bytes token, std::size_t length, Ids &ids) {
        replace(ids_, 0, Single{*this, token, length}, 1, ids);
    }

    // Write `count` given ids, of which some stretches are replaced by the ids of their keys. Stretch i is from start(i) to
    // end(i), set(i, key) sets its key, and encode(key, put) calls put(ids, count) if no cache has them. Up to seven more
    // ids are read. Before given ids from `done` to `end` are written, borders.pass(done, end, ids) is called.
    template <typename Stretches, typename Ids, typename Borders = NoBorders>
    void replace(const std::uint32_t *given, std::size_t count, const Stretches &stretches, std::size_t number,
                 Ids &ids, Borders borders = {}) {
        std::size_t done = 0;
        for (std::size_t first = 0; first < number + 2 * group; first += group) {
            for (std::size_t i = first; i < std::min(first + group, number); i++) {
                CacheKey &key = keys_[i % ring];
                stretches.set(i, key);
                shared_.prefetch(key);
                if (own_) own_->prefetch(key);
            }
            if (first < group) continue;
            for (std::size_t i = first - group; i < std::min(first, number); i++) guess(i % ring);
            if (first < 2 * group) continue;
            for (std::size_t i = first - 2 * group; i < std::min(first - group, number); i++) {
                borders.pass(done, stretches.start(i), ids);
                ids.put_run(given + done, stretches.start(i) - done);
                put_ids_of(i % ring, stretches, ids);
                done = stretches.end(i);
            }
        }
        borders.pass(done, count, ids);
        ids.put_run(given + done, count - done);
    }

    // Release the memory that a very long pre-token took.
    void trim() { merging_.trim(); }

  private:
    // While the index entries of one group are prefetched, the records of the group before are, too, and the ids of the
    // one before that are written. In smaller groups, memory has not answered by then. In larger ones, it has too many
    // requests at a time.
    static constexpr std::size_t group = 16, ring = 4 * group;

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
        template <typename Put> void encode(const CacheKey &key, const Put &put) const { lookup.encode(key, put); }
    };

    struct Single {
        Lookup &lookup;
        Bytes token;
        std::size_t length;

        std::size_t start(std::size_t) const { return 0; }
        std::size_t end(std::size_t) const { return 0; }
        void set(std::size_t, CacheKey &key) const { lookup.set(key, token, length); }
        template <typename Put> void encode(const CacheKey &key, const Put &put) const { lookup.encode(key, put); }
    };

    void set(CacheKey &key, Bytes token, std::size_t length) const {
        key.set(token, length, static_cast<std::size_t>(text_end_ - token));
    }

    template <typename Put> void encode(const CacheKey &key, const Put &put) {
        const std::uint32_t whole = model_.whole_tokens.find(key);
        if (whole != WholeTokens::NONE) return put(&whole, 1);
        merging_.merge(key.bytes, key.length());
        put(merging_.ids(), merging_.count());
    }

    // Find the record that a key probably has, and prefetch it.
    void guess(std::size_t at) {
        guesses_[at] = shared_.guess(keys_[at]);
        if (own_ && !guesses_[at]) guesses_[at] = own_->guess(keys_[at]);
    }

    template <typename Stretches, typename Ids> void put_ids_of(std::size_t at, const Stretches &stretches, Ids &ids) {
        const CacheKey &key = keys_[at];
        const Cache::Record *record = guesses_[at];
        if (!record || !record->is_of(key)) record = find(key);
        if (!record)
            stretches.encode(key, [&](const std::uint32_t *made, std::size_t count) {
                ids.put(made, count);
                keep(key, made, count);
            });
        else if (record->count() <= Cache::MOST)
            ids.put_few(record->ids, record->count());
        else
            ids.put(record->first(), record->many());
    }

    const Cache::Record *find(const CacheKey &key) const {
        const Cache::Record *const record = shared_.find(key);
        return record || !own_ ? record : own_->find(key);
    }

    void keep(const CacheKey &key, const std::uint32_t *ids, std::size_t count) {
        if (!shared_.full()) {
            shared_.insert(key, ids, count);
            return;
        }
        // When the own cache is full, it starts over: frequent pre-tokens soon return, and no bookkeeping of their
        // frequency is needed.
        if (!own_) own_ = std::make_unique<Cache>(own_bytes_);
        if (own_->full()) {
            own_->clear();
            std::fill(guesses_, guesses_ + ring, nullptr);
        }
        own_->insert(key, ids, count);
    }

    const Model &model_;
    const Kernels &kernels_;
    Merging merging_;
    Cache &shared_;
    std::unique_ptr<Cache> own_; // since the shared one is full
    const std::uint64_t own_bytes_;
    Bytes text_end_ = nullptr;
    CacheKey keys_[ring];
    const Cache::Record *guesses_[ring];
    std::uint32_t ids_[PretokenBatch::MOST + 8], misses_[PretokenBatch::MOST + 8];
};

} // namespace bpeflow
