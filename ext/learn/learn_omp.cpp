// Learning merges: the OpenMP backend, in C++17. Set-up, scans and merges with many occurrences use several threads.
// learner.h has the algorithm; this file adds the threads and the C interface.
//
// A long list is cut between pre-tokens, so that no two threads see the same token. Each part has its own neighbours.
// These are added up, and the new lists are written part after part, so the lists are identical to those of one thread.
// Sums of integers do not depend on their order, and the order of candidates does not depend on which arrived first. So
// the result is the same for every number of threads.

#include "bpeflow.h"
#include "failure.hpp"
#include "learner.h"
#include "pace.hpp"
#include "parallel.hpp"
#include "task.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <omp.h>

struct bpeflow_learner : learner {
    explicit bpeflow_learner(unsigned threads) : learner(), parts(threads) { statistics.threads = threads; }
    bpeflow_learner(const bpeflow_learner &) = delete;
    bpeflow_learner &operator=(const bpeflow_learner &) = delete;
    ~bpeflow_learner() {
        learner_free(this);
        for (part &part : parts) part_free(&part);
        side_free(&before);
        side_free(&after);
    }

    std::vector<share> shares; // of the threads during set-up, until the lists are written
    std::vector<part> parts;   // [threads]
    side before{}, after{};    // sums over all parts
    bpeflow::Paces paces;
};

namespace bpeflow {
namespace {

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
constexpr std::uint64_t PARALLEL_THRESHOLD = BPEFLOW_PARALLEL_THRESHOLD;

unsigned threads_for(const bpeflow_merge_task &task) {
    const std::uint32_t wanted = task.threads ? task.threads : static_cast<std::uint32_t>(omp_get_max_threads());
    return std::clamp(wanted, 1u, 256u); // each thread takes 1.5 MB during set-up
}

// Return the number of threads for a list with this many entries. An entry takes some 20 ns. During set-up pass a
// sixteenth of the positions (6 ns each), and for a scan a sixteenth of the slots of the pair table (1 ns each).
unsigned parts_for(const learner &l, std::uint64_t entries) {
    return entries < PARALLEL_THRESHOLD ? 1 : static_cast<unsigned>(l.statistics.threads);
}

// ---- setting up ----

// Return the range of pre-tokens (first, one past the last) for one of several threads. All ranges have about the same
// number of positions.
std::pair<std::uint64_t, std::uint64_t> share_of(const bpeflow_merge_task &task, unsigned part, unsigned parts) {
    const auto cut = [&](unsigned at) { return task_word_at(&task, task_position(&task, task.words) / parts * at); };
    return {cut(part), part + 1 == parts ? task.words : cut(part + 1)};
}

// Store the pre-tokens, count their pairs, and allocate the pairs' lists.
int set_up(bpeflow_learner &l, const bpeflow_merge_task &task) {
    if (!learner_init(&l, &task)) return BPEFLOW_NO_MEMORY;
    if (task.ids) return set_up_encoded(&l, &task);
    const unsigned parts = parts_for(l, l.corpus.size / 16);
    l.shares = std::vector<share>(parts);
    std::atomic<bool> overflow = false;
    for_each_part(parts, [&](unsigned p) {
        const auto [first, last] = share_of(task, p, parts);
        corpus_lay_out(&l.corpus, &task, first, last);
        if (!count_byte_pairs(&l.shares[p], &task, first, last)) overflow = true;
    });

    std::vector<byte_pair> all(BYTE_PAIRS);
    for (const share &share : l.shares)
        for (std::size_t p = 0; p < BYTE_PAIRS; p++) {
            if (__builtin_add_overflow(all[p].count, share.pairs[p].count, &all[p].count)) overflow = true;
            all[p].entries += share.pairs[p].entries;
        }
    if (overflow) return BPEFLOW_OVERFLOW;
    if (!add_byte_pairs(&l, all.data(), task.byte_ids)) return BPEFLOW_NO_MEMORY;

    // Each thread's part of a list follows the part of the thread before, and the MARKs of all strips before its own.
    for (share &share : l.shares) {
        const std::uint64_t marks = corpus_strip_at(&l.corpus, share.first);
        for (std::size_t p = 0; p < BYTE_PAIRS; p++) {
            byte_pair &mine = share.pairs[p];
            mine.cursor = all[p].cursor;
            if (mine.cursor == NOWHERE) continue;
            mine.cursor += marks;
            all[p].cursor += mine.entries;
        }
    }
    return BPEFLOW_OK;
}

// Write the pairs' lists before the first merge, when the caller has had time to free what it set up the learner with.
void list_first_pairs(bpeflow_learner &l) {
    if (l.listed) return;
    const double start = seconds();
    if (l.shares.empty())
        list_id_pairs(&l);
    else
        for_each_part(static_cast<unsigned>(l.shares.size()), [&](unsigned p) { list_byte_pairs(&l, &l.shares[p]); });
    l.shares = {};
    l.listed = true;
    l.statistics.setup_seconds += seconds() - start;
}

// ---- choosing ----

candidate scan(const learner *l) {
    const unsigned parts = parts_for(*l, pairs_size(&l->pairs) / 16);
    std::vector<candidate> best(parts);
    for_each_part(parts, [&](unsigned p) {
        const std::uint64_t size = pairs_size(&l->pairs);
        best[p] = scan_best(&l->heap, &l->pairs, l->limits.min_frequency, size * p / parts, size * (p + 1) / parts);
    });
    return *std::min_element(best.begin(), best.end(), [&](const candidate &a, const candidate &b) {
        return candidate_before(l->heap.tokens, l->heap.order, a, b);
    });
}

// ---- merging ----

// A part of a list: where it starts, and the strip of its first entry.
struct Cut {
    std::uint64_t start, strip;
};

// Return where to cut a list, so that all parts have about the same length and no two share a pre-token. Positions in
// different pre-tokens have an END between them. Stale ids inside tokens cannot be mistaken for END, as they were ids of
// tokens once.
std::vector<Cut> cut(const corpus &corpus, const std::uint32_t *list, std::uint64_t length, unsigned parts) {
    const auto same_word = [&](std::uint64_t strip, std::uint32_t first, std::uint32_t second) {
        const std::uint64_t base = corpus.strips[strip];
        while (first < second && id_at(corpus.ids, base + first, corpus.wide) != END) first++;
        return first == second && first != MARK;
    };
    std::vector<Cut> cuts(parts + 1);
    for (unsigned p = 1; p < parts; p++) {
        auto [start, strip] = cuts[p - 1];
        const std::uint64_t wanted = std::max(start, length * p / parts);
        if (corpus.strip_count > 1) strip += static_cast<std::uint64_t>(std::count(list + start, list + wanted, MARK));
        start = wanted;
        while (start > 0 && start < length && same_word(strip, list[start - 1], list[start])) start++;
        cuts[p] = {start, strip};
    }
    cuts[parts].start = length;
    return cuts;
}

// Add up the neighbours of all parts on one side.
bool add_up(bpeflow_learner &l, side part::*which, side &sum) {
    if (!side_reset(&sum, l.tokens.count, 0, l.corpus.wide)) return false;
    for (const part &part : l.parts)
        for (std::uint64_t m = 0; m < (part.*which).met_count; m++) {
            const std::uint32_t id = (part.*which).met[m];
            const neighbour *mine = neighbour_of(&(part.*which), id);
            side_add(&sum, id, mine->weight, mine->entries);
        }
    return true;
}

// Write one part's entries of the new lists on one side, after the entries of the parts before it and the MARKs of the
// strips before its own. Its own MARKs are for all neighbours, including neighbours in other parts.
void write_lists(bpeflow_learner &l, unsigned p, std::uint64_t strip, side part::*which, const side &sum) {
    part &part = l.parts[p];
    const std::uint64_t strips = l.corpus.strip_count;
    if (strips > 1)
        for (std::uint64_t m = 0; m < sum.met_count; m++) side_meet(&(part.*which), sum.met[m]);
    for (std::uint64_t m = 0; m < (part.*which).met_count; m++) {
        const std::uint32_t id = (part.*which).met[m];
        neighbour *mine = neighbour_of(&(part.*which), id);
        mine->back = neighbour_of(&sum, id)->back;
        mine->cursor = neighbour_of(&sum, id)->cursor;
        if (mine->cursor == NOWHERE) continue;
        mine->cursor += strip;
        for (unsigned q = 0; q < p; q++) mine->cursor += neighbour_of(&(l.parts[q].*which), id)->entries;
    }
    side_write_lists(&(part.*which), part.positions, part.length, strips, l.lists.entries);
}

// Merge all occurrences of a pair, one part of its list on each thread.
bool merge_in_parallel(bpeflow_learner &l, const pair &pair, const bpeflow_merge_record &merge) {
    const auto parts = static_cast<unsigned>(l.parts.size());
    const std::uint32_t *list = &l.lists.entries[pair.list];
    const std::vector<Cut> cuts = cut(l.corpus, list, pair.length, parts);
    const bool good = for_each_part_twice(
        parts,
        [&](unsigned p) {
            const auto [start, strip] = cuts[p];
            return replace_occurrences(&l, strip, list + start, cuts[p + 1].start - start, &merge, &l.parts[p]);
        },
        [&] {
            return add_up(l, &part::before, l.before) && add_up(l, &part::after, l.after) &&
                   change_pairs(&l, &merge, &l.before, &l.after);
        },
        [&](unsigned p) {
            write_lists(l, p, cuts[p].strip, &part::before, l.before);
            write_lists(l, p, cuts[p].strip, &part::after, l.after);
        });
    l.statistics.occurrences_visited += pair.length - (l.corpus.strip_count - 1);
    for (const part &part : l.parts) l.statistics.occurrences_merged += part.merged;
    return good;
}

// Merge all occurrences of a pair.
bool merge_pair(bpeflow_learner &l, const bpeflow_merge_record &merge) {
    const pair pair = *pairs_slot(&l.pairs, pair_key(merge.left, merge.right));
    if (parts_for(l, pair.length) == 1) return merge_occurrences(&l, &pair, &merge, &l.parts.front());
    Pace &pace = l.paces.of(pair.length);
    const bool several = ALWAYS_PARALLEL || pace.several();
    const double start = seconds();
    const bool good =
        several ? merge_in_parallel(l, pair, merge) : merge_occurrences(&l, &pair, &merge, &l.parts.front());
    pace.took(several, seconds() - start, pair.length);
    return good;
}

// Make the next merge; false if out of memory. *found is whether there is one.
bool step(bpeflow_learner &l, bpeflow_merge_record &merge, bool &found) {
    if (!next_merge(&l, scan, &merge, &found)) return false;
    if (!found) return true;
    const double start = seconds();
    const bool good = merge_pair(l, merge);
    l.statistics.update_seconds += seconds() - start;
    return good;
}

} // namespace
} // namespace bpeflow

// ---- the interface ----

std::uint32_t bpeflow_abi() {
    return BPEFLOW_ABI;
}

int bpeflow_learner_new(const bpeflow_merge_task *task, bpeflow_learner **learner) {
    if (!learner) return BPEFLOW_BAD_ARGUMENT;
    *learner = nullptr;
    if (!task) return BPEFLOW_BAD_ARGUMENT;
    if (const int status = task_check(task); status != BPEFLOW_OK) return status;
    return bpeflow::status_of([&] {
        const double start = seconds();
        auto made = std::make_unique<bpeflow_learner>(bpeflow::threads_for(*task));
        const int status = bpeflow::set_up(*made, *task);
        if (status != BPEFLOW_OK) throw bpeflow::Failure{status};
        made->statistics.setup_seconds = seconds() - start;
        *learner = made.release();
    });
}

int bpeflow_learner_step(bpeflow_learner *learner, std::uint64_t max_merges, bpeflow_merge_record *records,
                         std::uint64_t *learned) {
    if (!learner || !learned || (!records && max_merges > 0)) return BPEFLOW_BAD_ARGUMENT;
    *learned = 0;
    return bpeflow::status_of([&] {
        bpeflow::list_first_pairs(*learner);
        bool found = true;
        for (; *learned < max_merges; ++*learned) {
            if (!bpeflow::step(*learner, records[*learned], found)) throw bpeflow::Failure{BPEFLOW_NO_MEMORY};
            if (!found) return;
        }
    });
}

int bpeflow_learner_statistics(const bpeflow_learner *learner, bpeflow_merge_statistics *statistics) {
    if (!learner || !statistics) return BPEFLOW_BAD_ARGUMENT;
    *statistics = learner->statistics;
    statistics->memory_bytes += side_memory(&learner->before) + side_memory(&learner->after);
    for (const part &part : learner->parts) statistics->memory_bytes += part_memory(&part);
    return BPEFLOW_OK;
}

void bpeflow_learner_free(bpeflow_learner *learner) {
    delete learner;
}
