// Merging one pre-token: the pair of the lowest rank first, leftmost first, until no pair merges.
//
// This order is the definition (GPT-2's encoder.py; tiktoken and HuggingFace do the same). There are two
// implementations. Short pre-tokens are searched in full for each merge, which is quadratic but fastest at that size.
// Long ones keep their pairs in a heap, O(n log n), as SentencePiece and HuggingFace tokenizers do.
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

    // Merge the bytes of a pre-token, at least one. The result, ids(), is valid until the next call.
    //
    // The pre-token is first cut wherever no merge can ever join its two sides. This turns the long pre-tokens of
    // languages written without spaces, and of random letters, into many short pieces.
    void merge(const std::uint8_t *bytes, std::size_t length) {
        ids_.clear();
        const std::uint8_t *const end = bytes + length, *start = bytes;
        for (const std::uint8_t *position = bytes + 1; position < end; position++)
            if (!pairs_.can_join(position[-1], *position)) merge_piece(std::exchange(start, position), position);
        merge_piece(start, end);
    }

    // Return whether merging these bytes yields the single token `id`.
    bool yields(const std::uint8_t *bytes, std::size_t length, std::uint32_t id) {
        merge(bytes, length);
        return ids_.size() == 1 && ids_[0] == id;
    }

    const std::uint32_t *ids() const { return ids_.data(); }
    std::size_t count() const { return ids_.size(); }

    // Release the memory that a very long pre-token took.
    void trim() {
        if (parts_.capacity() * sizeof(Part) + ids_.capacity() * sizeof(std::uint32_t) <= kept_memory) return;
        parts_ = {};
        heap_ = {};
        ids_ = {};
    }

  private:
    // The two implementations break even at some hundred bytes. Up to `few`, quadratic time slows down no text.
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
        Merge merges[few]; // [i] is the merge of ids[i] and ids[i + 1]
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

    // A token of the current piece, in a list linked by indices. A merge stores the new token in its left part and
    // unlinks the right one.
    struct Part {
        Merge merge; // of the pair with the next part; NO_MERGE also in an unlinked part
        std::uint32_t id, previous, next;
    };

    // A heap entry has the rank in its upper half and the index in its lower half, so the smallest entry is the
    // leftmost pair of the lowest rank. An entry is stale if the pair at its index now has another rank. The same rank
    // at the same index is the same pair, so duplicate entries do no harm.
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

    // Look up the pair that starts at `at`, and push it on the heap if it merges.
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
