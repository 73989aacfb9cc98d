/* The C interface of bpeflow's native libraries: all that crosses the border to Python.
 *
 * Each native backend is a shared library of its own that implements this whole header: `libbpeflow_c` in C11 and
 * `libbpeflow_omp` in C++17 with OpenMP.
 *
 * Rules. Inputs are borrowed for the call and copied where they are needed longer. Outputs go to buffers that the
 * caller owns. State that lives longer is a handle, freed with its `_free` function (NULL does no harm). Functions
 * return a status; no exception crosses the border, nothing prints, nothing aborts. A handle is used by one thread at
 * a time. After a status other than BPEFLOW_OK from a step, the handle can only be freed.
 */
#ifndef BPEFLOW_H
#define BPEFLOW_H

#include <stdint.h>

#if defined(_WIN32)
#define BPEFLOW_API __declspec(dllexport)
#else
#define BPEFLOW_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Counted up whenever anything below changes; Python refuses a library that says another number. */
#define BPEFLOW_ABI 1

BPEFLOW_API uint32_t bpeflow_abi(void);

enum bpeflow_status {
    BPEFLOW_OK = 0,
    BPEFLOW_NO_MEMORY = 1,
    BPEFLOW_OVERFLOW = 2,     /* a pair's count does not fit 64 bits */
    BPEFLOW_TOO_LARGE = 3,    /* 2^32 - 1 or more positions, or as many tokens or pairs */
    BPEFLOW_BAD_ARGUMENT = 4, /* arguments that break a rule stated here */
};

/* ---- learning merges ------------------------------------------------------------------------------------------- */

enum bpeflow_order {
    BPEFLOW_GREATEST_BYTES = 0, /* among pairs of equal count: the greater (left bytes, right bytes) */
    BPEFLOW_SMALLEST_IDS = 1,   /* … the smaller (left id, right id) */
};

/* What to learn; `MergeTask` in bpeflow/backends/base.py explains each member. */
typedef struct {
    const uint8_t *data;    /* the pre-tokens' bytes, one after another */
    const int64_t *offsets; /* [words + 1]; pre-token i is data[offsets[i]] up to data[offsets[i + 1]], not empty */
    const int64_t *counts;  /* [words], at least 1, in descending order */
    uint64_t words;
    const uint8_t *token_data;    /* the bytes of the tokens that there are before the first merge */
    const int64_t *token_offsets; /* [tokens + 1]; a token that no merge can yield is empty */
    uint32_t tokens;
    uint32_t max_tokens;
    const uint32_t *byte_ids;  /* [256], each below `tokens`, each token of that one byte */
    int64_t min_frequency;     /* at least 1 */
    uint64_t max_token_length; /* in bytes; 0 for no limit */
    uint32_t order;            /* enum bpeflow_order */
    uint32_t reuse_tokens;     /* boolean */
    uint32_t scan;             /* boolean: look through all pairs for each merge instead of keeping a heap */
    uint32_t threads;          /* 0: as many as there are cores; the C backend has one */
} bpeflow_merge_task;

typedef struct {
    uint32_t left, right; /* the pair */
    uint32_t token;       /* the token that it makes */
    int64_t count;        /* the pair's count when it was chosen */
} bpeflow_merge_record;

typedef struct {
    uint64_t words, positions, pairs;
    uint64_t occurrences_visited, occurrences_merged, stale_pops;
    uint64_t memory_bytes; /* the most that was allocated at once, as near as it is known */
    uint64_t threads;
    double setup_seconds, selection_seconds, update_seconds;
} bpeflow_merge_statistics;

typedef struct bpeflow_learner bpeflow_learner;

/* Counts the pairs and gets ready. On success *learner is a handle; otherwise it is NULL. */
BPEFLOW_API int bpeflow_learner_new(const bpeflow_merge_task *task, bpeflow_learner **learner);

/* Learns up to max_merges more into records[max_merges]; *learned is how many. Fewer than asked: there are no more. */
BPEFLOW_API int bpeflow_learner_step(bpeflow_learner *learner, uint64_t max_merges, bpeflow_merge_record *records,
                                     uint64_t *learned);

BPEFLOW_API int bpeflow_learner_statistics(const bpeflow_learner *learner, bpeflow_merge_statistics *statistics);

BPEFLOW_API void bpeflow_learner_free(bpeflow_learner *learner);

#ifdef __cplusplus
}
#endif

#endif
