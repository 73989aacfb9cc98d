// Learning merges on several threads: choosing pairs and merging them.
//
// How it works. corpus.hpp tells how tokens lie in positions. The occurrence list of a pair (L, R) has, in ascending
// order, the positions where its L starts. It is written when the younger of the two is made and not changed
// afterwards; occurrences that go away stay in it. Position i of the list is still an occurrence if and only if L is
// what ends just before i + length(L) and R is what starts there (`ids` has both side by side): tokens only grow, so
// whatever else was written to one of these two places is a longer token than L, or than R; and the one merge that
// would leave both as they are is that of (L, R), which uses up the whole list. learn.c has the proof in full, and that
// the token that a merge makes was nowhere in the corpus before, even if it is a reused one: so its pairs are new. It
// also says what initial merges change, which is next to nothing.
//
// A merge walks over the list, writes the new token and adds up, for each neighbour, what changes (neighbours.hpp).
// Only then are the pairs looked up, once for each distinct neighbour, and the new pairs' lists written.
//
// Threads. A long list is cut between pre-tokens, so that no two threads see the same token. Each part has neighbours
// of its own; they are added up, and the new lists are written part after part. So the lists are what one thread would
// have written, sums of integers do not depend on their order, and neither does the order of candidates on who came
// first: results are the same for every number of threads.

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

// Lists with at least so many entries are merged by several threads, when that is faster (pace.hpp). Those of 4,096 and
// more are 300 of the 31,743 of a vocabulary of 32,000 (600,000 words), but have 75 % of all entries. Shorter ones are not
// worth waking threads for (27 µs): 2,048 and 16,384 differ by less than the noise. Tests set it to 1, to have threads at
// work in tiny cases too, faster or not.
#ifdef BPEFLOW_PARALLEL_THRESHOLD
constexpr bool ALWAYS_PARALLEL = true;
#else
constexpr bool ALWAYS_PARALLEL = false;
#define BPEFLOW_PARALLEL_THRESHOLD 4096
#endif
constexpr std::size_t PARALLEL_THRESHOLD = BPEFLOW_PARALLEL_THRESHOLD;

// How many steps ahead memory is fetched. Occurrences are far apart; the C backend without:
// 0.43 s instead of 0.34 at 600,000 words.
constexpr std::size_t ahead = 16;

using Clock = std::chrono::steady_clock;

// Adds the time of its own life to a total.
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

// Pairs beyond these are not in the table.
struct Limits {
    std::int64_t min_frequency = 1;
    std::uint64_t max_token_length = UINT64_MAX;
};

// The pair that a token is in with a neighbour.
inline auto with_left(std::uint32_t left) {
    return [left](std::uint32_t id) { return std::pair{left, id}; };
}
inline auto with_right(std::uint32_t right) {
    return [right](std::uint32_t id) { return std::pair{id, right}; };
}

inline unsigned threads_for(const bpeflow_merge_task &task) {
    const std::uint32_t wanted = task.threads ? task.threads : static_cast<std::uint32_t>(omp_get_max_threads());
    return std::clamp(wanted, 1u, 256u); // each takes 1.5 MB while setting up
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
        // At once: later lists are hardly longer, and memory that is asked for anew has to be cleared anew.
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

    // Makes one more merge, an initial one as long as there are any; false if there is none.
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
    // Learns the best pair; false if there is none.
    bool learn(bpeflow_merge_record &record) {
        const Candidate best = choose();
        if (best.count == 0) return false;
        const Stopwatch stopwatch(statistics_.update_seconds);
        record = {best.left, best.right, tokens_.join(best.left, best.right), best.count};
        merge(best.left, best.right, record.token);
        return true;
    }

    // Makes the next initial merge, whether its pair occurs or not.
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

    // The initial merges are done: pairs too long to be learned leave the table. Too rare ones are never chosen.
    void begin_to_learn() {
        limits_ = learning_limits_;
        for (Pair &pair : pairs_.slots())
            if (pair.key != 0 && !short_enough(pair.left(), pair.right())) pair.count = 0;
    }

    bool short_enough(std::uint32_t left, std::uint32_t right) const {
        return tokens_.length(left) + tokens_.length(right) <= limits_.max_token_length;
    }

    // How many threads to set to work on a list of so many entries. Besides, on a sixteenth as many positions while
    // setting up, and slots of the table of pairs while scanning: an entry takes some 20 ns, a position 6 ns, a slot 1
    // ns.
    unsigned parts_for(std::uint64_t entries) const { return entries < PARALLEL_THRESHOLD ? 1 : threads_; }

    // ---- choosing ----

    // The best pair; count 0 if there is none.
    Candidate choose() {
        const Stopwatch stopwatch(statistics_.selection_seconds);
        if (scan_) return scan();
        for (;;) {
            if (candidates_.empty()) refill();
            if (candidates_.empty()) return {};
            // All that is better than this one, or was once, would come before it. So it is the best pair if its count
            // is still true.
            Candidate best = candidates_.best();
            candidates_.pop();
            const std::int64_t count = pairs_.at(best.left, best.right).count;
            if (count == best.count) return best;
            statistics_.stale_pops++;
            best.count = count;
            candidates_.push(best);
        }
    }

    // Fills the candidates with the pairs whose count is at least half of the highest. So there are at most as many
    // fills as a count has bits. With more than half there would be more fills, with less the heap would be larger.
    void refill() {
        std::int64_t highest = 0;
        for (const Pair &pair : pairs_.slots()) highest = std::max(highest, pair.count);
        candidates_.refill(pairs_.slots(), std::max(limits_.min_frequency, highest - highest / 2));
    }

    // The best pair, found by looking at all of them.
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

    // Replaces all occurrences of the pair.
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

    // Where to cut a list so that each part has about the same length and no pre-token is in two of them.
    std::vector<std::size_t> cut(const std::uint32_t *list, std::size_t length, unsigned parts) const {
        std::vector<std::size_t> cuts(parts + 1);
        for (unsigned p = 1; p < parts; p++) {
            cuts[p] = std::max(cuts[p - 1], length * p / parts);
            while (cuts[p] > 0 && cuts[p] < length && corpus_.same_word(list[cuts[p] - 1], list[cuts[p]])) cuts[p]++;
        }
        cuts[parts] = length;
        return cuts;
    }

    // Merges one part of a list and notes the neighbours. They are what they are at that moment: in `abab` the second
    // `ab` has the first, merged already, to its left.
    void replace_occurrences(const std::uint32_t *first, const std::uint32_t *last, std::uint32_t left,
                             std::uint32_t right, std::uint32_t token, Part &part) {
        std::uint32_t *const ids = corpus_.ids();
        const auto middle = static_cast<std::uint32_t>(tokens_.length(left));
        const auto size = middle + static_cast<std::uint32_t>(tokens_.length(right));
        Corpus::Counts counts(corpus_);
        part.before.clear(); // only now: until the end of a merge the other parts look what is in there
        part.after.clear();
        std::size_t merged = 0; // in a variable, which stays in a register
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

    // Adds up both sides of all parts.
    void add_up(unsigned parts) {
        before_.reserve(tokens_.count(), 0);
        after_.reserve(tokens_.count(), 0);
        for (unsigned p = 0; p < parts; p++) {
            before_.add(parts_[p].before);
            after_.add(parts_[p].after);
        }
    }

    // P left right N  became  P token N, with these neighbours.
    void change_pairs(const Pair &merged, std::uint32_t left, std::uint32_t right, std::uint32_t token,
                      Neighbours &before, Neighbours &after) {
        pairs_.reserve(before.size() + after.size());
        lose_pairs(left, right, token, before, after);
        arena_.recycle(merged.list, merged.length); // the parts have all that is still needed of it
        for_each_pair(after, with_left(token), [&](std::uint32_t l, std::uint32_t r, Neighbour &neighbour) {
            neighbour.cursor = add(l, r, neighbour);
        });
        for_each_pair(before, with_right(token), [&](std::uint32_t l, std::uint32_t r, Neighbour &neighbour) {
            neighbour.cursor = add(l, r, neighbour);
            neighbour.back = static_cast<std::uint32_t>(tokens_.length(l));
        });
    }

    // Writes what one part has for the new lists of one side: behind what the parts before it have.
    void write_lists(unsigned part, Neighbours Part::*side, Neighbours &total) {
        (parts_[part].*side).take_places(total, [&](std::uint32_t id) {
            std::size_t entries = 0;
            for (unsigned p = 0; p < part; p++) entries += (parts_[p].*side)[id].entries;
            return entries;
        });
        (parts_[part].*side).write_lists(parts_[part].positions.get(), parts_[part].merged);
    }

    // P left right N  became  P token N: takes from the pairs that occur less often now, (P, left), (right, N) and the
    // merged one.
    void lose_pairs(std::uint32_t left, std::uint32_t right, std::uint32_t token, Neighbours &before,
                    Neighbours &after) {
        // Pairs that can never be merged are not in the table, nor is one of the new token yet.
        const auto lose = [&](std::uint32_t l, std::uint32_t r, Neighbour &neighbour) {
            if (Pair &pair = pairs_.at(l, r); pair.key != 0) pair.count -= neighbour.weight;
        };
        for_each_pair(after, with_left(right), lose);
        for_each_pair(before, with_right(left), lose);
        Pair &merged = pairs_.at(left, right);
        merged.count = 0; // also if it was its own neighbour, as `aa` is in `aaa`

        // Where P is `token` itself, as in `abab`, the pair that is lost is (token, left): the one that this P had won.
        after[left].weight -= before[token].weight;
    }

    // Adds a new pair. Returns where its list is to be written; null if nobody will need it.
    std::uint32_t *add(std::uint32_t left, std::uint32_t right, const Neighbour &neighbour) {
        if (neighbour.weight == 0) return nullptr; // all its occurrences were merged themselves in the meantime
        statistics_.pairs++;
        if (neighbour.weight < limits_.min_frequency) return nullptr; // it can only get less frequent
        if (!short_enough(left, right)) return nullptr;

        std::uint32_t *const list = arena_.allocate(neighbour.entries);
        pairs_.add({Pair::key_of(left, right), neighbour.weight, list, neighbour.entries});
        if (!scan_) candidates_.push({neighbour.weight, left, right});
        return list;
    }

    // Calls use(left, right, neighbour) for each neighbour; `pair_of` gives the pair that it is in.
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
    Limits learning_limits_; // those after the last initial merge
    Limits limits_;          // the present ones
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
    Neighbours before_, after_; // of all parts together
    bpeflow_merge_statistics statistics_{};
};

} // namespace bpeflow
