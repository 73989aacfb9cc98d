// Tells of most strings or pairs that are not in a table that they are not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bpeflow {

// A bit for the hash of each one that is there. Most of what encoders look up is not there, and the tables are larger than
// the L2 cache; this is a tenth of their size and knows 15 of 16 of these. (Encoding new pre-tokens takes 10 % less
// time with it.)
class Filter {
  public:
    explicit Filter(std::size_t entries) {
        while (std::size_t{1} << bits_ < entries * 16) bits_++;
        words_.assign((std::size_t{1} << bits_) / 64, 0);
    }

    void add(std::uint64_t hash) { words_[bit(hash) / 64] |= std::uint64_t{1} << bit(hash) % 64; }
    bool may_have(std::uint64_t hash) const { return words_[bit(hash) / 64] >> bit(hash) % 64 & 1; }

  private:
    // The upper bits: tables go by the lower ones.
    std::uint64_t bit(std::uint64_t hash) const { return hash >> (64 - bits_); }

    std::vector<std::uint64_t> words_;
    unsigned bits_ = 6;
};

} // namespace bpeflow
