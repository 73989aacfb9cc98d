// The cache of an encoder: pre-tokens and their ids.
//
// Text repeats itself: of a hundred English pre-tokens about two are new. So the speed of encoding is that of finding a
// known pre-token and writing its ids. A slot has 32 bytes, half a cache line, and stores a pre-token of up to 15 bytes
// and up to four ids inline, so that a look-up costs one cache miss. Longer data is stored outside the slots.
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
        std::uint64_t words[2]; // the key, and the number of ids in the top bits: 0 in an empty slot
        std::uint32_t ids[4];   // or, if the count is OUTSIDE: index of the ids outside, and their number

        unsigned count() const { return static_cast<unsigned>(words[1] >> CacheKey::count_shift); }
    };
    static_assert(sizeof(Slot) == 32);
    static constexpr unsigned MOST = 4, OUTSIDE = 15;

    // Use up to `limit` bytes: three quarters for the slots and one for the data outside, both including the copy
    // during growth.
    explicit Cache(std::uint64_t limit)
        : slot_limit_(limit / 4 * 3), outside_limit_(limit / 4), slots_(first_size(limit / 4 * 3)),
          mask_(slots_.size() - 1) {}

    void prefetch(const CacheKey &key) const { __builtin_prefetch(&slots_[key.hash & mask_]); }

    // Return the pre-token's slot, or an empty one.
    const Slot &find(const CacheKey &key) const { return slots_[find_slot(key)]; }

    // The ids of a slot whose count is OUTSIDE.
    const std::uint32_t *outside_ids(const Slot &slot) const { return outside_.data() + slot.ids[0]; }
    static std::size_t outside_count(const Slot &slot) { return slot.ids[1]; }

    // Insert a pre-token that is not in the cache. Skip it if it is very long, or the cache is too small.
    void insert(const CacheKey &key, const std::uint32_t *ids, std::size_t count) {
        const bool inside = key.is_short() && count <= MOST;
        const std::size_t more = inside ? 0 : count + (key.is_short() ? 0 : (key.length() + 3) / 4);
        if (more > outside_most || !make_room(more)) return;
        Slot &slot = slots_[find_slot(key)];
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
    static constexpr std::size_t usual_size = std::size_t{1} << 12; // initial number of slots
    // Limit for one pre-token, in 32-bit words. Long pre-tokens are rare, hardly recur, and would evict all others.
    static constexpr std::size_t outside_most = 4096;

    static std::size_t first_size(std::uint64_t limit) {
        std::size_t size = 1; // stays empty, so that look-ups end
        while (size < usual_size && size * 2 * sizeof(Slot) <= limit) size *= 2;
        return size;
    }

    std::size_t find_slot(const CacheKey &key) const {
        std::size_t at = key.hash & mask_;
        while (slots_[at].words[1] != 0 && !holds(slots_[at], key)) at = (at + 1) & mask_;
        return at;
    }

    bool holds(const Slot &slot, const CacheKey &key) const {
        constexpr std::uint64_t without_count = (std::uint64_t{1} << CacheKey::count_shift) - 1;
        if (slot.words[0] != key.words[0] || (slot.words[1] & without_count) != key.words[1]) return false;
        return key.is_short() || std::memcmp(outside_ids(slot) + slot.ids[1], key.bytes, key.length()) == 0;
    }

    // Make room for one more slot and `words` words outside. At the limit, empty the cache: frequent pre-tokens soon
    // return, and no bookkeeping of their frequency is needed.
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
            if (slot.words[1] != 0) slots_[find_slot_of_moved(slot)] = slot;
        return true;
    }

    std::size_t find_slot_of_moved(const Slot &slot) const {
        CacheKey key;
        key.words[0] = slot.words[0];
        key.words[1] = slot.words[1] << 4 >> 4; // clear the count
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
    SlotArray<Slot> slots_; // a power of two, linear probing, at most 60 % used
    std::size_t mask_;
    std::size_t used_ = 0;
    std::vector<std::uint32_t> outside_; // for each slot: the ids, then the bytes of a long pre-token
};

} // namespace bpeflow
