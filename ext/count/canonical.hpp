// Canonical order: count descending, then bytes ascending.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"
#include "shard.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

namespace bpeflow {

// Puts records that arrive in ascending order of bytes into the caller's arrays in canonical order: a stable counting
// sort by count. Needs two passes over the records, and hardly any memory but the arrays: nearly all counts are small, and n
// different great ones need n * n / 2 occurrences.
class CanonicalArrays {
  public:
    // In the first pass, note a record.
    void note(const Record &record) {
        Class &here = class_of(record.count);
        here.tokens++;
        here.bytes += record.length;
        left_++;
    }

    // Before the second pass, find the place of each class.
    void begin(std::uint8_t *data, std::int64_t *offsets, std::int64_t *counts) {
        data_ = data;
        offsets_ = offsets;
        counts_ = counts;
        std::uint64_t token = 0, byte = 0;
        const auto assign_place = [&](Class &here) {
            here.next_token = token;
            here.next_byte = byte;
            token += here.tokens;
            byte += here.bytes;
        };
        for (auto &[count, here] : great_) assign_place(here);
        std::for_each(small_.rbegin(), small_.rend(), assign_place);
        offsets_[token] = static_cast<std::int64_t>(byte);
    }

    // In the second pass, put a record into its place.
    void put(const std::uint8_t *bytes, std::size_t length, std::int64_t count) {
        Class &here = class_of(count);
        // The file has changed since the first pass.
        if (here.tokens == 0 || length > here.bytes) throw Failure{BPEFLOW_DAMAGED};
        here.tokens--;
        here.bytes -= length;
        left_--;
        std::memcpy(data_ + here.next_byte, bytes, length);
        offsets_[here.next_token] = static_cast<std::int64_t>(here.next_byte);
        counts_[here.next_token++] = count;
        here.next_byte += length;
    }

    // The number of records that are still to come in the second pass.
    std::uint64_t left() const { return left_; }

  private:
    // The records with the same count.
    struct Class {
        std::uint64_t tokens = 0, bytes = 0, next_token = 0, next_byte = 0;
    };

    static constexpr std::int64_t great = 1 << 12;

    Class &class_of(std::int64_t count) {
        return count < great ? small_[static_cast<std::size_t>(count)] : great_[count];
    }

    std::vector<Class> small_ = std::vector<Class>(great);            // by count
    std::map<std::int64_t, Class, std::greater<std::int64_t>> great_; // by count
    std::uint8_t *data_ = nullptr;
    std::int64_t *offsets_ = nullptr, *counts_ = nullptr;
    std::uint64_t left_ = 0;
};

} // namespace bpeflow
