// The bytes of all tokens, and decoding ids with them.
#pragma once

#include "bpeflow.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bpeflow {

class Tokens {
  public:
    // Copy the tokens. Token i is data[offsets[i]:offsets[i + 1]].
    Tokens(const std::uint8_t *data, const std::int64_t *offsets, std::uint32_t count)
        : offsets_(offsets, offsets + count + 1), data_(static_cast<std::size_t>(offsets[count]) + stride) {
        if (offsets[count] > 0) std::memcpy(data_.data(), data, static_cast<std::size_t>(offsets[count]));
    }

    // Return whether offsets[0 .. count] keep the rules of bpeflow.h.
    static bool are_valid(const std::int64_t *offsets, std::uint32_t count) {
        return count > 0 && count < UINT32_MAX && offsets && offsets[0] == 0 &&
               std::is_sorted(offsets, offsets + count + 1);
    }

    std::uint32_t count() const { return static_cast<std::uint32_t>(offsets_.size() - 1); }
    const std::int64_t *offsets() const { return offsets_.data(); }
    const std::uint8_t *bytes(std::uint32_t id) const { return data_.data() + offsets_[id]; }
    std::size_t length(std::uint32_t id) const { return static_cast<std::size_t>(offsets_[id + 1] - offsets_[id]); }

    // Return whether the third of three tokens is the concatenation of the other two, neither of which is empty.
    bool are_joined(const std::uint32_t *merge) const {
        const std::size_t left = length(merge[0]), right = length(merge[1]);
        const std::uint8_t *const made = bytes(merge[2]);
        return left > 0 && right > 0 && length(merge[2]) == left + right &&
               std::memcmp(made, bytes(merge[0]), left) == 0 && std::memcmp(made + left, bytes(merge[1]), right) == 0;
    }

    // Set `size` to the size of the tokens of `ids`. If one is unknown, set it to the index of the first such id.
    template <typename Id> int measure(const Id *ids, std::uint64_t given, std::uint64_t &size) const {
        std::uint64_t sum = 0;
        for (std::uint64_t i = 0; i < given; i++) {
            const std::size_t more = ids[i] < count() ? length(ids[i]) : 0;
            if (more == 0) {
                size = i;
                return BPEFLOW_UNKNOWN_ID;
            }
            sum += more;
        }
        size = sum;
        return BPEFLOW_OK;
    }

    // Write the bytes of the tokens of `ids`. Some of them may be written if they are not `size` bytes.
    template <typename Id>
    int decode(const Id *ids, std::uint64_t given, std::uint8_t *data, std::uint64_t size) const {
        std::uint8_t *const end = data + size;
        for (std::uint64_t i = 0; i < given; i++) {
            if (ids[i] >= count()) return BPEFLOW_NO_ROOM;
            const std::uint8_t *const token = bytes(ids[i]);
            const std::size_t more = length(ids[i]), room = static_cast<std::size_t>(end - data);
            if (more <= stride && room >= stride) {
                std::memcpy(data, token, stride); // copy a fixed size: the next token overwrites the excess
            } else {
                if (more > room) return BPEFLOW_NO_ROOM;
                std::copy_n(token, more, data);
            }
            data += more;
        }
        return data == end ? BPEFLOW_OK : BPEFLOW_NO_ROOM;
    }

  private:
    // Nearly all tokens are at most this long. This many bytes can be read from the start of any token, even the last.
    static constexpr std::size_t stride = 16;

    std::vector<std::int64_t> offsets_;
    std::vector<std::uint8_t> data_;
};

} // namespace bpeflow
