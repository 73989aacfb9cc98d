// The neighbours of the occurrences being merged, and the changes that each causes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace bpeflow {

constexpr std::uint32_t END = UINT32_MAX; // the id between pre-tokens; no token has it

// The changes that one neighbouring token causes.
struct Neighbour {
    std::int64_t weight = 0;         // number of occurrences with this neighbour, weighted by pre-token counts
    std::uint32_t entries = 0;       // number of occurrences with this neighbour
    std::uint32_t back = 0;          // distance from the start of the new pair's left token to the new token
    std::uint32_t *cursor = nullptr; // memory for the new pair's next occurrence; null if it needs no list
};

// The neighbours on one side, left or right, of the occurrences that one thread merges.
class Neighbours {
  public:
    // Make room for this many tokens and occurrences. Only between merges.
    void reserve(std::size_t tokens, std::size_t occurrences) {
        if (tokens + 1 > by_id_.size()) {
            by_id_.resize((tokens + 1) * 2);
            met_.resize(by_id_.size() + 1); // `add` writes one past the last
        }
        if (occurrences > capacity_) {
            capacity_ = occurrences + occurrences / 4;
            ids_.reset(); // first, so that only one exists at a time
            ids_.reset(new std::uint32_t[capacity_]);
        }
    }

    // Return the entry of a neighbour. END is a neighbour, too, which saves the walk a test: END + 1 wraps around to
    // index 0.
    Neighbour &operator[](std::uint32_t id) { return by_id_[id + 1]; }

    // Record the neighbour of one occurrence. Weights cannot overflow: their sum is at most the count of the merged
    // pair.
    void note(std::uint32_t id, std::size_t occurrence, std::int64_t weight) {
        add(id, weight, 1);
        ids_[occurrence] = id;
    }

    // Add the changes that another thread has recorded, without its occurrences.
    void add(const Neighbours &other) {
        for (const std::uint32_t id : other) add(id, other.by_id_[id + 1].weight, other.by_id_[id + 1].entries);
    }

    // The distinct ids recorded, which may include END.
    const std::uint32_t *begin() const { return met_.data(); }
    const std::uint32_t *end() const { return met_.data() + met_count_; }
    std::size_t size() const { return met_count_; }

    // Copy the cursors into the new lists from `total`, which may be this object. earlier(id) is the number of entries
    // that earlier parts write there first.
    template <typename Earlier> void take_cursors(Neighbours &total, const Earlier &earlier) {
        if (&total == this) return;
        for (const std::uint32_t id : *this) {
            const Neighbour &all = total[id];
            Neighbour &mine = (*this)[id];
            mine.back = all.back;
            mine.cursor = all.cursor ? all.cursor + earlier(id) : nullptr;
        }
    }

    // Write all occurrences to the new lists. `positions` has their positions, in ascending order.
    void write_lists(const std::uint32_t *positions, std::size_t occurrences) {
        for (std::size_t o = 0; o < occurrences; o++) {
            Neighbour &neighbour = (*this)[ids_[o]];
            if (neighbour.cursor) *neighbour.cursor++ = positions[o] - neighbour.back;
        }
    }

    void clear() {
        for (const std::uint32_t id : *this) (*this)[id] = {};
        met_count_ = 0;
    }

    std::uint64_t memory() const {
        return by_id_.size() * (sizeof(Neighbour) + sizeof(std::uint32_t)) + capacity_ * sizeof(std::uint32_t);
    }

  private:
    void add(std::uint32_t id, std::int64_t weight, std::uint32_t entries) {
        Neighbour &neighbour = (*this)[id];
        met_[met_count_] = id; // kept only if the id is new
        met_count_ += neighbour.entries == 0;
        neighbour.entries += entries;
        neighbour.weight += weight;
    }

    std::vector<Neighbour> by_id_; // index id + 1; all zero between merges
    std::vector<std::uint32_t> met_;
    std::unique_ptr<std::uint32_t[]> ids_; // the neighbour of each occurrence
    std::size_t met_count_ = 0, capacity_ = 0;
};

} // namespace bpeflow
