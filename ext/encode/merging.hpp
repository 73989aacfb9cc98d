// Merging one pre-token: the pair of the lowest rank first, leftmost first, until no pair merges.
//
// This order is the definition (GPT-2's encoder.py; tiktoken and HuggingFace do the same). There are three
// implementations. Short pre-tokens are searched in full for each merge, which is quadratic but fastest at that size.
// Long ones keep their pairs in a heap, O(n log n), as SentencePiece and HuggingFace tokenizers do. But as long as a merge
// applies in many places, as in a line of dashes, it is applied to all of them in one pass.
#pragma once

#include "failure.hpp"
#include "kernels.hpp"
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
    explicit Merging(const Pairs &pairs, const Kernels &kernels = KERNELS_SCALAR) : pairs_(pairs), kernels_(kernels) {}

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
    // The implementations break even between 32 and 256 bytes.
    static constexpr std::size_t few = 128;
    static constexpr std::size_t lane = 16; // numbers to compare at a time
    static constexpr std::int32_t no_rank = INT32_MAX;
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

    // Tokens stay at the positions of their first bytes. ranks[i] is that of the pair that starts at i, `no_rank` if there
    // is none that merges, and made[i] what it makes. The search for the least rank compares several at a time.
    void merge_few(const std::uint8_t *bytes, std::size_t length) {
        alignas(64) std::int32_t ranks[few + lane];
        std::uint32_t made[few], ids[few];
        std::uint16_t next[few], previous[few + 1];
        const std::size_t pairs = length - 1, padded = (pairs + lane - 1) / lane * lane;
        const auto set = [&](std::size_t at, Merge merge) {
            ranks[at] = static_cast<std::int32_t>(merge >> 32 & no_rank);
            made[at] = made_by(merge);
        };
        for (std::size_t i = 0; i < pairs; i++) set(i, pairs_.find_bytes(bytes[i], bytes[i + 1]));
        for (std::size_t i = pairs; i < padded; i++) ranks[i] = no_rank;
        for (std::size_t i = 0; i < length; i++) {
            ids[i] = pairs_.byte_id(bytes[i]);
            next[i] = static_cast<std::uint16_t>(i + 1);
            previous[i + 1] = static_cast<std::uint16_t>(i);
        }
        for (;;) {
            const std::size_t at = kernels_.least(ranks, padded);
            if (ranks[at] == no_rank) break;
            const std::size_t right = next[at], after = next[right];
            ids[at] = made[at];
            next[at] = static_cast<std::uint16_t>(after);
            previous[after] = static_cast<std::uint16_t>(at);
            ranks[at] = no_rank;
            // Both look-ups wait for memory at the same time, even if the processor predicts the first one wrongly.
            if (after < length) pairs_.prefetch(ids[at], ids[after]);
            if (at > 0) pairs_.prefetch(ids[previous[at]], ids[at]);
            if (after < length) {
                ranks[right] = no_rank;
                set(at, pairs_.find(ids[at], ids[after]));
            }
            if (at > 0) set(previous[at], pairs_.find(ids[previous[at]], ids[at]));
        }
        for (std::size_t i = 0; i < length; i = next[i]) ids_.push_back(ids[i]);
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
        while (pairs_.ordered() && merge_pass()) {
        }
        fill_heap();
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
        for (std::uint32_t i = 0; i < length; i++) {
            const Merge merge = i + 1 == length ? NO_MERGE : pairs_.find_bytes(bytes[i], bytes[i + 1]);
            parts_.push_back({merge, pairs_.byte_id(bytes[i]), 0, 0});
        }
    }

    // Apply the merge of the lowest rank wherever it applies, from left to right, before the parts are linked. Return
    // whether there were many such places. Pairs that this makes have a higher rank, as the merges are ordered.
    bool merge_pass() {
        Merge least = NO_MERGE;
        for (const Part &part : parts_) least = std::min(least, part.merge);
        if (least == NO_MERGE) return false;
        std::size_t kept = 0, made = parts_.size();
        for (std::size_t i = 0; i < parts_.size(); i++, kept++) {
            const bool merges = parts_[i].merge == least;
            if (merges) parts_[++i].id = made_by(least);
            if (kept > 0 && (merges || made == kept - 1)) {
                Part &left = parts_[kept - 1];
                left.merge = left.id == parts_[i].id && kept > 1 && parts_[kept - 2].id == left.id
                                 ? parts_[kept - 2].merge // in a run
                                 : pairs_.find(left.id, parts_[i].id);
            }
            if (merges) made = kept;
            parts_[kept] = parts_[i];
        }
        const std::size_t merged = parts_.size() - kept;
        parts_.resize(kept);
        return merged * 16 >= kept;
    }

    // Link the parts, and enter their pairs.
    void fill_heap() {
        heap_.clear();
        const auto size = static_cast<std::uint32_t>(parts_.size());
        for (std::uint32_t i = 0; i < size; i++) {
            parts_[i].previous = i - 1;
            parts_[i].next = i + 1 == size ? end_of_list : i + 1;
            if (parts_[i].merge != NO_MERGE) heap_.push_back(entry(parts_[i].merge, i));
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
    const Kernels &kernels_;
    std::vector<std::uint32_t> ids_;
    std::vector<Part> parts_;
    std::vector<std::uint64_t> heap_;
};

} // namespace bpeflow
