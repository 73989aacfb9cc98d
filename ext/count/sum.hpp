// The sum of the tables of several threads, in canonical order: count descending, then bytes ascending. First the counts
// are added up, in parts: of the second of two tables, or, as a pre-token may be in several others, by partitions of the
// pre-tokens. Then they are copied to the arrays of the result, range by range of the canonical order, and each range is
// sorted in the arrays (range_sorter.hpp).
//
// New memory takes most of the time, where the kernel, and a virtual machine's host, have to provide it: up to 2 ms per
// megabyte. So memory goes back to the kernel before as much is taken again: the indexes of the tables before pre-tokens
// are copied, each record once it has been copied. The peak is that of counting, but for the pages where ranges end.
#pragma once

#include "bpeflow.h"
#include "kernels.hpp"
#include "key.hpp"
#include "range_sorter.hpp"
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
                    const Entry entry = canonical_entry(pretoken);
                    for (std::size_t step = ranges_ / 2; step > 0; step /= 2)
                        range +=
                            step & (0 - std::size_t{!canonically_before(entry, limits[range + step])}); // no branch
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
        RangeSorter sorter;
        share(sorted_, ranges_, [&](std::size_t number) {
            const std::size_t range = ranges_ - 1 - number; // rare ones first, which are longer and take more time
            const auto [token, byte] = starts_[range];
            const auto [end, last] = starts_[range + 1];
            if (token < end) sorter.sort({data, offsets + token + 1, counts + token, end - token, byte, last});
        });
    }

  private:
    // With smaller ranges, sorting takes less memory. But each thread writes to all of them at the same time, to three huge
    // pages each. (4.2 million pre-tokens, 229 MB of records: with ranges of 4, 8, 16, 32 and 64 MB it takes 94, 50, 18, 0
    // and 0 MB more than counting.)
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

    // The first and last bytes of a pre-token select its partition, so that threads hash no pre-tokens but their own.
    std::uint32_t partition_of(const Pretoken &pretoken) const {
        const std::size_t last = (std::size_t{pretoken.length} - 1) / Pretoken::unit * Pretoken::unit;
        const std::uint64_t ends =
            Pretoken::load_unit(pretoken.bytes()) << 32 | Pretoken::load_unit(pretoken.bytes() + last);
        return bpeflow::partition_of(hash_end(ends), partitions_);
    }

    // Move the counts of a partition of a table to the first one, and those of pre-tokens that it does not have to `rest`.
    // Without that, a partition is a part of the table.
    void add(Table &table, std::uint32_t partition, Table *rest) {
        Pretoken *batch[Table::BATCH] = {};
        std::size_t waiting = 0;
        const auto flush = [&] {
            tables_[0]->take_over(batch, waiting);
            for (std::size_t i = 0; rest && i < waiting; i++) {
                Pretoken &pretoken = *batch[i];
                if (pretoken.count == 0) continue;
                const std::size_t length = pretoken.length; // of what may be read: threads change the next record
                rest->add(pretoken.bytes(), length, length, pretoken.count);
                pretoken.count = 0;
            }
            waiting = 0;
        };
        const auto put = [&](Pretoken &pretoken) {
            batch[waiting] = &pretoken;
            waiting += !rest || partition_of(pretoken) == partition; // no branch
            if (waiting == Table::BATCH) flush();
        };
        if (rest)
            table.each(put);
        else
            table.each(partition, partitions_, put);
        flush();
        if (rest) rest->flush();
    }

    // Return the first pre-token of each range, but for the first range. They come from a sample, which is not empty if
    // there are any pre-tokens, as the first table has a count of each of its own.
    std::vector<Entry> limits_of_ranges() const {
        std::vector<Entry> sample, limits(ranges_);
        for (const Source &source : sources_)
            for (const std::uint32_t place : source.table->sample())
                if (source.table->record(place).count > 0)
                    sample.push_back(canonical_entry(source.table->record(place)));
        std::sort(sample.begin(), sample.end(), canonically_before);
        for (std::size_t range = 1; range < ranges_ && !sample.empty(); range++)
            limits[range] = sample[sample.size() * range / ranges_];
        return limits;
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
