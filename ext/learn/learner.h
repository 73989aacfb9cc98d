/* Learning merges: the algorithm of both native backends, on one thread. C11 and C++17.
 *
 * bpeflow/backends/python_backend.py describes the algorithm and proves that it is right: why an occurrence list is
 * complete when it is written, how stale entries are recognised, and why the pairs of a new token are all new. corpus.h
 * shows how tokens are stored at positions. Three things are different here:
 *
 * One merge walks over the list, writes the new token, and adds up the changes for each neighbour (neighbours.h). Only
 * then are the pairs looked up, once per distinct neighbour, and the new pairs' lists written.
 *
 * Pairs that can never be learned are not kept.
 *
 * Positions can be divided into strips (corpus.h). That does not affect the result: the proofs speak of the occurrences
 * within one pre-token, which are in one strip and in ascending order there, and counts are sums over all pre-tokens.
 *
 * Functions that return a `bool` return false if out of memory, unless they say otherwise. */
#ifndef BPEFLOW_LEARN_LEARNER_H
#define BPEFLOW_LEARN_LEARNER_H

#include "bpeflow.h"
#include "candidates.h"
#include "corpus.h"
#include "neighbours.h"
#include "pairs.h"
#include "task.h"
#include "tokens.h"

#include <time.h>

/* Prefetch distance in entries. Occurrences are far apart. Without prefetching 600,000 words take 0.43 s instead of
 * 0.34 s. */
#define AHEAD 16

/* Minimum length of a list whose stale entries are dropped when one merge makes most of them stale. With 320 MB of
 * multilingual text these are 86 lists of the first merges. The lists then take 256 MB, hardly more than at first (251);
 * with a minimum of 262,144 they take 277. With 1,024 it is 3,839 lists, for 4 MB less and 8 % more time. */
#define LONG_LIST 65536

/* Limits of the pairs to keep in the table. */
struct limits {
    int64_t min_frequency;
    uint64_t max_token_length;
    struct text_rules text;
};

struct learner {
    struct corpus corpus;
    struct tokens tokens;
    struct pairs pairs;
    struct lists lists;
    struct heap heap;
    uint32_t max_tokens;
    struct limits limits;
    bool scan;
    bool listed; /* whether the lists of the first pairs have been written */
    bpeflow_merge_statistics statistics;
};

static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- pairs ----------------------------------------------------------------------------------------------------- */

/* Return whether the limits of tokens, not counting their frequency, allow the token of a pair. */
static inline bool pair_allowed(const struct learner *l, uint64_t key) {
    uint64_t left = token_length(&l->tokens, key_left(key)), right = token_length(&l->tokens, key_right(key));
    if (left + right > l->limits.max_token_length) return false;
    if (!text_rules_any(&l->limits.text)) return true;
    struct text_state state = {0, false, 0, 0, 0, 0};
    return text_read(&state, &l->limits.text, token_bytes(&l->tokens, key_left(key)), left) &&
           text_read(&state, &l->limits.text, token_bytes(&l->tokens, key_right(key)), right);
}

/* Add a new pair, with a list for the neighbour's occurrences. */
static inline bool add_pair(struct learner *l, uint64_t key, struct neighbour *neighbour) {
    neighbour->cursor = NOWHERE;
    if (neighbour->weight == 0) return true; /* all its occurrences have been merged meanwhile */
    l->statistics.pairs++;
    if (neighbour->weight < l->limits.min_frequency) return true; /* its count can only fall */
    if (!pair_allowed(l, key)) return true;

    uint64_t length = neighbour->entries + l->corpus.strip_count - 1;
    if (!lists_new(&l->lists, length, &neighbour->cursor)) return false;
    struct pair pair = {key, neighbour->weight, neighbour->cursor, length};
    *pairs_slot(&l->pairs, key) = pair;
    l->pairs.used++;
    struct candidate candidate = {pair.count, key};
    return pair.count < l->heap.lowest || heap_push(&l->heap, candidate);
}

/* Return the key of the pair of a token and its neighbour before or after it. */
static inline uint64_t key_with(uint32_t token, uint32_t neighbour, bool is_before) {
    return is_before ? pair_key(neighbour, token) : pair_key(token, neighbour);
}

/* Drop the entries of a pair's list that are not occurrences any more. */
static inline void drop_stale_entries(struct learner *l, struct pair *pair) {
    const struct corpus *corpus = &l->corpus;
    uint32_t *list = &l->lists.entries[pair->list], left = key_left(pair->key), right = key_right(pair->key);
    uint64_t middle = l->tokens.spans[left], strip = 0, kept = 0;
    for (uint64_t k = 0; k < pair->length; k++) {
        uint64_t at = corpus->strips[strip] + middle;
        if (k + AHEAD < pair->length) prefetch_occurrence(corpus->ids, at + list[k + AHEAD], 0, corpus->wide);
        if (list[k] == MARK)
            strip++;
        else if (id_at(corpus->ids, at + list[k] - 1, corpus->wide) != left ||
                 id_at(corpus->ids, at + list[k], corpus->wide) != right)
            continue;
        list[kept++] = list[k];
    }
    lists_release(&l->lists, pair, pair->length - kept);
}

/* Lower the counts of the pairs of `part`, the left or right part of the merged pair, with the neighbours on its
 * outer side. Not in the table: pairs that can never be learned, and pairs of the new token, which are added later. */
static inline void lose_pairs(struct learner *l, const struct side *side, uint32_t part, bool is_before) {
    int64_t lowest = l->limits.min_frequency;
    for (uint64_t m = 0; m < side->met_count; m++) {
        if (m + AHEAD < side->met_count) pairs_prefetch(&l->pairs, key_with(part, side->met[m + AHEAD], is_before));
        uint32_t id = side->met[m];
        if (id == END) continue;
        struct pair *pair = pairs_slot(&l->pairs, key_with(part, id, is_before));
        if (pair->key == 0) continue;
        int64_t before = pair->count;
        pair->count -= neighbour_of(side, id)->weight;
        if (before < lowest) continue;
        if (pair->count < lowest)
            lists_release(&l->lists, pair, pair->length);
        else if (pair->length >= LONG_LIST && neighbour_of(side, id)->entries >= pair->length / 2)
            drop_stale_entries(l, pair);
    }
}

/* Add the pairs of `token` with the neighbours on one side. */
static inline bool add_pairs(struct learner *l, const struct side *side, uint32_t token, bool is_before) {
    for (uint64_t m = 0; m < side->met_count; m++) {
        if (m + AHEAD < side->met_count) pairs_prefetch(&l->pairs, key_with(token, side->met[m + AHEAD], is_before));
        uint32_t id = side->met[m];
        struct neighbour *neighbour = neighbour_of(side, id);
        neighbour->cursor = NOWHERE;
        if (id == END) continue;
        if (!add_pair(l, key_with(token, id, is_before), neighbour)) return false;
        neighbour->back = is_before ? (int64_t)l->tokens.spans[id] : 0;
    }
    return true;
}

/* ---- one merge ------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE void replace_in_strip(const struct learner *l, uint64_t strip, const uint32_t *list, uint64_t length,
                                    const bpeflow_merge_record *merge, struct part *part, bool wide) {
    uint64_t base = l->corpus.strips[strip];
    void *ids = ids_from(l->corpus.ids, base, wide);
    uint32_t left = merge->left, right = merge->right, token = merge->token;
    uint64_t middle = l->tokens.spans[left], size = middle + l->tokens.spans[right];
    /* Local variables, to stay in registers, and out of cache lines that other threads use. */
    struct side before = part->before, after = part->after;
    uint32_t *positions = part->positions;
    uint64_t merged = part->length;
    uint32_t run = 0;
    for (uint64_t k = 0; k < AHEAD && k < length; k++) prefetch_occurrence(ids, list[k], size, wide);
    for (uint64_t k = 0; k < length; k++) {
        if (k + AHEAD < length) prefetch_occurrence(ids, list[k + AHEAD], size, wide);
        uint64_t i = list[k];
        if (id_at(ids, i + middle - 1, wide) != left || id_at(ids, i + middle, wide) != right) continue;
        set_id(ids, i, token, wide);
        set_id(ids, i + size - 1, token, wide);
        int64_t count = corpus_count_at(&l->corpus, base + i, &run);
        side_note(&before, id_at(ids, i - 1, wide), merged, count, wide);
        side_note(&after, id_at(ids, i + size, wide), merged, count, wide);
        positions[merged++] = (uint32_t)i;
    }
    part->before = before;
    part->after = after;
    part->merged += merged - part->length;
    part->length = merged;
}

/* Merge the occurrences in list[length], which is all or a part of the pair's list and begins in this strip. Record
 * the neighbours as they are at that moment: in `abab` the left neighbour of the second `ab` is the first, already
 * merged. */
static inline bool replace_occurrences(struct learner *l, uint64_t strip, const uint32_t *list, uint64_t length,
                                       const bpeflow_merge_record *merge, struct part *part) {
    if (!part_reset(part, l->tokens.count, length, l->corpus.wide)) return false;
    for (;; strip++) {
        uint64_t span = list_span(list, length, l->corpus.strip_count);
        if (l->corpus.wide)
            replace_in_strip(l, strip, list, span, merge, part, true);
        else
            replace_in_strip(l, strip, list, span, merge, part, false);
        if (span == length) return true;
        part->positions[part->length++] = MARK;
        list += span + 1;
        length -= span + 1;
    }
}

/* Drop the lists of pairs that are never chosen any more, and return the memory. */
static inline bool shrink_lists(struct learner *l) {
    return lists_compact(&l->lists, &l->pairs, l->limits.min_frequency) && lists_shrink(&l->lists);
}

/* Make room for lists: drop those of pairs that are never chosen any more. If that yields little, also grow, so lists are
 * moved once per eighth that is added. (285 MB became 246 MB with 150 MB of multilingual text, in the same time.) */
static inline bool make_room_for_lists(struct learner *l) {
    if (!lists_compact(&l->lists, &l->pairs, l->limits.min_frequency)) return false;
    return lists_reserve(&l->lists, l->lists.capacity / 8);
}

/* Update the pairs after  P left right N  became  P token N, with these neighbours P and N. */
static inline bool change_pairs(struct learner *l, const bpeflow_merge_record *merge, struct side *before,
                                struct side *after) {
    if (!pairs_reserve(&l->pairs, before->met_count + after->met_count)) return false;
    struct pair *pair = pairs_slot(&l->pairs, pair_key(merge->left, merge->right));
    uint64_t length = pair->length;
    pair->count = 0;
    lists_release(&l->lists, pair, length); /* the positions that are still needed are in the parts */
    lose_pairs(l, after, merge->right, false);
    lose_pairs(l, before, merge->left, true);
    pair->count = 0; /* also if it was its own neighbour, as `aa` in `aaa` */
    if (l->lists.used + length > l->lists.capacity && !make_room_for_lists(l)) return false;
    if (l->lists.needed < l->lists.used / 2 && !shrink_lists(l)) return false;

    /* If P is `token` itself, as in `abab`, the lost pair is (token, left), which this P had gained before. */
    neighbour_of(after, merge->left)->weight -= neighbour_of(before, merge->token)->weight;
    return add_pairs(l, after, merge->token, false) && add_pairs(l, before, merge->token, true);
}

/* Merge all occurrences of a pair on one thread. */
static inline bool merge_occurrences(struct learner *l, const struct pair *pair, const bpeflow_merge_record *merge,
                                     struct part *part) {
    uint64_t strips = l->corpus.strip_count;
    if (!replace_occurrences(l, 0, &l->lists.entries[pair->list], pair->length, merge, part)) return false;
    l->statistics.occurrences_visited += pair->length - (strips - 1);
    l->statistics.occurrences_merged += part->merged;
    if (!change_pairs(l, merge, &part->before, &part->after)) return false;
    side_write_lists(&part->after, part->positions, part->length, strips, l->lists.entries);
    side_write_lists(&part->before, part->positions, part->length, strips, l->lists.entries);
    return true;
}

/* ---- the next merge -------------------------------------------------------------------------------------------- */

/* Make room for wider ids, in the memory that lists give back. */
static inline bool widen_ids(struct learner *l) {
    return shrink_lists(l) && corpus_widen(&l->corpus);
}

/* Make the token of a merge. */
static inline bool make_token(struct learner *l, bpeflow_merge_record *merge) {
    if (!l->corpus.wide && ids_wide(l->tokens.count + 1) && !widen_ids(l)) return false;
    uint64_t bytes = token_length(&l->tokens, merge->left) + token_length(&l->tokens, merge->right);
    if (!tokens_reserve(&l->tokens, 1, bytes)) return false;
    merge->token = tokens_join(&l->tokens, merge->left, merge->right);
    return true;
}

/* Record the memory that is allocated, if it is more than before any earlier merge: lists give memory back. */
static inline void note_memory(struct learner *l) {
    uint64_t now = corpus_memory(&l->corpus) + tokens_memory(&l->tokens) + pairs_memory(&l->pairs) +
                   lists_memory(&l->lists) + heap_memory(&l->heap);
    if (now > l->statistics.memory_bytes) l->statistics.memory_bytes = now;
}

/* Find the best pair, with `scan` where the task asks for a scan, and make its token. *found is whether there is one. */
static inline bool next_merge(struct learner *l, struct candidate (*scan)(const struct learner *),
                              bpeflow_merge_record *merge, bool *found) {
    note_memory(l);
    *found = l->tokens.count < l->max_tokens;
    if (!*found) return true;
    double start = seconds();
    struct candidate best;
    if (l->scan)
        best = scan(l);
    else if (!heap_best(&l->heap, &l->pairs, l->limits.min_frequency, &l->statistics.stale_pops, &best))
        return false;
    l->statistics.selection_seconds += seconds() - start;
    *found = best.count > 0;
    if (!*found) return true;
    merge->left = key_left(best.key);
    merge->right = key_right(best.key);
    merge->count = best.count;
    return make_token(l, merge);
}

/* ---- setting up ------------------------------------------------------------------------------------------------ */

/* Copy what is needed of the task, but for the pre-tokens: corpus_lay_out stores these, then the pairs are counted. */
static inline bool learner_init(struct learner *l, const bpeflow_merge_task *task) {
    l->max_tokens = task->max_tokens;
    l->scan = task->scan != 0;
    l->limits.min_frequency = task_lowest_count(task);
    l->limits.max_token_length = task->max_token_length ? task->max_token_length : UINT64_MAX;
    l->limits.text = task_text_rules(task);
    l->heap.tokens = &l->tokens;
    l->heap.order = task->order;
    l->heap.lowest = INT64_MAX;
    return_freed_memory(); /* of counting: 24 MB with 150 MB of multilingual text, in 3 ms */
    if (!tokens_copy(&l->tokens, task) || !corpus_init(&l->corpus, task)) return false;
    l->statistics.words = task->words;
    l->statistics.positions = l->corpus.size - task->words - 1;
    return true;
}

/* A pair of bytes during set-up. Pair p consists of the bytes p / 256 and p % 256. */
#define BYTE_PAIRS 65536

struct byte_pair {
    int64_t count;
    uint64_t entries;
    uint64_t cursor; /* index in `lists` for the next occurrence, or NOWHERE */
};

/* The pairs of a range of pre-tokens, which one thread sets up. */
struct share {
    uint64_t first, last; /* their positions, up to `last` - 1 */
    struct byte_pair pairs[BYTE_PAIRS];
};

/* Count the pairs of pre-tokens first to last - 1 in an empty share; false if a count does not fit 64 bits. */
static inline bool count_byte_pairs(struct share *share, const bpeflow_merge_task *task, uint64_t first,
                                    uint64_t last) {
    share->first = task_position(task, first);
    share->last = task_position(task, last);
    for (uint64_t w = first; w < last; w++)
        for (int64_t b = task->offsets[w]; b + 1 < task->offsets[w + 1]; b++) {
            struct byte_pair *pair = &share->pairs[task->data[b] << 8 | task->data[b + 1]];
            if (__builtin_add_overflow(pair->count, task->counts[w], &pair->count)) return false;
            pair->entries++;
        }
    return true;
}

/* Add the pairs of the whole corpus. */
static inline bool add_byte_pairs(struct learner *l, struct byte_pair *byte_pairs, const uint32_t *byte_ids) {
    uint64_t distinct = 0, entries = 0;
    for (uint32_t p = 0; p < BYTE_PAIRS; p++) {
        if (byte_pairs[p].count < l->limits.min_frequency) continue;
        distinct++;
        entries += byte_pairs[p].entries + l->corpus.strip_count - 1;
    }
    if (!pairs_reserve(&l->pairs, distinct) || !lists_reserve(&l->lists, entries)) return false;
    for (uint32_t p = 0; p < BYTE_PAIRS; p++) {
        struct neighbour neighbour = {{byte_pairs[p].count}, byte_pairs[p].entries, NOWHERE};
        if (!add_pair(l, pair_key(byte_ids[p >> 8], byte_ids[p & 255]), &neighbour)) return false;
        byte_pairs[p].cursor = neighbour.cursor;
    }
    return true;
}

/* Write the occurrences in a share to the pairs' lists. A MARK is written with the last pre-token of its strip. */
static inline void list_byte_pairs(const struct learner *l, struct share *share) {
    const struct corpus *corpus = &l->corpus;
    const bool wide = corpus->wide;
    uint32_t *lists = l->lists.entries;
    uint64_t strip = corpus_strip_at(corpus, share->first);
    for (uint64_t position = share->first; position < share->last; position++) {
        uint64_t base = corpus->strips[strip];
        uint32_t left = *token_bytes(&l->tokens, id_at(corpus->ids, position, wide));
        for (uint32_t id; (id = id_at(corpus->ids, ++position, wide)) != END;) {
            uint32_t right = *token_bytes(&l->tokens, id);
            struct byte_pair *pair = &share->pairs[left << 8 | right];
            if (pair->cursor != NOWHERE) lists[pair->cursor++] = (uint32_t)(position - 1 - base);
            left = right;
        }
        if (position < corpus->strips[strip + 1]) continue;
        strip++;
        if (strip == corpus->strip_count) continue;
        for (uint32_t p = 0; p < BYTE_PAIRS; p++)
            if (share->pairs[p].cursor != NOWHERE) lists[share->pairs[p].cursor++] = MARK;
    }
}

/* ---- setting up encoded pre-tokens ------------------------------------------------------------------------------ */

/* Count the pairs of ids in the table of pairs, and in `length` of each its entries. The status is BPEFLOW_OVERFLOW if a
 * count does not fit 64 bits. */
static inline int count_id_pairs(struct learner *l, const bpeflow_merge_task *task) {
    for (uint64_t w = 0; w < task->words; w++)
        for (int64_t unit = task->offsets[w]; unit + 1 < task->offsets[w + 1]; unit++) {
            if (!pairs_reserve(&l->pairs, 1)) return BPEFLOW_NO_MEMORY;
            uint64_t key = pair_key(task->ids[unit], task->ids[unit + 1]);
            struct pair *pair = pairs_slot(&l->pairs, key);
            l->pairs.used += pair->key == 0;
            pair->key = key;
            if (__builtin_add_overflow(pair->count, task->counts[w], &pair->count)) return BPEFLOW_OVERFLOW;
            pair->length++;
        }
    return BPEFLOW_OK;
}

/* Allocate the lists of the pairs that can be learned. The others get the count 0, as if they did not occur. */
static inline bool allocate_id_lists(struct learner *l) {
    uint64_t entries = 0;
    l->statistics.pairs = l->pairs.used;
    for (uint64_t i = 0; i < pairs_size(&l->pairs); i++) {
        struct pair *pair = &l->pairs.slots[i];
        if (pair->key == 0) continue;
        if (pair->count < l->limits.min_frequency || !pair_allowed(l, pair->key)) pair->count = 0;
        if (pair->count == 0) continue;
        pair->length += l->corpus.strip_count - 1;
        pair->list = entries;
        entries += pair->length;
    }
    if (!lists_reserve(&l->lists, entries)) return false;
    l->lists.used = l->lists.needed = entries;
    return true;
}

/* Store encoded pre-tokens, count their pairs, and allocate the pairs' lists, on one thread: a table of these pairs for
 * each thread would take much memory. */
static inline int set_up_encoded(struct learner *l, const bpeflow_merge_task *task) {
    corpus_lay_out(&l->corpus, task, 0, task->words);
    if (!pairs_reserve(&l->pairs, 1)) return BPEFLOW_NO_MEMORY;
    int status = count_id_pairs(l, task);
    if (status != BPEFLOW_OK) return status;
    return allocate_id_lists(l) ? BPEFLOW_OK : BPEFLOW_NO_MEMORY;
}

/* Write the occurrences to the lists. While they are written, `list` of a pair is where its next entry goes. */
static inline void list_id_pairs(struct learner *l) {
    const struct corpus *corpus = &l->corpus;
    uint64_t strip = 0;
    for (uint64_t position = 1; position < corpus->size; position++) {
        uint64_t base = corpus->strips[strip];
        uint32_t left = id_at(corpus->ids, position, corpus->wide);
        for (uint32_t right; (right = id_at(corpus->ids, ++position, corpus->wide)) != END; left = right) {
            struct pair *pair = pairs_slot(&l->pairs, pair_key(left, right));
            if (pair->count > 0) l->lists.entries[pair->list++] = (uint32_t)(position - 1 - base);
        }
        if (position < corpus->strips[strip + 1]) continue;
        strip++;
        if (strip == corpus->strip_count) continue;
        for (uint64_t i = 0; i < pairs_size(&l->pairs); i++)
            if (l->pairs.slots[i].count > 0) l->lists.entries[l->pairs.slots[i].list++] = MARK;
    }
    for (uint64_t i = 0; i < pairs_size(&l->pairs); i++)
        if (l->pairs.slots[i].count > 0) l->pairs.slots[i].list -= l->pairs.slots[i].length;
}

static inline void learner_free(struct learner *l) {
    corpus_free(&l->corpus);
    tokens_free(&l->tokens);
    pairs_free(&l->pairs);
    lists_free(&l->lists);
    heap_free(&l->heap);
}

#endif
