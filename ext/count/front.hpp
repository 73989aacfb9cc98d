// The front table: the most frequent short pre-tokens, small enough for the L2 cache.
#pragma once

#include "kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bpeflow {

// Counts pre-tokens of up to 8 bytes, 70 to 87 % of all, without touching the large table. It is seeded from that from
// time to time, and gives its counts back to it.
class Front {
  public:
    static constexpr unsigned BITS = 14; // 2^13 and 2^15 slots differ by less than the noise

    // Return whether it is time to seed the table, after this number of pre-tokens.
    bool due(std::uint64_t counted) const { return counted >= next_; }

    KeyTable keys() const { return {keys_.data(), BITS}; }
    bool seeded() const { return !keys_.empty(); }
    std::size_t memory() const { return keys_.size() * 28; } // in bytes: 8 + 8 + 8 + 4 for each slot

    // Count one pre-token for each of these slots. 2^BITS is a miss.
    void count(const std::uint32_t *slots, std::size_t number) {
        for (std::size_t i = 0; i < number; i++) counts_[slots[i]]++;
    }

    // Pass the counts, and the places of their records, to add(place, count).
    template <typename Add> void give_back(const Add &add) {
        if (!seeded()) return;
        for (std::size_t slot = 0; slot < size; slot++)
            if (const std::uint64_t count = counts_[slot]) {
                counts_[slot] = 0;
                add(places_[slot], static_cast<std::int64_t>(count));
            }
    }

    // Start over, after giving back, for the next time that is due.
    void clear(std::uint64_t counted) {
        while (next_ <= counted) next_ *= 2;
        keys_.assign(size, 0);
        best_.assign(size, 0);
        places_.resize(size);
        counts_.resize(size + 1);
    }

    // Offer a pre-token that was counted so often. Of those with the same slot, the most frequent one gets it.
    void offer(std::uint64_t key, std::uint32_t place, std::int64_t count) {
        const std::size_t slot = keys().slot_of(key);
        if (count <= best_[slot]) return;
        best_[slot] = count;
        keys_[slot] = key;
        places_[slot] = place;
    }

  private:
    static constexpr std::size_t size = std::size_t{1} << BITS;

    std::uint64_t next_ = 1 << 13; // doubles: then seeding costs little altogether
    std::vector<std::uint64_t> keys_, counts_;
    std::vector<std::uint32_t> places_;
    std::vector<std::int64_t> best_;
};

} // namespace bpeflow
