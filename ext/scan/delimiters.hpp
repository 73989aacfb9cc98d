// The document separator and the special tokens, found in text.
#pragma once

#include "bpeflow.h"

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bpeflow {

// Finds delimiters from left to right, the longest one first where several begin at the same place.
class Delimiters {
  public:
    struct Match {
        const std::uint8_t *start, *end; // both the end of the text where there is none
        bool separator;
        std::uint32_t index; // which one it is, as they were given
    };

    explicit Delimiters(const bpeflow_delimiters &given) {
        const std::uint8_t *bytes = given.data;
        for (std::uint32_t i = 0; i < given.count; bytes += given.lengths[i++])
            all_.push_back({bytes, given.lengths[i], i == given.separator, i});
        std::stable_sort(all_.begin(), all_.end(), [](const One &a, const One &b) { return a.length > b.length; });
        for (const One &one : all_) {
            starts_[*one.bytes] = true;
            for (unsigned second = 0; second < 256; second++)
                if (one.length == 1 || one.bytes[1] == second) pairs_.set(*one.bytes << 8 | second);
        }
        if (!all_.empty()) first_ = *all_[0].bytes;
        same_first_ = std::all_of(all_.begin(), all_.end(), [this](const One &one) { return *one.bytes == first_; });
    }

    Match find(const std::uint8_t *place, const std::uint8_t *end) const {
        for (; (place = candidate(place, end)) != end; place++) {
            if (end - place > 1 && !pairs_.test(std::size_t{place[0]} << 8 | place[1])) continue;
            for (const One &one : all_)
                if (static_cast<std::size_t>(end - place) >= one.length &&
                    std::memcmp(place, one.bytes, one.length) == 0)
                    return {place, place + one.length, one.separator, one.index};
        }
        return {end, end, false, 0};
    }

  private:
    struct One {
        const std::uint8_t *bytes;
        std::size_t length;
        bool separator;
        std::uint32_t index;
    };

    // The first place at which a delimiter may begin, by its first byte.
    const std::uint8_t *candidate(const std::uint8_t *place, const std::uint8_t *end) const {
        if (all_.empty()) return end;
        if (same_first_) { // all are like <|endoftext|>
            const void *found =
                place < end ? std::memchr(place, first_, static_cast<std::size_t>(end - place)) : nullptr;
            return found ? static_cast<const std::uint8_t *>(found) : end;
        }
        while (place < end && !starts_[*place]) place++;
        return place;
    }

    std::vector<One> all_; // the longest first
    bool starts_[256] = {};
    std::bitset<65536> pairs_; // the first two bytes of each: of hundreds, few are compared with the "<div" of a page
    std::uint8_t first_ = 0;
    bool same_first_ = true;
};

} // namespace bpeflow
