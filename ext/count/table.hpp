// The table of pre-tokens and their counts.
//
// Three levels. The front table (front.hpp) counts the most frequent pre-tokens. The others are looked up in an index
// (index.hpp) of records, one after another in the order of their first occurrence. So growing the table means to make
// the index again, and no record changes its place. The index and the records of a large corpus are far larger than the
// caches, and each look-up waits for memory. Pre-tokens are therefore collected in a batch: first the buckets of all are
// prefetched, then their records, so that the waits overlap.
//
// Neither of the two gains alone. The index needs two dependent memory accesses, which hurts for frequent pre-tokens,
// and a front before a table of keys and counts only takes away what is in the cache anyway.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"
#include "front.hpp"
#include "index.hpp"
#include "kernels.hpp"
#include "key.hpp"
#include "pages.hpp"
#include "scan.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace bpeflow {

class Table {
  public:
    explicit Table(const Kernels &kernels) : kernels_(kernels), records_(first_records) {}

    // Count pre-tokens. Bytes up to `readable_end` may be read. The text must stay in place until flush().
    void count(const PretokenBatch &tokens, const std::uint8_t *readable_end) {
        std::size_t looked_up = 0;
        settled_ = false;
        if (front_.seeded()) {
            looked_up = tokens.with_words(readable_end);
            const std::size_t missed =
                kernels_.find(front_.keys(), tokens.text, tokens.starts, tokens.ends, looked_up, slots_, misses_);
            front_.count(slots_, looked_up);
            for (std::size_t i = 0; i < missed; i++) add(tokens, misses_[i], readable_end);
        }
        for (std::size_t i = looked_up; i < tokens.count; i++) add(tokens, i, readable_end);
        counted_ += tokens.count;
        if (front_.due(counted_)) seed();
    }

    // Add to the count of a pre-token, which is at least one byte long. `readable` bytes may be read from `token` on.
    // The bytes must stay in place until flush().
    void add(const std::uint8_t *token, std::size_t length, std::size_t readable, std::int64_t count) {
        Key &key = batch_[waiting_];
        settled_ = false;
        key.set(token, length, readable, count);
        index_.prefetch(key.hash);
        if (++waiting_ == batch_size) flush();
    }

    // Move the batch into the table.
    void flush() {
        if (used_ + waiting_ > index_.room()) grow();
        std::uint32_t places[batch_size] = {};
        for (std::size_t i = 0; i < waiting_; i++) {
            places[i] = index_.guess(batch_[i].hash);
            __builtin_prefetch(&record(places[i]), 1);
        }
        for (std::size_t i = 0; i < waiting_; i++) {
            const Key &key = batch_[i];
            Pretoken &guessed = record(places[i]);
            if (key.is(guessed))
                guessed.add(key.count);
            else
                find_or_insert(key);
        }
        waiting_ = 0;
    }

    // Bring all counts into the records. The table can be read after this, until more is counted.
    void settle() {
        if (settled_) return; // several threads may read it
        flush();
        front_.give_back([this](std::uint32_t place, std::int64_t count) { record(place).add(count); });
        settled_ = true;
    }

    // Multiply all counts of a settled table.
    void multiply(std::int64_t factor) {
        each([&](std::uint32_t place, const Pretoken &) { record(place).multiply(factor); });
    }

    bool settled() const { return settled_; }

    const Index &index() const { return index_; } // the places of the records

    std::size_t tokens() const { return used_; }
    std::uint64_t bytes() const { return bytes_; }

    // Call work(place, record) for all records, in the order in which they came.
    template <typename Work> void each(const Work &work) const {
        for (std::uint32_t place = first_place; place < end_;) {
            const Pretoken &here = record(place);
            work(place, here);
            place += static_cast<std::uint32_t>(Pretoken::units(here.length));
        }
    }

    const Pretoken &record(std::uint32_t place) const {
        return *reinterpret_cast<const Pretoken *>(records_.data() + place * Pretoken::unit);
    }

    Pretoken &record(std::uint32_t place) { return const_cast<Pretoken &>(std::as_const(*this).record(place)); }

    // Upper bound in bytes on the memory while `more` pre-tokens are added and the table is then read, which takes
    // `each` bytes per pre-token. The new pre-tokens are assumed to be as long as the present ones on average.
    std::uint64_t memory(std::uint64_t more, std::size_t each) const {
        const std::uint64_t used = used_ + more;
        const std::uint64_t units = end_ / std::max<std::uint64_t>(used_, 1) + 1;
        const std::uint64_t records = std::max<std::uint64_t>(units * used * Pretoken::unit, first_records);
        const std::uint64_t copied = Pages::COPIES && records > records_.size() ? records_.size() : 0;
        return index_.memory(used) + records + std::max(copied, used * each) + sizeof(*this) + front_.memory();
    }

  private:
    // In a smaller batch the waits hardly overlap. In a larger one, keys and what was prefetched evict each other from
    // the L1 cache before they are used.
    static constexpr std::size_t batch_size = 64;
    static constexpr std::size_t first_records = std::size_t{1} << 16; // bytes
    static constexpr std::uint32_t first_place = 4;                    // zeros before it: never equal to a key
    static constexpr std::size_t slack = 2 * Pretoken::unit;           // read after the last record

    void add(const PretokenBatch &tokens, std::size_t i, const std::uint8_t *readable_end) {
        const std::uint8_t *const token = tokens.text + tokens.starts[i];
        add(token, tokens.ends[i] - tokens.starts[i], static_cast<std::size_t>(readable_end - token), 1);
    }

    void find_or_insert(const Key &key) {
        const std::uint32_t place = index_.find(
            key.hash, [&](std::uint32_t known) { return key.is(record(known)); }, [&] { return insert(key); });
        if (place) record(place).add(key.count);
    }

    std::uint32_t insert(const Key &key) {
        const std::size_t units = Pretoken::units(key.length), end = end_ + units;
        if (end > std::numeric_limits<std::uint32_t>::max()) throw Failure{BPEFLOW_TOO_LARGE};
        if (end * Pretoken::unit + slack > records_.size())
            records_.grow(std::max(end * Pretoken::unit + slack, records_.size() / 2 * 3));
        const std::uint32_t place = end_;
        key.write(record(place));
        end_ = static_cast<std::uint32_t>(end);
        used_++;
        bytes_ += key.length;
        return place;
    }

    // Make the index again, with room for the batch. The records are read in order, and their buckets prefetched.
    void grow() {
        static constexpr std::size_t ahead = 32;
        std::uint64_t hashes[ahead];
        std::uint32_t places[ahead];
        std::size_t read = 0;
        const auto insert_all = [&] {
            for (std::size_t i = 0; i < read; i++)
                index_.find(hashes[i], [](std::uint32_t) { return false; }, [&] { return places[i]; });
            read = 0;
        };
        index_.grow(used_ + waiting_);
        each([&](std::uint32_t place, const Pretoken &record) {
            hashes[read] = record.hash();
            places[read] = place;
            index_.prefetch(hashes[read]);
            if (++read == ahead) insert_all();
        });
        insert_all();
        for (std::size_t i = 0; i < waiting_; i++) index_.prefetch(batch_[i].hash);
    }

    // Choose which pre-tokens the front table counts from now on.
    void seed() {
        settle();
        front_.clear(counted_);
        const auto rare = static_cast<std::int64_t>(counted_ >> 18); // not worth a slot
        each([&](std::uint32_t place, const Pretoken &record) {
            if (record.length > 8 || record.count <= rare || record.bytes()[record.length - 1] == 0) return;
            front_.offer(load_word(record.bytes()), place, record.count);
        });
    }

    const Kernels &kernels_;
    Front front_;
    Index index_;
    Pages records_;
    std::uint32_t end_ = first_place; // of the records, in units
    std::size_t used_ = 0;
    std::uint64_t bytes_ = 0;   // of the pre-tokens
    std::uint64_t counted_ = 0; // pre-tokens passed to count()
    Key batch_[batch_size];
    std::size_t waiting_ = 0;
    bool settled_ = true;
    std::uint32_t slots_[PretokenBatch::MOST + 8], misses_[PretokenBatch::MOST + 8];
};

} // namespace bpeflow
