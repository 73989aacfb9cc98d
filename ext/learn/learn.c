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
 * Proof. It was so when i was entered. Tokens only grow, so whatever is written to q - 1 after that is the id of a
 * token that has all of that L inside and is longer, hence not L; likewise for q and R. So both ids are as they were if
 * and only if nothing has been written to the two places. A merge of that L with its left neighbour, or of that R with
 * its right one, does write there. What is left is a merge of the two with each other, which writes to neither place if
 * both are longer than a byte; but that is the merge of (L, R), and it uses up the whole list. Within that merge each
 * entry comes up once; and if L is R, then in LLL the entry of the second L is seen to be gone because its last
 * position is that of the new token.
 *
 * No string becomes a token twice. Take a place where a string X is about to become a token. Until then no token has
 * reached over X's edges, so the tokens inside are those that X alone would have: a merge of (L, R) with L unlike R
 * replaces all that there are; one of (L, L) replaces a run of L from its start in twos, none of which lies over X's
 * edge, so that the part inside X starts with a whole two, as in X alone. So X is made by the same merge everywhere.
 * Hence, reuse_tokens or not, the token that a merge makes is nowhere in the corpus before: its pairs are all new, no
 * pair is merged twice, and only tokens that the task came with can ever be reused.
 *
 * Initial merges change nothing of that: the proof does not ask why a pair is merged, only that all of it is. But an
 * initial merge can make a token of a string that this list never leads to, and another merge then does: so these tokens
 * can be reused, too. While initial merges are left, all pairs are in the table, those that are too rare or too long to
 * be learned among them: what is to be merged next is not known from counts.
 *
 * Counts. A pair's count is exact after every merge: what a recount would give. It only falls once the pair exists. An
 * entry that is gone does no harm, so nothing is ever searched for or removed.
 */
#include "array.h"
#include "bpeflow.h"
#include "candidates.h"
#include "corpus.h"
#include "neighbours.h"
#include "pairs.h"
#include "task.h"
#include "tokens.h"

#include <time.h>

/* How many steps ahead memory is fetched. Occurrences are far apart; without: 0.43 s instead of 0.34 at 600,000 words.
 * */
#define AHEAD 16

/* The cursor of a neighbour whose new pair nobody will look for. */
#define NOWHERE UINT64_MAX

/* Pairs beyond these are not in the table. */
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
    uint32_t *merged; /* [merged_count]; the positions of the occurrences that are being merged */
    uint64_t merged_count, merged_capacity;
    uint32_t *arena; /* the occurrence lists */
    uint64_t arena_used, arena_capacity;
    uint64_t spare, spare_length; /* a part of the arena that is free again */

    uint32_t *initial_merges; /* [2 * initial_count]; left and right */
    uint64_t initial_count, replayed;

    uint32_t max_tokens;
    struct limits limits, learning_limits; /* the present ones; those after the last initial merge */
    bool scan;
    bpeflow_merge_statistics statistics;
};

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- pairs and their lists ------------------------------------------------------------------------------------- */

/* Room for a list. Where the merged pair's list was, if it fits there: of the two new lists that an occurrence is
 * entered into, one always does. (139 MB in all instead of 169 at 600,000 words, and 8 % less time.) */
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

/* Takes from the count of a pair. Pairs that can never be merged are not in the table, nor is one of the new
 * token yet. */
static void pair_lose(struct bpeflow_learner *l, uint64_t key, int64_t weight) {
    struct pair *pair = pairs_slot(&l->pairs, key);
    if (pair->key != 0) pair->count -= weight;
}

/* Adds a new pair, with room in its list for the neighbour's entries; false if there is no memory. */
static bool pair_add(struct bpeflow_learner *l, uint32_t left, uint32_t right, struct neighbour *neighbour) {
    neighbour->cursor = NOWHERE;
    if (neighbour->weight == 0) return true; /* all its occurrences were merged themselves in the meantime */
    l->statistics.pairs++;
    if (neighbour->weight < l->limits.min_frequency) return true; /* it can only get less frequent */
    if (!short_enough(l, left, right)) return true;

    struct pair *pair = pairs_slot(&l->pairs, pair_key(left, right));
    *pair = (struct pair){pair_key(left, right), neighbour->weight, 0, neighbour->entries};
    l->pairs.used++;
    if (!list_new(l, pair->length, &pair->list)) return false;
    neighbour->cursor = pair->list;
    return pair->count < l->heap.lowest || heap_push(&l->heap, (struct candidate){pair->count, left, right});
}

/* ---- one merge ------------------------------------------------------------------------------------------------- */

/* Merges the occurrences of (left, right) in list[length] into `token` and notes their neighbours. These are what they
 * are at that moment: in `abab` the second `ab` has the first, merged already, to its left. */
static void replace_occurrences(struct bpeflow_learner *l, const uint32_t *list, uint32_t length, uint32_t left,
                                uint32_t right, uint32_t token) {
    uint32_t *ids = l->corpus.ids;
    uint32_t middle = (uint32_t)token_length(&l->tokens, left);
    uint32_t size = middle + (uint32_t)token_length(&l->tokens, right);
    uint32_t run = 0, merged = 0; /* in variables, which stay in registers */
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

/* The pair that `token` is in with a neighbour on the given side of it. */
static uint64_t key_with(const struct bpeflow_learner *l, const struct side *side, uint32_t id, uint32_t token) {
    return side == &l->before ? pair_key(id, token) : pair_key(token, id);
}

/* `part`, the left or right part of what was merged, is no longer beside its neighbours. */
static void lose_pairs(struct bpeflow_learner *l, const struct side *side, uint32_t part) {
    for (uint64_t m = 0; m < side->met_count; m++) {
        if (m + AHEAD < side->met_count) pairs_prefetch(&l->pairs, key_with(l, side, side->met[m + AHEAD], part));
        uint32_t id = side->met[m];
        if (id == END) continue;
        pair_lose(l, key_with(l, side, id, part), neighbour_of(side, id)->weight);
    }
}

/* `token` is beside them instead. The occurrences are in ascending order, and so are the lists that they are written to. */
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

/* Makes a token of the pair; false if there is no memory. */
static bool make_token(struct bpeflow_learner *l, uint32_t left, uint32_t right, uint32_t *token) {
    uint64_t bytes = token_length(&l->tokens, left) + token_length(&l->tokens, right);
    if (!tokens_reserve(&l->tokens, 1, bytes)) return false;
    *token = tokens_join(&l->tokens, left, right);
    return true;
}

/* Replaces all occurrences of the pair: P left right N becomes P token N. False if there is no memory. */
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
    pair = pairs_slot(&l->pairs, pair_key(left, right)); /* it may have moved */
    pair->count = 0;       /* whatever it lost as its own neighbour, as `aa` does in `aaa` */
    l->spare = pair->list; /* `merged` has all that is still needed of it */
    l->spare_length = pair->length;

    /* Where P is `token` itself, as in `abab`, the pair that is lost is (token, left): the one that this P had won. */
    neighbour_of(after, left)->weight -= neighbour_of(before, token)->weight;
    if (!add_pairs(l, after, token) || !add_pairs(l, before, token)) return false;
    side_clear(before);
    side_clear(after);
    return true;
}

/* ---- setting up ------------------------------------------------------------------------------------------------ */

/* A pair of bytes, while the pairs of the corpus are counted. */
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

/* Makes the pairs of the corpus, with their lists. */
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

/* Takes the initial merges over, and lifts the limits until they are replayed; false if there is no memory. */
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

/* Finds the best pair (count 0 if there is none); false if there is no memory. */
static bool choose(struct bpeflow_learner *l, struct candidate *best) {
    int64_t min_frequency = l->limits.min_frequency;
    if (!l->scan) return heap_best(&l->heap, &l->pairs, min_frequency, &l->statistics.stale_pops, best);
    *best = scan_best(&l->tokens, &l->pairs, min_frequency, l->heap.order);
    return true;
}

/* Learns the best pair; *found is whether there is one. */
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

/* The initial merges are done: pairs too long to be learned leave the table. Too rare ones are never chosen. */
static void begin_to_learn(struct bpeflow_learner *l) {
    l->limits = l->learning_limits;
    for (uint64_t i = 0; i < pairs_size(&l->pairs); i++) {
        struct pair *pair = &l->pairs.slots[i];
        if (pair->key != 0 && !short_enough(l, key_left(pair->key), key_right(pair->key))) pair->count = 0;
    }
}

/* Makes the next initial merge, whether its pair occurs or not. */
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
