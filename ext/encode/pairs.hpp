// Which pairs of tokens merge, at what rank, and into what.
#pragma once

#include "bpeflow.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace bpeflow {

class Pairs {
  public:
    static constexpr std::uint32_t NONE = UINT32_MAX; // greater than all ranks

    Pairs(const std::uint32_t *byte_ids, const std::uint32_t *merges, std::uint32_t count)
        : byte_ids_(byte_ids, byte_ids + 256), made_(count) {
        // At most a third is used: most look-ups are of pairs that do not merge, and end at the first empty slot.
        std::size_t size = 4;
        while (size < std::size_t{count} * 3) size *= 2;
        slots_.assign(size, {0, 0, NONE});
        mask_ = size - 1;
        for (std::uint32_t rank = 0; rank < count; rank++) {
            made_[rank] = merges[3 * rank + 2];
            insert({merges[3 * rank], merges[3 * rank + 1], rank});
        }
        for (unsigned left = 0; left < 256; left++)
            for (unsigned right = 0; right < 256; right++)
                of_bytes_[left << 8 | right] = rank(byte_ids_[left], byte_ids_[right]);
    }

    std::uint32_t byte_id(std::uint8_t byte) const { return byte_ids_[byte]; }

    // The rank at which a pair of tokens merges; NONE if it does not.
    std::uint32_t rank(std::uint32_t left, std::uint32_t right) const {
        const Slot &slot = slots_[find(left, right)];
        return slot.rank;
    }

    // … a pair of bytes. With a table of their own they take one look-up, and a pre-token begins as such pairs only.
    std::uint32_t rank_of_bytes(std::uint8_t left, std::uint8_t right) const {
        return of_bytes_[std::size_t{left} << 8 | right];
    }

    // The token that the merge of a rank makes.
    std::uint32_t made(std::uint32_t rank) const { return made_[rank]; }

  private:
    struct Slot {
        std::uint32_t left, right, rank; // empty if NONE
    };

    // The pair's slot, or the empty one where it belongs.
    std::size_t find(std::uint32_t left, std::uint32_t right) const {
        const std::uint64_t hash = (std::uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u;
        std::size_t at = (hash ^ hash >> 32) & mask_;
        while (slots_[at].rank != NONE && (slots_[at].left != left || slots_[at].right != right)) at = (at + 1) & mask_;
        return at;
    }

    void insert(const Slot &pair) {
        Slot &slot = slots_[find(pair.left, pair.right)];
        if (slot.rank == NONE) slot = pair;
    }

    std::vector<std::uint32_t> byte_ids_;
    std::vector<std::uint32_t> made_; // by rank
    std::vector<Slot> slots_;         // a power of two of them, probed one after another
    std::size_t mask_;
    std::unique_ptr<std::uint32_t[]> of_bytes_{new std::uint32_t[std::size_t{1} << 16]};
};

} // namespace bpeflow
