// The pairs of tokens that merge, with their ranks and results.
#pragma once

#include "bpeflow.h"
#include "filter.hpp"
#include "pages.hpp"
#include "tokens.hpp"

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace bpeflow {

// A merge: its rank in the upper half and the token that it makes in the lower half. The smaller value has the lower
// rank, so a search for the minimum also finds the token.
using Merge = std::uint64_t;
constexpr Merge NO_MERGE = UINT64_MAX; // greater than any merge

inline std::uint32_t made_by(Merge merge) {
    return static_cast<std::uint32_t>(merge);
}

class Pairs {
  public:
    // No pairs yet, and room for `count`.
    Pairs(const std::uint32_t *byte_ids, std::uint32_t count)
        : byte_ids_(byte_ids, byte_ids + 256), mask_(size_for(count) - 1), pages_((mask_ + 1) * sizeof(Slot)),
          slots_(reinterpret_cast<Slot *>(pages_.data())), filter_(count), long_junctions_(count) {
        for (std::size_t i = 0; i <= mask_; i++) slots_[i].merge = NO_MERGE;
    }

    // `merges` has left, right and result of each merge, by ascending rank. `tokens` are those that text can yield. The
    // pairs are those of the merges that are `included`.
    Pairs(const std::uint32_t *byte_ids, const std::uint32_t *merges, std::uint32_t count, const Tokens &tokens,
          const std::vector<bool> &included)
        : Pairs(byte_ids, static_cast<std::uint32_t>(std::count(included.begin(), included.end(), true))) {
        std::vector<std::uint32_t> made_last(tokens.count()); // the last rank that makes a token, plus 1
        for (std::uint32_t rank = 0; rank < count; rank++)
            if (included[rank]) made_last[merges[3 * std::size_t{rank} + 2]] = rank + 1;
        ordered_ = true;
        for (std::uint32_t rank = 0; rank < count; rank++, merges += 3) {
            if (!included[rank]) continue;
            add(merges, rank, tokens);
            ordered_ &= made_last[merges[0]] <= rank && made_last[merges[1]] <= rank;
        }
        index_bytes();
    }

    Pairs(const std::uint32_t *byte_ids, const std::uint32_t *merges, std::uint32_t count, const Tokens &tokens)
        : Pairs(byte_ids, merges, count, tokens, std::vector<bool>(count, true)) {}

    // Add a merge, as left, right and result. If its pair has a merge already, that one stays.
    void add(const std::uint32_t *merge, std::uint32_t rank, const Tokens &tokens) {
        insert({merge[0], merge[1], Merge{rank} << 32 | merge[2]});
        add_junction(tokens, merge);
    }

    // Fill the table for `find_bytes`. Call this after all pairs of bytes have been added.
    void index_bytes() {
        for (unsigned left = 0; left < 256; left++)
            for (unsigned right = 0; right < 256; right++)
                of_bytes_[index(static_cast<std::uint8_t>(left), static_cast<std::uint8_t>(right))] =
                    find(byte_ids_[left], byte_ids_[right]);
    }

    // Whether each merge is known to be of tokens that only merges of lower ranks make, as in a trained vocabulary.
    bool ordered() const { return ordered_; }

    std::uint32_t byte_id(std::uint8_t byte) const { return byte_ids_[byte]; }

    // Return the merge of two tokens.
    Merge find(std::uint32_t left, std::uint32_t right) const {
        const std::uint64_t hashed = hash(left, right);
        return filter_.may_have(hashed) ? slots_[find_slot(left, right, hashed)].merge : NO_MERGE;
    }

    // Prefetch the slot that `find` probes first.
    void prefetch(std::uint32_t left, std::uint32_t right) const {
        __builtin_prefetch(slots_ + home(hash(left, right)));
    }

    // Return the merge of two bytes. These have a table of their own, without probing, because a pre-token starts out
    // as pairs of bytes.
    Merge find_bytes(std::uint8_t left, std::uint8_t right) const { return of_bytes_[index(left, right)]; }

    // Return whether any merge can ever join a token that ends with `left` and a token that starts with `right`. If
    // not, the two sides merge independently of each other.
    bool can_join(std::uint8_t left, std::uint8_t right) const { return !is_cut_[index(left, right)]; }

    // Write the positions from `at` to before `stop` where no merge joins the two bytes. Return their number. One more may
    // be overwritten. Without a branch for each, which could not be predicted.
    std::size_t find_cuts(const std::uint8_t *text, std::uint32_t at, std::uint32_t stop, std::uint32_t *cuts) const {
        std::size_t count = 0;
        for (std::size_t i = at; i < stop; i++) {
            cuts[count] = static_cast<std::uint32_t>(i);
            count += is_cut_[index(text + i)];
        }
        return count;
    }

    // The same at a position inside of bytes that nothing joins to others, by two bytes on each side of the position. The
    // pre-tokens of multilingual text then have pieces of 7 bytes on average instead of 17.
    bool can_join(const std::uint8_t *start, const std::uint8_t *at, const std::uint8_t *end) const {
        if (!can_join(at[-1], *at)) return false;
        if (byte_junctions_.test(index(at[-1], *at))) return true;
        return at - start > 1 && end - at > 1 && long_junctions_.may_have(hash(two_bytes(at - 2), two_bytes(at)));
    }

    static std::uint64_t hash(std::uint32_t left, std::uint32_t right) {
        return (std::uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u;
    }

  private:
    struct Slot {
        std::uint32_t left, right;
        Merge merge; // NO_MERGE in an empty slot
    };

    static std::size_t size_for(std::size_t count) {
        std::size_t size = 4;
        while (size < count * 2) size *= 2;
        return size;
    }

    // Return the index of two bytes, or of those around a position, which takes one load.
    static std::size_t index(std::uint8_t left, std::uint8_t right) {
        const std::uint8_t both[] = {left, right};
        return index(both + 1);
    }

    static std::size_t index(const std::uint8_t *at) {
        std::uint16_t both;
        std::memcpy(&both, at - 1, sizeof both);
        return both;
    }

    // Return the index of the slot where the search for a pair begins.
    std::size_t home(std::uint64_t hash) const { return (hash ^ hash >> 32) & mask_; }

    // Return the index of the pair's slot, or of the empty slot where it belongs.
    std::size_t find_slot(std::uint32_t left, std::uint32_t right, std::uint64_t hash) const {
        std::size_t at = home(hash);
        while (slots_[at].merge != NO_MERGE && (slots_[at].left != left || slots_[at].right != right))
            at = (at + 1) & mask_;
        return at;
    }

    void insert(const Slot &pair) {
        const std::uint64_t hashed = hash(pair.left, pair.right);
        filter_.add(hashed);
        Slot &slot = slots_[find_slot(pair.left, pair.right, hashed)];
        if (slot.merge == NO_MERGE) slot = pair;
    }

    // Record which bytes a merge makes adjacent. Its result gives these bytes if it is the concatenation of the
    // parts. If the tokens do not fit each other like that, anything may become adjacent. A part that text cannot yield
    // is never merged.
    void add_junction(const Tokens &tokens, const std::uint32_t *merge) {
        const std::size_t left = tokens.length(merge[0]), right = tokens.length(merge[1]);
        if (left == 0 || right == 0) return;
        if (!tokens.are_joined(merge)) {
            is_cut_.assign(is_cut_.size(), 0);
            byte_junctions_.set();
            return;
        }
        const std::uint8_t *const middle = tokens.bytes(merge[2]) + left;
        is_cut_[index(middle[-1], *middle)] = 0;
        if (left == 1 || right == 1)
            byte_junctions_.set(index(middle[-1], *middle));
        else
            long_junctions_.add(hash(two_bytes(middle - 2), two_bytes(middle)));
    }

    static std::uint32_t two_bytes(const std::uint8_t *bytes) { return std::uint32_t{bytes[0]} << 8 | bytes[1]; }

    std::vector<std::uint32_t> byte_ids_;
    std::size_t mask_;
    Pages pages_;
    Slot *const slots_; // a power of two, linear probing, at most half used
    Filter filter_, long_junctions_;
    bool ordered_ = false;
    // By pair of bytes: 1 if no merge joins them, otherwise 0. A byte each, as extracting bits takes several times as long.
    std::vector<std::uint8_t> is_cut_ = std::vector<std::uint8_t>(65536, 1);
    std::bitset<65536> byte_junctions_; // of the merges with a part of one byte
    std::unique_ptr<Merge[]> of_bytes_{new Merge[std::size_t{1} << 16]};
};

} // namespace bpeflow
