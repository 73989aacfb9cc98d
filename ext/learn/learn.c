/* Learning merges: the C backend. One thread, plain C11.
 *
 * corpus.h describes how tokens are stored at positions. On top of that:
 *
 * Occurrence lists. The list of a pair (L, R) has, in ascending order, the positions where its L starts. It is
 * written when the younger of the two tokens is made and never changed. Occurrences that disappear stay in it. With
 * q = i + length(L), where R starts:
 *
 *     entry i is still an occurrence  if and only if  ids[q - 1] == L and ids[q] == R.
 *
 * Proof. This held when i was entered. Tokens only grow, so anything written to q - 1 later is the id of a token
 * that contains all of that L and is longer, hence not L. The same holds for q and R. So both ids are unchanged if
 * and only if nothing has been written to the two positions. A merge of that L with its left neighbour, or of that R
 * with its right neighbour, writes to one of them. The remaining case is the merge of the two with each other, which
 * writes to neither position if both tokens are longer than a byte. But that is the merge of (L, R), which uses up
 * the whole list. Within that merge each entry is visited once. And if L is R, then in LLL the entry of the second L
 * is recognised as stale, because its last position has the id of the new token.
 *
 * No string becomes a token twice. Consider a place where a string X is about to become a token. Until then no token
 * has crossed the edges of X, so the tokens inside are the ones that X on its own would have: a merge of (L, R) with
 * L unlike R replaces all its occurrences. A merge of (L, L) replaces a run of L in pairs from its start. None of
 * these pairs crosses the edge of X, so the part of the run inside X starts with a whole pair, as in X on its own.
 * So X is made by the same merge everywhere. Hence, with or without reuse_tokens, the token that a merge makes is
 * nowhere in the corpus before that merge. Its pairs are all new, no pair is merged twice, and only tokens of the
 * task can ever be reused.
 *
 * Initial merges do not affect this: the proof does not depend on why a pair is merged, only on all of its
 * occurrences being merged. But an initial merge can make a token whose string the initial merges never lead to in
 * the corpus, and a different merge may make that string later. So these tokens can be reused, too. While initial
 * merges are left, the table has all pairs, including those that are too rare or too long to be learned, because the
 * counts do not determine what is merged next.
 *
 * Counts. A pair's count is exact after every merge: it equals a recount. Once the pair exists, its count only
 * falls. Stale entries do no harm, so nothing is ever searched for or removed. */

#include "array.h"
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

/* The cursor of a neighbour whose new pair needs no list. */
#define NOWHERE UINT64_MAX

/* Limits of the pairs to keep in the table. */
struct limits {
    int64_t min_frequency;
    uint64_t max_token_length;
};

struct bpeflow_learner {
    struct corpus corpus;
    struct tokens tokens;
    struct pairs pairs;
    struct heap heap;
    struct side before, after;
    uint32_t *merged; /* [merged_count]; positions of the occurrences being merged */
    uint64_t merged_count, merged_capacity;
    uint32_t *arena; /* the occurrence lists */
    uint64_t arena_used, arena_capacity;
    uint64_t spare, spare_length; /* a part of the arena to use again */

    uint32_t *initial_merges; /* [2 * initial_count]; left and right */
    uint64_t initial_count, replayed;

    uint32_t max_tokens;
    struct limits limits, learning_limits; /* in effect now; for learning, after the last initial merge */
    bool scan;
    bpeflow_merge_statistics statistics;
};

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- pairs and their lists ------------------------------------------------------------------------------------- */

/* Allocate a list, in the merged pair's list if it fits there. Each occurrence is entered into two new lists, one of
 * which always fits. (139 MB in all instead of 169 MB at 600,000 words, and 8 % less time.) */
static bool list_new(struct bpeflow_learner *l, uint64_t length, uint64_t *list) {
    if (length <= l->spare_length) {
        *list = l->spare;
        l->spare += length;
        l->spare_length -= length;
        return true;
    }
    uint32_t *arena = array_reserve(l->arena, &l->arena_capacity, l->arena_used + length, sizeof *arena);
    if (!arena) return false;
    l->arena = arena;
    *list = l->arena_used;
    l->arena_used += length;
    return true;
}

static bool short_enough(const struct bpeflow_learner *l, uint32_t left, uint32_t right) {
    return token_length(&l->tokens, left) + token_length(&l->tokens, right) <= l->limits.max_token_length;
}

/* Lower the count of a pair that is in the table. Not in it: pairs that can never be merged, and pairs of the new
 * token, which are added later. */
static void pair_lose(struct bpeflow_learner *l, uint64_t key, int64_t weight) {
    struct pair *pair = pairs_slot(&l->pairs, key);
    if (pair->key != 0) pair->count -= weight;
}

/* Add a new pair, with a list for the neighbour's entries; false if out of memory. */
static bool pair_add(struct bpeflow_learner *l, uint32_t left, uint32_t right, struct neighbour *neighbour) {
    neighbour->cursor = NOWHERE;
    if (neighbour->weight == 0) return true; /* all its occurrences have been merged meanwhile */
    l->statistics.pairs++;
    if (neighbour->weight < l->limits.min_frequency) return true; /* its count can only fall */
    if (!short_enough(l, left, right)) return true;

    struct pair *pair = pairs_slot(&l->pairs, pair_key(left, right));
    *pair = (struct pair){pair_key(left, right), neighbour->weight, 0, neighbour->entries};
    l->pairs.used++;
    if (!list_new(l, pair->length, &pair->list)) return false;
    neighbour->cursor = pair->list;
    return pair->count < l->heap.lowest || heap_push(&l->heap, (struct candidate){pair->count, left, right});
}

/* ---- one merge ------------------------------------------------------------------------------------------------- */

/* Merge the occurrences of (left, right) in list[length] into `token`. Record the neighbours as they are at that
 * moment: in `abab` the left neighbour of the second `ab` is the first, already merged. */
static void replace_occurrences(struct bpeflow_learner *l, const uint32_t *list, uint32_t length, uint32_t left,
                                uint32_t right, uint32_t token) {
    uint32_t *ids = l->corpus.ids;
    uint32_t middle = (uint32_t)token_length(&l->tokens, left);
    uint32_t size = middle + (uint32_t)token_length(&l->tokens, right);
    uint32_t run = 0, merged = 0; /* local variables, to stay in registers */
    for (uint32_t k = 0; k < AHEAD && k < length; k++) __builtin_prefetch(&ids[list[k]], 1);
    for (uint32_t k = 0; k < length; k++) {
        if (k + AHEAD < length) __builtin_prefetch(&ids[list[k + AHEAD]], 1);
        uint32_t i = list[k];
        if (ids[i + middle - 1] != left || ids[i + middle] != right) continue;
        ids[i] = token;
        ids[i + size - 1] = token;
        int64_t count = corpus_count_at(&l->corpus, i, &run);
        side_note(&l->before, ids[i - 1], merged, count);
        side_note(&l->after, ids[i + size], merged, count);
        l->merged[merged++] = i;
    }
    l->merged_count = merged;
    l->statistics.occurrences_visited += length;
    l->statistics.occurrences_merged += merged;
}

/* Return the key of the pair of `token` and a neighbour on the given side. */
static uint64_t key_with(const struct bpeflow_learner *l, const struct side *side, uint32_t id, uint32_t token) {
    return side == &l->before ? pair_key(id, token) : pair_key(token, id);
}

/* Lower the counts of the pairs of `part`, the left or right part of the merged pair, with the neighbours on its
 * outer side. */
static void lose_pairs(struct bpeflow_learner *l, const struct side *side, uint32_t part) {
    for (uint64_t m = 0; m < side->met_count; m++) {
        if (m + AHEAD < side->met_count) pairs_prefetch(&l->pairs, key_with(l, side, side->met[m + AHEAD], part));
        uint32_t id = side->met[m];
        if (id == END) continue;
        pair_lose(l, key_with(l, side, id, part), neighbour_of(side, id)->weight);
    }
}

/* Add the pairs of `token` with the neighbours on one side. Occurrences are in ascending order, so their lists are,
 * too. */
static bool add_pairs(struct bpeflow_learner *l, const struct side *side, uint32_t token) {
    bool is_before = side == &l->before;
    for (uint64_t m = 0; m < side->met_count; m++) {
        if (m + AHEAD < side->met_count) pairs_prefetch(&l->pairs, key_with(l, side, side->met[m + AHEAD], token));
        uint32_t id = side->met[m];
        struct neighbour *neighbour = neighbour_of(side, id);
        neighbour->cursor = NOWHERE;
        if (id == END) continue;
        neighbour->back = is_before ? (uint32_t)token_length(&l->tokens, id) : 0;
        if (!pair_add(l, is_before ? id : token, is_before ? token : id, neighbour)) return false;
    }
    for (uint64_t o = 0; o < l->merged_count; o++) {
        struct neighbour *neighbour = neighbour_of(side, side->ids[o]);
        if (neighbour->cursor != NOWHERE) l->arena[neighbour->cursor++] = l->merged[o] - neighbour->back;
    }
    return true;
}

/* Make the token of a pair; false if out of memory. */
static bool make_token(struct bpeflow_learner *l, uint32_t left, uint32_t right, uint32_t *token) {
    uint64_t bytes = token_length(&l->tokens, left) + token_length(&l->tokens, right);
    if (!tokens_reserve(&l->tokens, 1, bytes)) return false;
    *token = tokens_join(&l->tokens, left, right);
    return true;
}

/* Replace all occurrences of a pair: P left right N becomes P token N. Return false if out of memory. */
static bool merge_pair(struct bpeflow_learner *l, uint32_t left, uint32_t right, uint32_t token) {
    struct side *before = &l->before, *after = &l->after;
    struct pair *pair = pairs_slot(&l->pairs, pair_key(left, right));
    if (!side_reserve(before, l->tokens.count, pair->length)) return false;
    if (!side_reserve(after, l->tokens.count, pair->length)) return false;
    uint32_t *merged = array_reserve(l->merged, &l->merged_capacity, pair->length, sizeof *merged);
    if (!merged) return false;
    l->merged = merged;
    replace_occurrences(l, &l->arena[pair->list], pair->length, left, right, token);

    if (!pairs_reserve(&l->pairs, before->met_count + after->met_count)) return false;
    lose_pairs(l, after, right);
    lose_pairs(l, before, left);
    pair = pairs_slot(&l->pairs, pair_key(left, right)); /* the table may have moved */
    pair->count = 0;                                     /* also if it was its own neighbour, as `aa` in `aaa` */
    l->spare = pair->list;                               /* the positions that are still needed are in `merged` */
    l->spare_length = pair->length;

    /* If P is `token` itself, as in `abab`, the lost pair is (token, left), which this P had gained before. */
    neighbour_of(after, left)->weight -= neighbour_of(before, token)->weight;
    if (!add_pairs(l, after, token) || !add_pairs(l, before, token)) return false;
    side_clear(before);
    side_clear(after);
    return true;
}

/* ---- setting up ------------------------------------------------------------------------------------------------ */

/* A pair of bytes during set-up. */
struct byte_pair {
    int64_t count;
    uint64_t entries, cursor;
};

static int count_byte_pairs(const bpeflow_merge_task *task, struct byte_pair *byte_pairs) {
    for (uint64_t w = 0; w < task->words; w++)
        for (int64_t b = task->offsets[w]; b + 1 < task->offsets[w + 1]; b++) {
            struct byte_pair *pair = &byte_pairs[task->data[b] << 8 | task->data[b + 1]];
            if (__builtin_add_overflow(pair->count, task->counts[w], &pair->count)) return BPEFLOW_OVERFLOW;
            pair->entries++;
        }
    return BPEFLOW_OK;
}

/* Count the pairs of the corpus and write their lists. */
static int make_pairs(struct bpeflow_learner *l, const bpeflow_merge_task *task) {
    struct byte_pair *byte_pairs = calloc(65536, sizeof *byte_pairs);
    if (!byte_pairs) return BPEFLOW_NO_MEMORY;
    int status = count_byte_pairs(task, byte_pairs);
    if (status != BPEFLOW_OK) goto done;
    uint64_t distinct = 0;
    for (uint32_t p = 0; p < 65536; p++) distinct += byte_pairs[p].entries > 0;
    status = BPEFLOW_NO_MEMORY;
    if (!pairs_reserve(&l->pairs, distinct)) goto done;
    for (uint32_t p = 0; p < 65536; p++) {
        if (byte_pairs[p].entries == 0) continue;
        struct neighbour neighbour = {.weight = byte_pairs[p].count, .entries = (uint32_t)byte_pairs[p].entries};
        if (!pair_add(l, task->byte_ids[p >> 8], task->byte_ids[p & 255], &neighbour)) goto done;
        byte_pairs[p].cursor = neighbour.cursor;
    }
    status = BPEFLOW_OK;
    uint32_t position = 1;
    for (uint64_t w = 0; w < task->words; w++, position += 2)
        for (int64_t b = task->offsets[w]; b + 1 < task->offsets[w + 1]; b++, position++) {
            struct byte_pair *pair = &byte_pairs[task->data[b] << 8 | task->data[b + 1]];
            if (pair->cursor != NOWHERE) l->arena[pair->cursor++] = position;
        }
done:
    free(byte_pairs);
    return status;
}

/* Copy the initial merges, and lift the limits until they are replayed; false if out of memory. */
static bool copy_initial_merges(struct bpeflow_learner *l, const bpeflow_merge_task *task) {
    if (task->initial_merge_count == 0) return true;
    size_t size = (size_t)task->initial_merge_count * 2 * sizeof *l->initial_merges;
    l->initial_merges = malloc(size);
    if (!l->initial_merges) return false;
    memcpy(l->initial_merges, task->initial_merges, size);
    l->initial_count = task->initial_merge_count;
    l->limits = (struct limits){.min_frequency = 1, .max_token_length = UINT64_MAX};
    return true;
}

/* ---- the interface --------------------------------------------------------------------------------------------- */

uint32_t bpeflow_abi(void) {
    return BPEFLOW_ABI;
}

int bpeflow_learner_new(const bpeflow_merge_task *task, bpeflow_learner **learner) {
    if (!learner) return BPEFLOW_BAD_ARGUMENT;
    *learner = NULL;
    if (!task) return BPEFLOW_BAD_ARGUMENT;
    int status = task_check(task);
    if (status != BPEFLOW_OK) return status;

    double start = seconds();
    status = BPEFLOW_NO_MEMORY;
    struct bpeflow_learner *l = calloc(1, sizeof *l);
    if (!l) goto fail;
    l->max_tokens = task->max_tokens;
    l->learning_limits.min_frequency = task_lowest_count(task);
    l->learning_limits.max_token_length = task->max_token_length ? task->max_token_length : UINT64_MAX;
    l->limits = l->learning_limits;
    l->scan = task->scan != 0;
    l->heap = (struct heap){.tokens = &l->tokens, .order = task->order, .lowest = INT64_MAX};
    if (!copy_initial_merges(l, task)) goto fail;
    if (!tokens_copy(&l->tokens, task)) goto fail;
    if (!corpus_lay_out(&l->corpus, task)) goto fail;
    status = make_pairs(l, task);
    if (status != BPEFLOW_OK) goto fail;

    l->statistics.words = task->words;
    l->statistics.positions = l->corpus.size - task->words - 1;
    l->statistics.threads = 1;
    l->statistics.setup_seconds = seconds() - start;
    *learner = l;
    return BPEFLOW_OK;

fail:
    bpeflow_learner_free(l);
    return status;
}

/* Choose the best pair (count 0 if there is none); false if out of memory. */
static bool choose(struct bpeflow_learner *l, struct candidate *best) {
    int64_t min_frequency = l->limits.min_frequency;
    if (!l->scan) return heap_best(&l->heap, &l->pairs, min_frequency, &l->statistics.stale_pops, best);
    *best = scan_best(&l->tokens, &l->pairs, min_frequency, l->heap.order);
    return true;
}

/* Learn the best pair. *found is whether there is one. */
static int learn(struct bpeflow_learner *l, bpeflow_merge_record *record, bool *found) {
    double start = seconds();
    struct candidate best;
    if (!choose(l, &best)) return BPEFLOW_NO_MEMORY;
    double chosen = seconds();
    l->statistics.selection_seconds += chosen - start;
    *found = best.count > 0;
    if (!*found) return BPEFLOW_OK;

    *record = (bpeflow_merge_record){.left = best.left, .right = best.right, .count = best.count};
    if (!make_token(l, best.left, best.right, &record->token)) return BPEFLOW_NO_MEMORY;
    if (!merge_pair(l, best.left, best.right, record->token)) return BPEFLOW_NO_MEMORY;
    l->statistics.update_seconds += seconds() - chosen;
    return BPEFLOW_OK;
}

/* Switch from initial merges to learning: remove pairs that are too long to be learned from the table. Pairs that
 * are too rare are never chosen. */
static void begin_to_learn(struct bpeflow_learner *l) {
    l->limits = l->learning_limits;
    for (uint64_t i = 0; i < pairs_size(&l->pairs); i++) {
        struct pair *pair = &l->pairs.slots[i];
        if (pair->key != 0 && !short_enough(l, key_left(pair->key), key_right(pair->key))) pair->count = 0;
    }
}

/* Make the next initial merge, whether or not its pair occurs. */
static int replay(struct bpeflow_learner *l, bpeflow_merge_record *record) {
    double start = seconds();
    uint32_t left = l->initial_merges[2 * l->replayed], right = l->initial_merges[2 * l->replayed + 1];
    uint32_t known = l->tokens.count;
    if (left >= known || right >= known) return BPEFLOW_BAD_ARGUMENT;
    *record = (bpeflow_merge_record){.left = left, .right = right};
    if (!make_token(l, left, right, &record->token)) return BPEFLOW_NO_MEMORY;
    if (l->tokens.index && record->token == known) tokens_enter(&l->tokens, known);
    record->count = pairs_slot(&l->pairs, pair_key(left, right))->count;
    if (record->count > 0 && !merge_pair(l, left, right, record->token)) return BPEFLOW_NO_MEMORY;
    if (++l->replayed == l->initial_count) begin_to_learn(l);
    l->statistics.update_seconds += seconds() - start;
    return BPEFLOW_OK;
}

int bpeflow_learner_step(bpeflow_learner *l, uint64_t max_merges, bpeflow_merge_record *records, uint64_t *learned) {
    if (!l || !learned || (!records && max_merges > 0)) return BPEFLOW_BAD_ARGUMENT;
    bool found = true;
    for (*learned = 0; *learned < max_merges && l->tokens.count < l->max_tokens; ++*learned) {
        bpeflow_merge_record *record = &records[*learned];
        int status = l->replayed < l->initial_count ? replay(l, record) : learn(l, record, &found);
        if (status != BPEFLOW_OK) return status;
        if (!found) break;
    }
    return BPEFLOW_OK;
}

int bpeflow_learner_statistics(const bpeflow_learner *l, bpeflow_merge_statistics *statistics) {
    if (!l || !statistics) return BPEFLOW_BAD_ARGUMENT;
    *statistics = l->statistics;
    statistics->memory_bytes = corpus_memory(&l->corpus) + tokens_memory(&l->tokens) + pairs_memory(&l->pairs) +
                               heap_memory(&l->heap) + side_memory(&l->before) + side_memory(&l->after) +
                               l->arena_capacity * sizeof *l->arena + l->merged_capacity * sizeof *l->merged +
                               l->initial_count * 2 * sizeof *l->initial_merges;
    return BPEFLOW_OK;
}

void bpeflow_learner_free(bpeflow_learner *l) {
    if (!l) return;
    corpus_free(&l->corpus);
    tokens_free(&l->tokens);
    pairs_free(&l->pairs);
    heap_free(&l->heap);
    side_free(&l->before);
    side_free(&l->after);
    free(l->arena);
    free(l->merged);
    free(l->initial_merges);
    free(l);
}
