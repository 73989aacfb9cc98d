// Finding delimiters (the document separator and special tokens) in text.
#pragma once

#include "bpeflow.h"

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bpeflow {

// Finds delimiters from left to right. If several match at one position, the longest wins.
class Delimiters {
  public:
    struct Match {
        const std::uint8_t *start, *end; // both the end of the text if nothing matches
        bool separator;
        std::uint32_t index; // index of the delimiter in the given order
    };

    explicit Delimiters(const bpeflow_delimiters &given) {
        const std::uint8_t *bytes = given.data;
        for (std::uint32_t i = 0; i < given.count; bytes += given.lengths[i++])
            all_.push_back({bytes, given.lengths[i], i == given.separator, i, NONE});
        std::stable_sort(all_.begin(), all_.end(), [](const One &a, const One &b) { return compare(a, b) < 0; });
        for (std::uint32_t i = 0; i < all_.size(); i++) {
            One &one = all_[i];
            one.shorter = i > 0 ? i - 1 : NONE;
            while (one.shorter != NONE && !begins_with(one.bytes, one.length, all_[one.shorter]))
                one.shorter = all_[one.shorter].shorter;
            starts_[*one.bytes] = true;
            for (unsigned second = 0; second < 256; second++)
                if (one.length == 1 || one.bytes[1] == second) pairs_.set(*one.bytes << 8 | second);
        }
        if (!all_.empty()) first_ = *all_[0].bytes;
        same_first_ = std::all_of(all_.begin(), all_.end(), [this](const One &one) { return *one.bytes == first_; });
    }

    Match find(const std::uint8_t *position, const std::uint8_t *end) const {
        for (; (position = candidate(position, end)) != end; position++) {
            if (end - position > 1 && !pairs_.test(std::size_t{position[0]} << 8 | position[1])) continue;
            if (const One *const one = longest_at(position, static_cast<std::size_t>(end - position)))
                return {position, position + one->length, one->separator, one->index};
        }
        return {end, end, false, 0};
    }

  private:
    struct One {
        const std::uint8_t *bytes;
        std::size_t length;
        bool separator;
        std::uint32_t index;
        std::uint32_t shorter; // the longest other delimiter that this one begins with, NONE if there is none
    };

    static constexpr std::uint32_t NONE = UINT32_MAX;

    static int compare(const One &a, const One &b) {
        const int order = std::memcmp(a.bytes, b.bytes, std::min(a.length, b.length));
        return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
    }

    static bool begins_with(const std::uint8_t *text, std::size_t length, const One &one) {
        return length >= one.length && std::memcmp(text, one.bytes, one.length) == 0;
    }

    // Return the longest delimiter that a text begins with, null if there is none. Let d be such a delimiter. In
    // ascending order, all delimiters between d and the text begin with d. So d is the last delimiter that is not
    // greater than the text, or a prefix of that one.
    const One *longest_at(const std::uint8_t *text, std::size_t length) const {
        const auto after = std::upper_bound(all_.begin(), all_.end(), One{text, length, false, 0, NONE},
                                            [](const One &a, const One &b) { return compare(a, b) < 0; });
        auto at = static_cast<std::uint32_t>(after - all_.begin());
        for (at = at == 0 ? NONE : at - 1; at != NONE; at = all_[at].shorter)
            if (begins_with(text, length, all_[at])) return &all_[at];
        return nullptr;
    }

    // Return the first position where a delimiter may start, judging by its first byte.
    const std::uint8_t *candidate(const std::uint8_t *position, const std::uint8_t *end) const {
        if (all_.empty()) return end;
        if (same_first_) { // as <|endoftext|> and <|pad|> have
            const void *found =
                position < end ? std::memchr(position, first_, static_cast<std::size_t>(end - position)) : nullptr;
            return found ? static_cast<const std::uint8_t *>(found) : end;
        }
        while (position < end && !starts_[*position]) position++;
        return position;
    }

    std::vector<One> all_; // in ascending order of bytes
    bool starts_[256] = {};
    // The first two bytes of each delimiter: with hundreds of them, few are compared at the "<div" of a web page.
    std::bitset<65536> pairs_;
    std::uint8_t first_ = 0;
    bool same_first_ = true;
};

} // namespace bpeflow
