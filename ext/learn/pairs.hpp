// The pairs: a hash table from (left, right) to the pair's count and the list of its occurrences, and the arena that
// holds these lists.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace bpeflow {

struct Pair {
    std::uint64_t key = 0;         // see `key_of`; 0 is an empty slot
    std::int64_t count = 0;        // exact at the end of every merge
    std::uint32_t *list = nullptr; // [length], in an Arena: the occurrences
    std::uint32_t length = 0;

    // Make a key. No key is 0, so a zeroed slot is empty.
    static std::uint64_t key_of(std::uint32_t left, std::uint32_t right) {
        return (static_cast<std::uint64_t>(left) + 1) << 32 | right;
    }
    std::uint32_t left() const { return static_cast<std::uint32_t>(key >> 32) - 1; }
    std::uint32_t right() const { return static_cast<std::uint32_t>(key); }
};

// Open addressing with linear probing. Pairs are stored in the table itself, so a look-up costs one cache miss, but
// they move when the table grows.
class PairTable {
  public:
    PairTable() : slots_(std::size_t{1} << bits_) {}

    // Return the pair's slot, or the empty slot where it belongs.
    Pair &at(std::uint32_t left, std::uint32_t right) {
        const std::uint64_t key = Pair::key_of(left, right);
        std::size_t i = home(key);
        while (slots_[i].key != key && slots_[i].key != 0) i = (i + 1) & (slots_.size() - 1);
        return slots_[i];
    }

    // Add a pair that is not in the table. Room for it must have been reserved.
    void add(const Pair &pair) {
        at(pair.left(), pair.right()) = pair;
        used_++;
    }

    // Prefetch the home slot of a pair.
    void prefetch(std::uint32_t left, std::uint32_t right) const {
        __builtin_prefetch(&slots_[home(Pair::key_of(left, right))], 1);
    }

    // Make room for `more` pairs. Pairs that no longer occur are dropped when the table grows.
    void reserve(std::size_t more) {
        // A table more than two thirds full has long probes. In a much emptier one, clearing the pages costs more than
        // probing.
        if (used_ + more <= slots_.size() / 3 * 2) return;
        const auto occurs = [](const Pair &pair) { return pair.count > 0; };
        const auto alive = static_cast<std::size_t>(std::count_if(slots_.begin(), slots_.end(), occurs));
        while ((alive + more) * 2 > std::size_t{1} << bits_) bits_++;
        std::vector<Pair> old(std::size_t{1} << bits_);
        old.swap(slots_);
        for (const Pair &pair : old)
            if (occurs(pair)) at(pair.left(), pair.right()) = pair;
        used_ = alive;
    }

    const std::vector<Pair> &slots() const { return slots_; }
    std::vector<Pair> &slots() { return slots_; }

  private:
    std::size_t home(std::uint64_t key) const {
        key = (key ^ key >> 32) * 0x9E3779B97F4A7C15u;
        return static_cast<std::size_t>((key ^ key >> 32) * 0xD6E8FEB86659FD93u >> (64 - bits_));
    }

    unsigned bits_ = 12; // there are 2^bits_ slots
    std::size_t used_ = 0;
    std::vector<Pair> slots_;
};

// Memory for lists. It is not cleared, and lists never move.
class Arena {
  public:
    std::uint32_t *allocate(std::size_t length) {
        for (Span *span : {&spare_, &fresh_})
            if (length <= span->length) return span->take(length);
        const std::size_t size = std::max(length, chunk_size);
        chunks_.push_back(std::unique_ptr<std::uint32_t[]>(new std::uint32_t[size]));
        memory_ += size * sizeof(std::uint32_t);
        fresh_ = {chunks_.back().get(), size};
        return fresh_.take(length);
    }

    // Release a list, to be reused for the next ones. Each occurrence is entered into two new lists, one of which
    // always fits there.
    void recycle(std::uint32_t *list, std::size_t length) { spare_ = {list, length}; }

    std::uint64_t memory() const { return memory_; }

  private:
    struct Span {
        std::uint32_t *start;
        std::size_t length;
        std::uint32_t *take(std::size_t count) {
            length -= count;
            return std::exchange(start, start + count);
        }
    };
    // 4 MB. Smaller chunks mean more allocations, larger ones leave more unused at their end.
    static constexpr std::size_t chunk_size = std::size_t{1} << 20;

    std::vector<std::unique_ptr<std::uint32_t[]>> chunks_;
    Span spare_{nullptr, 0}, fresh_{nullptr, 0};
    std::uint64_t memory_ = 0;
};

} // namespace bpeflow
