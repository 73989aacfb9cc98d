// The neighbours of the occurrences that are being merged: what a merge changes, added up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace bpeflow {

constexpr std::uint32_t END = UINT32_MAX; // the id between pre-tokens, which no token has

// What one token, as a neighbour, changes.
struct Neighbour {
    std::int64_t weight = 0;         // how often it is one, counted with the pre-tokens' counts
    std::uint32_t entries = 0;       // how often it is one
    std::uint32_t back = 0;          // the new pair's left token starts so far before the new token
    std::uint32_t *cursor = nullptr; // where the new pair's next occurrence is written; null if nobody wants it
};

// One side, left or right, of the occurrences that one thread merges.
class Neighbours {
  public:
    // Makes room for that many tokens and occurrences. Only between merges.
    void reserve(std::size_t tokens, std::size_t occurrences) {
        if (tokens + 1 > by_id_.size()) {
            by_id_.resize((tokens + 1) * 2);
            met_.resize(by_id_.size() + 1); // one more, see `add`
        }
        if (occurrences > capacity_) {
            capacity_ = occurrences + occurrences / 4;
            ids_.reset(); // first, so that both are never there at once
            ids_.reset(new std::uint32_t[capacity_]);
        }
    }

    // END is a neighbour too, which spares the walk a test: END + 1 wraps round to place 0.
    Neighbour &operator[](std::uint32_t id) { return by_id_[id + 1]; }

    // Notes the neighbour of one occurrence. Weights fit: all together are at most the count of the merged pair.
    void note(std::uint32_t id, std::size_t occurrence, std::int64_t weight) {
        add(id, weight, 1);
        ids_[occurrence] = id;
    }

    // Adds what another thread has noted, but not of which occurrences.
    void add(const Neighbours &other) {
        for (const std::uint32_t id : other) add(id, other.by_id_[id + 1].weight, other.by_id_[id + 1].entries);
    }

    // The ids noted, each once, END among them.
    const std::uint32_t *begin() const { return met_.data(); }
    const std::uint32_t *end() const { return met_.data() + met_count_; }
    std::size_t size() const { return met_count_; }

    // Takes the places in the new lists from `total`, which may be this one: behind those of what is noted in `earlier`.
    template <typename Earlier> void take_places(Neighbours &total, const Earlier &earlier) {
        if (&total == this) return;
        for (const std::uint32_t id : *this) {
            const Neighbour &place = total[id];
            Neighbour &mine = (*this)[id];
            mine.back = place.back;
            mine.cursor = place.cursor ? place.cursor + earlier(id) : nullptr;
        }
    }

    // Writes all occurrences, of which these are the positions, in ascending order, to their places.
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
        met_[met_count_] = id; // stays only if the id is new
        met_count_ += neighbour.entries == 0;
        neighbour.entries += entries;
        neighbour.weight += weight;
    }

    std::vector<Neighbour> by_id_; // at id + 1; all zero between merges
    std::vector<std::uint32_t> met_;
    std::unique_ptr<std::uint32_t[]> ids_; // of each occurrence's neighbour
    std::size_t met_count_ = 0, capacity_ = 0;
};

} // namespace bpeflow
