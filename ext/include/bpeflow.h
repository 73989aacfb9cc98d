/* The C interface of bpeflow's native libraries: all that crosses the border to Python.
 *
 * There are four shared libraries: `libbpeflow_count` counts pre-tokens (C++17); `libbpeflow_c` (C11) and
 * `libbpeflow_omp` (C++17 with OpenMP) learn merges, through the same functions; `libbpeflow_encode` (C++17) encodes
 * and decodes. Each also has bpeflow_abi.
 *
 * Rules. Inputs are borrowed for the call and copied where they are needed longer. Outputs go to buffers that the
 * caller owns. State that lives longer is a handle, freed with its `_free` function (NULL does no harm). Functions
 * return a status; no exception crosses the border, nothing prints, nothing aborts. A handle is used by one thread at
 * a time. After a status other than BPEFLOW_OK from a step, the handle can only be freed.
 */
#ifndef BPEFLOW_H
#define BPEFLOW_H

#include <stdint.h>

#define BPEFLOW_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Counted up whenever anything below changes; Python refuses a library that says another number. */
#define BPEFLOW_ABI 5

BPEFLOW_API uint32_t bpeflow_abi(void);

enum bpeflow_status {
    BPEFLOW_OK = 0,
    BPEFLOW_NO_MEMORY = 1,
    BPEFLOW_OVERFLOW = 2,     /* a count does not fit 64 bits */
    BPEFLOW_TOO_LARGE = 3,    /* 2^32 - 1 or more positions, tokens or pairs; a pre-token of so many bytes */
    BPEFLOW_BAD_ARGUMENT = 4, /* arguments that break a rule stated here */
    BPEFLOW_IO = 5,           /* a file cannot be opened, read or written; errno says why */
    BPEFLOW_DAMAGED = 6,      /* a run that is none: cut short, out of order, not of the size it should have */
    BPEFLOW_NOT_UTF8 = 7,     /* text that must be valid UTF-8 and is not */
    BPEFLOW_NO_ROOM = 8,      /* more ids or bytes than the caller's buffer holds */
    BPEFLOW_UNKNOWN_ID = 9,   /* an id that stands for nothing */
};

/* ---- counting pre-tokens --------------------------------------------------------------------------------------- */

enum bpeflow_pattern {
    BPEFLOW_GPT2 = 0,
    BPEFLOW_CL100K = 1,
    BPEFLOW_O200K = 2,
    BPEFLOW_LLAMA3 = 3,
    BPEFLOW_QWEN2 = 4,
};

/* The version of Unicode by which characters are letters, numbers and white space; text that is never freed. */
BPEFLOW_API const char *bpeflow_unicode_version(void);

/* A table of distinct pre-tokens and their counts. */
typedef struct bpeflow_table bpeflow_table;

/* The kinds of instructions that scanning can use on this processor, best first, with spaces between them: of avx512,
 * avx2, sse2, neon and scalar, which is always there. Text that is never freed. */
BPEFLOW_API const char *bpeflow_instructions(void);

/* `instructions` is one of these, or NULL for the best. On success *table is a handle; otherwise it is NULL. */
BPEFLOW_API int bpeflow_table_new(const char *instructions, bpeflow_table **table);

/* Counts the pre-tokens of a text, which must be valid UTF-8. */
BPEFLOW_API int bpeflow_table_count(bpeflow_table *table, uint32_t pattern, const uint8_t *text, uint64_t length);

/* What is taken out of documents before they are cut into pre-tokens, the longest first where several begin at the same
 * place. One of them, the separator, also ends a document. */
typedef struct {
    const uint8_t *data;     /* the delimiters' bytes, one after another */
    const uint32_t *lengths; /* [count], each at least 1 */
    uint32_t count;
    uint32_t separator; /* which one it is; `count` if there is none */
} bpeflow_delimiters;

typedef struct {
    uint64_t bytes;     /* of the text, from its start, that were counted */
    uint64_t documents; /* in them */
    uint32_t open;      /* boolean: the last one ends with the text, without a separator */
} bpeflow_documents;

/* Counts the pre-tokens of the documents in a text, up to the first document that is not valid UTF-8. */
BPEFLOW_API int bpeflow_table_count_documents(bpeflow_table *table, uint32_t pattern,
                                              const bpeflow_delimiters *delimiters, const uint8_t *text,
                                              uint64_t length, bpeflow_documents *counted);

/* Adds `tokens` pre-tokens, each at least one byte long and counted at least once, one after another in `data`. */
BPEFLOW_API int bpeflow_table_add(bpeflow_table *table, const uint8_t *data, const uint32_t *lengths,
                                  const int64_t *counts, uint64_t tokens);

/* How many distinct pre-tokens, and bytes of them, are in a partition: every pre-token is in one of `partitions`, by a
 * hash that is the same in every process. */
BPEFLOW_API int bpeflow_table_size(const bpeflow_table *table, uint32_t partition, uint32_t partitions,
                                   uint64_t *tokens, uint64_t *bytes);

/* The bytes of memory that the table would have taken at most once `more` distinct pre-tokens of the usual length had
 * been added and a run written, what it holds for a moment only (while it grows, and for sorting) included. */
BPEFLOW_API int bpeflow_table_memory(const bpeflow_table *table, uint64_t more, uint64_t *bytes);

/* Writes a partition as a run in ascending order of bytes: to `data`, which has room for the tokens' bytes and
 * BPEFLOW_RECORD_SIZE more for each, as bpeflow_table_size tells, or, where that is NULL, to a new file. */
BPEFLOW_API int bpeflow_table_write(const bpeflow_table *table, uint32_t partition, uint32_t partitions, uint8_t *data,
                                    const char *path);

BPEFLOW_API void bpeflow_table_free(bpeflow_table *table);

/* ---- runs of counts -------------------------------------------------------------------------------------------- */

/* A run is distinct pre-tokens with their counts in some order, one record after another: the length (uint32_t), the
 * count (int64_t), the bytes; without padding, in the byte order of the machine, which no run leaves. It is in memory
 * or, the same bytes, in a file of its own. */
enum { BPEFLOW_RECORD_SIZE = 12 }; /* of a record without the pre-token's bytes */

typedef struct {
    const uint8_t *data; /* NULL if it is in a file */
    const char *path;    /* of the file */
    uint64_t tokens;     /* records */
    uint64_t size;       /* bytes of all records */
} bpeflow_shard;

enum bpeflow_shard_order {
    BPEFLOW_BY_BYTES = 0, /* ascending; a pre-token may be in several runs, whose counts are added up */
    BPEFLOW_BY_COUNT = 1, /* the canonical order: count descending, then bytes ascending; no pre-token is in two runs */
};

/* Merges runs that are in the same order: gives their records one after another, in that order. */
typedef struct bpeflow_kway bpeflow_kway;

/* On success *merge is a handle; otherwise it is NULL. Runs in memory must stay there until it is freed. Files are read
 * in pieces of `buffer_size` bytes each; they are opened at the first use. */
BPEFLOW_API int bpeflow_kway_new(const bpeflow_shard *runs, uint64_t count, uint32_t order, uint64_t buffer_size,
                                 bpeflow_kway **merge);

/* The number of the run that BPEFLOW_IO or BPEFLOW_DAMAGED was about; UINT64_MAX if it was the file written to. */
BPEFLOW_API uint64_t bpeflow_kway_failed(const bpeflow_kway *merge);

/* Gives up to max_tokens records as columns: their bytes, one after another, in data[max_bytes]; where each ends, plus
 * `begin`, in ends[max_tokens]; the counts in counts[max_tokens]. *tokens and *bytes tell how many there were: fewer at
 * the end of the runs, and where the next one does not fit. */
BPEFLOW_API int bpeflow_kway_read(bpeflow_kway *merge, uint64_t max_tokens, uint64_t max_bytes, int64_t begin,
                                  uint8_t *data, int64_t *ends, int64_t *counts, uint64_t *tokens, uint64_t *bytes);

/* Writes all records that are left to a new file. */
BPEFLOW_API int bpeflow_kway_write(bpeflow_kway *merge, const char *path, uint64_t *tokens, uint64_t *size);

/* Gathers records of a merge in ascending order of bytes, up to the end or as many as `memory` bytes hold (but one at
 * least), and puts them in canonical order. *tokens and *size tell of them, 0 at the end of the runs. Replaces those
 * that were gathered before. */
BPEFLOW_API int bpeflow_kway_gather(bpeflow_kway *merge, uint64_t memory, uint64_t *tokens, uint64_t *size);

/* Whether all records have been given. */
BPEFLOW_API int bpeflow_kway_ended(bpeflow_kway *merge, uint32_t *ended);

/* Writes what was gathered, as a run: to data[size] or, where that is NULL, to a new file. */
BPEFLOW_API int bpeflow_kway_save(bpeflow_kway *merge, uint8_t *data, const char *path);

BPEFLOW_API void bpeflow_kway_free(bpeflow_kway *merge);

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
    /* [2 * initial_merge_count]: left and right of the pairs that are merged first, tokens that there are by then */
    const uint32_t *initial_merges;
    uint64_t initial_merge_count;
} bpeflow_merge_task;

typedef struct {
    uint32_t left, right; /* the pair */
    uint32_t token;       /* the token that it makes */
    int64_t count;        /* the pair's count when it was chosen; that of an initial merge can be 0 */
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

/* Learns up to max_merges more into records[max_merges], the initial ones first; *learned is how many. Fewer than asked:
 * there are no more. */
BPEFLOW_API int bpeflow_learner_step(bpeflow_learner *learner, uint64_t max_merges, bpeflow_merge_record *records,
                                     uint64_t *learned);

BPEFLOW_API int bpeflow_learner_statistics(const bpeflow_learner *learner, bpeflow_merge_statistics *statistics);

BPEFLOW_API void bpeflow_learner_free(bpeflow_learner *learner);

/* ---- encoding and decoding ------------------------------------------------------------------------------------- */

/* A vocabulary, made ready. It never changes, and any number of threads may use it at once. */
typedef struct bpeflow_model bpeflow_model;

typedef struct {
    const uint8_t *token_data;       /* what each token stands for, special ones too */
    const int64_t *token_offsets;    /* [tokens + 1], from 0; an id that stands for nothing is empty */
    const uint8_t *ordinary_data;    /* what pre-token each token may be as a whole */
    const int64_t *ordinary_offsets; /* [tokens + 1], from 0; a token that text cannot yield, as a special one, is
                                        empty */
    uint32_t tokens;                 /* below 2^32 - 1 */
    const uint32_t *byte_ids;        /* [256], each below `tokens` */
    const uint32_t *merges;          /* [3 * merge_count]: left, right, what they make; the lowest rank first. Of a pair
                                     that comes twice the first counts */
    uint64_t merge_count;            /* below 2^32 - 1 */
    uint32_t whole_tokens;           /* boolean: a pre-token that is an ordinary token becomes that, whatever merging
                                     would make of it; the lowest of several ids */
} bpeflow_vocabulary;

/* On success *model is a handle; otherwise it is NULL. */
BPEFLOW_API int bpeflow_model_new(const bpeflow_vocabulary *vocabulary, bpeflow_model **model);

BPEFLOW_API void bpeflow_model_free(bpeflow_model *model);

/* Special tokens that a text may have: taken out of it before it is cut into pre-tokens, the longest first where several
 * begin at the same place. It never changes, and any number of threads may use it at once. */
typedef struct bpeflow_specials bpeflow_specials;

/* `data` has their bytes, one after another; lengths[count], each at least 1; ids[count]. On success *specials is a
 * handle; otherwise it is NULL. */
BPEFLOW_API int bpeflow_specials_new(const uint8_t *data, const uint32_t *lengths, const uint32_t *ids, uint32_t count,
                                     bpeflow_specials **specials);

BPEFLOW_API void bpeflow_specials_free(bpeflow_specials *specials);

/* What one thread encodes with: buffers, and a cache of pre-tokens and their ids, which it keeps from call to call. */
typedef struct bpeflow_encoder bpeflow_encoder;

/* Borrows the model, which must be freed after it. `instructions` as for bpeflow_table_new. The cache grows as it is
 * needed, and takes up to `cache_bytes`. On success *encoder is a handle; otherwise it is NULL. */
BPEFLOW_API int bpeflow_encoder_new(const bpeflow_model *model, const char *instructions, uint64_t cache_bytes,
                                    bpeflow_encoder **encoder);

/* In place of a pattern: a piece without special tokens, or what is between them, is one pre-token, any bytes. */
enum { BPEFLOW_NO_PATTERN = 0xFFFF };

typedef struct {
    uint32_t pattern;                 /* enum bpeflow_pattern, or BPEFLOW_NO_PATTERN */
    uint32_t id_size;                 /* in bytes: 2 (all ids are below 65,536) or 4 */
    const bpeflow_specials *specials; /* NULL: special tokens are ordinary text */
    void *ids;                        /* [capacity]; NULL: the ids are only counted */
    uint64_t capacity;                /* no text has more ids than bytes */
    uint64_t written;                 /* result: how many ids there are */
} bpeflow_encoding;

/* Encodes a text of `length` bytes: valid UTF-8, or else BPEFLOW_NOT_UTF8, where there is a pattern. */
BPEFLOW_API int bpeflow_encoder_encode(bpeflow_encoder *encoder, bpeflow_encoding *encoding, const uint8_t *text,
                                       uint64_t length);

/* Encodes `pieces` texts, one after another in `data`: piece i ends at ends[i] (ascending) and its ids at id_ends[i].
 * `id_ends` may be NULL. */
BPEFLOW_API int bpeflow_encoder_encode_pieces(bpeflow_encoder *encoder, bpeflow_encoding *encoding, const uint8_t *data,
                                              const uint64_t *ends, uint64_t pieces, uint64_t *id_ends);

BPEFLOW_API void bpeflow_encoder_free(bpeflow_encoder *encoder);

/* How many bytes `count` ids, each of id_size 2 or 4 bytes, stand for. BPEFLOW_UNKNOWN_ID: *bad is the index of the
 * first that stands for nothing. */
BPEFLOW_API int bpeflow_model_decoded_size(const bpeflow_model *model, const void *ids, uint32_t id_size,
                                           uint64_t count, uint64_t *size, uint64_t *bad);

/* Writes these bytes to data[size], where `size` is what the function above has told: BPEFLOW_NO_ROOM if they are more
 * or fewer. */
BPEFLOW_API int bpeflow_model_decode(const bpeflow_model *model, const void *ids, uint32_t id_size, uint64_t count,
                                     uint8_t *data, uint64_t size);

#ifdef __cplusplus
}
#endif

#endif
