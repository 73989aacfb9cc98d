// Reading of ranks, and recovery of merges from them. formats/ranks.py has the proof, and the same in Python.
#pragma once

#include "merging.hpp"
#include "pairs.hpp"
#include "tokens.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bpeflow {

// The value of each character of base64; 64 for the others.
inline std::array<std::uint8_t, 256> base64_values() {
    const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::array<std::uint8_t, 256> values;
    values.fill(64);
    for (std::uint8_t value = 0; value < 64; value++) values[static_cast<std::uint8_t>(digits[value])] = value;
    return values;
}

// Reads lines of tiktoken's format: a token in base64, a space, its rank of up to 10 digits, and a newline.
class RankReader {
  public:
    RankReader(const std::uint8_t *text, std::uint64_t size) : position_(text), end_(text + size) {}

    bool at_end() const { return position_ == end_; }

    // Write the bytes of a line's token, at least one, to `data` and set its rank. Return false for any other line.
    bool read(std::uint8_t *&data, std::int64_t &rank) {
        const std::uint8_t *const start = data;
        while (end_ - position_ >= 4 && read_group(data)) {
        }
        return data > start && skip(' ') && read_rank(rank) && skip('\n');
    }

  private:
    // Read 4 characters, which are 3 bytes, or fewer if the last one or two are '='. Return false for any others.
    bool read_group(std::uint8_t *&data) {
        const bool two = position_[3] == '=', one = two && position_[2] == '=';
        const std::uint32_t a = values_[position_[0]], b = values_[position_[1]], c = one ? 0 : values_[position_[2]],
                            d = two ? 0 : values_[position_[3]];
        if ((a | b | c | d) >= 64) return false;
        const std::uint32_t bits = a << 18 | b << 12 | c << 6 | d;
        *data++ = static_cast<std::uint8_t>(bits >> 16);
        if (!one) *data++ = static_cast<std::uint8_t>(bits >> 8);
        if (!two) *data++ = static_cast<std::uint8_t>(bits);
        position_ += 4;
        return !two;
    }

    bool read_rank(std::int64_t &rank) {
        const std::uint8_t *const start = position_;
        for (rank = 0; position_ < end_ && *position_ >= '0' && *position_ <= '9' && position_ - start < 11;
             position_++)
            rank = rank * 10 + (*position_ - '0');
        return position_ > start && position_ - start <= 10;
    }

    bool skip(char character) {
        if (position_ == end_) return false;
        const bool same = *position_ == static_cast<std::uint8_t>(character);
        position_++;
        return same;
    }

    const std::array<std::uint8_t, 256> values_ = base64_values();
    const std::uint8_t *position_, *const end_;
};

constexpr std::uint32_t NO_TOKEN = UINT32_MAX;

// Return the id of each byte, which is the lowest token that consists of it; NO_TOKEN if there is none.
inline std::array<std::uint32_t, 256> find_bytes(const Tokens &tokens) {
    std::array<std::uint32_t, 256> ids;
    ids.fill(NO_TOKEN);
    for (std::uint32_t id = tokens.count(); id-- > 0;)
        if (tokens.length(id) == 1) ids[*tokens.bytes(id)] = id;
    return ids;
}

// Return the tokens of two or more bytes that have tokens, shortest first, those of the same length in ascending order.
inline std::vector<std::uint32_t> by_length(const Tokens &tokens, const std::array<std::uint32_t, 256> &byte_ids) {
    const auto is_token = [&byte_ids](std::uint8_t byte) { return byte_ids[byte] != NO_TOKEN; };
    std::vector<std::uint32_t> ids;
    for (std::uint32_t id = 0; id < tokens.count(); id++)
        if (tokens.length(id) > 1 && std::all_of(tokens.bytes(id), tokens.bytes(id) + tokens.length(id), is_token))
            ids.push_back(id);
    std::stable_sort(ids.begin(), ids.end(),
                     [&tokens](std::uint32_t a, std::uint32_t b) { return tokens.length(a) < tokens.length(b); });
    return ids;
}

// Write left, right and result of the merge of each token that merging can yield, in ascending order of tokens, whose
// rank is their id. Return the number of merges. `merges` has room for one per token.
//
// All joins inside a token make shorter tokens. So the merges of the shorter tokens join its bytes to two pieces, which
// are the sides of its own merge, or to more, and then it has none. Of tokens with the same bytes the lowest has it.
inline std::uint64_t recover_merges(const Tokens &tokens, std::uint32_t *merges) {
    const std::array<std::uint32_t, 256> byte_ids = find_bytes(tokens);
    Pairs pairs(byte_ids.data(), tokens.count());
    std::fill_n(merges, std::size_t{3} * tokens.count(), NO_TOKEN);
    const auto add = [&](std::uint32_t left, std::uint32_t right, std::uint32_t token) {
        std::uint32_t *const merge = merges + std::size_t{3} * token;
        merge[0] = left, merge[1] = right, merge[2] = token;
        pairs.add(merge, token, tokens);
    };

    static constexpr std::size_t ahead =
        std::size_t{3} * 16; // merges whose slots are awaited from memory at once, three ids each
    const std::vector<std::uint32_t> ids = by_length(tokens, byte_ids);
    auto at = ids.begin();
    for (; at != ids.end() && tokens.length(*at) == 2; ++at) {
        const std::uint32_t left = byte_ids[tokens.bytes(*at)[0]], right = byte_ids[tokens.bytes(*at)[1]];
        if (pairs.find(left, right) == NO_MERGE) add(left, right, *at);
    }
    pairs.index_bytes();
    Merging merging(pairs);
    std::vector<std::uint32_t> made; // left, right and result of the tokens of one length
    while (at != ids.end()) {
        made.clear();
        const std::size_t length = tokens.length(*at);
        for (; at != ids.end() && tokens.length(*at) == length; ++at) {
            merging.merge(tokens.bytes(*at), length);
            if (merging.count() == 2) made.insert(made.end(), {merging.ids()[0], merging.ids()[1], *at});
        }
        // No token of this length is inside another one, so they are added together: the slots are fetched in advance.
        for (std::size_t i = 0; i < made.size(); i += 3) {
            if (i + ahead < made.size()) pairs.prefetch(made[i + ahead], made[i + ahead + 1]);
            if (pairs.find(made[i], made[i + 1]) == NO_MERGE) add(made[i], made[i + 1], made[i + 2]);
        }
    }

    std::uint64_t count = 0;
    for (std::uint32_t id = 0; id < tokens.count(); id++) {
        const std::uint32_t *const merge = merges + std::size_t{3} * id;
        if (merge[2] != NO_TOKEN) std::memmove(merges + 3 * count++, merge, 3 * sizeof *merge);
    }
    return count;
}

} // namespace bpeflow
