// Where ids go: to an array.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace bpeflow {

// Ids written at a time.
constexpr std::size_t RUN = 8;

// Appends ids to an array. Throws Failure{BPEFLOW_NO_ROOM} if it is full.
template <typename Given> class IdWriter {
  public:
    using Id = Given;

    IdWriter(void *ids, std::uint64_t written, std::uint64_t capacity)
        : first_(static_cast<Id *>(ids)), next_(first_ + written), end_(first_ + capacity) {}

    // Write the first `count` of four ids. If there is room, write all four, which needs no branch and no loop: the
    // next ids overwrite the excess.
    void put_few(const std::uint32_t (&ids)[4], std::size_t count) {
        if (end_ - next_ < 4) {
            put(ids, count);
            return;
        }
        for (std::size_t i = 0; i < 4; i++) next_[i] = static_cast<Id>(ids[i]);
        next_ += count;
    }

    template <typename From> void put(const From *ids, std::size_t count) {
        if (static_cast<std::size_t>(end_ - next_) < count) throw Failure{BPEFLOW_NO_ROOM};
        next_ = std::transform(ids, ids + count, next_, [](From id) { return static_cast<Id>(id); });
    }

    // The same for any number of ids: most runs are short, and a loop over single ids could not be predicted. Up to `RUN`
    // ids after the last one are read.
    template <typename From> void put_run(const From *ids, std::size_t count) {
        if (static_cast<std::size_t>(end_ - next_) < count + RUN) {
            put(ids, count);
            return;
        }
        std::size_t first = 0;
        do {
            for (std::size_t i = first; i < first + RUN; i++) next_[i] = static_cast<Id>(ids[i]);
            first += RUN;
        } while (first < count);
        next_ += count;
    }

    // Write the ids of one pre-token, with those that pad them to a multiple of `RUN`.
    void put_many(const std::uint32_t *ids, std::size_t count) { put_run(ids, count); }

    std::uint64_t written() const { return static_cast<std::uint64_t>(next_ - first_); }

  private:
    Id *first_, *next_, *end_;
};

} // namespace bpeflow
