// The sum of the tables of several threads, in canonical order. First the counts are added up, by partitions of the
// hash, as a pre-token is in the same partition of all tables. Then all pre-tokens are sorted, by parts of the canonical
// order, so that the sorted parts need not be merged.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"
#include "index.hpp"
#include "key.hpp"
#include "partition.hpp"
#include "shard.hpp"
#include "sinks.hpp"
#include "table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace bpeflow {

// The pre-tokens of a partition of several tables, each once, with its counts added up. The sums stay in the tables'
// own records: in the first that a pre-token was found in. So no two sums may have the same partition of a table.
class TableSum {
  public:
    // `tables` must be settled, and stay as they are. Counts are multiplied by the table's weight.
    TableSum(Table *const *tables, const std::int64_t *weights, std::size_t count, const Partition &partition)
        : partition_(partition) {
        std::size_t largest = 0;
        for (std::size_t i = 0; i < count; i++) largest = std::max(largest, partition.share(tables[i]->tokens()));
        if (count > 1) {
            index_ = std::make_unique<Index>();
            index_->grow(largest + largest / 4);
        }
        entries_.reserve(largest + largest / 4);
        for (std::size_t i = 0; i < count; i++) add(*tables[i], weights[i], i > 0);
        index_.reset();
    }

    // In no particular order.
    const std::vector<Entry> &entries() const { return entries_; }

  private:
    static constexpr std::size_t batch_size = 32;

    void add(Table &table, std::int64_t weight, bool may_be_known) {
        table.each([&](std::uint32_t place, const Pretoken &pretoken) {
            if (!partition_.has(pretoken)) return;
            Pretoken &record = table.record(place);
            if (weight != 1) record.multiply(weight);
            if (!index_) {
                insert(record);
                return;
            }
            waiting_[number_waiting_] = {&record, record.hash()};
            index_->prefetch(waiting_[number_waiting_].hash);
            if (++number_waiting_ == batch_size) flush(may_be_known);
        });
        flush(may_be_known);
    }

    // Look the batch up, in three steps, so that the waits for memory overlap.
    void flush(bool may_be_known) {
        if (number_waiting_ == 0) return;
        if (entries_.size() + number_waiting_ > index_->room()) grow();
        if (may_be_known) {
            std::uint32_t guesses[batch_size];
            for (std::size_t i = 0; i < number_waiting_; i++) {
                guesses[i] = index_->guess(waiting_[i].hash);
                if (guesses[i]) __builtin_prefetch(&entries_[guesses[i] - 1]);
            }
            for (std::size_t i = 0; i < number_waiting_; i++)
                if (guesses[i]) __builtin_prefetch(entries_[guesses[i] - 1].record, 1);
        }
        for (std::size_t i = 0; i < number_waiting_; i++) {
            const Waiting &here = waiting_[i];
            const std::uint32_t known = index_->find(
                here.hash,
                [&](std::uint32_t number) { return may_be_known && equal(*entries_[number - 1].record, *here.record); },
                [&] {
                    insert(*here.record);
                    return static_cast<std::uint32_t>(entries_.size());
                });
            if (known) entries_[known - 1].record->add(here.record->count);
        }
        number_waiting_ = 0;
    }

    void insert(Pretoken &record) {
        if (entries_.size() >= std::numeric_limits<std::uint32_t>::max()) throw Failure{BPEFLOW_TOO_LARGE};
        entries_.push_back({0, &record});
    }

    void grow() {
        index_->grow(entries_.size() + number_waiting_);
        for (std::size_t i = 0; i < entries_.size(); i++) {
            static constexpr std::size_t ahead = 16;
            if (i + ahead < entries_.size()) __builtin_prefetch(entries_[i + ahead].record);
            index_->find(
                entries_[i].record->hash(), [](std::uint32_t) { return false; },
                [&] { return static_cast<std::uint32_t>(i + 1); });
        }
    }

    static bool equal(const Pretoken &a, const Pretoken &b) {
        return a.length == b.length && std::memcmp(a.bytes(), b.bytes(), a.length) == 0;
    }

    struct Waiting {
        Pretoken *record;
        std::uint64_t hash;
    };

    Partition partition_;
    std::unique_ptr<Index> index_; // of numbers of entries, from 1 on
    std::vector<Entry> entries_;
    Waiting waiting_[batch_size];
    std::size_t number_waiting_ = 0;
};

// One of several parts of the canonical order, with about as many pre-tokens as each of the others.
class SortedPart {
  public:
    // The sums have no pre-token in common.
    SortedPart(const std::vector<const TableSum *> &sums, std::size_t part, std::size_t parts) {
        const std::vector<const Pretoken *> sample = sorted_sample(sums);
        const auto first_of = [&](std::size_t number) { return sample[sample.size() * number / parts]; };
        const Pretoken *const begin = part > 0 && !sample.empty() ? first_of(part) : nullptr;
        const Pretoken *const end = part + 1 < parts && !sample.empty() ? first_of(part + 1) : nullptr;
        std::size_t all = 0;
        for (const TableSum *sum : sums) all += sum->entries().size();
        entries_.reserve(all / parts + all / parts / 8);
        for (const TableSum *sum : sums)
            for (const Entry &entry : sum->entries()) {
                const Pretoken &pretoken = *entry.record;
                if ((begin && before(pretoken, *begin)) || (end && !before(pretoken, *end))) continue;
                entries_.push_back(entry);
                bytes_ += pretoken.length;
            }
        sort();
    }

    std::uint64_t tokens() const { return entries_.size(); }
    std::uint64_t bytes() const { return bytes_; }

    // Write the pre-tokens to `data`, the place at which each ends to `ends`, counted from `begin`, and its count to
    // `counts`.
    void write(std::int64_t begin, std::uint8_t *data, std::int64_t *ends, std::int64_t *counts) const {
        static constexpr std::size_t ahead = 16; // they are in random order, so prefetch them
        Columns columns(tokens(), bytes_, begin, data, ends, counts);
        for (std::size_t i = 0; i < entries_.size(); i++) {
            if (i + ahead < entries_.size()) __builtin_prefetch(entries_[i + ahead].record);
            const Pretoken &pretoken = *entries_[i].record;
            std::memcpy(columns.reserve(pretoken.length), pretoken.bytes(), pretoken.length);
            columns.finish(pretoken.count);
        }
    }

  private:
    // Return whether `a` is before `b` in canonical order.
    static bool before(const Pretoken &a, const Pretoken &b) {
        if (a.count != b.count) return a.count > b.count;
        const std::uint64_t x = prefix_of(a.bytes(), a.length, 8), y = prefix_of(b.bytes(), b.length, 8); // padded
        return x != y ? x < y : order_of_bytes(a.bytes(), a.length, b.bytes(), b.length) < 0;
    }

    // Return some pre-tokens in canonical order. They divide all into stretches of about the same size.
    static std::vector<const Pretoken *> sorted_sample(const std::vector<const TableSum *> &sums) {
        static constexpr std::size_t size = 1 << 12; // with fewer, the parts differ more
        std::size_t all = 0;
        for (const TableSum *sum : sums) all += sum->entries().size();
        const std::size_t step = all / size + 1;
        std::vector<const Pretoken *> sample;
        for (const TableSum *sum : sums)
            for (std::size_t i = 0; i < sum->entries().size(); i += step) sample.push_back(sum->entries()[i].record);
        std::sort(sample.begin(), sample.end(), [](const Pretoken *a, const Pretoken *b) { return before(*a, *b); });
        return sample;
    }

    // Sort by count, descending, and those with the same count by bytes. Most counts are small.
    void sort() {
        static constexpr std::int64_t great = 256;
        const auto sort_group = [](Entry *begin, Entry *end) { sort_by_bytes(begin, end); };
        for (Entry &entry : entries_)
            entry.number = static_cast<std::uint64_t>(great - std::min(entry.record->count, great));
        Entry *const begin = entries_.data(), *const end = begin + entries_.size();
        sort_by_number(begin, end, 0);
        Entry *const small = std::partition_point(begin, end, [](const Entry &entry) { return entry.number == 0; });
        each_group(small, end, sort_group);
        for (Entry *entry = begin; entry != small; entry++)
            entry->number = ~static_cast<std::uint64_t>(entry->record->count);
        sort_by_number(begin, small);
        each_group(begin, small, sort_group);
    }

    std::vector<Entry> entries_;
    std::uint64_t bytes_ = 0;
};

} // namespace bpeflow
