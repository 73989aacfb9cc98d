// Where ids go: to an array.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bpeflow {

// Ids written at a time; and ids of a short run, which are written at once.
constexpr std::size_t RUN = 8, FEW = 2 * RUN;

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

    // The same for any number of ids, of which nearly all runs have at most `FEW`. These need no branch: a loop, even over
    // eight ids at a time, could not be predicted. Up to `FEW` ids after the last one are read.
    void put_run(const Id *ids, std::size_t count) {
        if (static_cast<std::size_t>(end_ - next_) < count + FEW) {
            put(ids, count);
            return;
        }
        std::memcpy(next_, ids, FEW * sizeof(Id));
        for (std::size_t first = FEW; first < count; first += RUN)
            std::memcpy(next_ + first, ids + first, RUN * sizeof(Id));
        next_ += count;
    }

    // The same for ids of another size.
    template <typename From> void put_run(const From *ids, std::size_t count) { put_padded(ids, count); }

    // Write the ids of one pre-token, with those that pad them to a multiple of `RUN`.
    void put_many(const std::uint32_t *ids, std::size_t count) { put_padded(ids, count); }

    std::uint64_t written() const { return static_cast<std::uint64_t>(next_ - first_); }

  private:
    template <typename From> void put_padded(const From *ids, std::size_t count) {
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

    Id *first_, *next_, *end_;
};

} // namespace bpeflow
