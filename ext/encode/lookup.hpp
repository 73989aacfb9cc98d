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

// Copies of the records that one thread found last, of short keys and few ids, in a direct-mapped table that the L2 cache
// has room for. Most look-ups end here, after one access instead of two farther ones, and without a branch.
class Recent {
  public:
    // Use up to `bytes`, but at least two records.
    explicit Recent(std::uint64_t bytes) : bits_(bits_for(bytes)), memory_(sizeof(Cache::Record) << bits_) {}

    // Return the only record that may be that of the key; it has zeros if there is none.
    const Cache::Record &at(const CacheKey &key) const { return records()[slot_of(key)]; }

    void prefetch(const CacheKey &key) const { __builtin_prefetch(&at(key)); }

    void add(const CacheKey &key, const Cache::Record &record) {
        if (record.count() <= Cache::MOST) records()[slot_of(key)] = record;
    }

  private:
    static constexpr unsigned most_bits = 14; // 2^12 slots take 5 % longer, 2^15 are no faster

    static unsigned bits_for(std::uint64_t bytes) {
        unsigned bits = 1;
        while (bits < most_bits && sizeof(Cache::Record) << (bits + 1) <= bytes) bits++;
        return bits;
    }

    Cache::Record *records() const { return reinterpret_cast<Cache::Record *>(memory_.data()); }
    std::size_t slot_of(const CacheKey &key) const { return key.hash >> (64 - bits_); }

    unsigned bits_;
    Reserved memory_; // not touched before a long text needs it
};

// Most pre-tokens are short tokens, which are looked up in the model. The others are collected in a batch and looked up
// among recent ones, then in the cache that all encoders of the model share and, once that is full, in a private cache. The
// runs of a second level are looked up there, too.
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
        : model_(model), kernels_(kernels), merging_(model.pairs, kernels), shared_(shared), own_bytes_(own_bytes),
          recent_(own_bytes) {}

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

    // Write the ids of one pre-token, of any length.
    template <typename Ids> void add(Bytes token, std::size_t length, Ids &ids) {
        replace(slots_, 0, Single{*this, token, length}, 1, ids);
    }

    // Write `count` given ids, of which some stretches are replaced by the ids of their keys. Stretch i is from start(i) to
    // end(i), set(i, key) sets its key, and encode(key) returns its ids if no cache has them. Up to `RUN` more ids are
    // read. Before given ids from `done` to `end` are written, borders.pass(done, end, ids) is called.
    template <typename Given, typename Stretches, typename Ids, typename Borders = NoBorders>
    void replace(const Given *given, std::size_t count, const Stretches &stretches, std::size_t number, Ids &ids,
                 Borders borders = {}) {
        std::size_t done = 0, most = most_at_once;
        for (std::size_t first = 0, found; first < number; first += found) {
            const std::size_t count_now = std::min(number - first, most);
            found = find(stretches, first, count_now);
            most = found < count_now ? group : most_at_once; // keys after the last one found are set once more
            for (std::size_t i = 0; i < found; i++) {
                const std::size_t start = stretches.start(first + i);
                borders.pass(done, start, ids);
                ids.put_run(given + done, start - done);
                put(records_[i], ids);
                done = stretches.end(first + i);
            }
            for (std::size_t i = 0; i < unknown_; i++) recent_.add(keys_[i], *records_[places_[i]]);
        }
        borders.pass(done, count, ids);
        ids.put_run(given + done, count - done);
    }

    // Release the memory that a very long pre-token took.
    void trim() { merging_.trim(); }

  private:
    // Larger: fewer batches, and more pre-tokens that a cache does not have are awaited together. Smaller: the arrays
    // leave room for text and ids in the L1 cache.
    static constexpr std::size_t most_at_once = 512;

    // While the index entries of one group are prefetched, the records of the group before are, too, and the one before
    // that is looked up. In smaller groups, memory has not answered by then. In larger ones, it has too many requests at a
    // time.
    static constexpr std::size_t group = 16;

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

    struct Single {
        Lookup &lookup;
        Bytes token;
        std::size_t length;

        std::size_t start(std::size_t) const { return 0; }
        std::size_t end(std::size_t) const { return 0; }
        void set(std::size_t, CacheKey &key) const { lookup.set(key, token, length); }
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

    // Find the records of up to `count` stretches, and return of how many. The last one has no record, but its ids are in
    // `made_`, if no cache could take it.
    template <typename Stretches> std::size_t find(const Stretches &stretches, std::size_t first, std::size_t count) {
        if (own_ && own_->full()) own_->clear();
        for (std::size_t i = 0; i < count; i++) {
            stretches.set(first + i, keys_[i]);
            recent_.prefetch(keys_[i]); // text and ids drive the table out of the L2 cache again and again
        }
        std::size_t unknown = 0; // not the member, for which each key would wait
        for (std::size_t i = 0; i < count; i++) {
            const CacheKey key = keys_[i];
            records_[i] = &recent_.at(key);
            keys_[unknown] = key;
            places_[unknown] = static_cast<std::uint32_t>(i);
            unknown += !records_[i]->is_of_short(key);
        }
        unknown_ = unknown;
        for (std::size_t begin = 0; begin < unknown_ + 2 * group; begin += group) {
            for (std::size_t i = begin; i < std::min(begin + group, unknown_); i++) {
                shared_.prefetch(keys_[i]);
                if (own_) own_->prefetch(keys_[i]);
            }
            if (begin < group) continue;
            for (std::size_t i = begin - group; i < std::min(begin, unknown_); i++) guess(i);
            if (begin < 2 * group) continue;
            for (std::size_t i = begin - 2 * group; i < std::min(begin - group, unknown_); i++) {
                const Cache::Record *&record = records_[places_[i]];
                const CacheKey &key = keys_[i];
                if (record && record->is_of(key)) continue;
                record = find(key);
                if (record) continue;
                made_ = stretches.encode(key);
                record = keep(key, made_);
                if (!record) {
                    unknown_ = i;
                    return places_[i] + std::size_t{1};
                }
            }
        }
        return count;
    }

    // Find the record that a key probably has, and prefetch it.
    void guess(std::size_t i) {
        const Cache::Record *record = shared_.guess(keys_[i]);
        if (own_ && !record) record = own_->guess(keys_[i]);
        records_[places_[i]] = record;
    }

    template <typename Ids> void put(const Cache::Record *record, Ids &ids) const {
        if (!record)
            ids.put(made_.ids, made_.count);
        else if (record->count() <= Cache::MOST)
            ids.put_few(record->ids, record->count());
        else
            ids.put_many(record->first(), record->many());
    }

    const Cache::Record *find(const CacheKey &key) const {
        const Cache::Record *const record = shared_.find(key);
        return record || !own_ ? record : own_->find(key);
    }

    const Cache::Record *keep(const CacheKey &key, const Made &made) {
        if (!shared_.full()) return shared_.insert(key, made.ids, made.count);
        // When the own cache is full, it starts over: frequent pre-tokens soon return, and no bookkeeping of their
        // frequency is needed.
        if (!own_) own_ = std::make_unique<Cache>(own_bytes_);
        return own_->insert(key, made.ids, made.count);
    }

    const Model &model_;
    const Kernels &kernels_;
    Merging merging_;
    Cache &shared_;
    std::unique_ptr<Cache> own_; // since the shared one is full
    const std::uint64_t own_bytes_;
    Bytes text_end_ = nullptr;
    Recent recent_;
    Made made_{};
    std::uint32_t whole_ = WholeTokens::NONE; // the token that was made
    const Cache::Record *records_[most_at_once];
    // Of the stretches that are not recent:
    std::size_t unknown_ = 0;
    CacheKey keys_[most_at_once];
    std::uint32_t places_[most_at_once]; // of their records
    std::uint32_t slots_[PretokenBatch::MOST + RUN], misses_[PretokenBatch::MOST + 8];
    std::uint16_t short_ids_[PretokenBatch::MOST + RUN];
};

} // namespace bpeflow
