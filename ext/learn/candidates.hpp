// Candidates: choosing the pair to merge next.
#pragma once

#include "bpeflow.h"
#include "tokens.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace bpeflow {

// A pair and its count when it became a candidate.
struct Candidate {
    std::int64_t count = 0;
    std::uint32_t left = 0, right = 0;
};

// Orders candidates: true if the first is merged after the second.
class MergedAfter {
  public:
    MergedAfter(const Tokens &tokens, std::uint32_t order) : tokens_(&tokens), order_(order) {}

    bool operator()(const Candidate &a, const Candidate &b) const {
        if (a.count != b.count) return a.count < b.count;
        if (order_ == BPEFLOW_GREATEST_BYTES) {
            int by_bytes = compare(a.left, b.left);
            if (by_bytes == 0) by_bytes = compare(a.right, b.right);
            if (by_bytes != 0) return by_bytes < 0;
            // Two tokens with the same bytes can make pairs with equal bytes: then ids decide.
        }
        return a.left != b.left ? a.left > b.left : a.right > b.right;
    }

  private:
    int compare(std::uint32_t a, std::uint32_t b) const {
        return a == b ? 0 : tokens_->bytes(a).compare(tokens_->bytes(b)); // compares unsigned bytes, like memcmp
    }

    const Tokens *tokens_;
    std::uint32_t order_;
};

// A heap whose root is merged first. It is lazy: counts in the table of pairs fall while the candidates here keep their
// old counts. It is also small enough for the cache: pairs with a count below `lowest` are not in it, and most pairs
// never enter it.
class Candidates {
  public:
    explicit Candidates(const MergedAfter &order) : order_(order) {}

    bool empty() const { return heap_.empty(); }
    const Candidate &best() const { return heap_.front(); }

    void push(const Candidate &candidate) {
        if (candidate.count < lowest_) return;
        heap_.push_back(candidate);
        std::push_heap(heap_.begin(), heap_.end(), order_);
    }

    void pop() {
        std::pop_heap(heap_.begin(), heap_.end(), order_);
        heap_.pop_back();
    }

    // Refill the heap with the pairs whose count is at least `lowest`.
    template <typename Pairs> void refill(const Pairs &pairs, std::int64_t lowest) {
        lowest_ = lowest;
        heap_.clear();
        for (const auto &pair : pairs)
            if (pair.count >= lowest) heap_.push_back({pair.count, pair.left(), pair.right()});
        std::make_heap(heap_.begin(), heap_.end(), order_);
    }

    std::uint64_t memory() const { return heap_.capacity() * sizeof(Candidate); }

  private:
    MergedAfter order_;
    std::vector<Candidate> heap_;
    std::int64_t lowest_ = INT64_MAX; // until the first refill
};

} // namespace bpeflow
