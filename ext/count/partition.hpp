// Reading a table: which pre-tokens are in a partition, and in what order they are written.
#pragma once

#include "key.hpp"
#include "table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bpeflow {

// One of several partitions. By the upper half of the hash: slots go by the lower one, so a table that holds one
// partition only is as evenly filled as any other.
class Partition {
  public:
    Partition(std::uint32_t partition, std::uint32_t partitions) : partition_(partition), partitions_(partitions) {}

    bool has(const Slot &slot) const {
        return !slot.empty() && (std::uint64_t{slot.high} * partitions_) >> 32 == partition_;
    }

    bool is_all() const { return partitions_ == 1; }

  private:
    std::uint64_t partition_, partitions_;
};

struct PartitionSize {
    std::uint64_t tokens = 0, bytes = 0;
};

inline PartitionSize size_of(const Table &table, const Partition &partition) {
    if (partition.is_all()) return {table.tokens(), table.bytes()}; // asked for often, to see how large it has grown
    PartitionSize size;
    for (const Slot &slot : table.slots()) {
        if (!partition.has(slot)) continue;
        size.tokens++;
        size.bytes += slot.length;
    }
    return size;
}

// What most comparisons need while sorting, side by side.
struct Entry {
    std::int64_t count;
    std::uint64_t prefix; // the first 8 bytes, the first one highest, zeros if there are fewer
    const Slot *slot;

    explicit Entry(const Slot &of) : count(of.count), prefix(0), slot(&of) {
        const std::uint8_t *bytes = of.bytes();
        for (std::size_t i = 0; i < 8; i++) prefix = prefix << 8 | (i < of.length ? bytes[i] : 0);
    }

    // The canonical order. A prefix that is smaller, by bytes or by zeros where a pre-token has ended, is smaller as
    // bytes too; the same prefix says nothing, for zeros may be bytes.
    bool operator<(const Entry &other) const {
        if (count != other.count) return count > other.count;
        if (prefix != other.prefix) return prefix < other.prefix;
        const std::uint32_t a = slot->length, b = other.slot->length;
        const int order = std::memcmp(slot->bytes(), other.slot->bytes(), std::min(a, b));
        return order != 0 ? order < 0 : a < b;
    }
};

// Calls emit(slot) for each pre-token of a partition, in canonical order.
template <typename Emit> void for_each(const Table &table, const Partition &partition, const Emit &emit) {
    std::vector<Entry> entries;
    entries.reserve(size_of(table, partition).tokens);
    for (const Slot &slot : table.slots())
        if (partition.has(slot)) entries.emplace_back(slot);
    std::sort(entries.begin(), entries.end());
    for (const Entry &entry : entries) emit(*entry.slot);
}

} // namespace bpeflow
