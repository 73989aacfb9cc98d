// The sum of the tables of several threads, in canonical order: count descending, then bytes ascending. First the counts
// are added up, by partitions of the hash, as a pre-token is in the same partition of all tables. Then all pre-tokens are
// sorted, by parts of the canonical order, so that the sorted parts need not be merged.
//
// New memory takes most of the time, where the kernel, and a virtual machine's host, have to provide it: up to 2 ms per
// megabyte. So what is no longer needed goes back to the kernel before the next step takes as much again: the index of
// the tables before sorting, and the tables when their bytes have been written.
#pragma once

#include "bpeflow.h"
#include "huge_pages.hpp"
#include "kernels.hpp"
#include "key.hpp"
#include "shard.hpp"
#include "sorting.hpp"
#include "table.hpp"

#include <algorithm>
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

// Adds up in place: each pre-token has its sum in one of the tables, and a count of 0 in all others.
class TableSum {
  public:
    // All counts of the tables must be in their records. There are as many partitions as parts.
    TableSum(std::vector<Table *> tables, std::uint32_t parts) : tables_(std::move(tables)), parts_(parts) {
        const auto smaller = [](const Table *a, const Table *b) { return a->tokens() < b->tokens(); };
        std::sort(tables_.rbegin(), tables_.rend(), smaller); // so that few are missing in the first table
    }

    std::uint32_t parts() const { return static_cast<std::uint32_t>(parts_.size()); }

    // Add up a partition of all tables. It can be done for several partitions at the same time.
    void add_up(std::uint32_t partition) {
        if (tables_.size() < 2) return;
        // With two tables, pre-tokens that are not in the first one are in no other table.
        if (tables_.size() > 2) parts_[partition].rest = std::make_unique<Table>(*find_kernels(nullptr));
        for (std::size_t i = 1; i < tables_.size(); i++) add(*tables_[i], partition, parts_[partition].rest.get());
    }

    // Sort a part of the sums of all partitions, about as large as any other. It can be done for several parts at the same
    // time.
    void sort(std::uint32_t number) {
        Part &part = parts_[number];
        for (std::size_t i = number; i < tables_.size(); i += parts()) tables_[i]->discard_index();
        const std::vector<Entry> limits = sorted_sample();
        if (limits.empty()) return;
        const Entry *const first = number > 0 ? &limits[limits.size() * number / parts()] : nullptr;
        const Entry *const next = number + 1 < parts() ? &limits[limits.size() * (number + 1) / parts()] : nullptr;
        const std::size_t usual = limits.size() * Table::SAMPLED / parts();
        part.entries.reserve(usual + usual / 8);
        request_huge_pages(part.entries.data(), part.entries.capacity() * sizeof(Entry));
        each([&](Pretoken &pretoken) {
            const Entry entry = entry_of(pretoken);
            if ((first && before(entry, *first)) || (next && !before(entry, *next))) return;
            part.entries.push_back(entry);
            part.bytes += pretoken.length;
        });
        Entry *const begin = part.entries.data(), *const end = begin + part.entries.size();
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

    // The number of pre-tokens in the parts before one, and the sum of their lengths.
    std::pair<std::uint64_t, std::uint64_t> size_before(std::uint32_t part) const {
        std::uint64_t tokens = 0, bytes = 0;
        for (std::uint32_t i = 0; i < part; i++) {
            tokens += parts_[i].entries.size();
            bytes += parts_[i].bytes;
        }
        return {tokens, bytes};
    }

    // Write the bytes of a part to their place among those of all. The tables are not needed after this.
    void write_bytes(std::uint32_t part, std::uint8_t *data) {
        std::vector<Entry> &entries = parts_[part].entries;
        std::uint64_t byte = size_before(part).second;
        for (std::size_t i = 0; i < entries.size(); i++) {
            if (i + ahead < entries.size()) __builtin_prefetch(entries[i + ahead].record);
            const Pretoken &pretoken = *entries[i].record;
            std::memcpy(data + byte, pretoken.bytes(), pretoken.length);
            byte += pretoken.length;
            entries[i].number = static_cast<std::uint64_t>(pretoken.count);
            entries[i].end = byte;
        }
    }

    // Write the ends of the pre-tokens of a part, and their counts, to their places in the arrays of all.
    void write_numbers(std::uint32_t part, std::int64_t *offsets, std::int64_t *counts) const {
        std::uint64_t token = size_before(part).first;
        for (const Entry &entry : parts_[part].entries) {
            counts[token++] = static_cast<std::int64_t>(entry.number);
            offsets[token] = static_cast<std::int64_t>(entry.end);
        }
    }

  private:
    static constexpr std::ptrdiff_t ahead = 16; // records are in random order, so prefetch them

    struct Part {
        std::unique_ptr<Table> rest; // pre-tokens of the partition with the same number that are not in the first table
        std::vector<Entry> entries;  // sorted
        std::uint64_t bytes = 0;     // of their pre-tokens
    };

    // Move the counts of a partition of a table to the first one, and those of pre-tokens that it does not have to `rest`.
    void add(Table &table, std::uint32_t partition, Table *rest) {
        Pretoken *batch[Table::BATCH] = {};
        std::size_t waiting = 0;
        const auto flush = [&] {
            tables_[0]->take_over(batch, waiting);
            for (std::size_t i = 0; rest && i < waiting; i++) {
                if (batch[i]->count == 0) continue;
                const std::size_t length = batch[i]->length; // of what may be read: threads change the next record
                rest->add(batch[i]->bytes(), length, length, batch[i]->count);
                batch[i]->count = 0;
            }
            waiting = 0;
        };
        table.each([&](Pretoken &pretoken) {
            if (pretoken.partition(parts()) != partition) return;
            batch[waiting++] = &pretoken;
            if (waiting == Table::BATCH) flush();
        });
        flush();
        if (rest) rest->flush();
    }

    // Call work(pretoken) for each pre-token.
    template <typename Work> void each(const Work &work) const {
        const auto counted = [&](Pretoken &pretoken) {
            if (pretoken.count > 0) work(pretoken);
        };
        each_table([&](Table &table) { table.each(counted); });
    }

    template <typename Work> void each_table(const Work &work) const {
        for (Table *table : tables_) work(*table);
        for (const Part &part : parts_)
            if (part.rest) work(*part.rest);
    }

    static Entry entry_of(Pretoken &pretoken) {
        return {canonical_number(pretoken.count, pretoken.bytes(), pretoken.length, 8), {&pretoken}}; // padded
    }

    static bool before(const Entry &a, const Entry &b) {
        if (a.number != b.number) return a.number < b.number;
        if (a.record->count != b.record->count) return a.record->count > b.record->count;
        return order_of_bytes(a.record->bytes(), a.record->length, b.record->bytes(), b.record->length) < 0;
    }

    // Return some pre-tokens in canonical order, at least one if there are any, as the first table has a count of each of
    // its own. They divide all into stretches of about the same size.
    std::vector<Entry> sorted_sample() const {
        std::vector<Entry> sample;
        each_table([&](Table &table) {
            for (const std::uint32_t place : table.sample())
                if (table.record(place).count > 0) sample.push_back(entry_of(table.record(place)));
        });
        std::sort(sample.begin(), sample.end(), before);
        return sample;
    }

    std::vector<Table *> tables_; // from the largest on
    std::vector<Part> parts_;
};

} // namespace bpeflow
