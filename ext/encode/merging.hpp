// Merging one pre-token: the pair of the lowest rank first, leftmost first, until no pair merges.
//
// This order is the definition (GPT-2's encoder.py; tiktoken and HuggingFace do the same). There are two implementations,
// by length. `merge_few` searches all pairs for each merge, which is quadratic but fastest up to its length. (Searching
// several at a time with vector instructions is no faster, as merges wait for their look-ups.) `merge_many` finds the
// pair by a tournament, O(n log n). A heap, as SentencePiece and HuggingFace tokenizers have, takes twice as long for
// pre-tokens of 67 bytes on average, and up to 64 bytes no less than searching all pairs. As long as a merge applies in
// many places of a long pre-token, as in a line of dashes, it is applied to all of them in one pass.
#pragma once

#include "failure.hpp"
#include "id_writer.hpp"
#include "kernels.hpp"
#include "pairs.hpp"
#include "tournament.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace bpeflow {

class Merging {
  public:
    // `known` has bytes that merging turns into the token that `known_ids`, if it is not null, has at their slot.
    explicit Merging(const Pairs &pairs, KeyTable known = {}, const std::uint32_t *known_ids = nullptr)
        : pairs_(pairs), known_(known), known_ids_(known_ids) {}

    // Merge the bytes of a pre-token, at least one. The result, ids(), is valid until the next call.
    //
    // The pre-token is first cut wherever no merge can ever join its two sides. This turns the long pre-tokens of
    // languages written without spaces, and of random letters, into many short pieces, of which many are known tokens.
    void merge(const std::uint8_t *bytes, std::size_t length) {
        ids_.clear();
        const std::uint8_t *const end = bytes + length, *start = bytes;
        for (const std::uint8_t *position = bytes + 1; position < end; position++)
            if (!pairs_.can_join(start, position, end)) add_piece(std::exchange(start, position), position);
        if (start == bytes)
            merge_bytes(start, end);
        else
            add_piece(start, end);
    }

    // Merge tokens, at least one, instead of bytes, and write what they become to `to`.
    template <typename Ids> void merge(const std::uint32_t *tokens, std::size_t count, Ids &to) {
        const OfTokens given{pairs_, tokens};
        if (count <= few) {
            std::uint32_t ids[few + RUN];
            to.put_many(ids, merge_few(given, count, ids));
        } else {
            ids_.clear();
            merge_given(given, count);
            to.put(ids_.data(), ids_.size());
        }
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
        if (starts_room_ * sizeof(Start) + parts_room_ * sizeof(Part) + pairs_by_rank_.memory() +
                ids_.capacity() * sizeof(std::uint32_t) <=
            kept_memory)
            return;
        starts_.reset();
        parts_.reset();
        starts_room_ = parts_room_ = 0;
        pairs_by_rank_ = {};
        ids_ = {};
    }

  private:
    // From 12 to 20 there is no difference in code.
    static constexpr std::size_t few = 16;
    static constexpr std::size_t least_for_passes = 512; // below, the tournament is fast for a line of dashes, too
    static constexpr std::size_t kept_memory = std::size_t{1} << 20;

    // What is merged: bytes, or the tokens of a first level.
    struct OfBytes {
        const Pairs &pairs;
        const std::uint8_t *bytes;

        std::uint32_t id(std::size_t i) const { return pairs.byte_id(bytes[i]); }
        Merge merge_at(std::size_t i) const { return pairs.find_bytes(bytes[i], bytes[i + 1]); }
    };

    struct OfTokens {
        const Pairs &pairs;
        const std::uint32_t *tokens;

        std::uint32_t id(std::size_t i) const { return tokens[i]; }
        Merge merge_at(std::size_t i) const { return pairs.find(tokens[i], tokens[i + 1]); }
    };

    // A token of a long pre-token during the passes over it: its id, and the rank of its pair with the next token.
    struct Start {
        std::uint32_t rank, id; // `no_merge` if the pair does not merge
    };

    struct OfStarts {
        const Pairs &pairs;
        const Start *starts;

        std::uint32_t id(std::size_t i) const { return starts[i].id; }
        Merge merge_at(std::size_t i) const {
            return starts[i].rank == no_merge ? NO_MERGE : pairs.find(starts[i].id, starts[i + 1].id);
        }
    };

    // Look a piece up before merging it. A whole pre-token has been looked up already.
    void add_piece(const std::uint8_t *start, const std::uint8_t *end) {
        if (known_ids_ && end - start <= 8 && end[-1] != 0) { // see KeyTable
            std::uint64_t key = 0;
            for (const std::uint8_t *byte = end; byte != start;) key = key << 8 | *--byte;
            const std::size_t slot = known_.slot_of(key);
            if (known_.keys[slot] == key) {
                ids_.push_back(known_ids_[slot]);
                return;
            }
        }
        merge_bytes(start, end);
    }

    void merge_bytes(const std::uint8_t *start, const std::uint8_t *end) {
        merge_given(OfBytes{pairs_, start}, static_cast<std::size_t>(end - start));
    }

    // Append the ids to those that are there.
    template <typename Given> void merge_given(const Given &given, std::size_t count) {
        if (count <= few) {
            std::uint32_t ids[few];
            const std::size_t left = merge_few(given, count, ids);
            ids_.insert(ids_.end(), ids, ids + left);
        } else if (count < least_for_passes || !pairs_.ordered()) {
            merge_many(given, count);
        } else {
            begin(given, count);
            while (merge_pass()) {
            }
            merge_many(OfStarts{pairs_, starts_.get()}, size_);
        }
    }

    // Write the ids to `ids`, which has room for all that is given. Return their number.
    template <typename Given> std::size_t merge_few(const Given &given, std::size_t count, std::uint32_t *ids) const {
        Merge merges[few];
        for (std::size_t i = 0; i + 1 < count; i++) merges[i] = given.merge_at(i);
        for (std::size_t i = 0; i < count; i++) ids[i] = given.id(i);
        while (count > 1) {
            std::size_t at = 0;
            Merge least = merges[0]; // in a register: `std::min_element`, with a pointer, takes twice the time
            for (std::size_t i = 1; i + 1 < count; i++) {
                const bool less = merges[i] < least;
                at = less ? i : at;
                least = less ? merges[i] : least;
            }
            if (least == NO_MERGE) break;
            const std::uint32_t made = ids[at] = made_by(least);
            count--;
            // Both look-ups below wait for memory at the same time.
            if (at + 1 < count) pairs_.prefetch(made, ids[at + 2]);
            if (at > 0) pairs_.prefetch(ids[at - 1], made);
            for (std::size_t i = at + 1; i < count; i++) {
                ids[i] = ids[i + 1];
                merges[i - 1] = merges[i];
            }
            if (at + 1 < count) merges[at] = pairs_.find(ids[at], ids[at + 1]);
            if (at > 0) merges[at - 1] = pairs_.find(ids[at - 1], ids[at]);
        }
        return count;
    }

    // A token, in a list linked by places. A merge stores the new token in the place of its left part, and unlinks the
    // right one. `made` is what the pair with the next token becomes.
    struct Part {
        std::uint32_t id, made, previous, next;
    };

    template <typename Given> void merge_many(const Given &given, std::size_t count) {
        if (count >= no_merge - 1) throw Failure{BPEFLOW_TOO_LARGE};
        if (parts_room_ < count + 2) {
            parts_.reset(new Part[count + 2]);
            parts_room_ = count + 2;
        }
        Part *const parts = parts_.get(); // from place 1 on, between two that merge with nothing
        Tournament &pairs = pairs_by_rank_;
        const auto set = [&](std::size_t at, Merge merge) {
            pairs[at] = merge >> 32 << 32 | at; // of the same rank, the leftmost
            parts[at].made = made_by(merge);
        };
        pairs.begin(count + 1);
        parts[0] = {no_token, 0, 0, 1};
        set(0, NO_MERGE);
        set(count, NO_MERGE);
        for (std::size_t i = 1; i <= count; i++) {
            parts[i].id = given.id(i - 1);
            parts[i].previous = static_cast<std::uint32_t>(i - 1);
            parts[i].next = static_cast<std::uint32_t>(i + 1);
        }
        for (std::size_t i = 1; i < count; i++) set(i, given.merge_at(i - 1));
        parts[count + 1].id = no_token;
        pairs.play();
        std::size_t left = count;
        for (std::uint64_t least; (least = pairs.least()) < least_without_merge; left--) {
            const std::size_t at = static_cast<std::uint32_t>(least);
            Part &part = parts[at];
            const std::size_t right = part.next, next = parts[right].next, previous = part.previous;
            part.id = part.made;
            part.next = static_cast<std::uint32_t>(next);
            parts[next].previous = static_cast<std::uint32_t>(at);
            // Both look-ups wait for memory at the same time.
            pairs_.prefetch(part.id, parts[next].id);
            pairs_.prefetch(parts[previous].id, part.id);
            pairs[right] = Tournament::NONE;
            set(at, pairs_.find(part.id, parts[next].id));
            set(previous, pairs_.find(parts[previous].id, part.id));
            if (!Tournament::meet(right, at)) pairs.replay(right);
            if (!Tournament::meet(previous, at)) pairs.replay(previous);
            pairs.replay(at);
        }
        const std::size_t before = ids_.size();
        ids_.resize(before + left);
        std::size_t at = 1;
        for (std::size_t i = before; i < ids_.size(); i++, at = parts[at].next) ids_[i] = parts[at].id;
    }

    static constexpr std::uint32_t no_merge = UINT32_MAX, no_token = UINT32_MAX;
    static constexpr std::uint64_t least_without_merge = std::uint64_t{no_merge} << 32;

    static std::uint32_t rank_of(Merge merge) { return static_cast<std::uint32_t>(merge >> 32); }

    // Make the first pass over what is given: a run of a letter then takes half of the memory. Memory that is allocated
    // and not written to takes none.
    template <typename Given> void begin(const Given &given, std::size_t length) {
        if (starts_room_ < length) {
            starts_.reset(new Start[length]);
            starts_room_ = length;
        }
        Merge least = NO_MERGE;
        for (std::size_t i = 0; i + 1 < length; i++) least = std::min(least, given.merge_at(i));
        size_ = made_ = 0;
        for (std::size_t i = 0; i < length; i++) {
            const Merge merge = i + 1 == length ? NO_MERGE : given.merge_at(i);
            const bool merges = merge != NO_MERGE && merge == least;
            place({rank_of(merge), merges ? made_by(merge) : given.id(i)}, merges);
            i += merges;
        }
        if (size_ > 0) starts_[size_ - 1].rank = no_merge;
    }

    // Apply the merge of the lowest rank wherever it applies, from left to right. Return whether there were many such
    // places. Pairs that this makes have a higher rank, as the merges are ordered.
    bool merge_pass() {
        const Start *const first = std::min_element(starts_.get(), starts_.get() + size_,
                                                    [](const Start &a, const Start &b) { return a.rank < b.rank; });
        const std::uint32_t least = first->rank;
        if (least == no_merge) return false;
        const std::uint32_t made = made_by(pairs_.find(first[0].id, first[1].id));
        const std::size_t size = std::exchange(size_, 0);
        made_ = 0;
        for (std::size_t i = 0; i < size; i++) {
            const bool merges = starts_[i].rank == least;
            i += merges;
            place({starts_[i].rank, merges ? made : starts_[i].id}, merges);
        }
        return (size - size_) * 16 >= size_;
    }

    // Append a token in a pass. If it or the one before was made in this pass, look up the pair of the two.
    void place(Start start, bool made) {
        if (size_ > 0 && (made || made_ == size_)) {
            Start &left = starts_[size_ - 1];
            const bool in_run = left.id == start.id && size_ > 1 && starts_[size_ - 2].id == left.id;
            left.rank = in_run ? starts_[size_ - 2].rank : rank_of(pairs_.find(left.id, start.id));
        }
        starts_[size_++] = start;
        if (made) made_ = size_;
    }

    const Pairs &pairs_;
    const KeyTable known_;
    const std::uint32_t *const known_ids_;
    std::vector<std::uint32_t> ids_;
    std::unique_ptr<Start[]> starts_; // `size_` are in use, and in a pass the last one made is before `made_`
    std::unique_ptr<Part[]> parts_;
    std::size_t starts_room_ = 0, parts_room_ = 0, size_ = 0, made_ = 0;
    Tournament pairs_by_rank_;
};

} // namespace bpeflow
