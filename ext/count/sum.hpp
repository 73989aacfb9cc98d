// The sum of the tables of several threads, in canonical order: count descending, then bytes ascending. First the counts
// are added up, by partitions of the hash, as a pre-token is in the same partition of all tables. Then the pre-tokens are
// copied to the arrays of the result, range by range of the canonical order, and each range is sorted in the arrays.
//
// New memory takes most of the time, where the kernel, and a virtual machine's host, have to provide it: up to 2 ms per
// megabyte. So memory goes back to the kernel before as much is taken again: the indexes of the tables before pre-tokens
// are copied, each record once it has been copied. The peak is that of counting, but for the pages where ranges end.
#pragma once

#include "bpeflow.h"
#include "kernels.hpp"
#include "key.hpp"
#include "pages.hpp"
#include "shard.hpp"
#include "sorting.hpp"
#include "table.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace bpeflow {

// Return a number that is smaller for a pre-token that comes earlier in canonical order, unless it is the same for both.
// Most counts are small. Those leave room for the first bytes. `readable` as for prefix_of().
constexpr std::size_t BYTES_IN_NUMBER = 7;
inline std::uint64_t canonical_number(std::int64_t count, const std::uint8_t *bytes, std::size_t length,
                                      std::size_t readable) {
    static constexpr std::int64_t great = 256, most = (std::int64_t{1} << 56) - 1;
    if (count >= great) return static_cast<std::uint64_t>(most - std::min(count, most));
    return static_cast<std::uint64_t>(great - count) << 56 | prefix_of(bytes, length, readable) >> 8;
}

// Adds up in place: each pre-token has its sum in one of the tables, and a count of 0 in all others. Threads share the work
// of each step: they call its function at the same time, and all have returned before the next step begins.
class TableSum {
  public:
    // Pre-tokens of a range, or of all.
    struct Size {
        std::uint64_t tokens = 0, bytes = 0;
    };

    // All counts of the tables must be in their records.
    TableSum(std::vector<Table *> tables, std::uint32_t threads) : tables_(std::move(tables)) {
        const auto smaller = [](const Table *a, const Table *b) { return a->tokens() < b->tokens(); };
        std::sort(tables_.rbegin(), tables_.rend(), smaller); // so that few are missing in the first table
        for (Table *table : tables_) sources_.push_back({table, {}, {}});
        // With two tables, pre-tokens that are not in the first one are in no other table.
        partitions_ = tables_.size() < 2 ? 0 : threads;
        for (std::uint32_t i = 0; tables_.size() > 2 && i < partitions_; i++) {
            rests_.push_back(std::make_unique<Table>(*find_kernels(nullptr)));
            sources_.push_back({rests_.back().get(), {}, {}});
        }
        std::uint64_t size = 0;
        for (const Table *table : tables_) size += table->size();
        while (ranges_ < most_ranges && (ranges_ < std::size_t{4} * threads || ranges_ * range_size < size))
            ranges_ *= 2;
        starts_.resize(ranges_ + 1);
    }

    // Add up the tables.
    void add_up() {
        share(added_, partitions_, [&](std::size_t partition) {
            Table *const rest = rests_.empty() ? nullptr : rests_[partition].get();
            for (std::size_t i = 1; i < tables_.size(); i++)
                add(*tables_[i], static_cast<std::uint32_t>(partition), rest);
        });
    }

    // Divide the sums into ranges of about the same size.
    void divide() {
        const std::vector<Entry> limits = limits_of_ranges();
        share(divided_, sources_.size(), [&](std::size_t number) {
            Source &source = sources_[number];
            source.table->discard_index();
            source.sizes.resize(ranges_);
            source.ranges.reserve(source.table->tokens());
            source.table->each([&](Pretoken &pretoken) {
                std::size_t range = 0;
                if (pretoken.count > 0) {
                    const Entry entry = entry_of(pretoken);
                    for (std::size_t step = ranges_ / 2; step > 0; step /= 2)
                        range += step & (0 - std::size_t{!before(entry, limits[range + step])}); // no branch
                    source.sizes[range].tokens++;
                    source.sizes[range].bytes += pretoken.length;
                }
                source.ranges.push_back(static_cast<std::uint8_t>(range));
            });
        });
    }

    // The number of pre-tokens, and the sum of their lengths.
    Size size() {
        for (std::size_t range = 0; range < ranges_; range++) {
            starts_[range + 1] = starts_[range];
            for (const Source &source : sources_) add(starts_[range + 1], source.sizes[range]);
        }
        return starts_.back();
    }

    // Copy the pre-tokens to their ranges of the arrays, in any order. The tables are lost.
    void distribute(std::uint8_t *data, std::int64_t *offsets, std::int64_t *counts) {
        share(distributed_, sources_.size(), [&](std::size_t number) {
            std::vector<Size> next(starts_.begin(), starts_.end() - 1);
            for (std::size_t range = 0; range < ranges_; range++)
                for (std::size_t before = 0; before < number; before++) add(next[range], sources_[before].sizes[range]);
            const std::uint8_t *range = sources_[number].ranges.data();
            sources_[number].table->consume([&](const Pretoken &pretoken) {
                Size &here = next[*range++];
                if (pretoken.count == 0) return;
                std::memcpy(data + here.bytes, pretoken.bytes(), pretoken.length);
                here.bytes += pretoken.length;
                counts[here.tokens++] = pretoken.count;
                offsets[here.tokens] = static_cast<std::int64_t>(here.bytes);
            });
        });
    }

    // Sort the ranges of the arrays.
    void sort(std::uint8_t *data, std::int64_t *offsets, std::int64_t *counts) {
        std::unique_ptr<Pages> pages; // for the entries of a range, and after them its records
        share(sorted_, ranges_, [&](std::size_t range) {
            const auto [token, byte] = starts_[range];
            const std::size_t tokens = starts_[range + 1].tokens - token, bytes = starts_[range + 1].bytes - byte;
            if (tokens == 0) return;
            const std::size_t records = tokens * (sizeof(Pretoken) + Pretoken::unit) + bytes + Pretoken::slack;
            const std::size_t size = tokens * sizeof(Entry) + records;
            if (!pages || pages->size() < size) pages = std::make_unique<Pages>(size + size / 8);
            auto *const begin = reinterpret_cast<Entry *>(pages->data()), *const end = begin + tokens;
            read(begin, end, byte, data, offsets + token + 1, counts + token);
            sort_canonically(begin, end);
            write(begin, end, byte, data, offsets + token + 1, counts + token);
        });
    }

  private:
    static constexpr std::ptrdiff_t ahead = 16; // records are in random order, so prefetch them

    // With smaller ranges, more of what is sorted is in the caches. But each thread writes to all of them at the same time,
    // to three huge pages each. (4.2 million pre-tokens, 229 MB of records: with ranges of 4, 8, 16, 32 and 64 MB sorting
    // takes 0.26, 0.31, 0.35, 0.37 and 0.42 s, and 94, 50, 18, 0 and 0 MB more than counting.)
    static constexpr std::uint64_t range_size = std::uint64_t{1} << 25; // bytes of records
    static constexpr std::size_t most_ranges = 256;

    struct Source {
        Table *table;
        std::vector<Size> sizes;          // of its part of each range
        std::vector<std::uint8_t> ranges; // of its records
    };

    static void add(Size &to, const Size &size) {
        to.tokens += size.tokens;
        to.bytes += size.bytes;
    }

    // Call work(i) for each i below `end` that no other thread has taken.
    template <typename Work> static void share(std::atomic<std::size_t> &next, std::size_t end, const Work &work) {
        for (std::size_t i; (i = next++) < end;) work(i);
    }

    // Move the counts of a partition of a table to the first one, and those of pre-tokens that it does not have to `rest`.
    void add(Table &table, std::uint32_t partition, Table *rest) {
        Table::Other batch[Table::BATCH];
        std::size_t waiting = 0;
        const auto flush = [&] {
            tables_[0]->take_over(batch, waiting);
            for (std::size_t i = 0; rest && i < waiting; i++) {
                Pretoken &pretoken = *batch[i].record;
                if (pretoken.count == 0) continue;
                const std::size_t length = pretoken.length; // of what may be read: threads change the next record
                rest->add(pretoken.bytes(), length, length, pretoken.count);
                pretoken.count = 0;
            }
            waiting = 0;
        };
        table.each([&](Pretoken &pretoken) {
            batch[waiting] = {&pretoken, pretoken.hash()};
            waiting += partition_of(batch[waiting].hash, partitions_) == partition;
            if (waiting == Table::BATCH) flush();
        });
        flush();
        if (rest) rest->flush();
    }

    static Entry entry_of(Pretoken &pretoken) {
        return {canonical_number(pretoken.count, pretoken.bytes(), pretoken.length, 8), &pretoken};
    }

    static bool before(const Entry &a, const Entry &b) {
        if (a.number != b.number) return a.number < b.number;
        if (a.record->count != b.record->count) return a.record->count > b.record->count;
        return order_of_bytes(a.record->bytes(), a.record->length, b.record->bytes(), b.record->length) < 0;
    }

    // Return the first pre-token of each range, but for the first range. They come from a sample, which is not empty if
    // there are any pre-tokens, as the first table has a count of each of its own.
    std::vector<Entry> limits_of_ranges() const {
        std::vector<Entry> sample, limits(ranges_);
        for (const Source &source : sources_)
            for (const std::uint32_t place : source.table->sample())
                if (source.table->record(place).count > 0) sample.push_back(entry_of(source.table->record(place)));
        std::sort(sample.begin(), sample.end(), before);
        for (std::size_t range = 1; range < ranges_ && !sample.empty(); range++)
            limits[range] = sample[sample.size() * range / ranges_];
        return limits;
    }

    // Copy a range of the arrays to records after the entries.
    static void read(Entry *begin, Entry *end, std::uint64_t byte, const std::uint8_t *data, const std::int64_t *ends,
                     const std::int64_t *counts) {
        auto *record = reinterpret_cast<std::uint8_t *>(end);
        for (Entry *entry = begin; entry != end; entry++) {
            Pretoken &pretoken = *reinterpret_cast<Pretoken *>(record);
            pretoken.count = *counts++;
            pretoken.length = static_cast<std::uint32_t>(static_cast<std::uint64_t>(*ends++) - byte);
            pretoken.set_bytes(data + byte);
            *entry = entry_of(pretoken);
            byte += pretoken.length;
            record += Pretoken::units(pretoken.length) * Pretoken::unit;
        }
    }

    static void sort_canonically(Entry *begin, Entry *end) {
        sort_by_number(begin, end);
        each_group(begin, end, [end](Entry *same, Entry *last) {
            for (const Entry *entry = same; entry != last && end - entry > ahead; entry++)
                __builtin_prefetch(entry[ahead].record);
            if (same->number >> 56)
                sort_ties(same, last, BYTES_IN_NUMBER);
            else
                std::sort(same, last, before);
        });
    }

    // Write the records of a range to the arrays.
    static void write(const Entry *begin, const Entry *end, std::uint64_t byte, std::uint8_t *data, std::int64_t *ends,
                      std::int64_t *counts) {
        for (const Entry *entry = begin; entry != end; entry++) {
            if (end - entry > ahead) __builtin_prefetch(entry[ahead].record);
            const Pretoken &pretoken = *entry->record;
            std::memcpy(data + byte, pretoken.bytes(), pretoken.length);
            byte += pretoken.length;
            *ends++ = static_cast<std::int64_t>(byte);
            *counts++ = pretoken.count;
        }
    }

    std::vector<Table *> tables_;               // from the largest on
    std::vector<std::unique_ptr<Table>> rests_; // pre-tokens of a partition that are not in the first table
    std::vector<Source> sources_;               // all of them
    std::uint32_t partitions_ = 0;              // of the hash
    std::size_t ranges_ = 1;                    // of the canonical order
    std::vector<Size> starts_;                  // of the ranges
    std::atomic<std::size_t> added_{0}, divided_{0}, distributed_{0}, sorted_{0}; // the next ones
};

} // namespace bpeflow
