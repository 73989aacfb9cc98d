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

// Most pre-tokens are short tokens, which are looked up in the model. The others are collected in a batch and looked up
// in the cache that all encoders of the model share and, once that is full, in a private cache.
class Lookup {
  public:
    using Bytes = const std::uint8_t *;

    // Share a cache, and use up to `own_bytes` for a private one.
    Lookup(const Model &model, const Kernels &kernels, Cache &shared, std::uint64_t own_bytes)
        : model_(model), kernels_(kernels), merging_(model.pairs, kernels), shared_(shared), own_bytes_(own_bytes) {}

    // Bytes before `end` may be read from now on.
    void set_readable(Bytes end) { text_end_ = end; }

    // Write the ids of a batch of pre-tokens, one after another. Call missed(i, written) after pre-token i if it was not
    // a short token and so may have several ids; `written` is the number of ids that `ids` has then.
    template <typename Ids, typename Missed> void add(const PretokenBatch &tokens, Ids &ids, const Missed &missed) {
        const std::size_t looked_up = tokens.with_words(text_end_);
        const ShortTokens &known = model_.short_tokens;
        std::size_t misses =
            kernels_.find(known.keys(), tokens.text, tokens.starts, tokens.ends, looked_up, ids_, misses_);
        for (std::size_t i = 0; i < looked_up; i++) ids_[i] = known.ids()[ids_[i]];
        for (std::size_t i = looked_up; i < tokens.count; i++) misses_[misses++] = static_cast<std::uint32_t>(i);
        std::size_t done = 0; // pre-tokens
        for (std::size_t first = 0; first < misses + 2 * group; first += group) {
            for (std::size_t i = first; i < std::min(first + group, misses); i++) {
                const std::uint32_t start = tokens.starts[misses_[i]], end = tokens.ends[misses_[i]];
                set(i % ring, tokens.text + start, end - start);
            }
            if (first < group) continue;
            for (std::size_t i = first - group; i < std::min(first, misses); i++) guess(i % ring);
            if (first < 2 * group) continue;
            for (std::size_t i = first - 2 * group; i < std::min(first - group, misses); i++) {
                const std::size_t token = misses_[i];
                ids.put_run(ids_ + done, token - done);
                put_ids_of(i % ring, ids);
                done = token + 1;
                missed(token, ids.written());
            }
        }
        ids.put_run(ids_ + done, tokens.count - done);
    }

    // Write the ids of one pre-token, of any length.
    template <typename Ids> void add(Bytes token, std::size_t length, Ids &ids) {
        set(0, token, length);
        guess(0);
        put_ids_of(0, ids);
    }

    // Release the memory that a very long pre-token took.
    void trim() { merging_.trim(); }

  private:
    // While the index entries of one group are prefetched, the records of the group before are, too, and the ids of the
    // one before that are written. In smaller groups, memory has not answered by then. In larger ones, it has too many
    // requests at a time.
    static constexpr std::size_t group = 16, ring = 4 * group;

    void set(std::size_t at, Bytes token, std::size_t length) {
        CacheKey &key = keys_[at];
        key.set(token, length, static_cast<std::size_t>(text_end_ - token));
        shared_.prefetch(key);
        if (own_) own_->prefetch(key);
    }

    // Find the record that a key probably has, and prefetch it.
    void guess(std::size_t at) {
        guesses_[at] = shared_.guess(keys_[at]);
        if (own_ && !guesses_[at]) guesses_[at] = own_->guess(keys_[at]);
    }

    template <typename Ids> void put_ids_of(std::size_t i, Ids &ids) {
        const CacheKey &key = keys_[i];
        const Cache::Record *record = guesses_[i];
        if (!record || !record->is_of(key)) record = find(key);
        if (!record)
            put_new(key, ids);
        else if (record->count() <= Cache::MOST)
            ids.put_few(record->ids, record->count());
        else
            ids.put(record->first(), record->many());
    }

    const Cache::Record *find(const CacheKey &key) const {
        const Cache::Record *const record = shared_.find(key);
        return record || !own_ ? record : own_->find(key);
    }

    template <typename Ids> void put_new(const CacheKey &key, Ids &ids) {
        const std::uint32_t whole = model_.whole_tokens.find(key);
        const bool found = whole != WholeTokens::NONE;
        if (!found) merging_.merge(key.bytes, key.length());
        const std::uint32_t *const made = found ? &whole : merging_.ids();
        const std::size_t count = found ? 1 : merging_.count();
        ids.put(made, count);
        if (!shared_.full()) {
            shared_.insert(key, made, count);
            return;
        }
        // When the own cache is full, it starts over: frequent pre-tokens soon return, and no bookkeeping of their
        // frequency is needed.
        if (!own_) own_ = std::make_unique<Cache>(own_bytes_);
        if (own_->full()) {
            own_->clear();
            std::fill(guesses_, guesses_ + ring, nullptr);
        }
        own_->insert(key, made, count);
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
