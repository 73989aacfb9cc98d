// The table of pre-tokens and their counts.
//
// Three levels. The front table (front.hpp) counts the most frequent pre-tokens. The others are looked up in an index
// (index.hpp) of records, one after another in the order of their first occurrence. Growing changes the index alone, and
// no record changes its place. The index and the records of a large corpus are far larger than the caches, and each
// look-up waits for memory. Pre-tokens are therefore collected in a batch: first the buckets of all are prefetched, then
// their records, so that the waits overlap.
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
#include <vector>

namespace bpeflow {

class Table {
  public:
    // In a smaller batch the waits hardly overlap. In a larger one, keys and what was prefetched evict each other from
    // the L1 cache before they are used.
    static constexpr std::size_t BATCH = 64;

    // A pre-token counts `weight` times, which is at least 1.
    explicit Table(const Kernels &kernels, std::int64_t weight = 1)
        : kernels_(kernels), weight_(weight), records_(first_records) {}

    // Count pre-tokens. Bytes up to `readable_end` may be read. The text must stay in place until flush().
    void count(const PretokenBatch &tokens, const std::uint8_t *readable_end) {
        std::size_t looked_up = 0;
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

    // Count a pre-token, which is at least one byte long, so many times. `readable` bytes may be read from `token` on. The
    // bytes must stay in place until flush().
    void add(const std::uint8_t *token, std::size_t length, std::size_t readable, std::int64_t times) {
        Key &key = batch_[waiting_];
        key.set(token, length, readable, weighted(times));
        index_.prefetch(key.hash);
        if (++waiting_ == BATCH) flush();
    }

    // Move the batch into the table.
    void flush() {
        if (used_ + waiting_ > index_.room()) grow();
        std::uint32_t places[BATCH];
        guess(batch_, waiting_, places);
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

    // Move the counts of others to the records of this table, where it has them. Both tables must be complete. Threads
    // may do this at the same time for different pre-tokens.
    void take_over(Pretoken *const *others, std::size_t count) {
        struct Hashed {
            std::uint64_t hash;
        } keys[BATCH];
        std::uint32_t places[BATCH];
        for (std::size_t i = 0; i < count; i++) index_.prefetch(keys[i].hash = others[i]->hash());
        guess(keys, count, places);
        for (std::size_t i = 0; i < count; i++) {
            Pretoken &other = *others[i];
            const auto same = [&](std::uint32_t place) { return record(place).is(other); };
            const std::uint32_t place = same(places[i]) ? places[i] : index_.find(keys[i].hash, same);
            if (place == 0) continue;
            record(place).add(other.count);
            other.count = 0;
        }
    }

    // Bring all counts into the records. The table can be read after this, until more is counted.
    void complete() {
        flush();
        front_.give_back([this](std::uint32_t place, std::int64_t times) { record(place).add(weighted(times)); });
    }

    // Return the memory of the index to the kernel. The records can be read after this, but not looked up.
    void discard_index() const { index_.discard(); }

    // The places of every SAMPLED-th record, from the first one on.
    const std::vector<std::uint32_t> &sample() const { return sample_; }
    static constexpr std::size_t SAMPLED = 1024;

    std::size_t tokens() const { return used_; }
    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t size() const { return std::uint64_t{end_} * Pretoken::unit; } // of the records, in bytes

    // Call work(record) for all records, in the order in which they came.
    template <typename Work> void each(const Work &work) {
        each_place([&](std::uint32_t place) { work(record(place)); });
    }

    // Do the same for one of several parts of about the same number of records.
    template <typename Work> void each(std::size_t part, std::size_t parts, const Work &work) {
        const auto start = [&](std::size_t i) { return i < parts ? sample_[sample_.size() * i / parts] : end_; };
        if (used_ > 0) each_place(start(part), start(part + 1), [&](std::uint32_t place) { work(record(place)); });
    }

    // Do the same for all, and return the memory of the records to the kernel on the way. The table is lost.
    template <typename Work> void consume(const Work &work) {
        std::size_t returned = 0;
        each_place([&](std::uint32_t place) {
            work(record(place));
            const std::size_t read = place * Pretoken::unit / Pages::large_page * Pages::large_page;
            if (read > returned) records_.discard(std::exchange(returned, read), read);
        });
        records_.discard(returned, records_.size());
    }

    const Pretoken &record(std::uint32_t place) const {
        return *reinterpret_cast<const Pretoken *>(records_.data() + place * Pretoken::unit);
    }

    Pretoken &record(std::uint32_t place) { return const_cast<Pretoken &>(std::as_const(*this).record(place)); }

    // Upper bound in bytes on the memory while `more` pre-tokens are added and the table is then read, which takes
    // `each` bytes per pre-token. The new pre-tokens are assumed to be as long as the present ones on average. UINT64_MAX
    // if places cannot number as many records: 16 GiB.
    std::uint64_t memory(std::uint64_t more, std::size_t each) const {
        const std::uint64_t used = used_ + more;
        const std::uint64_t units = end_ / std::max<std::uint64_t>(used_, 1) + 1;
        if (units * used > std::numeric_limits<std::uint32_t>::max()) return UINT64_MAX;
        const std::uint64_t records = std::max<std::uint64_t>(units * used * Pretoken::unit, first_records);
        const std::uint64_t copied = Pages::COPIES && records > records_.size() ? records_.size() : 0;
        return index_.memory(used) + records + std::max(copied, used * each) + sizeof(*this) + front_.memory();
    }

  private:
    static constexpr std::size_t first_records = std::size_t{1} << 16; // bytes
    static constexpr std::uint32_t first_place = 8;                    // zeros before it: never equal to a key

    // Call work(place) for the places of all records, or of those from `begin` to `end`, in order.
    template <typename Work> void each_place(const Work &work) const { each_place(first_place, end_, work); }
    template <typename Work> void each_place(std::uint32_t begin, std::uint32_t end, const Work &work) const {
        for (std::uint32_t place = begin; place < end;) {
            work(place);
            place += static_cast<std::uint32_t>(Pretoken::units(record(place).length));
        }
    }

    // Guess the places of keys, and prefetch their records.
    template <typename Key> void guess(const Key *keys, std::size_t count, std::uint32_t *places) const {
        for (std::size_t i = 0; i < count; i++) {
            places[i] = index_.guess(keys[i].hash);
            __builtin_prefetch(&record(places[i]), 1);
        }
    }

    std::int64_t weighted(std::int64_t times) const {
        std::int64_t count;
        if (__builtin_mul_overflow(times, weight_, &count)) throw Failure{BPEFLOW_OVERFLOW};
        return count;
    }

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
        if (end * Pretoken::unit + Pretoken::slack > records_.size())
            records_.grow(std::max(end * Pretoken::unit + Pretoken::slack, records_.size() / 2 * 3));
        const std::uint32_t place = end_;
        key.write(record(place));
        end_ = static_cast<std::uint32_t>(end);
        if (used_++ % SAMPLED == 0) sample_.push_back(place);
        bytes_ += key.length;
        return place;
    }

    void grow() {
        index_.grow(used_ + waiting_);
        for (std::size_t i = 0; i < waiting_; i++) index_.prefetch(batch_[i].hash);
    }

    // Choose which pre-tokens the front table counts from now on.
    void seed() {
        complete();
        front_.clear(counted_);
        const auto rare =
            static_cast<std::int64_t>((counted_ >> 18) * static_cast<std::uint64_t>(weight_)); // not worth a slot
        each_place([&](std::uint32_t place) {
            const Pretoken &here = record(place);
            if (here.length > 8 || here.count <= rare || here.bytes()[here.length - 1] == 0) return;
            std::uint64_t words[2];
            load_short(here.bytes(), here.length, SHORT, words);
            front_.offer(words[0], place, here.count);
        });
    }

    const Kernels &kernels_;
    const std::int64_t weight_;
    Front front_;
    Index index_;
    Pages records_;
    std::uint32_t end_ = first_place; // of the records, in units
    std::size_t used_ = 0;
    std::vector<std::uint32_t> sample_;
    std::uint64_t bytes_ = 0;   // of the pre-tokens
    std::uint64_t counted_ = 0; // pre-tokens passed to count()
    Key batch_[BATCH];
    std::size_t waiting_ = 0;
    std::uint32_t slots_[PretokenBatch::MOST + 8], misses_[PretokenBatch::MOST + 8];
};

} // namespace bpeflow
