// Encoding: text → special tokens and the text between them → pre-tokens → ids.
//
// Most pre-tokens are short tokens, which are looked up in the model. The others are collected in a batch and looked up
// in the cache that all encoders of the model share and, once that is full, in a private cache.
#pragma once

#include "bpeflow.h"
#include "cache.hpp"
#include "failure.hpp"
#include "kernels.hpp"
#include "merging.hpp"
#include "model.hpp"
#include "pattern.hpp"
#include "scan.hpp"
#include "specials.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace bpeflow {

// Appends ids to an array. Throws Failure{BPEFLOW_NO_ROOM} if it is full.
template <typename Id> class IdWriter {
  public:
    IdWriter(void *ids, std::uint64_t written, std::uint64_t capacity)
        : first_(static_cast<Id *>(ids)), next_(first_ + written), end_(first_ + capacity) {}

    // Write the first `count` of four ids. If there is room, write all four, which needs no branch and no loop: the
    // next ids overwrite the excess.
    void put_few(const std::uint32_t (&ids)[4], std::size_t count) {
        if (end_ - next_ < 4) {
            put(ids, count);
            return;
        }
        for (std::size_t i = 0; i < 4; i++) next_[i] = static_cast<Id>(ids[i]);
        next_ += count;
    }

    void put(const std::uint32_t *ids, std::size_t count) {
        if (static_cast<std::size_t>(end_ - next_) < count) throw Failure{BPEFLOW_NO_ROOM};
        next_ = std::transform(ids, ids + count, next_, [](std::uint32_t id) { return static_cast<Id>(id); });
    }

    // The same for any number of ids, eight at a time: runs are short, and a loop over single ids could not be predicted.
    // Up to seven more ids are read.
    void put_run(const std::uint32_t *ids, std::size_t count) {
        if (static_cast<std::size_t>(end_ - next_) < count + 7) {
            put(ids, count);
            return;
        }
        for (std::size_t first = 0; first < count; first += 8)
            for (std::size_t i = first; i < first + 8; i++) next_[i] = static_cast<Id>(ids[i]);
        next_ += count;
    }

    std::uint64_t written() const { return static_cast<std::uint64_t>(next_ - first_); }

  private:
    Id *first_, *next_, *end_;
};

// Counts ids instead.
class IdCounter {
  public:
    explicit IdCounter(std::uint64_t counted) : counted_(counted) {}

    void put_few(const std::uint32_t (&)[4], std::size_t count) { counted_ += count; }
    void put(const std::uint32_t *, std::size_t count) { counted_ += count; }
    void put_run(const std::uint32_t *, std::size_t count) { counted_ += count; }
    std::uint64_t written() const { return counted_; }

  private:
    std::uint64_t counted_;
};

class Encoder {
  public:
    using Bytes = const std::uint8_t *;

    // Share a cache, and use up to `own_bytes` for a private one.
    Encoder(const Model &model, const Kernels &kernels, Cache &shared, std::uint64_t own_bytes)
        : model_(model), kernels_(kernels), merging_(model.pairs, kernels), shared_(shared), own_bytes_(own_bytes) {}

    // Encode `pieces` texts, where piece i ends at data + ends[i]. All ids are written one after another.
    void encode(bpeflow_encoding &encoding, const Specials *specials, Bytes data, const std::uint64_t *ends,
                std::uint64_t pieces, std::uint64_t *id_ends) {
        check(encoding, specials, data, ends, pieces);
        encoding_ = &encoding;
        specials_ = specials;
        encoding.written = 0;
        text_end_ = pieces > 0 ? data + ends[pieces - 1] : data;
        Bytes start = data;
        for (std::uint64_t i = 0; i < pieces; i++) {
            const Bytes end = data + ends[i];
            encode_piece(start, end);
            if (id_ends) id_ends[i] = encoding.written;
            start = end;
        }
        merging_.trim();
    }

  private:
    // While the index entries of one group are prefetched, the records of the group before are, too, and the ids of the
    // one before that are written. In smaller groups, memory has not answered by then. In larger ones, it has too many
    // requests at a time.
    static constexpr std::size_t group = 16, ring = 4 * group;

    void check(const bpeflow_encoding &encoding, const Specials *specials, Bytes data, const std::uint64_t *ends,
               std::uint64_t pieces) const {
        const std::uint64_t ids = encoding.id_size == 2 ? std::uint64_t{1} << 16 : std::uint64_t{1} << 32;
        std::uint64_t end = 0;
        bool sound = (encoding.id_size == 2 || encoding.id_size == 4) && model_.tokens.count() <= ids &&
                     (!specials || specials->greatest_id() < ids);
        for (std::uint64_t i = 0; i < pieces; end = ends[i++]) sound &= ends[i] >= end;
        if (!sound || (!data && end > 0)) throw Failure{BPEFLOW_BAD_ARGUMENT};
    }

    void encode_piece(Bytes start, Bytes end) {
        if (encoding_->pattern && !kernels_.is_utf8(start, end)) throw Failure{BPEFLOW_NOT_UTF8};
        if (!specials_) {
            encode_ordinary(start, end);
            return;
        }
        while (start < end) {
            const Delimiters::Match match = specials_->find(start, end);
            encode_ordinary(start, match.start);
            if (match.start < match.end) put(specials_->id(match));
            start = match.end;
        }
    }

    void encode_ordinary(Bytes start, Bytes end) {
        if (start == end) return;
        const auto length = static_cast<std::size_t>(end - start);
        if (encoding_->pattern)
            scan(encoding_->pattern->pattern, kernels_, start, length,
                 [this](const PretokenBatch &tokens) { add(tokens); });
        else
            add(start, length);
    }

    void add(const PretokenBatch &tokens) {
        const std::size_t looked_up = tokens.with_words(text_end_);
        const ShortTokens &known = model_.short_tokens;
        std::size_t missed =
            kernels_.find(known.keys(), tokens.text, tokens.starts, tokens.ends, looked_up, ids_, misses_);
        for (std::size_t i = 0; i < looked_up; i++) ids_[i] = known.ids()[ids_[i]];
        for (std::size_t i = looked_up; i < tokens.count; i++) misses_[missed++] = static_cast<std::uint32_t>(i);
        to_ids([&](auto &ids) {
            std::size_t done = 0; // pre-tokens
            for (std::size_t first = 0; first < missed + 2 * group; first += group) {
                for (std::size_t i = first; i < std::min(first + group, missed); i++) {
                    const std::uint32_t start = tokens.starts[misses_[i]], end = tokens.ends[misses_[i]];
                    set(i % ring, tokens.text + start, end - start);
                }
                if (first < group) continue;
                for (std::size_t i = first - group; i < std::min(first, missed); i++) guess(i % ring);
                if (first < 2 * group) continue;
                for (std::size_t i = first - 2 * group; i < std::min(first - group, missed); i++) {
                    const std::size_t token = misses_[i];
                    ids.put_run(ids_ + done, token - done);
                    put_ids_of(i % ring, ids);
                    done = token + 1;
                }
            }
            ids.put_run(ids_ + done, tokens.count - done);
        });
    }

    void add(Bytes token, std::size_t length) {
        set(0, token, length);
        guess(0);
        to_ids([this](auto &ids) { put_ids_of(0, ids); });
    }

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

    void put(std::uint32_t id) {
        to_ids([id](auto &ids) { ids.put(&id, 1); });
    }

    // Call `work` with the writer or counter of the ids.
    template <typename Work> void to_ids(const Work &work) {
        const auto with = [&](auto ids) {
            work(ids);
            encoding_->written = ids.written();
        };
        if (!encoding_->ids)
            with(IdCounter(encoding_->written));
        else if (encoding_->id_size == 2)
            with(IdWriter<std::uint16_t>(encoding_->ids, encoding_->written, encoding_->capacity));
        else
            with(IdWriter<std::uint32_t>(encoding_->ids, encoding_->written, encoding_->capacity));
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
    // Of the current call:
    bpeflow_encoding *encoding_ = nullptr;
    const Specials *specials_ = nullptr;
    Bytes text_end_ = nullptr; // bytes before this may be read
    CacheKey keys_[ring];
    const Cache::Record *guesses_[ring];
    std::uint32_t ids_[PretokenBatch::MOST + 8], misses_[PretokenBatch::MOST + 8];
};

} // namespace bpeflow
