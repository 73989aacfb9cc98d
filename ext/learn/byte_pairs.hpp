// The pairs before the first merge: pairs of bytes.
#pragma once

#include "bpeflow.h"
#include "corpus.hpp"
#include "failure.hpp"
#include "parallel.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bpeflow {

// Counts pairs of bytes and then writes their occurrence lists. Each thread does so for its share of the pre-tokens.
class BytePairs {
  public:
    static constexpr std::size_t size = 65536; // pair p consists of the bytes p / 256 and p % 256

    // Count the pairs. Throws Failure{BPEFLOW_OVERFLOW} if a count does not fit 64 bits.
    BytePairs(const bpeflow_merge_task &task, unsigned threads)
        : task_(task), threads_(threads), shares_(threads, std::vector<Share>(size)) {
        std::atomic<bool> overflow = false;
        for_each_part(threads, [&](unsigned part) {
            bool lost = false;
            for_each_occurrence(part, [&](std::size_t pair, std::uint64_t word, std::uint32_t) {
                Share &share = shares_[part][pair];
                lost |= __builtin_add_overflow(share.count, task_.counts[word], &share.count);
                share.entries++;
            });
            if (lost) overflow = true;
        });
        for (std::size_t pair = 0; pair < size; pair++) {
            std::int64_t sum = 0;
            for (const auto &share : shares_)
                if (__builtin_add_overflow(sum, share[pair].count, &sum)) overflow = true;
        }
        if (overflow) throw Failure{BPEFLOW_OVERFLOW};
    }

    std::int64_t count(std::size_t pair) const {
        std::int64_t sum = 0;
        for (const auto &share : shares_) sum += share[pair].count;
        return sum;
    }

    std::uint32_t entries(std::size_t pair) const {
        std::uint32_t sum = 0;
        for (const auto &share : shares_) sum += share[pair].entries;
        return sum;
    }

    // Set the memory for a pair's list, null for no list. Each thread's part follows that of the thread before.
    void set_list(std::size_t pair, std::uint32_t *list) {
        for (auto &share : shares_) {
            share[pair].cursor = list;
            if (list) list += share[pair].entries;
        }
    }

    void write_lists() {
        for_each_part(threads_, [&](unsigned part) {
            for_each_occurrence(part, [&](std::size_t pair, std::uint64_t, std::uint32_t position) {
                Share &share = shares_[part][pair];
                if (share.cursor) *share.cursor++ = position;
            });
        });
    }

  private:
    // One thread's share of a pair.
    struct Share {
        std::int64_t count = 0;
        std::uint32_t *cursor = nullptr;
        std::uint32_t entries = 0;
    };

    template <typename Use> void for_each_occurrence(unsigned part, const Use &use) const {
        const auto [first, last] = share_of(task_, part, threads_);
        for (std::uint64_t word = first; word < last; word++) {
            auto position = static_cast<std::uint32_t>(task_position(&task_, word));
            for (auto b = task_.offsets[word]; b + 1 < task_.offsets[word + 1]; b++, position++)
                use(std::size_t{task_.data[b]} << 8 | task_.data[b + 1], word, position);
        }
    }

    const bpeflow_merge_task &task_;
    unsigned threads_;
    std::vector<std::vector<Share>> shares_; // [threads][size]
};

} // namespace bpeflow
