// Canonical order: count descending, then bytes ascending.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"
#include "shard.hpp"
#include "sorting.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace bpeflow {

// Puts records that arrive in ascending order of bytes into the caller's arrays in canonical order: a stable counting
// sort by count. Nearly all counts are small. The few records with great counts form one class, which is sorted at the
// end. Needs two passes over the records, and no memory but the arrays.
class CanonicalArrays {
  public:
    // In the first pass, note a record.
    void note(const Record &record) {
        Class &here = class_of(record.count);
        here.tokens++;
        here.bytes += record.length;
        tokens++;
        bytes += record.length;
    }

    // Before the second pass, find the place of each class.
    void begin(std::uint8_t *data, std::int64_t *offsets, std::int64_t *counts) {
        data_ = data;
        offsets_ = offsets;
        counts_ = counts;
        std::uint64_t token = 0, byte = 0;
        for (Class &here : classes_) {
            here.next_token = token;
            here.next_byte = byte;
            token += here.tokens;
            byte += here.bytes;
        }
        offsets_[tokens] = static_cast<std::int64_t>(bytes);
        left_ = tokens;
    }

    // The number of records that are still to come.
    std::uint64_t left() const { return left_; }

    // In the second pass, a sink of KwaySum that takes up to `room` records.
    std::uint8_t *reserve(std::size_t length) {
        if (room == 0) return nullptr;
        room--;
        if (length > record_.size()) record_.resize(length);
        length_ = length;
        return record_.data();
    }

    void finish(std::int64_t count) {
        Class &here = class_of(count);
        // The file has changed since the first pass.
        if (here.tokens == 0 || length_ > here.bytes) throw Failure{BPEFLOW_DAMAGED};
        here.tokens--;
        here.bytes -= length_;
        left_--;
        std::memcpy(data_ + here.next_byte, record_.data(), length_);
        offsets_[here.next_token] = static_cast<std::int64_t>(here.next_byte);
        counts_[here.next_token++] = count;
        here.next_byte += length_;
    }

    // After the second pass, sort the records with great counts.
    void end() {
        if (left_ != 0) throw Failure{BPEFLOW_DAMAGED};
        const auto great_ones = static_cast<std::size_t>(classes_[0].next_token);
        std::vector<std::size_t> order(great_ones);
        for (std::size_t i = 0; i < great_ones; i++) order[i] = i;
        std::stable_sort(order.begin(), order.end(),
                         [this](std::size_t a, std::size_t b) { return counts_[a] > counts_[b]; });
        const std::vector<std::uint8_t> data(data_, data_ + classes_[0].next_byte);
        const std::vector<std::int64_t> offsets(offsets_, offsets_ + great_ones + 1),
            counts(counts_, counts_ + great_ones);
        std::int64_t end = 0;
        for (std::size_t i = 0; i < great_ones; i++) {
            const std::int64_t first = offsets[order[i]], length = offsets[order[i] + 1] - first;
            std::memcpy(data_ + end, data.data() + first, static_cast<std::size_t>(length));
            offsets_[i] = end;
            counts_[i] = counts[order[i]];
            end += length;
        }
    }

    std::uint64_t tokens = 0, bytes = 0, room = 0;

  private:
    // The records with the same count, or with great counts.
    struct Class {
        std::uint64_t tokens = 0, bytes = 0, next_token = 0, next_byte = 0;
    };

    static constexpr std::int64_t great = 1 << 12;

    Class &class_of(std::int64_t count) { return classes_[static_cast<std::size_t>(great - std::min(count, great))]; }

    std::vector<Class> classes_ = std::vector<Class>(great); // of great counts, then of great - 1 down to 1
    std::uint8_t *data_ = nullptr;
    std::int64_t *offsets_ = nullptr, *counts_ = nullptr;
    std::vector<std::uint8_t> record_;
    std::size_t length_ = 0;
    std::uint64_t left_ = 0;
};

// Find the canonical order of pre-tokens that are in another one.
inline void canonical_order(const std::uint8_t *data, const std::int64_t *starts, const std::int64_t *ends,
                            const std::int64_t *counts, std::size_t tokens, std::int64_t *order) {
    struct Place {
        std::uint64_t number, index;
    };
    const auto bytes = [&](const Place &place) { return data + starts[place.index]; };
    const auto length = [&](const Place &place) {
        return static_cast<std::size_t>(ends[place.index] - starts[place.index]);
    };
    std::vector<Place> places(tokens);
    for (std::size_t i = 0; i < tokens; i++) {
        places[i].index = i;
        places[i].number = canonical_number(counts[i], bytes(places[i]), length(places[i]), length(places[i]));
    }
    sort_by_number(places.data(), places.data() + tokens);
    each_group(places.data(), places.data() + tokens, [&](Place *first, Place *last) {
        std::sort(first, last, [&](const Place &a, const Place &b) {
            if (counts[a.index] != counts[b.index]) return counts[a.index] > counts[b.index];
            return order_of_bytes(bytes(a), length(a), bytes(b), length(b)) < 0;
        });
    });
    for (std::size_t i = 0; i < tokens; i++) order[i] = static_cast<std::int64_t>(places[i].index);
}

} // namespace bpeflow
