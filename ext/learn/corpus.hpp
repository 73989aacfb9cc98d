// The corpus as the learner sees it: tokens at positions, and the count of each pre-token.
//
// All pre-tokens are stored in one array of positions, one per byte, with an END before, between and after them:
//
//     END t h e END t h a t END          position 0 is the first END
//
// `ids` has a token's id at the first and at the last position of the token. The positions in between hold stale ids of
// its parts. The length of a token follows from its id, so both neighbours are found without links: the token before
// position i ends at i - 1, and the token after a token of n bytes at i starts at i + n. A merge writes two entries and
// moves nothing.
#pragma once

#include "bpeflow.h"
#include "neighbours.hpp"
#include "parallel.hpp"
#include "task.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace bpeflow {

// Return the range of pre-tokens (first, one past the last) for one of several threads. All ranges have about the same
// number of positions.
inline std::pair<std::uint64_t, std::uint64_t> share_of(const bpeflow_merge_task &task, unsigned part, unsigned parts) {
    const auto cut = [&](unsigned at) {
        const std::uint64_t position = task_position(&task, task.words) / parts * at;
        // Binary search for the first pre-token that starts at or after `position`.
        std::uint64_t low = 0, high = task.words;
        while (low < high) {
            const std::uint64_t middle = low + (high - low) / 2;
            if (task_position(&task, middle) < position)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    };
    return {cut(part), part + 1 == parts ? task.words : cut(part + 1)};
}

class Corpus {
  public:
    Corpus(const bpeflow_merge_task &task, unsigned threads)
        : size_(task_position(&task, task.words)), ids_(new std::uint32_t[size_]), run_of_(size_ / block + 1) {
        ids_[0] = END;
        for_each_part(threads, [&](unsigned part) {
            const auto [first, last] = share_of(task, part, threads);
            for (std::uint64_t word = first; word < last; word++) {
                std::uint32_t *id = &ids_[task_position(&task, word)];
                for (auto b = task.offsets[word]; b < task.offsets[word + 1]; b++) *id++ = task.byte_ids[task.data[b]];
                *id = END;
            }
        });
        for (std::uint64_t word = 0; word < task.words; word++)
            if (task_count_changes(&task, word))
                runs_.push_back({word == 0 ? 0 : task_position(&task, word), task.counts[word]});
        runs_.push_back({size_, 0});
        std::uint32_t run = 0;
        for (std::size_t b = 0; b < run_of_.size(); b++) {
            while (run + 1 < runs_.size() && runs_[run + 1].start <= b * block) run++;
            run_of_[b] = run;
        }
    }

    std::uint64_t size() const { return size_; }
    std::uint32_t *ids() { return ids_.get(); }

    // Return whether two positions, in ascending order, are in the same pre-token: whether there is no END between
    // them. Stale ids inside tokens cannot be mistaken for END, as they were ids of tokens once.
    bool same_word(std::uint32_t first, std::uint32_t second) const {
        return std::find(&ids_[first], &ids_[second], END) == &ids_[second];
    }

    // Looks up the counts of pre-tokens at ascending positions.
    class Counts {
      public:
        explicit Counts(const Corpus &corpus) : corpus_(corpus) {}

        std::int64_t at(std::uint32_t position) {
            run_ = std::max(run_, corpus_.run_of_[position / block]);
            while (corpus_.runs_[run_ + 1].start <= position) run_++;
            return corpus_.runs_[run_].count;
        }

      private:
        const Corpus &corpus_;
        std::uint32_t run_ = 0;
    };

    std::uint64_t memory() const {
        return size_ * sizeof ids_[0] + runs_.capacity() * sizeof runs_[0] + run_of_.capacity() * sizeof run_of_[0];
    }

  private:
    // The counts, run-length encoded. Pre-tokens are in descending order of their counts, so those with equal counts
    // form a run.
    struct Run {
        std::uint64_t start; // position
        std::int64_t count;
    };
    // Positions per entry of run_of_. With 16 the entries would not fit into the cache. With 1024 the walk over the
    // short runs of the most frequent pre-tokens would be long.
    static constexpr std::size_t block = 64;

    std::uint64_t size_;
    std::unique_ptr<std::uint32_t[]> ids_;
    std::vector<Run> runs_; // with a last one that starts at the end
    std::vector<std::uint32_t> run_of_;
};

} // namespace bpeflow
