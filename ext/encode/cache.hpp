// The cache of pre-tokens and their ids, shared by threads without locks.
//
// Text repeats itself: of a hundred English pre-tokens about two are new. So the speed of encoding is that of finding a
// known pre-token and writing its ids. An *index* leads from a hash to a *record*. Records follow one another in the
// order in which they came, so they leave no gaps, and growing means to make a larger index. Both are far larger than
// the processor's caches. Look-ups are therefore made in batches: first the entries of all are prefetched, then their
// records, so that the waits overlap.
//
// Nothing that can be found is ever changed. A record is complete before its entry is published (release), and a thread
// that sees the entry (acquire) may read the record. What threads do at the same time can only lose an entry or make a
// second one, and then a pre-token is merged once more. When the cache is full it stays as it is: frequent pre-tokens
// come early. An encoder then puts what it does not find into a small cache of its own.
#pragma once

#include "cache_key.hpp"
#include "id_writer.hpp"
#include "reserved.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bpeflow {

class Cache {
  public:
    // A pre-token of up to 15 bytes and up to four ids take half a cache line. After other records follow the rest of
    // the ids, padded to a multiple of `RUN`, and then the bytes of a long pre-token.
    struct Record {
        std::uint64_t words[2]; // the key, and the number of ids in the top bits
        std::uint32_t ids[4];   // if that is MANY: their number, and the ids from the second place on

        unsigned count() const { return static_cast<unsigned>(words[1] >> CacheKey::count_shift); }
        std::size_t many() const { return ids[0]; }
        const std::uint32_t *first() const { return reinterpret_cast<const std::uint32_t *>(this) + 5; }

        bool is_of(const CacheKey &key) const {
            constexpr std::uint64_t without_count = (std::uint64_t{1} << CacheKey::count_shift) - 1;
            if (words[0] != key.words[0] || (words[1] & without_count) != key.words[1]) return false;
            return key.is_short() || std::memcmp(first() + padded(many()), key.bytes, key.length()) == 0;
        }
    };
    static_assert(sizeof(Record) == 32);
    static std::size_t padded(std::size_t count) { return (count + RUN - 1) / RUN * RUN; }
    static constexpr unsigned MOST = 4, MANY = 15;

    // Use up to `limit` bytes. Address space is reserved for all of them, memory is taken as it is needed.
    explicit Cache(std::uint64_t limit) : Cache(limit, bits_for(limit / 4)) {}

    bool full() const { return full_.load(std::memory_order_relaxed); }

    void prefetch(const CacheKey &key) const {
        const Index &index = *index_.load(std::memory_order_acquire);
        __builtin_prefetch(index.entries + (tag(key) & index.mask));
    }

    // Return the record that is most likely that of the key, after prefetching it; null if there is none.
    const Record *guess(const CacheKey &key) const {
        const Record *found = nullptr;
        each(key, [&found](const Record &record) {
            __builtin_prefetch(&record);
            found = &record;
            return true;
        });
        return found;
    }

    // Return the key's record; null if there is none.
    const Record *find(const CacheKey &key) const {
        const Record *found = nullptr;
        each(key, [&](const Record &record) {
            if (!record.is_of(key)) return false;
            found = &record;
            return true;
        });
        return found;
    }

    // Insert a pre-token that was not found, unless it is very long or the cache is full.
    void insert(const CacheKey &key, const std::uint32_t *ids, std::size_t count) {
        const bool few = key.is_short() && count <= MOST;
        const std::size_t words = few ? 4 : 1 + padded(count),
                          size = 16 + words * 4 + (key.is_short() ? 0 : key.length());
        const std::size_t units = (size + sizeof(Record) - 1) / sizeof(Record);
        if (units > longest || full()) return;
        Index *const index = index_with_room();
        if (!index) return;
        const std::uint64_t place = end_.fetch_add(units, std::memory_order_relaxed);
        if (place + units > places_) {
            full_.store(true, std::memory_order_relaxed);
            return;
        }
        Record &record = records_[place];
        record.words[0] = key.words[0];
        record.words[1] = key.words[1] | std::uint64_t{few ? count : MANY} << CacheKey::count_shift;
        auto *const to = reinterpret_cast<std::uint32_t *>(&record) + 4;
        if (few) {
            std::copy_n(ids, count, to);
        } else {
            to[0] = static_cast<std::uint32_t>(count);
            std::copy_n(ids, count, to + 1);
            if (!key.is_short()) std::memcpy(to + 1 + padded(count), key.bytes, key.length());
        }
        index->add(std::uint64_t{tag(key)} << 32 | place);
    }

    // Remove everything. No other thread may use the cache meanwhile.
    void clear() {
        Index &index = *index_.load(std::memory_order_relaxed);
        std::memset(static_cast<void *>(index.entries), 0, (index.mask + 1) * sizeof(Entry));
        index.used.store(0, std::memory_order_relaxed);
        end_.store(first_place, std::memory_order_relaxed);
        full_.store(false, std::memory_order_relaxed);
    }

  private:
    // The tag (half of the hash) in the upper half, the place of the record in the lower half; 0 if empty.
    using Entry = std::atomic<std::uint64_t>;

    // A table of 2^n entries, linear probing.
    struct Index {
        Entry *entries;
        std::size_t mask;
        std::atomic<std::size_t> used{0}; // greater than the room if more was asked for

        std::size_t room() const { return (mask + 1) * 2 / 3; } // less than all, so that look-ups end

        bool take_room() {
            return used.load(std::memory_order_relaxed) < room() &&
                   used.fetch_add(1, std::memory_order_relaxed) < room();
        }

        void add(std::uint64_t entry) const {
            for (std::size_t at = entry >> 32 & mask;; at = (at + 1) & mask) {
                std::uint64_t empty = 0;
                if (entries[at].compare_exchange_strong(empty, entry, std::memory_order_release,
                                                        std::memory_order_relaxed))
                    return;
            }
        }
    };

    static constexpr unsigned least_bits = 11, growth_bits = 2, most_bits = 31; // of the number of entries
    static constexpr std::size_t levels = (most_bits - 1) / growth_bits + 1;
    static constexpr std::uint64_t first_place = 1;
    static constexpr std::size_t small = std::size_t{1} << 20;
    // Limit for one pre-token, in records. Long ones are rare, hardly recur, and would leave no room for others.
    static constexpr std::size_t longest = 512;

    // Return the number of bits of the last index, the largest for which all of them fit into `limit`.
    static unsigned bits_for(std::uint64_t limit) {
        unsigned bits = 1;
        while (bits < most_bits && entries_up_to(bits + 1) * sizeof(Entry) <= limit) bits++;
        return bits;
    }

    static unsigned smaller(unsigned bits) { return bits >= least_bits + growth_bits ? bits - growth_bits : 0; }

    // Return the number of entries of the index of this size and all smaller ones.
    static std::uint64_t entries_up_to(unsigned bits) {
        std::uint64_t sum = 0;
        for (; bits > 0; bits = smaller(bits)) sum += std::uint64_t{1} << bits;
        return sum;
    }

    // The indexes are first in memory, from the smallest to the largest, then the records.
    Cache(std::uint64_t limit, unsigned last_bits)
        : memory_(std::max(limit, (entries_up_to(last_bits) + sizeof(Record)) * sizeof(Entry))) {
        for (unsigned bits = last_bits; bits > 0; bits = smaller(bits)) last_++;
        std::size_t end = entries_up_to(last_bits) * sizeof(Entry);
        const std::size_t first = (end + sizeof(Record) - 1) / sizeof(Record);
        unsigned bits = last_bits;
        for (std::size_t level = last_; level-- > 0; bits = smaller(bits)) {
            const std::size_t size = sizeof(Entry) << bits;
            end -= size;
            indexes_[level].entries = reinterpret_cast<Entry *>(memory_.data() + end);
            indexes_[level].mask = (std::size_t{1} << bits) - 1;
            if (size >= small) memory_.use_huge_pages(end, end + size);
        }
        records_ = reinterpret_cast<Record *>(memory_.data()) + first;
        places_ = std::min<std::uint64_t>(memory_.size() / sizeof(Record) - first, UINT32_MAX);
        memory_.use_huge_pages(first * sizeof(Record) + small, memory_.size());
        index_.store(indexes_, std::memory_order_relaxed);
    }

    static std::uint32_t tag(const CacheKey &key) { return static_cast<std::uint32_t>(key.hash); }

    // Call is(record) for the records whose tag is that of the key, until it returns true.
    template <typename Is> void each(const CacheKey &key, const Is &is) const {
        const Index &index = *index_.load(std::memory_order_acquire);
        for (std::size_t at = tag(key) & index.mask;; at = (at + 1) & index.mask) {
            const std::uint64_t entry = index.entries[at].load(std::memory_order_acquire);
            if (entry == 0) return;
            if (entry >> 32 == tag(key) && is(records_[static_cast<std::uint32_t>(entry)])) return;
        }
    }

    // Return the index, with room for one more entry; null if there is none now.
    Index *index_with_room() {
        Index *const index = index_.load(std::memory_order_acquire);
        if (index->take_room()) return index;
        if (index + 1 == indexes_ + last_) {
            full_.store(true, std::memory_order_relaxed);
            return nullptr;
        }
        if (growing_.exchange(true, std::memory_order_acquire)) return nullptr;
        // Only one thread gets here. Entries that others add to the old index after they were copied are lost.
        Index *larger = nullptr;
        if (index_.load(std::memory_order_relaxed) == index) {
            larger = index + 1;
            std::size_t used = 1; // for the caller
            for (std::size_t at = 0; at <= index->mask; at++)
                if (const std::uint64_t entry = index->entries[at].load(std::memory_order_acquire)) {
                    larger->add(entry);
                    used++;
                }
            larger->used.store(used, std::memory_order_relaxed);
            index_.store(larger, std::memory_order_release);
        }
        growing_.store(false, std::memory_order_release);
        return larger;
    }

    Reserved memory_;
    Record *records_;
    std::uint64_t places_; // for records
    Index indexes_[levels];
    std::size_t last_ = 0; // number of indexes
    std::atomic<Index *> index_;
    std::atomic<std::uint64_t> end_{first_place}; // of the records
    std::atomic<bool> growing_{false}, full_{false};
};

} // namespace bpeflow
