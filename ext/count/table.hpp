// The table of pre-tokens and their counts.
//
// The table of a large corpus is far larger than the caches, so each look-up waits for memory. Pre-tokens are therefore
// collected in a batch. The slots of the whole batch are prefetched first and inspected later, so that the waits
// overlap. The batch stores keys of up to 16 bytes itself (key.hpp). The text of longer keys must stay in place until
// the batch is flushed.
//
// Tried: a small direct-mapped front table for the most frequent pre-tokens, which stays in the L2 cache and passes
// only evicted entries on to the batch. With 2^11 to 2^14 entries, 150 MB of English (0.6 M distinct) took 0.26-0.35 s,
// and 0.23-0.25 s without it, scanner included. The caches keep the frequent slots anyway, and hits in the front table
// are hard to predict.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"
#include "key.hpp"
#include "slot_array.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace bpeflow {

// The bytes of long pre-tokens. They never move.
class ByteArena {
  public:
    const std::uint8_t *copy(const std::uint8_t *bytes, std::size_t length) {
        if (length > left_) {
            const std::size_t size = std::max(length, chunk_size);
            chunks_.push_back(std::unique_ptr<std::uint8_t[]>(new std::uint8_t[size]));
            next_ = chunks_.back().get();
            left_ = size;
            memory_ += size;
        }
        std::memcpy(next_, bytes, length);
        left_ -= length;
        return std::exchange(next_, next_ + length);
    }

    std::uint64_t memory() const { return memory_; }

  private:
    // Smaller chunks mean many allocations. Larger chunks waste memory in tables with few long pre-tokens.
    static constexpr std::size_t chunk_size = std::size_t{1} << 16;

    std::vector<std::unique_ptr<std::uint8_t[]>> chunks_;
    std::uint8_t *next_ = nullptr;
    std::size_t left_ = 0;
    std::uint64_t memory_ = 0; // of all chunks
};

class Table {
  public:
    Table() : slots_(std::size_t{1} << 12), mask_(slots_.size() - 1) {}

    // Add to the count of a pre-token, which is at least one byte long. `readable` bytes may be read from `token` on.
    // The bytes must stay in place until the next flush().
    void add(const std::uint8_t *token, std::size_t length, std::size_t readable, std::int64_t count) {
        // Build the key in its final place, member by member. A key assembled elsewhere in 8-byte words and then copied
        // in 16-byte words stalls on store forwarding, which took half of the time.
        Slot &key = batch_[waiting_];
        std::uint64_t hash;
        if (length <= Slot::inline_size) {
            std::uint64_t words[2];
            load_short(token, length, readable, words);
            hash = hash_short(words, length);
            key.words[0] = words[0];
            key.words[1] = words[1];
        } else {
            if (length >= std::numeric_limits<std::uint32_t>::max()) throw Failure{BPEFLOW_TOO_LARGE};
            hash = hash_long(token, length);
            key.set_address(token);
            key.words[1] = hash;
        }
        key.count = count;
        key.length = static_cast<std::uint32_t>(length);
        key.high = static_cast<std::uint32_t>(hash >> 32);
        const std::size_t home = hash & mask_;
        homes_[waiting_] = home;
        __builtin_prefetch(&slots_[home], 1);
        if (++waiting_ == batch_size) flush();
    }

    // Move the batch into the table. Reads of the table are complete only after this.
    void flush() {
        // Make room for the whole batch first. Then no slot moves while the batch is inserted, and one check is enough.
        while ((used_ + waiting_) * 5 > slots_.size() * 3) grow();
        for (std::size_t i = 0; i < waiting_; i++) {
            const Slot &key = batch_[i];
            Slot &slot = find(key, homes_[i]);
            if (slot.empty())
                insert(slot, key);
            else if (slot.count > std::numeric_limits<std::int64_t>::max() - key.count)
                throw Failure{BPEFLOW_OVERFLOW};
            else
                slot.count += key.count;
        }
        waiting_ = 0;
    }

    const SlotArray<Slot> &slots() const { return slots_; } // including empty ones
    std::size_t tokens() const { return used_; }
    std::uint64_t bytes() const { return bytes_; }

    // Upper bound in bytes on the memory while `more` pre-tokens are added and the table is then read, which takes
    // `each` bytes per pre-token. While the table grows, it holds the old and the new slots at once. The new pre-tokens
    // are assumed to be as long as the present ones on average.
    std::uint64_t memory(std::uint64_t more, std::size_t each) const {
        const std::uint64_t used = used_ + more;
        std::uint64_t slots = slots_.size();
        while (used * 5 > slots * 3) slots *= 2;
        const std::uint64_t moving = slots > slots_.size() ? slots / 2 * sizeof(Slot) : 0;
        const std::uint64_t arena = arena_.memory() / std::max<std::uint64_t>(used_, 1) * used;
        return slots * sizeof(Slot) + std::max<std::uint64_t>(moving, used * each) + std::max(arena, arena_.memory());
    }

  private:
    // In a smaller batch the waits hardly overlap. In a larger one, entries (32 bytes here, a 64-byte line in the
    // table) evict each other from the L1 cache before they are used. 32, 64 and 128 differ by less than the noise.
    static constexpr std::size_t batch_size = 64;

    // Return the pre-token's slot, or the empty slot where it belongs.
    Slot &find(const Slot &key, std::size_t home) {
        while (!slots_[home].empty() && !same_key(slots_[home], key)) home = (home + 1) & mask_;
        return slots_[home];
    }

    void insert(Slot &slot, const Slot &key) {
        slot = key;
        if (key.length > Slot::inline_size) slot.set_address(arena_.copy(key.bytes(), key.length));
        used_++;
        bytes_ += key.length;
    }

    void grow() {
        SlotArray<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        mask_ = slots_.size() - 1;
        for (const Slot &slot : old)
            if (!slot.empty()) find(slot, hash_of(slot) & mask_) = slot;
        for (std::size_t i = 0; i < waiting_; i++) homes_[i] = hash_of(batch_[i]) & mask_;
    }

    SlotArray<Slot> slots_; // a power of two, linear probing, at most 60 % used
    std::size_t mask_;
    std::size_t used_ = 0;
    std::uint64_t bytes_ = 0; // of the keys
    ByteArena arena_;
    Slot batch_[batch_size];
    std::size_t homes_[batch_size]; // home slot of each key in the batch
    std::size_t waiting_ = 0;
};

} // namespace bpeflow
