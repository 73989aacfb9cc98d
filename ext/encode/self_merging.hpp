// Which tokens the merging of their own bytes yields.
#pragma once

#include "merging.hpp"
#include "pairs.hpp"
#include "tokens.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bpeflow {

// Decides it for all tokens of a vocabulary, without merging most of them.
//
// Let only one merge make a token, from `left` and `right`. Then its bytes yield it exactly if those of its sides yield
// the sides, and no merge joins two pieces across the middle before. Pieces on both sides are joined in ascending order of
// ranks, those of the same rank from left to right, because the merges are ordered (`Pairs::ordered`). To see which
// pieces met at the middle, undo the later of the last joins on either side, again and again: two pieces met from then
// until the join that was undone, and the merge that joins them, if there is one, must come after that. Source: the
// check of token pairs in the crate bpe of github/rust-gems, extended to ranks that are not ids.
class SelfMerging {
  public:
    SelfMerging(const Tokens &tokens, const Pairs &pairs, const std::uint32_t *merges, std::uint32_t merge_count)
        : tokens_(tokens), pairs_(pairs), merges_(merges), made_by_(tokens.count(), none), merging_(pairs),
          yields_(tokens.count()) {
        for (std::uint32_t rank = 0; rank < merge_count; rank++) {
            std::uint32_t &rank_of = made_by_[merge(rank)[2]];
            rank_of = rank_of == none && tokens.are_joined(merge(rank)) && pairs.ordered() ? rank : unknown;
        }
        for (std::uint32_t id = 0; id < tokens.count(); id++) {
            const std::size_t length = tokens.length(id);
            if (length == 1 || (length > 1 && made_by_[id] == unknown))
                yields_[id] = merging_.yields(tokens.bytes(id), length, id);
        }
        for (std::uint32_t rank = 0; rank < merge_count; rank++) {
            const std::uint32_t *const sides = merge(rank), id = sides[2];
            if (made_by_[id] == rank) yields_[id] = yields_[sides[0]] && yields_[sides[1]] && meet_last(rank);
        }
    }

    bool operator()(std::uint32_t id) const { return yields_[id]; }

  private:
    static constexpr std::uint32_t none = UINT32_MAX,
                                   unknown = UINT32_MAX - 1; // no merge makes it; several, or others do

    const std::uint32_t *merge(std::uint32_t rank) const { return merges_ + std::size_t{3} * rank; }

    // Return whether the sides of a merge, which their bytes yield, remain side by side until this merge joins them.
    bool meet_last(std::uint32_t rank) {
        std::uint32_t left = merge(rank)[0], right = merge(rank)[1];
        if (rank_of(pairs_.find(left, right)) != rank) return false; // an equal pair has a lower rank
        for (;;) {
            const std::uint32_t left_rank = made_by_[left], right_rank = made_by_[right];
            if (left_rank == unknown || right_rank == unknown) {
                const std::uint32_t id = merge(rank)[2];
                return merging_.yields(tokens_.bytes(id), tokens_.length(id), id);
            }
            if (left_rank == none && right_rank == none) return true;
            if (right_rank == none || (left_rank != none && left_rank > right_rank)) {
                left = merge(left_rank)[1];
                if (rank_of(pairs_.find(left, right)) < left_rank) return false;
            } else {
                right = merge(right_rank)[0];
                if (rank_of(pairs_.find(left, right)) <= right_rank) return false; // of equal ranks, the leftmost first
            }
        }
    }

    static std::uint32_t rank_of(Merge merge) { return static_cast<std::uint32_t>(merge >> 32); }

    const Tokens &tokens_;
    const Pairs &pairs_;
    const std::uint32_t *merges_;
    std::vector<std::uint32_t> made_by_; // by token: the rank of the merge that makes it
    Merging merging_;
    std::vector<bool> yields_;
};

} // namespace bpeflow
