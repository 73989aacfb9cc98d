/* Learning merges: the C backend. One thread, plain C11.
 *
 * corpus.h tells how tokens lie in positions. On top of that:
 *
 * Occurrence lists. The list of a pair (L, R) has, in ascending order, the positions where its L starts. It is written
 * when the younger of the two is made and not changed afterwards; occurrences that go away stay in it. With
 * q = i + length(L), where R starts:
 *
 *     entry i is still an occurrence  if and only if  ids[q - 1] == L and ids[q] == R.
 *
 * Proof. It was so when i was entered. Tokens only grow, so whatever is written to q - 1 after that is the id of a token
 * that has all of that L inside and is longer, hence not L; likewise for q and R. So both ids are as they were if and
 * only if nothing has been written to the two places. A merge of that L with its left neighbour, or of that R with its
 * right one, does write there. What is left is a merge of the two with each other, which writes to neither place if both
 * are longer than a byte; but that is the merge of (L, R), and it uses up the whole list. (A list can be filled anew
 * after that if tokens are reused; never with an old entry, because two tokens become adjacent only once.) Within that
 * merge each entry comes up once; and if L is R, then in LLL the entry of the second L is seen to be gone because its
 * last position is that of the new token.
 *
 * Counts. A pair's count is exact after every merge: what a recount would give. Once the pair exists it only falls,
 * unless tokens are reused. An entry that is gone does no harm, so nothing is ever searched for or removed.
 */
#define _POSIX_C_SOURCE 199309L /* clock_gettime */

#include "array.h"
#include "bpeflow.h"
#include "candidates.h"
#include "corpus.h"
#include "neighbours.h"
#include "pairs.h"
#include "task.h"
#include "tokens.h"

#include <time.h>

/* How many steps ahead memory is fetched. Occurrences are far apart: without, most of the time goes into waiting. */
#define AHEAD 16

/* The cursor of a neighbour whose new pair nobody will look for. */
#define NOWHERE UINT64_MAX

struct bpeflow_learner {
    struct corpus corpus;
    struct tokens tokens;
    struct pairs pairs;
    struct heap heap;
    struct side before, after;
    uint32_t *arena; /* the occurrence lists */
    uint64_t arena_used, arena_capacity;
    uint64_t spare, spare_length; /* a part of the arena that is free again */

    uint32_t max_tokens;
    int64_t min_frequency;
    uint64_t max_token_length;
    bool reuse_tokens, scan;
    bpeflow_merge_statistics statistics;
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- pairs and their lists ------------------------------------------------------------------------------------- */

/* Room for a list. Where the merged pair's list was, if it fits there: that saves half of the memory, because of the two
 * new lists that an occurrence is entered into one always fits. */
static bool list_new(struct bpeflow_learner *l, uint64_t length, uint64_t *list)
{
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

/* Lowers the count of a pair that lost occurrences. Pairs that can never be merged are not in the table. */
static inline void lower(struct bpeflow_learner *l, uint32_t left, uint32_t right, int64_t weight)
{
    struct pair *pair = pairs_slot(&l->pairs, pair_key(left, right));
    if (pair->key != 0) pair->count -= weight;
}

/* Adds to a pair, mostly a new one, and makes room in its list for the neighbour's entries. */
static int raise(struct bpeflow_learner *l, uint32_t left, uint32_t right, struct neighbour *neighbour)
{
    neighbour->cursor = NOWHERE;
    if (token_length(&l->tokens, left) + token_length(&l->tokens, right) > l->max_token_length) return BPEFLOW_OK;

    struct pair *pair = pairs_slot(&l->pairs, pair_key(left, right));
    if (pair->key == 0) {
        if (neighbour->weight == 0) return BPEFLOW_OK; /* they were all merged themselves in the meantime */
        l->statistics.pairs++;
        if (neighbour->weight < l->min_frequency && !l->reuse_tokens) return BPEFLOW_OK; /* it will only fall */
        pair->key = pair_key(left, right);
        l->pairs.used++;
    }
    if (__builtin_add_overflow(pair->count, neighbour->weight, &pair->count)) return BPEFLOW_OVERFLOW;

    uint64_t list;
    uint32_t old_length = pair->length;
    if (!list_new(l, old_length + neighbour->entries, &list)) return BPEFLOW_NO_MEMORY;
    if (old_length > 0) memcpy(&l->arena[list], &l->arena[pair->list], old_length * sizeof *l->arena);
    pair->list = list;
    pair->length += neighbour->entries;
    pair->unordered = old_length > 0;
    neighbour->cursor = list + old_length;
    if (neighbour->weight > 0 && pair->count >= l->heap.lowest &&
        !heap_push(&l->heap, (struct candidate){pair->count, left, right}))
        return BPEFLOW_NO_MEMORY;
    return BPEFLOW_OK;
}

/* Writes the records of one side into the lists of the new pairs. The records are in ascending order, so are the
 * lists. */
static void write_lists(struct bpeflow_learner *l, const struct side *side)
{
    for (uint64_t r = 0; r < side->record_count; r++) {
        struct neighbour *neighbour = neighbour_of(side, side->records[r].neighbour);
        if (neighbour->cursor != NOWHERE) l->arena[neighbour->cursor++] = side->records[r].position - neighbour->back;
    }
}

/* ---- one merge ------------------------------------------------------------------------------------------------- */

/* Merges the occurrences in list[length] of (left, right) into `token` and notes their neighbours.
 *
 * Neighbours are what they are at that moment: in `abab` the second `ab` has the first, merged already, to its left. */
static void replace_occurrences(struct bpeflow_learner *l, const uint32_t *list, uint64_t length, uint32_t left,
                                uint32_t right, uint32_t token)
{
    uint32_t *ids = l->ids;
    uint32_t middle = (uint32_t)token_length(&l->tokens, left);
    uint32_t size = middle + (uint32_t)token_length(&l->tokens, right);
    uint64_t run = 0, merged = 0;
    for (uint64_t k = 0; k < length; k++) {
        if (k + AHEAD < length) __builtin_prefetch(&ids[list[k + AHEAD]], 1);
        uint32_t i = list[k];
        if (ids[i + middle - 1] != left || ids[i + middle] != right) continue;
        if (run < l->run_of[i / RUN_BLOCK]) run = l->run_of[i / RUN_BLOCK];
        while (l->runs[run + 1].start <= i) run++;
        ids[i] = token;
        ids[i + size - 1] = token;
        side_add(&l->left, ids[i - 1], i, l->runs[run].count);
        side_add(&l->right, ids[i + size], i, l->runs[run].count);
        merged++;
    }
    l->statistics.occurrences_visited += length;
    l->statistics.occurrences_merged += merged;
}

/* Brings counts and lists of the neighbouring pairs up to date after the occurrences of (left, right) were replaced.
 *
 * P left right N  became  P token N: (P, left) and (right, N) lost, (P, token) and (token, N) won. Where P is itself
 * `token`, as in `abab`, the pair that lost is (token, left), which may be new: it won when that P was made. */
static int update_pairs(struct bpeflow_learner *l, uint32_t left, uint32_t right, uint32_t token)
{
    struct side *before = &l->left, *after = &l->right;
    if (!pairs_reserve(&l->pairs, (uint64_t)before->met_count + after->met_count + 1)) return BPEFLOW_NO_MEMORY;
    for (uint32_t m = 0; m < after->met_count; m++) {
        if (m + AHEAD < after->met_count) pairs_prefetch(&l->pairs, pair_key(right, after->met[m + AHEAD]));
        if (after->met[m] != END) lower(l, right, after->met[m], neighbour_of(after, after->met[m])->weight);
    }
    for (uint32_t m = 0; m < before->met_count; m++) {
        if (m + AHEAD < before->met_count) pairs_prefetch(&l->pairs, pair_key(before->met[m + AHEAD], left));
        if (before->met[m] != END && before->met[m] != token)
            lower(l, before->met[m], left, neighbour_of(before, before->met[m])->weight);
    }
    struct pair *merged = pairs_slot(&l->pairs, pair_key(left, right));
    merged->count = 0; /* also if it was lowered as its own neighbour, as `aa` is in `aaa` */
    merged->length = 0;
    merged->unordered = false;

    l->spare = merged->list; /* the records have all that is still needed of it */
    l->spare_length = merged->length;
    merged->count = 0; /* also if it was lowered as its own neighbour, as `aa` is in `aaa` */
    merged->length = 0;
    merged->unordered = false;

    const struct neighbour *itself = neighbour_of(before, token);
    struct neighbour *left_after = neighbour_of(after, left);
    if (left_after->entries > 0)
        left_after->weight -= itself->weight;
    else if (itself->entries > 0) /* only a token that was there before, reused, can be a neighbour all the same */
        lower(l, token, left, itself->weight);

    int status = BPEFLOW_OK;
    for (uint32_t m = 0; m < after->met_count && status == BPEFLOW_OK; m++) {
        if (m + AHEAD < after->met_count) pairs_prefetch(&l->pairs, pair_key(token, after->met[m + AHEAD]));
        if (after->met[m] == END) continue;
        struct neighbour *neighbour = neighbour_of(after, after->met[m]);
        neighbour->back = 0;
        status = raise(l, token, after->met[m], neighbour);
    }
    if (status != BPEFLOW_OK) return status;
    write_lists(l, after);
    for (uint32_t m = 0; m < before->met_count && status == BPEFLOW_OK; m++) {
        if (m + AHEAD < before->met_count) pairs_prefetch(&l->pairs, pair_key(before->met[m + AHEAD], token));
        if (before->met[m] == END) continue;
        struct neighbour *neighbour = neighbour_of(before, before->met[m]);
        neighbour->back = (uint32_t)token_length(&l->tokens, before->met[m]);
        status = raise(l, before->met[m], token, neighbour);
    }
    if (status != BPEFLOW_OK) return status;
    write_lists(l, before);
    return BPEFLOW_OK;
}

static int by_position(const void *a, const void *b)
{
    uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
    return (first > second) - (first < second);
}

/* Makes a token of the pair and replaces all its occurrences. */
static int merge(struct bpeflow_learner *l, uint32_t left, uint32_t right, uint32_t *token)
{
    const struct pair *pair = pairs_slot(&l->pairs, pair_key(left, right));
    uint64_t bytes = token_length(&l->tokens, left) + token_length(&l->tokens, right);
    if (!tokens_reserve(&l->tokens, 1, bytes, l->reuse_tokens)) return BPEFLOW_NO_MEMORY;
    *token = tokens_join(&l->tokens, left, right);
    if (!side_reserve(&l->left, l->tokens.count, pair->length) ||
        !side_reserve(&l->right, l->tokens.count, pair->length))
        return BPEFLOW_NO_MEMORY;

    uint32_t *list = &l->arena[pair->list];
    if (pair->unordered) qsort(list, pair->length, sizeof *list, by_position);
    replace_occurrences(l, list, pair->length, left, right, *token);
    int status = update_pairs(l, left, right, *token);
    side_clear(&l->left);
    side_clear(&l->right);
    return status;
}

/* ---- setting up ------------------------------------------------------------------------------------------------ */

/* A pair of bytes, while the pairs of the corpus are counted. */
struct byte_pair {
    int64_t count;
    uint64_t entries, cursor;
};

static int count_byte_pairs(const bpeflow_merge_task *task, struct byte_pair *byte_pairs)
{
    for (uint64_t w = 0; w < task->words; w++)
        for (int64_t b = task->offsets[w]; b + 1 < task->offsets[w + 1]; b++) {
            struct byte_pair *pair = &byte_pairs[task->data[b] << 8 | task->data[b + 1]];
            if (__builtin_add_overflow(pair->count, task->counts[w], &pair->count)) return BPEFLOW_OVERFLOW;
            pair->entries++;
        }
    return BPEFLOW_OK;
}

/* Makes the pairs of the corpus, with their lists. */
static int make_pairs(struct bpeflow_learner *l, const bpeflow_merge_task *task)
{
    int status = BPEFLOW_NO_MEMORY;
    struct byte_pair *byte_pairs = calloc(65536, sizeof *byte_pairs);
    if (!byte_pairs || !pairs_reserve(&l->pairs, 65536)) goto done;
    if ((status = count_byte_pairs(task, byte_pairs)) != BPEFLOW_OK) goto done;

    for (uint32_t p = 0; p < 65536; p++) {
        if (byte_pairs[p].entries == 0) continue;
        struct neighbour neighbour = {.weight = byte_pairs[p].count, .entries = (uint32_t)byte_pairs[p].entries};
        status = raise(l, task->byte_ids[p >> 8], task->byte_ids[p & 255], &neighbour);
        if (status != BPEFLOW_OK) goto done;
        byte_pairs[p].cursor = neighbour.cursor;
    }
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

/* ---- the interface --------------------------------------------------------------------------------------------- */

uint32_t bpeflow_abi(void) { return BPEFLOW_ABI; }

int bpeflow_learner_new(const bpeflow_merge_task *task, bpeflow_learner **learner)
{
    if (!learner) return BPEFLOW_BAD_ARGUMENT;
    *learner = NULL;
    if (!task) return BPEFLOW_BAD_ARGUMENT;
    double start = seconds();
    int status = check(task);
    if (status != BPEFLOW_OK) return status;

    status = BPEFLOW_NO_MEMORY;
    struct bpeflow_learner *l = calloc(1, sizeof *l);
    if (!l) goto fail;
    l->max_tokens = task->max_tokens;
    l->min_frequency = task->min_frequency;
    l->max_token_length = task->max_token_length ? task->max_token_length : UINT64_MAX;
    l->reuse_tokens = task->reuse_tokens != 0;
    l->scan = task->scan != 0;
    l->heap.order = task->order;
    l->heap.tokens = &l->tokens;
    l->heap.lowest = INT64_MAX; /* until the first fill */
    if (!tokens_copy(&l->tokens, task->token_data, task->token_offsets, task->tokens, l->reuse_tokens)) goto fail;
    if ((status = lay_out(l, task)) != BPEFLOW_OK) goto fail;
    if ((status = make_pairs(l, task)) != BPEFLOW_OK) goto fail;

    l->statistics.words = task->words;
    l->statistics.positions = l->positions - task->words - 1;
    l->statistics.threads = 1;
    l->statistics.setup_seconds = seconds() - start;
    *learner = l;
    return BPEFLOW_OK;

fail:
    bpeflow_learner_free(l);
    return status;
}

int bpeflow_learner_step(bpeflow_learner *l, uint64_t max_merges, bpeflow_merge_record *records, uint64_t *learned)
{
    if (!l || !learned || (!records && max_merges > 0)) return BPEFLOW_BAD_ARGUMENT;
    double start = seconds();
    for (*learned = 0; *learned < max_merges && l->tokens.count < l->max_tokens; ++*learned) {
        struct candidate best;
        int status = choose(l, &best);
        if (status != BPEFLOW_OK) return status;
        double chosen = seconds();
        l->statistics.selection_seconds += chosen - start;
        start = chosen;
        if (best.count == 0) break;

        bpeflow_merge_record *record = &records[*learned];
        *record = (bpeflow_merge_record){.left = best.left, .right = best.right, .count = best.count};
        status = merge(l, best.left, best.right, &record->token);
        if (status != BPEFLOW_OK) return status;
        double merged = seconds();
        l->statistics.update_seconds += merged - start;
        start = merged;
    }
    return BPEFLOW_OK;
}

int bpeflow_learner_statistics(const bpeflow_learner *l, bpeflow_merge_statistics *statistics)
{
    if (!l || !statistics) return BPEFLOW_BAD_ARGUMENT;
    *statistics = l->statistics;
    uint64_t tables = l->positions * sizeof *l->ids + l->run_count * sizeof *l->runs;
    tables += l->positions / RUN_BLOCK * sizeof *l->run_of + l->arena_capacity * sizeof *l->arena;
    tables += pairs_size(&l->pairs) * sizeof *l->pairs.slots + l->heap.capacity * sizeof *l->heap.entries;
    tables += (l->left.record_capacity + l->right.record_capacity) * sizeof *l->left.records;
    tables += (uint64_t)l->left.capacity * 2 * (sizeof *l->left.neighbours + sizeof *l->left.met);
    statistics->memory_bytes = tables + tokens_memory(&l->tokens);
    return BPEFLOW_OK;
}

void bpeflow_learner_free(bpeflow_learner *l)
{
    if (!l) return;
    struct side *sides[] = {&l->left, &l->right};
    for (int s = 0; s < 2; s++) {
        free(sides[s]->neighbours);
        free(sides[s]->met);
        free(sides[s]->records);
    }
    tokens_free(&l->tokens);
    free(l->pairs.slots);
    free(l->heap.entries);
    free(l->arena);
    free(l->run_of);
    free(l->runs);
    free(l->ids);
    free(l);
}
