// The bytes of all tokens, and what a sequence of ids stands for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bpeflow {

class Tokens {
  public:
    // Token i is data[offsets[i]] up to data[offsets[i + 1]].
    Tokens(const std::uint8_t *data, const std::int64_t *offsets, std::uint32_t count)
        : offsets_(offsets, offsets + count + 1), data_(static_cast<std::size_t>(offsets[count]) + stride) {
        if (offsets[count] > 0) std::memcpy(data_.data(), data, static_cast<std::size_t>(offsets[count]));
    }

    std::uint32_t count() const { return static_cast<std::uint32_t>(offsets_.size() - 1); }
    const std::uint8_t *bytes(std::uint32_t id) const { return data_.data() + offsets_[id]; }
    std::size_t length(std::uint32_t id) const { return static_cast<std::size_t>(offsets_[id + 1] - offsets_[id]); }

    // Adds up the lengths of ids, up to the first one that stands for nothing. Returns how many there are before that.
    template <typename Id> std::uint64_t add_lengths(const Id *ids, std::uint64_t given, std::uint64_t &size) const {
        for (std::uint64_t i = 0; i < given; i++) {
            const std::size_t more = ids[i] < count() ? length(ids[i]) : 0;
            if (more == 0) return i;
            size += more;
        }
        return given;
    }

    // Writes the bytes of ids. Returns false, and has written a part of them, where they are not `size` bytes.
    template <typename Id>
    bool decode(const Id *ids, std::uint64_t given, std::uint8_t *data, std::uint64_t size) const {
        std::uint8_t *const end = data + size;
        for (std::uint64_t i = 0; i < given; i++) {
            if (ids[i] >= count()) return false;
            const std::uint8_t *const token = bytes(ids[i]);
            const std::size_t more = length(ids[i]), room = static_cast<std::size_t>(end - data);
            if (more <= stride && room >= stride) {
                std::memcpy(data, token, stride); // a copy of fixed size; what is too much is written over by the next
            } else {
                if (more > room) return false;
                std::copy_n(token, more, data);
            }
            data += more;
        }
        return data == end;
    }

  private:
    // Nearly all tokens are as short as this. So many bytes can be read from the start of any, the last one too.
    static constexpr std::size_t stride = 16;

    std::vector<std::int64_t> offsets_;
    std::vector<std::uint8_t> data_;
};

} // namespace bpeflow
