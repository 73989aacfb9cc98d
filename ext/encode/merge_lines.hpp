// Reading of merges as GPT-2's files have them: a line has the printable forms of the two tokens.
#pragma once

#include "cache_key.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bpeflow {

// The ids of printable forms, in UTF-8. Form i is data[offsets[i]:offsets[i + 1]]; no two are equal.
class Forms {
  public:
    static constexpr std::uint32_t NONE = UINT32_MAX;

    Forms(const std::uint8_t *data, const std::int64_t *offsets, std::uint32_t count) : data_(data), offsets_(offsets) {
        std::size_t size = 4;
        while (size < std::size_t{count} * 2) size *= 2;
        slots_.assign(size, {0, NONE});
        mask_ = size - 1;
        for (std::uint32_t form = 0; form < count; form++) {
            CacheKey key;
            key.set(data + offsets[form], length(form), static_cast<std::size_t>(offsets[count] - offsets[form]));
            slots_[find_slot(key)] = {static_cast<std::uint32_t>(key.hash), form};
        }
    }

    // Return the index of the form that a key has, NONE if there is none.
    std::uint32_t find(const CacheKey &key) const { return slots_[find_slot(key)].form; }

  private:
    struct Slot {
        std::uint32_t hash, form; // NONE in an empty slot
    };

    std::size_t length(std::uint32_t form) const {
        return static_cast<std::size_t>(offsets_[form + 1] - offsets_[form]);
    }

    // Return the index of the form's slot, or of the empty slot where it belongs.
    std::size_t find_slot(const CacheKey &key) const {
        const auto is = [&](const Slot &slot) {
            return slot.hash == static_cast<std::uint32_t>(key.hash) && length(slot.form) == key.length() &&
                   std::memcmp(data_ + offsets_[slot.form], key.bytes, key.length()) == 0;
        };
        std::size_t at = key.hash & mask_;
        while (slots_[at].form != NONE && !is(slots_[at])) at = (at + 1) & mask_;
        return at;
    }

    const std::uint8_t *data_;
    const std::int64_t *offsets_;
    std::vector<Slot> slots_; // a power of two, linear probing, at most half used
    std::size_t mask_;
};

// Reads lines of two forms, with a space between them and a newline after them.
class MergeReader {
  public:
    MergeReader(const Forms &forms, const std::uint8_t *text, std::size_t size)
        : forms_(forms), position_(text), end_(text + size) {}

    bool at_end() const { return position_ == end_; }

    // Write the forms of a line and the one that they make together. Return false if a form is empty or unknown.
    bool read(std::uint32_t *merge) {
        made_.clear();
        return read_side(' ', merge[0]) && read_side('\n', merge[1]) && find(made_.data(), made_.size(), 0, merge[2]);
    }

  private:
    // Read up to the character after a side.
    bool read_side(char after, std::uint32_t &form) {
        const auto left = static_cast<std::size_t>(end_ - position_);
        const auto *const stop =
            left == 0 ? nullptr : static_cast<const std::uint8_t *>(std::memchr(position_, after, left));
        if (!stop) return false;
        const auto size = static_cast<std::size_t>(stop - position_);
        made_.insert(made_.end(), position_, stop);
        const bool known = find(position_, size, left, form);
        position_ = stop + 1;
        return known;
    }

    // `readable` bytes may be read from `bytes` on; at least `size`.
    bool find(const std::uint8_t *bytes, std::size_t size, std::size_t readable, std::uint32_t &form) const {
        if (size == 0) return false;
        CacheKey key;
        key.set(bytes, size, readable);
        form = forms_.find(key);
        return form != Forms::NONE;
    }

    const Forms &forms_;
    const std::uint8_t *position_, *const end_;
    std::vector<std::uint8_t> made_;
};

} // namespace bpeflow
