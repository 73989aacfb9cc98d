// The tokens: their bytes, and look-up by bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bpeflow {

class Tokens {
  public:
    // Copy the first `count` tokens. Token t is data[offsets[t]:offsets[t + 1]].
    Tokens(const std::uint8_t *data, const std::int64_t *offsets, std::uint32_t count, bool reuse) : reuse_(reuse) {
        for (std::uint32_t token = 0; token < count; token++) {
            bytes_.insert(bytes_.end(), data + offsets[token], data + offsets[token + 1]);
            starts_.push_back(bytes_.size());
            // Of several tokens with the same bytes, the first is reused. An empty token never is.
            if (length(token) > 0) enter(token);
        }
    }

    std::uint32_t count() const { return static_cast<std::uint32_t>(starts_.size() - 1); }
    std::uint64_t length(std::uint32_t token) const { return starts_[token + 1] - starts_[token]; }

    std::string_view bytes(std::uint32_t token) const {
        return {reinterpret_cast<const char *>(bytes_.data()) + starts_[token], length(token)};
    }

    // Return the token made of `left` and `right`: a new one or, if tokens are reused, the one with these bytes.
    std::uint32_t join(std::uint32_t left, std::uint32_t right) {
        const std::uint32_t token = count();
        if (reuse_) {
            const auto known = by_bytes_.find(std::string(bytes(left)).append(bytes(right)));
            if (known != by_bytes_.end()) return known->second;
        }
        std::size_t end = bytes_.size();
        bytes_.resize(end + length(left) + length(right));
        for (const std::uint32_t part : {left, right}) {
            std::copy_n(&bytes_[starts_[part]], length(part), &bytes_[end]);
            end += length(part);
        }
        starts_.push_back(bytes_.size());
        return token;
    }

    // Allow a token made by `join` to be reused.
    void enter(std::uint32_t token) {
        if (reuse_) by_bytes_.emplace(bytes(token), token);
    }

    std::uint64_t memory() const {
        const auto index = by_bytes_.size() * (sizeof(std::string) + 32) + by_bytes_.bucket_count() * sizeof(void *);
        return bytes_.capacity() + starts_.capacity() * sizeof starts_[0] + index;
    }

  private:
    bool reuse_;
    std::vector<std::uint8_t> bytes_;         // all tokens, one after another
    std::vector<std::uint64_t> starts_ = {0}; // token t is bytes_[starts_[t]:starts_[t + 1]]
    // The tokens that can be reused: those of the task and of initial merges. Learned tokens never are: see "No string
    // becomes a token twice" in learn.c.
    std::unordered_map<std::string, std::uint32_t> by_bytes_;
};

} // namespace bpeflow
