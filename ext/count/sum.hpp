// The sum of the tables of several threads, in canonical order. First the counts are added up, by partitions of the
// hash, as a pre-token is in the same partition of all tables. Then all pre-tokens are sorted, by parts of the canonical
// order, so that the sorted parts need not be merged.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"
#include "index.hpp"
#include "key.hpp"
#include "shard.hpp"
#include "sorting.hpp"
#include "table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace bpeflow {

// A partition of several tables, added up: each pre-token has its sum in one of the tables, and a count of 0 in others.
class TableSum {
  public:
    // `tables` must be settled, and stay as they are.
    TableSum(const std::vector<Table *> &tables, std::uint32_t partition, std::uint32_t partitions)
        : tables_(tables), partition_(partition), partitions_(partitions) {
        if (tables.empty()) return;
        const auto smaller = [](const Table *a, const Table *b) { return a->tokens() < b->tokens(); };
        first_ = *std::max_element(tables.begin(), tables.end(), smaller); // so that few must be looked up
        for (const Table *table : tables) sample_step_ += table->tokens() / sampled;
        each_of_partition(*first_, [this](const Pretoken &record) { note(record); });
        for (Table *table : tables)
            if (table != first_) add(*table);
        others_ = {};
        index_.reset();
        std::sort(tables_.begin(), tables_.end());
    }

    bool is(std::uint64_t partition, std::uint64_t partitions) const {
        return partition_ == partition && partitions_ == partitions;
    }
    const std::vector<Table *> &tables() const { return tables_; } // in ascending order of addresses
    std::size_t tokens() const { return tokens_; }

    // Some of the pre-tokens, selected evenly.
    const std::vector<const Pretoken *> &sample() const { return sample_; }

  private:
    static constexpr std::size_t batch_size = 32;
    static constexpr std::size_t sampled = 1 << 12; // of all partitions; with fewer, the parts to sort differ more

    template <typename Work> void each_of_partition(Table &table, const Work &work) const {
        table.each([&](std::uint32_t place, const Pretoken &pretoken) {
            if (pretoken.partition(partitions_) == partition_) work(table.record(place));
        });
    }

    void add(Table &table) {
        each_of_partition(table, [this](Pretoken &record) {
            waiting_[number_waiting_] = {&record, record.hash()};
            first_->index().prefetch(waiting_[number_waiting_].hash);
            if (index_) index_->prefetch(waiting_[number_waiting_].hash);
            if (++number_waiting_ == batch_size) flush();
        });
        flush();
    }

    // Look the batch up in the first table, in three steps, so that the waits for memory overlap.
    void flush() {
        const Index &index = first_->index();
        std::uint32_t guesses[batch_size];
        for (std::size_t i = 0; i < number_waiting_; i++) {
            guesses[i] = index.guess(waiting_[i].hash);
            __builtin_prefetch(&first_->record(guesses[i]), 1);
        }
        for (std::size_t i = 0; i < number_waiting_; i++) {
            Pretoken &record = *waiting_[i].record;
            const auto same = [&](std::uint32_t place) { return equal(first_->record(place), record); };
            const std::uint32_t place = same(guesses[i]) ? guesses[i] : index.find(waiting_[i].hash, same);
            if (place)
                fold(record, first_->record(place));
            else
                add_to_others(record, waiting_[i].hash);
        }
        number_waiting_ = 0;
    }

    // Add a pre-token that is not in the first table. With two tables, it is in no other.
    void add_to_others(Pretoken &record, std::uint64_t hash) {
        if (tables_.size() > 2) {
            if (!index_) index_ = std::make_unique<Index>();
            if (others_.size() == index_->room()) grow();
            const std::uint32_t known = index_->find(
                hash, [&](std::uint32_t number) { return equal(*others_[number - 1], record); },
                [&] {
                    if (others_.size() >= std::numeric_limits<std::uint32_t>::max()) throw Failure{BPEFLOW_TOO_LARGE};
                    others_.push_back(&record);
                    return static_cast<std::uint32_t>(others_.size());
                });
            if (known) {
                fold(record, *others_[known - 1]);
                return;
            }
        }
        note(record);
    }

    void grow() {
        index_->grow(others_.size() + 1);
        for (std::size_t i = 0; i < others_.size(); i++) {
            static constexpr std::size_t ahead = 16;
            if (i + ahead < others_.size()) __builtin_prefetch(others_[i + ahead]);
            index_->find(
                others_[i]->hash(), [](std::uint32_t) { return false; },
                [&] { return static_cast<std::uint32_t>(i + 1); });
        }
    }

    static void fold(Pretoken &from, Pretoken &into) {
        into.add(from.count);
        from.count = 0;
    }

    void note(const Pretoken &record) {
        if (tokens_ % sample_step_ == 0) sample_.push_back(&record);
        tokens_++;
    }

    // Both are padded with zeros.
    static bool equal(const Pretoken &a, const Pretoken &b) {
        if (a.length != b.length) return false;
        for (std::size_t i = 0; i < a.length; i += 8)
            if (load_word(a.bytes() + i) != load_word(b.bytes() + i)) return false;
        return true;
    }

    struct Waiting {
        Pretoken *record;
        std::uint64_t hash;
    };

    std::vector<Table *> tables_;
    std::uint32_t partition_, partitions_;
    Table *first_ = nullptr;         // the other tables are looked up in it
    std::vector<Pretoken *> others_; // which are not in the first table
    std::unique_ptr<Index> index_;   // of their numbers, from 1 on
    std::size_t tokens_ = 0, sample_step_ = 1;
    std::vector<const Pretoken *> sample_;
    Waiting waiting_[batch_size];
    std::size_t number_waiting_ = 0;
};

// One of several parts of the canonical order, with about as many pre-tokens as each of the others.
class SortedPart {
  public:
    // The sums must be of all partitions of the same tables.
    SortedPart(const std::vector<const TableSum *> &sums, std::size_t part, std::size_t parts) {
        if (sums.empty()) return;
        const std::vector<const Pretoken *> sample = sorted_sample(sums);
        if (sample.empty()) return;
        const auto first_of = [&](std::size_t number) { return sample[sample.size() * number / parts]; };
        const Limit begin(part > 0 ? first_of(part) : nullptr);
        const Limit end(part + 1 < parts ? first_of(part + 1) : nullptr);
        std::size_t all = 0;
        for (const TableSum *sum : sums) all += sum->tokens();
        entries_.reserve(all / parts + all / parts / 8);
        for (Table *table : sums[0]->tables())
            table->each([&](std::uint32_t place, const Pretoken &pretoken) {
                if (pretoken.count == 0) return; // it is in another table
                const std::uint64_t number = number_of(pretoken);
                if ((begin.pretoken && begin.is_after(pretoken, number)) ||
                    (end.pretoken && !end.is_after(pretoken, number)))
                    return;
                entries_.push_back({number, &table->record(place)});
                bytes_ += pretoken.length;
            });
        sort();
    }

    std::uint64_t tokens() const { return entries_.size(); }
    std::uint64_t bytes() const { return bytes_; }

    // Write the pre-tokens to `data`, the place at which each ends to `ends`, counted from `begin`, and its count to
    // `counts`.
    void write(std::int64_t begin, std::uint8_t *data, std::int64_t *ends, std::int64_t *counts) const {
        static constexpr std::size_t ahead = 16; // they are in random order, so prefetch them
        for (std::size_t i = 0; i < entries_.size(); i++) {
            if (i + ahead < entries_.size()) __builtin_prefetch(entries_[i + ahead].record);
            const Pretoken &pretoken = *entries_[i].record;
            std::memcpy(data, pretoken.bytes(), pretoken.length);
            data += pretoken.length;
            ends[i] = begin += pretoken.length;
            counts[i] = pretoken.count;
        }
    }

  private:
    static std::uint64_t number_of(const Pretoken &pretoken) {
        return canonical_number(pretoken.count, pretoken.bytes(), pretoken.length, 8); // padded
    }

    // Return whether `a` is before `b` in canonical order.
    static bool before(const Pretoken &a, const Pretoken &b) {
        if (a.count != b.count) return a.count > b.count;
        return order_of_bytes(a.bytes(), a.length, b.bytes(), b.length) < 0;
    }

    struct Limit {
        explicit Limit(const Pretoken *limit) : pretoken(limit), number(limit ? number_of(*limit) : 0) {}

        bool is_after(const Pretoken &other, std::uint64_t its_number) const {
            return its_number != number ? its_number < number : before(other, *pretoken);
        }

        const Pretoken *pretoken;
        std::uint64_t number;
    };

    // Return some pre-tokens in canonical order. They divide all into stretches of about the same size.
    static std::vector<const Pretoken *> sorted_sample(const std::vector<const TableSum *> &sums) {
        std::vector<const Pretoken *> sample;
        for (const TableSum *sum : sums) sample.insert(sample.end(), sum->sample().begin(), sum->sample().end());
        std::sort(sample.begin(), sample.end(), [](const Pretoken *a, const Pretoken *b) { return before(*a, *b); });
        return sample;
    }

    void sort() {
        static constexpr std::ptrdiff_t ahead = 16; // they are in random order, so prefetch them
        Entry *const begin = entries_.data(), *const end = begin + entries_.size();
        sort_by_number(begin, end);
        each_group(begin, end, [end](Entry *first, Entry *last) {
            for (const Entry *entry = first; entry != last && end - entry > ahead; entry++)
                __builtin_prefetch(entry[ahead].record);
            if (first->number >> 56)
                sort_ties(first, last, BYTES_IN_NUMBER);
            else
                std::sort(first, last, [](const Entry &a, const Entry &b) { return before(*a.record, *b.record); });
        });
    }

    std::vector<Entry> entries_;
    std::uint64_t bytes_ = 0;
};

} // namespace bpeflow
