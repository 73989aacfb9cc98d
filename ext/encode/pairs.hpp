// Which pairs of tokens merge, at what rank, and into what.
#pragma once

#include "bpeflow.h"
#include "filter.hpp"
#include "tokens.hpp"

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace bpeflow {

class Pairs {
  public:
    static constexpr std::uint32_t NONE = UINT32_MAX; // greater than all ranks

    // `tokens` are those that text can yield.
    Pairs(const std::uint32_t *byte_ids, const std::uint32_t *merges, std::uint32_t count, const Tokens &tokens)
        : byte_ids_(byte_ids, byte_ids + 256), made_(count), filter_(count) {
        std::size_t size = 4;
        while (size < std::size_t{count} * 2) size *= 2;
        slots_.assign(size, {0, 0, NONE});
        mask_ = size - 1;
        for (std::uint32_t rank = 0; rank < count; rank++) {
            made_[rank] = merges[3 * rank + 2];
            insert({merges[3 * rank], merges[3 * rank + 1], rank});
            add_junction(tokens, merges + 3 * rank);
        }
        for (unsigned left = 0; left < 256; left++)
            for (unsigned right = 0; right < 256; right++)
                of_bytes_[left << 8 | right] = rank(byte_ids_[left], byte_ids_[right]);
    }

    std::uint32_t byte_id(std::uint8_t byte) const { return byte_ids_[byte]; }

    // The rank at which a pair of tokens merges; NONE if it does not.
    std::uint32_t rank(std::uint32_t left, std::uint32_t right) const {
        const std::uint64_t hashed = hash(left, right);
        return filter_.may_have(hashed) ? slots_[find(left, right, hashed)].rank : NONE;
    }

    // … a pair of bytes. With a table of their own they take one look-up, and a pre-token begins as such pairs only.
    std::uint32_t rank_of_bytes(std::uint8_t left, std::uint8_t right) const {
        return of_bytes_[std::size_t{left} << 8 | right];
    }

    // Whether any merge can ever join what ends with the one byte and what begins with the other. Where none can, what is
    // before and what is behind is merged as if the other were not there.
    bool can_join(std::uint8_t left, std::uint8_t right) const {
        return junctions_.test(std::size_t{left} << 8 | right);
    }

    // The token that the merge of a rank makes.
    std::uint32_t made(std::uint32_t rank) const { return made_[rank]; }

  private:
    struct Slot {
        std::uint32_t left, right, rank; // empty if NONE
    };

    static std::uint64_t hash(std::uint32_t left, std::uint32_t right) {
        return (std::uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u;
    }

    // The pair's slot, or the empty one where it belongs.
    std::size_t find(std::uint32_t left, std::uint32_t right, std::uint64_t hash) const {
        std::size_t at = (hash ^ hash >> 32) & mask_;
        while (slots_[at].rank != NONE && (slots_[at].left != left || slots_[at].right != right)) at = (at + 1) & mask_;
        return at;
    }

    void insert(const Slot &pair) {
        const std::uint64_t hashed = hash(pair.left, pair.right);
        filter_.add(hashed);
        Slot &slot = slots_[find(pair.left, pair.right, hashed)];
        if (slot.rank == NONE) slot = pair;
    }

    // Notes which bytes a merge brings together. The bytes of its parts are known where those of what it makes are
    // theirs; a part that text cannot yield is never merged; and nothing is known of tokens that do not fit each other.
    void add_junction(const Tokens &tokens, const std::uint32_t *merge) {
        const std::size_t left = tokens.length(merge[0]), right = tokens.length(merge[1]);
        if (left == 0 || right == 0) return;
        const std::uint8_t *const made = tokens.bytes(merge[2]);
        if (tokens.length(merge[2]) == left + right && std::memcmp(made, tokens.bytes(merge[0]), left) == 0 &&
            std::memcmp(made + left, tokens.bytes(merge[1]), right) == 0)
            junctions_.set(std::size_t{made[left - 1]} << 8 | made[left]);
        else
            junctions_.set();
    }

    std::vector<std::uint32_t> byte_ids_;
    std::vector<std::uint32_t> made_; // by rank
    std::vector<Slot> slots_;         // a power of two of them, probed one after another; at most half are used
    std::size_t mask_;
    Filter filter_;
    std::bitset<65536> junctions_;
    std::unique_ptr<std::uint32_t[]> of_bytes_{new std::uint32_t[std::size_t{1} << 16]};
};

} // namespace bpeflow
