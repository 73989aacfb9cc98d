// A table of strings, to look up their indices.
#pragma once

#include "cache_key.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bpeflow {

class Strings {
  public:
    static constexpr std::uint32_t NONE = UINT32_MAX;

    // String i is data[offsets[i]:offsets[i + 1]], without the `ending` bytes at its end. The data is borrowed. The table
    // has those strings for which `included(key, index)` is true; of equal ones the first.
    template <typename Included>
    Strings(const std::uint8_t *data, const std::int64_t *offsets, std::uint32_t count, std::size_t ending,
            const Included &included)
        : data_(data), offsets_(offsets), ending_(ending) {
        std::size_t size = 4;
        while (size < std::size_t{count} * 2) size *= 2;
        slots_.assign(size, {0, NONE});
        mask_ = size - 1;
        CacheKey keys[batch];
        for (std::uint32_t first = 0; first < count; first += batch) {
            const std::uint32_t in_batch = std::min(batch, count - first);
            for (std::uint32_t i = 0; i < in_batch; i++) {
                keys[i].set(bytes(first + i), length(first + i),
                            static_cast<std::size_t>(offsets[count] - offsets[first + i]));
                __builtin_prefetch(&slots_[keys[i].hash & mask_], 1);
            }
            for (std::uint32_t i = 0; i < in_batch; i++) {
                if (!included(keys[i], first + i)) continue;
                Slot &slot = slots_[find_slot(keys[i])];
                if (slot.string == NONE)
                    slot = {static_cast<std::uint32_t>(keys[i].hash), first + i};
                else
                    different_ = false;
            }
        }
    }

    Strings(const std::uint8_t *data, const std::int64_t *offsets, std::uint32_t count, std::size_t ending = 0)
        : Strings(data, offsets, count, ending, [](const CacheKey &, std::uint32_t) { return true; }) {}

    // Return whether no two strings are equal.
    bool are_different() const { return different_; }

    // Return the index of the string that a key has, NONE if there is none.
    std::uint32_t find(const CacheKey &key) const { return slots_[find_slot(key)].string; }

  private:
    struct Slot {
        std::uint32_t hash, string; // NONE in an empty slot
    };

    static constexpr std::uint32_t batch = 32; // keys whose slots are fetched from memory together

    const std::uint8_t *bytes(std::uint32_t string) const { return data_ + offsets_[string]; }
    std::size_t length(std::uint32_t string) const {
        return static_cast<std::size_t>(offsets_[string + 1] - offsets_[string]) - ending_;
    }

    // Return the index of the string's slot, or of the empty slot where it belongs.
    std::size_t find_slot(const CacheKey &key) const {
        const auto is = [&](const Slot &slot) {
            return slot.hash == static_cast<std::uint32_t>(key.hash) && length(slot.string) == key.length() &&
                   std::memcmp(bytes(slot.string), key.bytes, key.length()) == 0;
        };
        std::size_t at = key.hash & mask_;
        while (slots_[at].string != NONE && !is(slots_[at])) at = (at + 1) & mask_;
        return at;
    }

    const std::uint8_t *data_;
    const std::int64_t *offsets_;
    std::size_t ending_;
    std::vector<Slot> slots_; // a power of two, linear probing, at most half used
    std::size_t mask_;
    bool different_ = true;
};

} // namespace bpeflow
