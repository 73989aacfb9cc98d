// Sorting the pre-tokens of a table, by partition, and writing them as a shard.
#pragma once

#include "bpeflow.h"
#include "key.hpp"
#include "shard.hpp"
#include "table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace bpeflow {

// A pre-token to sort.
struct Entry {
    std::uint64_t number; // to sort by: its count, or eight of its bytes (see prefix_of())
    Pretoken *record;
};

// Sort by number, or by its bytes up to the one at `shift` if the others agree. One byte after another, the last first,
// selects a part of the other of two arrays, which both fit in the L2 cache.
template <typename Entry> void sort_in_cache(Entry *begin, Entry *end, int shift) {
    const auto count = static_cast<std::size_t>(end - begin);
    std::uint32_t next[8][256] = {};
    for (const Entry *entry = begin; entry != end; entry++)
        for (int i = 0; i <= shift; i += 8) next[i / 8][entry->number >> i & 0xFF]++;
    const std::unique_ptr<Entry[]> copies(new Entry[count]);
    Entry *from = begin, *to = copies.get();
    for (int i = 0; i <= shift; i += 8) {
        std::uint32_t *const next_in = next[i / 8];
        std::uint32_t start = 0;
        if (next_in[from->number >> i & 0xFF] == count) continue; // all agree
        for (int part = 0; part < 256; part++) start += std::exchange(next_in[part], start);
        for (const Entry *entry = from; entry != from + count; entry++)
            to[next_in[entry->number >> i & 0xFF]++] = *entry;
        std::swap(from, to);
    }
    if (from != begin) std::copy(from, from + count, begin);
}

// Sort by number, or by its bytes up to the one at `shift` if the others agree. Many entries are partitioned by that
// byte in place, then each part is sorted (American flag sort: McIlroy, Bostic and McIlroy, "Engineering radix sort",
// 1993).
template <typename Entry> void sort_by_number(Entry *begin, Entry *end, int shift = 56) {
    static constexpr std::ptrdiff_t few = 64; // below this size, 256 parts cost more than they save
    static constexpr std::ptrdiff_t cached = std::ptrdiff_t{1} << 15;
    if (shift < 0) return;
    if (end - begin <= few) {
        std::sort(begin, end, [](const Entry &a, const Entry &b) { return a.number < b.number; });
        return;
    }
    if (end - begin <= cached) return sort_in_cache(begin, end, shift);
    const auto digit = [shift](const Entry &entry) { return entry.number >> shift & 0xFF; };
    std::size_t sizes[256] = {};
    for (const Entry *entry = begin; entry != end; entry++) sizes[digit(*entry)]++;
    if (sizes[digit(*begin)] == static_cast<std::size_t>(end - begin)) {
        sort_by_number(begin, end, shift - 8);
        return;
    }
    Entry *next[256], *ends[256], *start = begin;
    for (int i = 0; i < 256; i++) {
        next[i] = start;
        ends[i] = start += sizes[i];
    }
    for (int i = 0; i < 256; i++) // each swap moves one entry to its part
        while (next[i] != ends[i]) {
            const std::size_t part = digit(*next[i]);
            if (part == static_cast<std::size_t>(i))
                next[i]++;
            else
                std::swap(*next[i], *next[part]++);
        }
    for (int i = 0; i < 256; i++)
        if (sizes[i] > 1) sort_by_number(ends[i] - sizes[i], ends[i], shift - 8);
}

// Call work(begin, end) for the groups of two and more entries with the same number, which are next to each other.
template <typename Entry, typename Work> void each_group(Entry *begin, Entry *end, const Work &work) {
    for (Entry *same = begin; same != end;) {
        Entry *next = same + 1;
        while (next != end && next->number == same->number) next++;
        if (next - same > 1) work(same, next);
        same = next;
    }
}

void sort_ties(Entry *begin, Entry *end, std::size_t position);

// Sort entries that agree in the bytes before `position`, and are longer than that, in ascending order of bytes: by the
// next eight, then groups that agree there by the eight after those, and so on. So the bytes of each are read once for
// every eight, and not in each comparison.
inline void sort_by_bytes(Entry *begin, Entry *end, std::size_t position = 0) {
    static constexpr std::ptrdiff_t ahead = 16; // records are in random order, unless all of one table are sorted
    for (Entry *entry = begin; entry != end; entry++) {
        if (end - entry > ahead) __builtin_prefetch(entry[ahead].record->bytes() + position);
        entry->number = prefix_of(entry->record->bytes() + position, entry->record->length - position, 8);
    }
    sort_by_number(begin, end);
    each_group(begin, end, [position](Entry *first, Entry *last) { sort_ties(first, last, position + 8); });
}

// Sort entries that agree in the bytes before `position`, padded with zeros, in ascending order of bytes. Of pre-tokens
// that end there, the shorter one is smaller, and all of them are smaller than longer ones.
inline void sort_ties(Entry *begin, Entry *end, std::size_t position) {
    static constexpr std::size_t far = 32; // equal pre-tokens are rarely longer
    for (const Entry *entry = begin; entry != end; entry++) __builtin_prefetch(entry->record);
    Entry *const longer =
        std::partition(begin, end, [&](const Entry &entry) { return entry.record->length <= position; });
    std::sort(begin, longer, [](const Entry &a, const Entry &b) { return a.record->length < b.record->length; });
    if (position < far) {
        if (longer != end) sort_by_bytes(longer, end, position);
        return;
    }
    std::sort(longer, end, [position](const Entry &a, const Entry &b) {
        return order_of_bytes(a.record->bytes() + position, a.record->length - position, b.record->bytes() + position,
                              b.record->length - position) < 0;
    });
}

// Return the pre-tokens of a table by partition, in ascending order of bytes in each, and set the number of records and
// their size in each partition.
inline std::vector<Entry> sorted(Table &table, std::uint32_t partitions, std::uint64_t *tokens, std::uint64_t *sizes) {
    std::fill(tokens, tokens + partitions, 0);
    std::fill(sizes, sizes + partitions, 0);
    table.each([&](const Pretoken &pretoken) {
        const std::uint32_t partition = partition_of(pretoken.hash(), partitions);
        tokens[partition]++;
        sizes[partition] += BPEFLOW_RECORD_SIZE + std::uint64_t{pretoken.length};
    });
    std::vector<Entry> entries(table.tokens());
    std::vector<Entry *> ends{entries.data()};
    for (std::uint32_t partition = 1; partition < partitions; partition++)
        ends.push_back(ends.back() + tokens[partition - 1]);
    table.each([&](Pretoken &pretoken) { *ends[partition_of(pretoken.hash(), partitions)]++ = {0, &pretoken}; });
    for (std::uint32_t partition = 0; partition < partitions; partition++)
        sort_by_bytes(ends[partition] - tokens[partition], ends[partition]);
    return entries;
}

// Write entries as records of a shard.
inline void write_records(const std::vector<Entry> &entries, ShardWriter &writer) {
    static constexpr std::size_t ahead = 16; // they are in random order, so prefetch them
    for (std::size_t i = 0; i < entries.size(); i++) {
        if (i + ahead < entries.size()) __builtin_prefetch(entries[i + ahead].record);
        const Pretoken &pretoken = *entries[i].record;
        std::uint8_t *const record = writer.reserve(BPEFLOW_RECORD_SIZE + std::size_t{pretoken.length});
        put_header(record, pretoken.length, pretoken.count);
        std::memcpy(record + BPEFLOW_RECORD_SIZE, pretoken.bytes(), pretoken.length);
    }
}

} // namespace bpeflow
