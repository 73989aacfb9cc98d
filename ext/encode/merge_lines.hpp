// Reading of merges as GPT-2's files have them: a line has the printable forms of the two tokens.
#pragma once

#include "cache_key.hpp"
#include "failure.hpp"
#include "strings.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bpeflow {

// Return the offsets at which `count` lines start and the last ends.
inline std::vector<std::int64_t> find_lines(const std::uint8_t *text, std::size_t size, std::uint32_t count) {
    std::vector<std::int64_t> offsets{0};
    offsets.reserve(std::size_t{count} + 1);
    for (std::size_t i = 0; i < size; i++)
        if (text[i] == '\n') offsets.push_back(static_cast<std::int64_t>(i) + 1);
    if (offsets.size() != std::size_t{count} + 1) throw Failure{BPEFLOW_DAMAGED};
    return offsets;
}

// Reads lines of two forms, with a space between them and a newline after them.
class MergeReader {
  public:
    MergeReader(const Strings &forms, const std::uint8_t *text, std::size_t size)
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
        return form != Strings::NONE;
    }

    const Strings &forms_;
    const std::uint8_t *position_, *const end_;
    std::vector<std::uint8_t> made_;
};

} // namespace bpeflow
