/* The corpus as the learner sees it: tokens at positions, and the count of each pre-token. C11 and C++17.
 *
 * All pre-tokens are stored in one array of positions, one per unit (a byte or, in encoded pre-tokens, a token), with an
 * END before, between and after them:
 *
 *     END t h e END t h a t END          position 0 is the first END
 *
 * `ids` has a token's id at the first and at the last position of the token. The positions in between hold stale ids
 * of its parts. The span of a token, its length in units, follows from its id, so both neighbours are found without links: the token
 * before position i ends at i - 1, and the token after a token of n units at i starts at i + n. A merge writes two
 * entries and moves nothing.
 *
 * Positions are divided into strips, because lists of occurrences (pairs.h) have 4 bytes for each: its distance from
 * the END at which the strip begins. A strip ends with a pre-token, so the tokens of a pair are in the same strip.
 * Usually there is a single one. */
#ifndef BPEFLOW_LEARN_CORPUS_H
#define BPEFLOW_LEARN_CORPUS_H

#include "array.h"
#include "ids.h"
#include "task.h"

#include <stdbool.h>
#include <stdlib.h>

/* Positions per entry of run_of. With 16 the entries would not fit into the cache. With 1024 the walk over the short
 * runs of the most frequent pre-tokens would be long. */
#define RUN_BLOCK 64

/* The counts, run-length encoded. Pre-tokens are in descending order of their counts, so those with equal counts
 * form a run. */
struct run {
    uint64_t start; /* position */
    int64_t count;
};

struct corpus {
    void *ids; /* [size]; see id_at */
    bool wide; /* whether ids take 4 bytes */
    uint64_t size;
    struct run *runs; /* [run_count + 1]; the last one starts at `size` */
    uint32_t run_count;
    uint32_t *run_of; /* [size / RUN_BLOCK + 1]: the run at every RUN_BLOCK-th position */
    uint64_t *strips; /* [strip_count + 1]: where each strip begins; the last one at size - 1 */
    uint64_t strip_count;
};

/* Divide the positions into strips; false if out of memory. */
static inline bool corpus_divide(struct corpus *corpus, const bpeflow_merge_task *task) {
    uint64_t word = 0, capacity = 0;
    do {
        uint64_t *strips =
            (uint64_t *)array_reserve(corpus->strips, &capacity, corpus->strip_count + 2, sizeof *strips);
        if (!strips) return false;
        corpus->strips = strips;
        strips[corpus->strip_count++] = task_position(task, word) - 1;
        word = task_strip_end(task, word);
        strips[corpus->strip_count] = task_position(task, word) - 1;
    } while (word < task->words);
    return true;
}

/* Return the number of positions in a strip, both of the ENDs at its borders included. */
static inline uint64_t corpus_strip_size(const struct corpus *corpus, uint64_t strip) {
    return corpus->strips[strip + 1] - corpus->strips[strip] + 1;
}

/* Return the strip with a position. */
static inline uint64_t corpus_strip_at(const struct corpus *corpus, uint64_t position) {
    uint64_t strip = 0;
    while (strip + 1 < corpus->strip_count && corpus->strips[strip + 1] < position) strip++;
    return strip;
}

/* Store the counts, and allocate the positions; false if out of memory. */
static inline bool corpus_init(struct corpus *corpus, const bpeflow_merge_task *task) {
    corpus->size = task_position(task, task->words);
    for (uint64_t word = 0; word < task->words; word++) corpus->run_count += task_count_changes(task, word) ? 1 : 0;
    corpus->wide = ids_wide(task->tokens);
    corpus->ids = malloc(corpus->size * id_size(corpus->wide));
    corpus->runs = (struct run *)calloc((uint64_t)corpus->run_count + 1, sizeof *corpus->runs);
    corpus->run_of = (uint32_t *)malloc((corpus->size / RUN_BLOCK + 1) * sizeof *corpus->run_of);
    if (!corpus->ids || !corpus->runs || !corpus->run_of || !corpus_divide(corpus, task)) return false;

    set_id(corpus->ids, 0, END, corpus->wide);
    struct run *run = corpus->runs;
    for (uint64_t word = 0; word < task->words; word++) {
        if (!task_count_changes(task, word)) continue;
        run->start = word == 0 ? 0 : task_position(task, word);
        run++->count = task->counts[word];
    }
    run->start = corpus->size;
    uint32_t at = 0;
    for (uint64_t block = 0; block <= corpus->size / RUN_BLOCK; block++) {
        while (at < corpus->run_count && corpus->runs[at + 1].start <= block * RUN_BLOCK) at++;
        corpus->run_of[block] = at;
    }
    return true;
}

/* Make room for ids that take 4 bytes; false if out of memory. */
static inline bool corpus_widen(struct corpus *corpus) {
    void *ids = realloc(corpus->ids, corpus->size * id_size(true));
    if (!ids) return false;
    corpus->ids = ids;
    corpus->wide = true;
    for (uint64_t position = corpus->size; position-- > 0;) /* in place: no id is written before it is read */
        set_id(ids, position, id_at(ids, position, false), true);
    return true;
}

ALWAYS_INLINE void lay_out_words(void *ids, const bpeflow_merge_task *task, uint64_t first, uint64_t last, bool wide) {
    uint64_t position = task_position(task, first);
    for (uint64_t word = first; word < last; word++) {
        for (int64_t unit = task->offsets[word]; unit < task->offsets[word + 1]; unit++)
            set_id(ids, position++, task_unit_id(task, unit), wide);
        set_id(ids, position++, END, wide);
    }
}

/* Store pre-tokens first to last - 1 at their positions. */
static inline void corpus_lay_out(struct corpus *corpus, const bpeflow_merge_task *task, uint64_t first,
                                  uint64_t last) {
    if (corpus->wide)
        lay_out_words(corpus->ids, task, first, last, true);
    else
        lay_out_words(corpus->ids, task, first, last, false);
}

/* Return the count of the pre-token at a position. *run is where the search starts: 0, or the result for an earlier
 * position, which is often right: most positions are in the few long runs of rare pre-tokens. (Looking into `run_of` each
 * time was a cache miss each time: a quarter of the update with 150 MB of multilingual text.) */
static inline int64_t corpus_count_at(const struct corpus *corpus, uint64_t position, uint32_t *run) {
    if (corpus->runs[*run + 1].start > position) return corpus->runs[*run].count;
    if (*run < corpus->run_of[position / RUN_BLOCK]) *run = corpus->run_of[position / RUN_BLOCK];
    while (corpus->runs[*run + 1].start <= position) ++*run;
    return corpus->runs[*run].count;
}

static inline uint64_t corpus_memory(const struct corpus *corpus) {
    return corpus->size * id_size(corpus->wide) + ((uint64_t)corpus->run_count + 1) * sizeof *corpus->runs +
           (corpus->size / RUN_BLOCK + 1) * sizeof *corpus->run_of + (corpus->strip_count + 1) * sizeof *corpus->strips;
}

static inline void corpus_free(struct corpus *corpus) {
    free(corpus->ids);
    free(corpus->runs);
    free(corpus->run_of);
    free(corpus->strips);
}

#endif
