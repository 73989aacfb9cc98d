// Destinations of a k-way sum: columns, a file, or memory, where records are put in canonical order.
#pragma once

#include "bpeflow.h"
#include "shard.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace bpeflow {

// Writes records to the caller's arrays.
class Columns {
  public:
    Columns(std::uint64_t max_tokens, std::uint64_t max_bytes, std::int64_t begin, std::uint8_t *data,
            std::int64_t *ends, std::int64_t *counts)
        : max_tokens_(max_tokens), max_bytes_(max_bytes), begin_(begin), data_(data), ends_(ends), counts_(counts) {}

    std::uint8_t *reserve(std::size_t length) {
        if (tokens == max_tokens_ || length > max_bytes_ - bytes) return nullptr;
        std::uint8_t *const here = data_ + bytes;
        bytes += length;
        return here;
    }

    void finish(std::int64_t count) {
        ends_[tokens] = begin_ + static_cast<std::int64_t>(bytes);
        counts_[tokens++] = count;
    }

    std::uint64_t tokens = 0, bytes = 0;

  private:
    std::uint64_t max_tokens_, max_bytes_;
    std::int64_t begin_;
    std::uint8_t *data_;
    std::int64_t *ends_, *counts_;
};

// Write the length and the count of a record whose bytes are already written.
inline void put_header(std::uint8_t *record, std::uint32_t length, std::int64_t count) {
    std::memcpy(record, &length, sizeof length);
    std::memcpy(record + sizeof length, &count, sizeof count);
}

// Writes records to a shard file, and marks one about every `mark_every` bytes, or none if that is 0.
class ShardFile {
  public:
    ShardFile(ShardWriter &writer, std::uint64_t mark_every)
        : writer_(writer), mark_every_(mark_every), next_mark_(mark_every > 0 ? mark_every : UINT64_MAX) {}

    std::uint8_t *reserve(std::size_t length) {
        offset_ = writer_.written();
        record_ = writer_.reserve(BPEFLOW_RECORD_SIZE + length);
        length_ = static_cast<std::uint32_t>(length);
        return record_ + BPEFLOW_RECORD_SIZE;
    }

    void finish(std::int64_t count) {
        put_header(record_, length_, count);
        if (offset_ >= next_mark_ && length_ <= BPEFLOW_MARK_LENGTH) {
            marks.push_back({offset_, tokens});
            next_mark_ = offset_ + mark_every_;
        }
        tokens++;
    }

    std::uint64_t tokens = 0;
    std::vector<bpeflow_mark> marks;

  private:
    ShardWriter &writer_;
    std::uint64_t mark_every_, next_mark_, offset_ = 0;
    std::uint8_t *record_ = nullptr;
    std::uint32_t length_ = 0;
};

// Collects records that arrive in ascending order of bytes, and sorts them into canonical order.
class Gathered {
  public:
    Gathered() = default;

    // Hold up to `memory` bytes of records, including the memory to sort them. `most` bounds the size of the records.
    Gathered(std::uint64_t memory, std::uint64_t most)
        : memory_(memory), capacity_(static_cast<std::size_t>(std::min(memory, most))),
          data_(new std::uint8_t[capacity_]) {}

    std::uint8_t *reserve(std::size_t length) {
        const std::size_t size = BPEFLOW_RECORD_SIZE + length;
        const bool fits = size <= capacity_ - used_ && used_ + size + (tokens_ + 1) * sizeof(std::size_t) <= memory_;
        if (!fits) {
            if (tokens_ > 0) return nullptr;
            data_.reset(new std::uint8_t[size]);
            capacity_ = size;
        }
        length_ = static_cast<std::uint32_t>(length);
        return data_.get() + used_ + BPEFLOW_RECORD_SIZE;
    }

    void finish(std::int64_t count) {
        put_header(data_.get() + used_, length_, count);
        used_ += BPEFLOW_RECORD_SIZE + length_;
        tokens_++;
    }

    // Sort into canonical order. Nearly all counts are small, so one stable counting sort by count does most of the
    // work. The few records with great counts are then sorted by comparison.
    void sort() {
        static constexpr std::uint64_t great = 1 << 12;
        const auto part = [this](std::size_t record) { // 0 for great counts, great - 1 for count 1
            return great - std::min(static_cast<std::uint64_t>(count_of(record)), great);
        };
        std::vector<std::size_t> starts(great + 1);
        for (std::size_t record = 0; record < used_; record += size_of(record)) starts[part(record) + 1]++;
        const std::size_t great_ones = starts[1];
        for (std::size_t i = 1; i <= great; i++) starts[i] += starts[i - 1];
        order_.resize(tokens_);
        for (std::size_t record = 0; record < used_; record += size_of(record)) order_[starts[part(record)]++] = record;
        std::sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(great_ones),
                  [this](std::size_t a, std::size_t b) {
                      const std::int64_t x = count_of(a), y = count_of(b);
                      return x != y ? x > y : a < b;
                  });
    }

    // Write the sorted records. reserve(size) returns the memory for the next record.
    template <typename Reserve> void write(const Reserve &reserve) const {
        for (const std::size_t record : order_) {
            const std::size_t size = size_of(record);
            std::memcpy(reserve(size), data_.get() + record, size);
        }
    }

    std::uint64_t tokens() const { return tokens_; }
    std::uint64_t size() const { return used_; }

  private:
    std::size_t size_of(std::size_t record) const {
        std::uint32_t length;
        std::memcpy(&length, data_.get() + record, sizeof length);
        return BPEFLOW_RECORD_SIZE + std::size_t{length};
    }

    std::int64_t count_of(std::size_t record) const {
        std::int64_t count;
        std::memcpy(&count, data_.get() + record + sizeof(std::uint32_t), sizeof count);
        return count;
    }

    std::uint64_t memory_ = 0;
    std::size_t capacity_ = 0, used_ = 0;
    std::unique_ptr<std::uint8_t[]> data_; // not cleared: untouched pages cost nothing
    std::uint64_t tokens_ = 0;
    std::uint32_t length_ = 0;
    std::vector<std::size_t> order_;
};

} // namespace bpeflow
