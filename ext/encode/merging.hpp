// Merging one pre-token: the pair of the lowest rank first, the leftmost of several, until none is left that merges.
//
// This order is the definition (GPT-2's encoder.py; tiktoken and HuggingFace do the same). Two ways to keep it: short
// pre-tokens look through all their pairs for each merge, which is quadratic and yet the fastest for as few as they
// have; long ones keep the pairs in a heap, O(n log n), as SentencePiece and HuggingFace tokenizers do.
#pragma once

#include "failure.hpp"
#include "pairs.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace bpeflow {

class Merging {
  public:
    explicit Merging(const Pairs &pairs) : pairs_(pairs) {}

    // Merges the bytes of a pre-token, one at least. `ids()` are there until the next one.
    //
    // First it is cut where no merge can ever join: that makes many short pieces of the long pre-tokens of languages that
    // write no spaces, and of random letters.
    void merge(const std::uint8_t *bytes, std::size_t length) {
        ids_.clear();
        const std::uint8_t *const end = bytes + length, *start = bytes;
        for (const std::uint8_t *place = bytes + 1; place < end; place++)
            if (!pairs_.can_join(place[-1], *place)) merge_piece(std::exchange(start, place), place);
        merge_piece(start, end);
    }

    // Whether that makes this one token of them.
    bool yields(const std::uint8_t *bytes, std::size_t length, std::uint32_t id) {
        merge(bytes, length);
        return ids_.size() == 1 && ids_[0] == id;
    }

    const std::uint32_t *ids() const { return ids_.data(); }
    std::size_t count() const { return ids_.size(); }

    // Gives back what a very long pre-token has taken.
    void trim() {
        if (parts_.capacity() * sizeof(Part) + ids_.capacity() * sizeof(std::uint32_t) <= kept_memory) return;
        parts_ = {};
        heap_ = {};
        ids_ = {};
    }

  private:
    // Where both ways take the same time lies at some hundred bytes; up to 64 no text gets slow by it.
    static constexpr std::size_t few = 256;
    static constexpr std::size_t kept_memory = std::size_t{1} << 20;

    void merge_piece(const std::uint8_t *start, const std::uint8_t *end) {
        const auto length = static_cast<std::size_t>(end - start);
        if (length == 1)
            ids_.push_back(pairs_.byte_id(*start));
        else if (length <= few)
            merge_few(start, length);
        else
            merge_many(start, length);
    }

    void merge_few(const std::uint8_t *bytes, std::size_t length) {
        std::uint32_t ids[few];
        Merge merges[few]; // [i] of the pair i, i + 1
        std::size_t last = length - 1;
        for (std::size_t i = 0; i < last; i++) {
            ids[i] = pairs_.byte_id(bytes[i]);
            merges[i] = pairs_.find_bytes(bytes[i], bytes[i + 1]);
        }
        ids[last] = pairs_.byte_id(bytes[last]);
        while (last > 0) {
            std::size_t at = 0;
            Merge least = merges[0];
            for (std::size_t i = 1; i < last; i++) {
                at = merges[i] < least ? i : at;
                least = std::min(least, merges[i]);
            }
            if (least == NO_MERGE) break;
            ids[at] = made_by(least);
            for (std::size_t i = at + 1; i < last; i++) {
                ids[i] = ids[i + 1];
                merges[i - 1] = merges[i];
            }
            last--;
            if (at < last) merges[at] = pairs_.find(ids[at], ids[at + 1]);
            if (at > 0) merges[at - 1] = pairs_.find(ids[at - 1], ids[at]);
        }
        ids_.insert(ids_.end(), ids, ids + last + 1);
    }

    // A token of the piece at hand, in a list that is linked by indices: a merge leaves its left part the made
    // token and takes the right one out.
    struct Part {
        Merge merge; // of the pair with the next one; NO_MERGE, too, if it is taken out
        std::uint32_t id, previous, next;
    };

    // An entry of the heap is a rank above an index, so that the lowest is the leftmost pair of the lowest rank. One
    // whose pair has changed since is found out by its rank: a pair of the same rank at the same place is the same
    // pair, so it does no harm that the heap may have it twice.
    static std::uint64_t entry(Merge merge, std::uint32_t at) { return merge >> 32 << 32 | at; }

    void merge_many(const std::uint8_t *bytes, std::size_t length) {
        if (length >= end_of_list) throw Failure{BPEFLOW_TOO_LARGE};
        begin(bytes, static_cast<std::uint32_t>(length));
        while (!heap_.empty()) {
            std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
            const std::uint64_t least = heap_.back();
            heap_.pop_back();
            const auto at = static_cast<std::uint32_t>(least);
            if (entry(parts_[at].merge, at) == least) merge_at(at);
        }
        for (std::uint32_t at = 0; at != end_of_list; at = parts_[at].next) ids_.push_back(parts_[at].id);
    }

    void begin(const std::uint8_t *bytes, std::uint32_t length) {
        parts_.clear();
        heap_.clear();
        for (std::uint32_t i = 0; i < length; i++) {
            const bool last = i + 1 == length;
            const Merge merge = last ? NO_MERGE : pairs_.find_bytes(bytes[i], bytes[i + 1]);
            parts_.push_back({merge, pairs_.byte_id(bytes[i]), i - 1, last ? end_of_list : i + 1});
            if (merge != NO_MERGE) heap_.push_back(entry(merge, i));
        }
        std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    }

    void merge_at(std::uint32_t at) {
        Part &part = parts_[at];
        Part &right = parts_[part.next];
        part.id = made_by(part.merge);
        part.next = right.next;
        right.merge = NO_MERGE;
        if (part.next != end_of_list) parts_[part.next].previous = at;
        enter(at);
        if (at > 0) enter(part.previous);
    }

    // Looks a pair up anew, and puts it into the heap if it merges.
    void enter(std::uint32_t at) {
        Part &part = parts_[at];
        part.merge = part.next == end_of_list ? NO_MERGE : pairs_.find(part.id, parts_[part.next].id);
        if (part.merge == NO_MERGE) return;
        heap_.push_back(entry(part.merge, at));
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }

    static constexpr std::uint32_t end_of_list = UINT32_MAX;

    const Pairs &pairs_;
    std::vector<std::uint32_t> ids_;
    std::vector<Part> parts_;
    std::vector<std::uint64_t> heap_;
};

} // namespace bpeflow
