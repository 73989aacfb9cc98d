// The cache of an encoder: pre-tokens and the ids that they have.
//
// Text repeats itself: of a hundred pre-tokens of English some two are new. So what decides is how fast a known one is
// found and its ids are written. A slot has 32 bytes, half a cache line, and holds a pre-token of up to 15 bytes and up
// to four ids itself: one look-up is one cache miss. What is longer is held outside of the slots.
#pragma once

#include "cache_key.hpp"
#include "slot_array.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bpeflow {

class Cache {
  public:
    struct alignas(32) Slot {
        std::uint64_t words[2]; // of the key, with the number of ids above: 0 in an empty slot
        std::uint32_t ids[4];   // or, of OUTSIDE ones: where they begin, and how many there are

        unsigned count() const { return static_cast<unsigned>(words[1] >> CacheKey::count_shift); }
    };
    static_assert(sizeof(Slot) == 32);
    static constexpr unsigned MOST = 4, OUTSIDE = 15;

    // Takes up to `limit` bytes: three quarters of it for slots and one for what is outside, both with what is held
    // twice while it grows.
    explicit Cache(std::uint64_t limit)
        : slot_limit_(limit / 4 * 3), outside_limit_(limit / 4), slots_(first_size(limit / 4 * 3)),
          mask_(slots_.size() - 1) {}

    void prefetch(const CacheKey &key) const { __builtin_prefetch(&slots_[key.hash & mask_]); }

    // The pre-token's slot, or an empty one.
    const Slot &find(const CacheKey &key) const { return slots_[place(key)]; }

    // The ids that a slot has OUTSIDE.
    const std::uint32_t *outside_ids(const Slot &slot) const { return outside_.data() + slot.ids[0]; }
    static std::size_t outside_count(const Slot &slot) { return slot.ids[1]; }

    // Enters a pre-token that is not there. Not if it is very long, or the cache too small for any.
    void insert(const CacheKey &key, const std::uint32_t *ids, std::size_t count) {
        const bool inside = key.is_short() && count <= MOST;
        const std::size_t more = inside ? 0 : count + (key.is_short() ? 0 : (key.length() + 3) / 4);
        if (more > outside_most || !make_room(more)) return;
        Slot &slot = slots_[place(key)];
        slot.words[0] = key.words[0];
        slot.words[1] = key.words[1] | std::uint64_t{inside ? count : OUTSIDE} << CacheKey::count_shift;
        used_++;
        if (inside) {
            std::copy_n(ids, count, slot.ids);
        } else {
            slot.ids[0] = static_cast<std::uint32_t>(outside_.size());
            slot.ids[1] = static_cast<std::uint32_t>(count);
            outside_.insert(outside_.end(), ids, ids + count);
            outside_.resize(outside_.size() + more - count);
            if (more > count) std::memcpy(outside_.data() + slot.ids[0] + count, key.bytes, key.length());
        }
    }

  private:
    static constexpr std::size_t usual_size = std::size_t{1} << 12; // of the slots, to begin with
    // Words, for one pre-token. Long ones are rare, hardly come again, and would push all others out.
    static constexpr std::size_t outside_most = 4096;

    static std::size_t first_size(std::uint64_t limit) {
        std::size_t size = 1; // never used, but there to be found empty
        while (size < usual_size && size * 2 * sizeof(Slot) <= limit) size *= 2;
        return size;
    }

    std::size_t place(const CacheKey &key) const {
        std::size_t at = key.hash & mask_;
        while (slots_[at].words[1] != 0 && !holds(slots_[at], key)) at = (at + 1) & mask_;
        return at;
    }

    bool holds(const Slot &slot, const CacheKey &key) const {
        constexpr std::uint64_t without_count = (std::uint64_t{1} << CacheKey::count_shift) - 1;
        if (slot.words[0] != key.words[0] || (slot.words[1] & without_count) != key.words[1]) return false;
        return key.is_short() || std::memcmp(outside_ids(slot) + slot.ids[1], key.bytes, key.length()) == 0;
    }

    // Makes room for one more slot and so many words outside. Where the limit is reached the cache begins anew: the
    // frequent pre-tokens are soon there again, and nothing has to keep account of which they are.
    bool make_room(std::size_t words) {
        if (used_ == room() && !grow()) clear();
        if (outside_.capacity() - outside_.size() < words && !grow_outside(words)) {
            clear();
            if (outside_.capacity() < words) return false;
        }
        return used_ < room();
    }

    std::size_t room() const { return slots_.size() * 3 / 5; }

    bool grow() {
        if (slots_.bytes() * 3 > slot_limit_) return false;
        SlotArray<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        mask_ = slots_.size() - 1;
        for (const Slot &slot : old)
            if (slot.words[1] != 0) slots_[place_of_moved(slot)] = slot;
        return true;
    }

    std::size_t place_of_moved(const Slot &slot) const {
        CacheKey key;
        key.words[0] = slot.words[0];
        key.words[1] = slot.words[1] << 4 >> 4; // without the count
        std::size_t at = (key.is_short() ? key.hash_words() : key.words[0]) & mask_;
        while (slots_[at].words[1] != 0) at = (at + 1) & mask_;
        return at;
    }

    bool grow_outside(std::size_t words) {
        const std::size_t capacity = std::max(outside_.capacity() * 2, outside_.size() + std::max(words, usual_size));
        if ((outside_.capacity() + capacity) * sizeof(std::uint32_t) > outside_limit_ || capacity > UINT32_MAX)
            return false;
        outside_.reserve(capacity);
        return true;
    }

    void clear() {
        std::memset(static_cast<void *>(&slots_[0]), 0, slots_.bytes());
        outside_.clear();
        used_ = 0;
    }

    std::uint64_t slot_limit_, outside_limit_;
    SlotArray<Slot> slots_; // a power of two of them, probed one after another; at most 60 % are used
    std::size_t mask_;
    std::size_t used_ = 0;
    std::vector<std::uint32_t> outside_; // for each: the ids, then the bytes of a long pre-token
};

} // namespace bpeflow
