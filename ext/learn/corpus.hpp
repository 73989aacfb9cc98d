// The corpus as the merge step sees it: tokens in positions, and how often each pre-token occurs.
//
// All pre-tokens lie in one array of positions, a byte each, with an END before, between and after them:
//
//     END t h e END t h a t END          position 0 is the first END
//
// `ids` has a token's id at the first and at the last position of the token; what lies between them is left over from
// its parts. The length of a token follows from its id, so both neighbours are found without links: the token before
// position i ends at i - 1, the one after a token of n bytes at i starts at i + n. A merge writes two entries and moves
// nothing.
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

// The pre-tokens, first and one past the last, that are the share of one of several threads: about as many positions
// for each.
inline std::pair<std::uint64_t, std::uint64_t> share_of(const bpeflow_merge_task &task, unsigned part, unsigned parts) {
    const auto cut = [&](unsigned at) {
        const std::uint64_t position = task_position(&task, task.words) / parts * at;
        std::uint64_t low = 0, high = task.words; // the first pre-token that starts at `position` or later
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

    // Whether two positions, the first below the second, are in the same pre-token. No END between them, then: what is
    // left over inside of tokens was a token's id once, and that never is END.
    bool same_word(std::uint32_t first, std::uint32_t second) const {
        return std::find(&ids_[first], &ids_[second], END) == &ids_[second];
    }

    // Tells how often the pre-tokens occur, for ascending positions.
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
    // Pre-tokens are in descending order of their counts: those of one count are a run.
    struct Run {
        std::uint64_t start; // position
        std::int64_t count;
    };
    // For each so many positions the run is noted. With 16 the notes would not stay in the cache, with 1024 the walk
    // over the short runs of the most frequent pre-tokens would be long.
    static constexpr std::size_t block = 64;

    std::uint64_t size_;
    std::unique_ptr<std::uint32_t[]> ids_;
    std::vector<Run> runs_; // and one more that starts at the end
    std::vector<std::uint32_t> run_of_;
};

} // namespace bpeflow
