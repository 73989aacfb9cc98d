// A tournament of numbers: finds the least of many, each of which may change.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace bpeflow {

// Eight numbers play for one place in the next round, and so on until at most eight are left. After a change, the least of
// eight is found once for each round, without a branch that depends on the numbers. Two at a time, as in a heap, take three
// times as many rounds.
class Tournament {
  public:
    static constexpr std::uint64_t NONE = UINT64_MAX;

    // Begin with `count` numbers, at least one. Set each, then call play().
    void begin(std::size_t count) {
        rounds_ = 0;
        std::size_t end = 0;
        for (std::size_t size = count;; size = (size + 7) / 8) {
            starts_[rounds_++] = end;
            end += (size + 7) / 8 * 8;
            if (size <= 8) break;
        }
        if (room_ < end) {
            numbers_.reset(new std::uint64_t[end]);
            room_ = end;
        }
        for (std::size_t i = count; i % 8; i++) numbers_[i] = NONE;
    }

    void play() {
        for (std::size_t round = 1; round < rounds_; round++) {
            const std::uint64_t *const from = numbers_.get() + starts_[round - 1];
            std::uint64_t *const to = numbers_.get() + starts_[round];
            const std::size_t size = (starts_[round] - starts_[round - 1]) / 8;
            for (std::size_t i = 0; i < size; i++) to[i] = least_of(from + 8 * i);
            for (std::size_t i = size; i % 8; i++) to[i] = NONE;
        }
    }

    std::uint64_t &operator[](std::size_t i) { return numbers_[i]; }

    std::uint64_t least() const { return least_of(numbers_.get() + starts_[rounds_ - 1]); }

    // Return whether two numbers play against each other in the first round: then one replay does for both.
    static bool meet(std::size_t i, std::size_t j) { return i / 8 == j / 8; }

    // Play again after a number has changed.
    void replay(std::size_t i) {
        for (std::size_t round = 1; round < rounds_; round++) {
            const std::uint64_t *const from = numbers_.get() + starts_[round - 1] + i / 8 * 8;
            i /= 8;
            numbers_[starts_[round] + i] = least_of(from);
        }
    }

    std::size_t memory() const { return room_ * sizeof(std::uint64_t); }

  private:
    static std::uint64_t least_of(const std::uint64_t *eight) {
        const std::uint64_t a = std::min(eight[0], eight[1]), b = std::min(eight[2], eight[3]);
        const std::uint64_t c = std::min(eight[4], eight[5]), d = std::min(eight[6], eight[7]);
        return std::min(std::min(a, b), std::min(c, d));
    }

    std::unique_ptr<std::uint64_t[]> numbers_;
    std::size_t room_ = 0, rounds_ = 0, starts_[11]; // of the numbers in each round
};

} // namespace bpeflow
