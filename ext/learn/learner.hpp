// Learning merges on several threads: choosing pairs and merging them.
//
// Occurrence lists. corpus.hpp describes how tokens are stored at positions. The occurrence list of a pair (L, R) has,
// in ascending order, the positions where its L starts. It is written when the younger of the two tokens is made and
// never changed. Occurrences that disappear stay in it. Entry i is still an occurrence if and only if the token L ends
// just before i + length(L) and R starts there, which are two adjacent entries of `ids`. Tokens only grow, so anything
// else written to one of the two is a token longer than L, or than R. The only merge that leaves both as they are is
// that of (L, R), which uses up the whole list. learn.c has the full proof. It also proves that the token made by a
// merge, even a reused one, was nowhere in the corpus before, so that its pairs are new, and explains why initial
// merges change next to nothing.
//
// One merge walks over the list, writes the new token and adds up the changes for each neighbour (neighbours.hpp). Only
// then are the pairs looked up, once per distinct neighbour, and the new pairs' lists written.
//
// Threads. A long list is cut between pre-tokens, so that no two threads see the same token. Each part has its own
// neighbours. These are added up, and the new lists are written part after part, so the lists are identical to those of
// one thread. Sums of integers do not depend on their order, and the order of candidates does not depend on which
// arrived first. So the result is the same for every number of threads.

#pragma once

#include "bpeflow.h"
#include "byte_pairs.hpp"
#include "candidates.hpp"
#include "corpus.hpp"
#include "failure.hpp"
#include "neighbours.hpp"
#include "pace.hpp"
#include "pairs.hpp"
#include "parallel.hpp"
#include "part.hpp"
#include "task.h"
#include "tokens.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <omp.h>

namespace bpeflow {

// Minimum length of a list to be merged by several threads, if that is faster (pace.hpp). Of the 31,743 lists of a
// vocabulary of 32,000 (600,000 words), 300 have 4,096 or more entries, and these have 75 % of all entries. Shorter
// lists are not worth waking threads for (27 µs). 2,048 and 16,384 differ by less than the noise. Tests set it to 1,
// which also skips the test for speed, to run threads even on tiny inputs.
#ifdef BPEFLOW_PARALLEL_THRESHOLD
constexpr bool ALWAYS_PARALLEL = true;
#else
constexpr bool ALWAYS_PARALLEL = false;
#define BPEFLOW_PARALLEL_THRESHOLD 4096
#endif
constexpr std::size_t PARALLEL_THRESHOLD = BPEFLOW_PARALLEL_THRESHOLD;

// Prefetch distance in entries. Occurrences are far apart. Without prefetching, the C backend takes 0.43 s instead of
// 0.34 s at 600,000 words.
constexpr std::size_t ahead = 16;

using Clock = std::chrono::steady_clock;

// Adds its lifetime to a total.
class Stopwatch {
  public:
    explicit Stopwatch(double &total) : total_(total) {}
    ~Stopwatch() { total_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
    Stopwatch(const Stopwatch &) = delete;
    Stopwatch &operator=(const Stopwatch &) = delete;

  private:
    double &total_;
    Clock::time_point start_ = Clock::now();
};

// Limits of the pairs to keep in the table.
struct Limits {
    std::int64_t min_frequency = 1;
    std::uint64_t max_token_length = UINT64_MAX;
};

// Make the pair of a fixed token and a neighbour.
inline auto with_left(std::uint32_t left) {
    return [left](std::uint32_t id) { return std::pair{left, id}; };
}
inline auto with_right(std::uint32_t right) {
    return [right](std::uint32_t id) { return std::pair{id, right}; };
}

inline unsigned threads_for(const bpeflow_merge_task &task) {
    const std::uint32_t wanted = task.threads ? task.threads : static_cast<std::uint32_t>(omp_get_max_threads());
    return std::clamp(wanted, 1u, 256u); // each thread takes 1.5 MB during set-up
}

class Learner {
  public:
    explicit Learner(const bpeflow_merge_task &task)
        : max_tokens_(task.max_tokens),
          learning_limits_{task_lowest_count(&task), task.max_token_length ? task.max_token_length : UINT64_MAX},
          limits_(task.initial_merge_count > 0 ? Limits{} : learning_limits_), scan_(task.scan != 0),
          threads_(threads_for(task)),
          tokens_(task.token_data, task.token_offsets, task.tokens, task.reuse_tokens != 0),
          corpus_(task, parts_for(task_position(&task, task.words) / 16)), merged_after_(tokens_, task.order),
          candidates_(merged_after_), parts_(threads_) {
        for (std::uint64_t i = 0; i < task.initial_merge_count; i++)
            initial_merges_.emplace_back(task.initial_merges[2 * i], task.initial_merges[2 * i + 1]);
        BytePairs byte_pairs(task, parts_for(corpus_.size() / 16));
        std::size_t distinct = 0, longest = 0;
        for (std::size_t p = 0; p < BytePairs::size; p++) {
            distinct += byte_pairs.entries(p) > 0;
            longest = std::max<std::size_t>(longest, byte_pairs.entries(p));
        }
        pairs_.reserve(distinct);
        // Allocate for the longest list at once: later lists are hardly longer, and newly allocated pages have to be
        // cleared.
        for (unsigned p = 0; p < parts_for(longest); p++) parts_[p].reserve(0, longest / parts_for(longest) + 1);
        for (std::size_t p = 0; p < BytePairs::size; p++) {
            if (byte_pairs.entries(p) == 0) continue;
            const Neighbour change{byte_pairs.count(p), byte_pairs.entries(p)};
            byte_pairs.set_list(p, add(task.byte_ids[p / 256], task.byte_ids[p % 256], change));
        }
        byte_pairs.write_lists();
        statistics_.words = task.words;
        statistics_.positions = corpus_.size() - task.words - 1;
        statistics_.threads = threads_;
        statistics_.setup_seconds = std::chrono::duration<double>(Clock::now() - created_).count();
    }

    // Make the next merge, an initial one while any is left. Return false if there is none.
    bool next(bpeflow_merge_record &record) {
        if (tokens_.count() >= max_tokens_) return false;
        return replayed_ < initial_merges_.size() ? replay(record) : learn(record);
    }

    bpeflow_merge_statistics statistics() const {
        bpeflow_merge_statistics result = statistics_;
        result.memory_bytes = tokens_.memory() + corpus_.memory() + candidates_.memory() + arena_.memory() +
                              pairs_.slots().size() * sizeof(Pair) + before_.memory() + after_.memory() +
                              initial_merges_.capacity() * sizeof initial_merges_[0];
        for (const Part &part : parts_) result.memory_bytes += part.memory();
        return result;
    }

  private:
    // Learn the best pair; false if there is none.
    bool learn(bpeflow_merge_record &record) {
        const Candidate best = choose();
        if (best.count == 0) return false;
        const Stopwatch stopwatch(statistics_.update_seconds);
        record = {best.left, best.right, tokens_.join(best.left, best.right), best.count};
        merge(best.left, best.right, record.token);
        return true;
    }

    // Make the next initial merge, whether or not its pair occurs.
    bool replay(bpeflow_merge_record &record) {
        const Stopwatch stopwatch(statistics_.update_seconds);
        const auto [left, right] = initial_merges_[replayed_];
        const std::uint32_t known = tokens_.count();
        if (left >= known || right >= known) throw Failure{BPEFLOW_BAD_ARGUMENT};
        record = {left, right, tokens_.join(left, right), pairs_.at(left, right).count};
        if (record.token == known) tokens_.enter(known);
        if (record.count > 0) merge(left, right, record.token);
        if (++replayed_ == initial_merges_.size()) begin_to_learn();
        return true;
    }

    // Switch from initial merges to learning: remove pairs that are too long to be learned from the table. Pairs that
    // are too rare are never chosen.
    void begin_to_learn() {
        limits_ = learning_limits_;
        for (Pair &pair : pairs_.slots())
            if (pair.key != 0 && !short_enough(pair.left(), pair.right())) pair.count = 0;
    }

    bool short_enough(std::uint32_t left, std::uint32_t right) const {
        return tokens_.length(left) + tokens_.length(right) <= limits_.max_token_length;
    }

    // Return the number of threads for a list with this many entries. An entry takes some 20 ns. During set-up pass a
    // sixteenth of the positions (6 ns each), and for a scan a sixteenth of the slots of the pair table (1 ns each).
    unsigned parts_for(std::uint64_t entries) const { return entries < PARALLEL_THRESHOLD ? 1 : threads_; }

    // ---- choosing ----

    // Choose the best pair; count 0 if there is none.
    Candidate choose() {
        const Stopwatch stopwatch(statistics_.selection_seconds);
        if (scan_) return scan();
        for (;;) {
            if (candidates_.empty()) refill();
            if (candidates_.empty()) return {};
            // Every candidate that is better than this one, or ever was, would come before it. So it is the best pair
            // if its count is still up to date.
            Candidate best = candidates_.best();
            candidates_.pop();
            const std::int64_t count = pairs_.at(best.left, best.right).count;
            if (count == best.count) return best;
            statistics_.stale_pops++;
            best.count = count;
            candidates_.push(best);
        }
    }

    // Refill the candidates with the pairs whose count is at least half of the highest count. So there are at most as
    // many refills as a count has bits. A higher limit would mean more refills, a lower one a larger heap.
    void refill() {
        std::int64_t highest = 0;
        for (const Pair &pair : pairs_.slots()) highest = std::max(highest, pair.count);
        candidates_.refill(pairs_.slots(), std::max(limits_.min_frequency, highest - highest / 2));
    }

    // Find the best pair by looking at all of them.
    Candidate scan() {
        const std::vector<Pair> &slots = pairs_.slots();
        const unsigned parts = parts_for(slots.size() / 16);
        std::vector<Candidate> best(parts);
        for_each_part(parts, [&](unsigned part) {
            Candidate &mine = best[part];
            const std::size_t end = slots.size() * (part + 1) / parts;
            for (std::size_t i = slots.size() * part / parts; i < end; i++) {
                if (slots[i].count < std::max(limits_.min_frequency, mine.count)) continue;
                const Candidate candidate{slots[i].count, slots[i].left(), slots[i].right()};
                if (merged_after_(mine, candidate)) mine = candidate;
            }
        });
        return *std::max_element(best.begin(), best.end(), merged_after_);
    }

    // ---- merging ----

    // Replace all occurrences of a pair.
    void merge(std::uint32_t left, std::uint32_t right, std::uint32_t token) {
        const Pair pair = pairs_.at(left, right);
        std::uint32_t *const list = pair.list;

        const bool long_enough = parts_for(pair.length) > 1;
        const unsigned parts = long_enough && (ALWAYS_PARALLEL || pace_.several()) ? threads_ : 1;
        const Clock::time_point start = Clock::now();
        const std::vector<std::size_t> cuts = cut(list, pair.length, parts);
        for (unsigned p = 0; p < parts; p++) parts_[p].reserve(tokens_.count(), cuts[p + 1] - cuts[p]);
        Neighbours &before = parts == 1 ? parts_[0].before : before_, &after = parts == 1 ? parts_[0].after : after_;
        for_each_part_twice(
            parts,
            [&](unsigned p) { replace_occurrences(list + cuts[p], list + cuts[p + 1], left, right, token, parts_[p]); },
            [&] {
                if (parts > 1) add_up(parts);
                change_pairs(pair, left, right, token, before, after);
            },
            [&](unsigned p) {
                write_lists(p, &Part::before, before);
                write_lists(p, &Part::after, after);
            });
        if (long_enough) pace_.took(parts > 1, Clock::now() - start, pair.length);
        statistics_.occurrences_visited += pair.length;
        for (unsigned p = 0; p < parts; p++) statistics_.occurrences_merged += parts_[p].merged;
        before_.clear();
        after_.clear();
    }

    // Return where to cut a list, so that all parts have about the same length and no two share a pre-token.
    std::vector<std::size_t> cut(const std::uint32_t *list, std::size_t length, unsigned parts) const {
        std::vector<std::size_t> cuts(parts + 1);
        for (unsigned p = 1; p < parts; p++) {
            cuts[p] = std::max(cuts[p - 1], length * p / parts);
            while (cuts[p] > 0 && cuts[p] < length && corpus_.same_word(list[cuts[p] - 1], list[cuts[p]])) cuts[p]++;
        }
        cuts[parts] = length;
        return cuts;
    }

    // Merge one part of a list and record the neighbours as they are at that moment: in `abab` the left neighbour of
    // the second `ab` is the first, already merged.
    void replace_occurrences(const std::uint32_t *first, const std::uint32_t *last, std::uint32_t left,
                             std::uint32_t right, std::uint32_t token, Part &part) {
        std::uint32_t *const ids = corpus_.ids();
        const auto middle = static_cast<std::uint32_t>(tokens_.length(left));
        const auto size = middle + static_cast<std::uint32_t>(tokens_.length(right));
        Corpus::Counts counts(corpus_);
        part.before.clear(); // not earlier: the other parts read these until the end of the previous merge
        part.after.clear();
        std::size_t merged = 0; // a local variable, to stay in a register
        for (const std::uint32_t *soon = first; soon < last && soon < first + ahead; soon++)
            __builtin_prefetch(&ids[*soon], 1);
        for (; first < last; first++) {
            if (last - first > static_cast<std::ptrdiff_t>(ahead)) __builtin_prefetch(&ids[first[ahead]], 1);
            const std::uint32_t i = *first;
            if (ids[i + middle - 1] != left || ids[i + middle] != right) continue;
            ids[i] = token;
            ids[i + size - 1] = token;
            const std::int64_t count = counts.at(i);
            part.before.note(ids[i - 1], merged, count);
            part.after.note(ids[i + size], merged, count);
            part.positions[merged++] = i;
        }
        part.merged = merged;
    }

    // Add up the neighbours of all parts, on both sides.
    void add_up(unsigned parts) {
        before_.reserve(tokens_.count(), 0);
        after_.reserve(tokens_.count(), 0);
        for (unsigned p = 0; p < parts; p++) {
            before_.add(parts_[p].before);
            after_.add(parts_[p].after);
        }
    }

    // Update the pairs after P left right N  became  P token N, with these neighbours.
    void change_pairs(const Pair &merged, std::uint32_t left, std::uint32_t right, std::uint32_t token,
                      Neighbours &before, Neighbours &after) {
        pairs_.reserve(before.size() + after.size());
        lose_pairs(left, right, token, before, after);
        arena_.recycle(merged.list, merged.length); // the positions that are still needed are in the parts
        for_each_pair(after, with_left(token), [&](std::uint32_t l, std::uint32_t r, Neighbour &neighbour) {
            neighbour.cursor = add(l, r, neighbour);
        });
        for_each_pair(before, with_right(token), [&](std::uint32_t l, std::uint32_t r, Neighbour &neighbour) {
            neighbour.cursor = add(l, r, neighbour);
            neighbour.back = static_cast<std::uint32_t>(tokens_.length(l));
        });
    }

    // Write one part's entries of the new lists on one side, after those of the parts before it.
    void write_lists(unsigned part, Neighbours Part::*side, Neighbours &total) {
        (parts_[part].*side).take_cursors(total, [&](std::uint32_t id) {
            std::size_t entries = 0;
            for (unsigned p = 0; p < part; p++) entries += (parts_[p].*side)[id].entries;
            return entries;
        });
        (parts_[part].*side).write_lists(parts_[part].positions.get(), parts_[part].merged);
    }

    // After P left right N  became  P token N, lower the counts of the pairs that lost occurrences: (P, left), (right,
    // N) and the merged pair.
    void lose_pairs(std::uint32_t left, std::uint32_t right, std::uint32_t token, Neighbours &before,
                    Neighbours &after) {
        // Not in the table: pairs that can never be merged, and pairs of the new token, which are added later.
        const auto lose = [&](std::uint32_t l, std::uint32_t r, Neighbour &neighbour) {
            if (Pair &pair = pairs_.at(l, r); pair.key != 0) pair.count -= neighbour.weight;
        };
        for_each_pair(after, with_left(right), lose);
        for_each_pair(before, with_right(left), lose);
        Pair &merged = pairs_.at(left, right);
        merged.count = 0; // also if it was its own neighbour, as `aa` in `aaa`

        // If P is `token` itself, as in `abab`, the lost pair is (token, left), which this P had gained before.
        after[left].weight -= before[token].weight;
    }

    // Add a new pair. Return the memory for its list, null if the list is not needed.
    std::uint32_t *add(std::uint32_t left, std::uint32_t right, const Neighbour &neighbour) {
        if (neighbour.weight == 0) return nullptr; // all its occurrences have been merged meanwhile
        statistics_.pairs++;
        if (neighbour.weight < limits_.min_frequency) return nullptr; // its count can only fall
        if (!short_enough(left, right)) return nullptr;

        std::uint32_t *const list = arena_.allocate(neighbour.entries);
        pairs_.add({Pair::key_of(left, right), neighbour.weight, list, neighbour.entries});
        if (!scan_) candidates_.push({neighbour.weight, left, right});
        return list;
    }

    // Call use(left, right, neighbour) for each neighbour, where pair_of(id) returns the pair (left, right).
    template <typename PairOf, typename Use>
    void for_each_pair(Neighbours &neighbours, const PairOf &pair_of, const Use &use) {
        for (const std::uint32_t *id = neighbours.begin(); id != neighbours.end(); id++) {
            if (neighbours.end() - id > static_cast<std::ptrdiff_t>(ahead)) {
                const auto [left, right] = pair_of(id[ahead]);
                pairs_.prefetch(left, right);
            }
            if (*id == END) continue;
            const auto [left, right] = pair_of(*id);
            use(left, right, neighbours[*id]);
        }
    }

    Clock::time_point created_ = Clock::now();
    std::uint32_t max_tokens_;
    Limits learning_limits_; // for learning, after the last initial merge
    Limits limits_;          // in effect now
    bool scan_;
    unsigned threads_;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> initial_merges_;
    std::size_t replayed_ = 0;

    Tokens tokens_;
    Corpus corpus_;
    PairTable pairs_;
    Arena arena_;
    MergedAfter merged_after_;
    Candidates candidates_;
    Pace pace_;
    std::vector<Part> parts_;   // [threads]
    Neighbours before_, after_; // sums over all parts
    bpeflow_merge_statistics statistics_{};
};

} // namespace bpeflow
