/* The C interface of bpeflow's native libraries: everything that Python calls.
 *
 * There are four shared libraries. `libbpeflow_count` (C++17) counts pre-tokens. `libbpeflow_c` (C11) and
 * `libbpeflow_omp` (C++17 with OpenMP) learn merges through the same functions. `libbpeflow_encode` (C++17) encodes
 * and decodes. Each also exports bpeflow_abi.
 *
 * Rules. Inputs are borrowed for the call and copied if they are needed longer. Outputs go to buffers owned by the
 * caller. Longer-lived state is a handle, freed with its `_free` function, which accepts NULL. Functions return a
 * status. No exception crosses the interface, nothing prints, nothing aborts. Only one thread at a time may use a
 * handle. After bpeflow_learner_step has returned a status other than BPEFLOW_OK, the learner can only be freed.
 */
#ifndef BPEFLOW_H
#define BPEFLOW_H

#include <stddef.h>
#include <stdint.h>

#define BPEFLOW_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented with every change below. Python refuses a library with another number. */
#define BPEFLOW_ABI 25

BPEFLOW_API uint32_t bpeflow_abi(void);

enum bpeflow_status {
    BPEFLOW_OK = 0,
    BPEFLOW_NO_MEMORY = 1,
    BPEFLOW_OVERFLOW = 2,     /* a count does not fit 64 bits */
    BPEFLOW_TOO_LARGE = 3,    /* 2^32 - 1 or more positions, tokens or pairs; 2^31 bytes in a pre-token */
    BPEFLOW_BAD_ARGUMENT = 4, /* arguments that break a rule of this header */
    BPEFLOW_IO = 5,           /* a file cannot be opened, read or written; errno says why */
    BPEFLOW_DAMAGED = 6,      /* a shard that is truncated, out of order or of the wrong size; other text than ranks */
    BPEFLOW_NOT_UTF8 = 7,     /* invalid UTF-8 in text that must be valid */
    BPEFLOW_NO_ROOM = 8,      /* the caller's buffer is too small */
    BPEFLOW_UNKNOWN_ID = 9,   /* an id that no token has */
    BPEFLOW_UNMATCHED = 10,   /* text that the pattern does not match, with BPEFLOW_UNMATCHED_ERROR */
};

/* ---- patterns -------------------------------------------------------------------------------------------------- */

/* How text is cut into pre-tokens. It is immutable, so any number of threads may use it at once. The libraries that
 * count and encode both have these functions. Whatever uses a pattern borrows it. */
typedef struct bpeflow_pattern bpeflow_pattern;

enum bpeflow_named_pattern {
    BPEFLOW_GPT2 = 0,
    BPEFLOW_CL100K = 1,
    BPEFLOW_O200K = 2,
    BPEFLOW_LLAMA3 = 3,
    BPEFLOW_QWEN2 = 4,
};

/* What becomes of text that a compiled pattern does not match. */
enum bpeflow_unmatched {
    BPEFLOW_ISOLATE = 0,         /* each stretch is a pre-token */
    BPEFLOW_DROP = 1,            /* it is left out */
    BPEFLOW_UNMATCHED_ERROR = 2, /* the status is BPEFLOW_UNMATCHED */
};

enum { BPEFLOW_MOST_CLASSES = 120 };

/* A compiled expression. `CompiledStep` in bpeflow/pretokenize/compiled.py explains each member. Tables with a column for
 * each class have one more, for the end of the text. */
typedef struct {
    const uint32_t *first;      /* [ranges], ascending, from 0 */
    const uint8_t *range_class; /* [ranges], each below `classes` */
    const uint16_t *next;  /* [states][classes + 1]: 2 * (state + 1), plus 1 if a match ends before; 0 and 1: none */
    const uint16_t *moves; /* [configs][classes + 1], each below `configs` */
    const uint8_t *flags;  /* [configs][classes + 1] */
    const uint8_t *info;   /* [configs] */
    const uint8_t *cuts;   /* [classes][classes] */
    uint32_t ranges, classes, states, configs; /* at most BPEFLOW_MOST_CLASSES classes; below 2^15 states */
    uint32_t gap_start;                        /* below `configs` */
    uint32_t has_gaps;                         /* boolean */
} bpeflow_step;

/* Create a pattern. On success *pattern is a handle, otherwise NULL. */
BPEFLOW_API int bpeflow_pattern_named(uint32_t number, bpeflow_pattern **pattern);

/* Create a pattern of one step or several, each of which cuts the pieces that the one before has left. The steps are
 * copied. */
BPEFLOW_API int bpeflow_pattern_new(const bpeflow_step *steps, uint32_t count, uint32_t unmatched,
                                    bpeflow_pattern **pattern);

BPEFLOW_API void bpeflow_pattern_free(bpeflow_pattern *pattern);

/* Cut a text, which must be valid UTF-8. Write the start and the end of each pre-token to spans[2 * size], and their
 * number. */
BPEFLOW_API int bpeflow_pattern_split(const bpeflow_pattern *pattern, const uint8_t *text, uint64_t size,
                                      uint64_t *spans, uint64_t *count);

enum bpeflow_cut {
    BPEFLOW_LAST_CUT = 1,   /* the last place instead of the first one */
    BPEFLOW_NORMALIZED = 2, /* the text will be normalized after it is cut */
    BPEFLOW_LOWERCASED = 4, /* … to lower case, too */
};

/* Return the first place from `start` on where a text may be cut without changing a pre-token, which is never at its
 * start or end; 0 if there is none. The text need not be valid UTF-8. `flags` are of enum bpeflow_cut. */
BPEFLOW_API uint64_t bpeflow_pattern_find_cut(const bpeflow_pattern *pattern, const uint8_t *text, uint64_t size,
                                              uint64_t start, uint32_t flags);

/* ---- vocabularies ---------------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *token_data;       /* the bytes of each token, including special tokens */
    const int64_t *token_offsets;    /* [tokens + 1], from 0; empty for an unused id */
    const uint8_t *ordinary_data;    /* the pre-token that each token can be as a whole */
    const int64_t *ordinary_offsets; /* [tokens + 1], from 0; empty if text cannot yield it, as for a special token */
    uint32_t tokens;                 /* below 2^32 - 1 */
    const uint32_t *byte_ids;        /* [256], each below `tokens` */
    /* [3 * merge_count]: left, right, result, by ascending rank. If a pair occurs twice, the first counts. */
    const uint32_t *merges;
    uint64_t merge_count; /* below 2^32 - 1 */
    /* The number of merges of the first level, which are encoded before all others. Any number up to merge_count gives the
     * same ids. Encoding is fast if these merge words, and the others words to superwords. */
    uint64_t first_level;
    /* boolean: a pre-token equal to an ordinary token becomes that token, regardless of merges; of several ids the
     * lowest */
    uint32_t whole_tokens;
} bpeflow_vocabulary;

/* ---- counting pre-tokens --------------------------------------------------------------------------------------- */

/* The Unicode version that classifies letters, numbers and white space, as a static string. */
BPEFLOW_API const char *bpeflow_unicode_version(void);

/* A table of distinct pre-tokens and their counts. */
typedef struct bpeflow_table bpeflow_table;

/* The instruction sets that the scanner can use on this processor, best first, separated by spaces, as a static
 * string: a subset of avx512, avx2 and neon, then scalar, which is always available. */
BPEFLOW_API const char *bpeflow_instructions(void);

/* For superwords: pre-tokens as *units*, the ids that a vocabulary without its pattern gives them (count/units.hpp). Any
 * number of tables, in any threads, may use the same units at once. */
typedef struct bpeflow_units bpeflow_units;

/* Create units. Tables then count, instead of pre-tokens, the fragments that are left where pre-tokens are cut between
 * the units of each pair whose cell is not among `cells`: [count]. Fragments of one unit are left out. If `cells` is NULL,
 * tables count all pairs of adjacent units, by cell, each as 4 bytes: a big-endian number. The cell of a pair is the upper
 * 22 bits of the 64-bit product of (left << 32 | right) and 0x9E3779B97F4A7C15. On success *units is a handle, otherwise
 * NULL. */
BPEFLOW_API int bpeflow_units_new(const bpeflow_vocabulary *vocabulary, const uint32_t *cells, uint64_t count,
                                  bpeflow_units **units);

BPEFLOW_API void bpeflow_units_free(bpeflow_units *units);

/* Create a table. `instructions` is one of these sets, or NULL for the best. `units`, which must outlive the table, are
 * NULL to count pre-tokens. Each occurrence counts `weight` times, which is at least 1. On success *table is a handle,
 * otherwise NULL. */
BPEFLOW_API int bpeflow_table_new(const char *instructions, bpeflow_units *units, int64_t weight,
                                  bpeflow_table **table);

/* The strings to remove from documents before pre-tokenization. If several match at one position, the longest wins.
 * One of them, the separator, also ends a document. */
typedef struct {
    const uint8_t *data;     /* the delimiters' bytes, one after another */
    const uint32_t *lengths; /* [count], each at least 1 */
    uint32_t count;
    uint32_t separator; /* index of the separator; `count` if there is none */
} bpeflow_delimiters;

typedef struct {
    uint64_t bytes;     /* bytes of the text counted, from its start */
    uint64_t documents; /* documents in these bytes */
    uint64_t searched;  /* bytes between delimiters that the pattern was to match */
    uint64_t unmatched; /* … that it did not match */
    /* Positions of the first unmatched stretch in the text, and of the piece between delimiters that it is in. */
    uint64_t unmatched_start, unmatched_end, piece_start, piece_end;
    uint32_t open; /* boolean: the last document ends at the end of the text, without a separator */
} bpeflow_documents;

/* Count the pre-tokens of the documents in a text, up to the first document that is not valid UTF-8. */
BPEFLOW_API int bpeflow_table_count(bpeflow_table *table, const bpeflow_pattern *pattern,
                                    const bpeflow_delimiters *delimiters, const uint8_t *text, uint64_t length,
                                    bpeflow_documents *counted);

/* Add pre-tokens: pre-token i is data[offsets[i]:offsets[i + 1]], not empty, and counts counts[i], at least 1, times the
 * table's weight. Of those with counts[i] below `below`, only the ones whose hash is among the lowest, one in `one_in`, are
 * added, with `one_in` times their count. */
BPEFLOW_API int bpeflow_table_add(bpeflow_table *table, const uint8_t *data, const int64_t *offsets,
                                  const int64_t *counts, uint64_t tokens, int64_t below, uint64_t one_in);

/* Get the number of distinct pre-tokens, and the sum of their lengths. Of a table of pairs, both are upper bounds. */
BPEFLOW_API int bpeflow_table_size(const bpeflow_table *table, uint64_t *tokens, uint64_t *bytes);

/* Get an upper bound in bytes on the table's memory after `more` distinct pre-tokens of average length have been
 * added and a shard has been written, including temporary memory for growth and sorting. UINT64_MAX if it cannot hold as
 * many. */
BPEFLOW_API int bpeflow_table_memory(const bpeflow_table *table, uint64_t more, uint64_t *bytes);

/* Write the table as a shard: to `data`, or to a new file if `data` is NULL. `data` must hold the pre-tokens' bytes and
 * BPEFLOW_RECORD_SIZE more per pre-token, as bpeflow_table_size gives both numbers. tokens[partitions] and
 * sizes[partitions] are set to the number of records in each partition and their size. */
BPEFLOW_API int bpeflow_table_write(bpeflow_table *table, uint32_t partitions, uint8_t *data, const char *path,
                                    uint64_t *tokens, uint64_t *sizes);

BPEFLOW_API void bpeflow_table_free(bpeflow_table *table);

/* The sum of several tables: each pre-token once, its counts added up, in canonical order, which is count descending,
 * then bytes ascending. It is made in steps, by the functions below in this order. Threads share the work of a step: they
 * call its function at the same time, and the step is done when all calls have returned. */
typedef struct bpeflow_sum bpeflow_sum;

/* Create a sum of tables, which must not be freed before the third step is done. `threads` is the number of threads that
 * will call the functions. On success *sum is a handle, otherwise NULL. */
BPEFLOW_API int bpeflow_sum_new(bpeflow_table *const *tables, uint64_t count, uint32_t threads, bpeflow_sum **sum);

/* Step 1: add up the counts. */
BPEFLOW_API int bpeflow_sum_add_up(bpeflow_sum *sum);

/* Step 2: divide the pre-tokens into ranges of the canonical order. */
BPEFLOW_API int bpeflow_sum_divide(bpeflow_sum *sum);

/* Then, in one thread: get the number of pre-tokens, and the sum of their lengths. */
BPEFLOW_API int bpeflow_sum_size(bpeflow_sum *sum, uint64_t *tokens, uint64_t *bytes);

/* Step 3: copy the pre-tokens, range by range, to data[bytes], the positions where they end to offsets[tokens + 1] (the
 * first one, 0, is the caller's), and their counts to counts[tokens]. The tables return their memory, and are lost. */
BPEFLOW_API int bpeflow_sum_distribute(bpeflow_sum *sum, uint8_t *data, int64_t *offsets, int64_t *counts);

/* Step 4: sort the ranges in these arrays. */
BPEFLOW_API int bpeflow_sum_sort(bpeflow_sum *sum, uint8_t *data, int64_t *offsets, int64_t *counts);

BPEFLOW_API void bpeflow_sum_free(bpeflow_sum *sum);

/* ---- shards of counts ----------------------------------------------------------------------------------------- */

/* A shard is a sequence of distinct pre-tokens with their counts. A hash that is the same in every process assigns each
 * pre-token to a partition. The partitions come one after another, each in ascending order of bytes. Each record is the
 * length (uint32_t), the count (int64_t) and the bytes, without padding and in native byte order, as shards never leave
 * the machine or a cluster of its kind. A shard is in memory or, in the same format, in a file. */
enum { BPEFLOW_RECORD_SIZE = 12 }; /* size of a record without the pre-token's bytes */

/* A partition of a shard. */
typedef struct {
    const uint8_t *data; /* NULL for a shard in a file */
    const char *path;    /* path of the file */
    uint64_t tokens;     /* number of records */
    uint64_t size;       /* size of all records in bytes */
    uint64_t offset;     /* position of the first record in the file */
} bpeflow_shard;

/* The k-way sum of partitions: their records as one sequence in ascending order of bytes, in which the counts of equal
 * pre-tokens are added up. */
typedef struct bpeflow_kway bpeflow_kway;

/* Create a k-way sum. On success *kway is a handle, otherwise NULL. Shards in memory must outlive it. Files are
 * read in blocks of `buffer_size` bytes. */
BPEFLOW_API int bpeflow_kway_new(const bpeflow_shard *shards, uint64_t count, uint64_t buffer_size,
                                 bpeflow_kway **kway);

/* Write all records: to `data`, which has room for all records of all shards, or to a new file if `data` is NULL.
 * *tokens and *size are set to the number of records and their size. */
BPEFLOW_API int bpeflow_kway_write(bpeflow_kway *kway, uint8_t *data, const char *path, uint64_t *tokens,
                                   uint64_t *size);

/* Put up to `most` more records in canonical order: the pre-tokens into data[bytes], the position at which each begins,
 * and the end, into offsets[tokens + 1], and the counts into counts[tokens]. No two shards may have the same pre-token. The
 * arrays are the same ones in each call. *left is set to the number of records that are left: the arrays are complete when
 * it is 0. */
BPEFLOW_API int bpeflow_kway_place(bpeflow_kway *kway, uint64_t most, uint8_t *data, int64_t *offsets, int64_t *counts,
                                   uint64_t *left);

BPEFLOW_API void bpeflow_kway_free(bpeflow_kway *kway);

/* ---- learning merges ------------------------------------------------------------------------------------------- */

enum bpeflow_order {
    BPEFLOW_GREATEST_BYTES = 0, /* ties go to the greater (left bytes, right bytes) */
    BPEFLOW_SMALLEST_IDS = 1,   /* ties go to the smaller (left id, right id) */
};

/* The task to learn. `MergeTask` in bpeflow/backends/base.py explains each member. */
typedef struct {
    const uint8_t *data;    /* the pre-tokens' bytes, one after another; ignored if there are `ids` */
    const uint32_t *ids;    /* the tokens of encoded pre-tokens, each below `tokens`; NULL if pre-tokens are bytes */
    const int64_t *offsets; /* [words + 1]; pre-token i is data or ids[offsets[i]:offsets[i + 1]], not empty */
    const int64_t *counts;  /* [words], at least 1, in descending order */
    uint64_t words;
    const uint8_t *token_data;    /* the bytes of the tokens that exist before the first merge */
    const int64_t *token_offsets; /* [tokens + 1]; a token that no merge can make is empty */
    uint32_t tokens;
    uint32_t max_tokens;
    const uint32_t *byte_ids;  /* [256], each below `tokens`; the token of each single byte */
    int64_t min_frequency;     /* at least 1 */
    uint64_t max_token_length; /* in bytes; 0 for no limit */
    uint64_t max_words;        /* in a token; 0 for no limit */
    uint32_t order;            /* enum bpeflow_order */
    uint32_t reuse_tokens;     /* boolean */
    uint32_t scan;             /* boolean: search all pairs for each merge instead of using a heap */
    uint32_t threads;          /* 0 for one per core; ignored by the C backend */
    uint32_t colon_rule;       /* boolean: no token may contain a colon and then a space */
    /* Upper bound on the positions in a strip (learn/corpus.h), which does not affect the result. 0 for the maximum;
     * tests lower it. */
    uint64_t max_strip_positions;
} bpeflow_merge_task;

typedef struct {
    uint32_t left, right; /* the pair */
    uint32_t token;       /* the token that the merge makes */
    int64_t count;        /* the pair's count when it was merged */
} bpeflow_merge_record;

typedef struct {
    uint64_t words, positions, pairs;
    uint64_t occurrences_visited, occurrences_merged, stale_pops;
    uint64_t memory_bytes; /* approximate peak of allocated memory */
    uint64_t threads;
    double setup_seconds, selection_seconds, update_seconds;
} bpeflow_merge_statistics;

typedef struct bpeflow_learner bpeflow_learner;

/* Create a learner and count the pairs. On success *learner is a handle, otherwise NULL. */
BPEFLOW_API int bpeflow_learner_new(const bpeflow_merge_task *task, bpeflow_learner **learner);

/* Learn up to max_merges more merges into records[max_merges]. *learned is set to their number. If it is less than
 * max_merges, there are no more. Most memory is taken in the first call, so the task's arrays can be freed before. */
BPEFLOW_API int bpeflow_learner_step(bpeflow_learner *learner, uint64_t max_merges, bpeflow_merge_record *records,
                                     uint64_t *learned);

BPEFLOW_API int bpeflow_learner_statistics(const bpeflow_learner *learner, bpeflow_merge_statistics *statistics);

BPEFLOW_API void bpeflow_learner_free(bpeflow_learner *learner);

/* ---- encoding and decoding ------------------------------------------------------------------------------------- */

/* A vocabulary prepared for encoding and decoding. It is immutable, so any number of threads may use it at once. */
typedef struct bpeflow_model bpeflow_model;

/* Create a model. On success *model is a handle, otherwise NULL. */
BPEFLOW_API int bpeflow_model_new(const bpeflow_vocabulary *vocabulary, bpeflow_model **model);

BPEFLOW_API void bpeflow_model_free(bpeflow_model *model);

/* Read tiktoken's format: `lines` lines, each with a token in base64, a space, its rank and a newline. Token i is
 * data[offsets[i]:offsets[i + 1]] and has rank ranks[i]. The caller has data[size], offsets[lines + 1] and ranks[lines].
 * The status is BPEFLOW_DAMAGED for any other text, and if two tokens are equal. */
BPEFLOW_API int bpeflow_read_ranks(const uint8_t *text, uint64_t size, uint8_t *data, int64_t *offsets, int64_t *ranks,
                                   uint64_t lines);

/* Read merges as GPT-2's files have them: `lines` lines, each with two printable forms in UTF-8, a space between them and a
 * newline after them. `forms` has `count` different forms, each with a newline after it. The result is
 * merges[3 * lines] (left, right, result) as indices of forms. The status is BPEFLOW_DAMAGED for any other text, and for
 * forms that are not among them. */
BPEFLOW_API int bpeflow_read_merges(const uint8_t *text, uint64_t size, const uint8_t *forms, uint64_t forms_size,
                                    uint32_t count, uint32_t *merges, uint64_t lines);

/* Recover merges from ranks: token i is data[offsets[i]:offsets[i + 1]] and has rank i; it is empty if no token has that
 * rank. Merging a text joins the two adjacent pieces whose concatenation has the lowest rank, the leftmost first. If two
 * tokens have the same bytes, the lower rank counts. A token with a byte that has no id has no merge. The result is
 * merges[3 * *merge_count] (left, right, result) by ascending result, at most one for each token; the caller has
 * merges[3 * tokens]. */
BPEFLOW_API int bpeflow_recover_merges(const uint8_t *data, const int64_t *offsets, uint32_t tokens, uint32_t *merges,
                                       uint64_t *merge_count);

/* Special tokens to find in text, removed before pre-tokenization. If several match at one position, the longest
 * wins. Immutable, so any number of threads may use it at once. */
typedef struct bpeflow_specials bpeflow_specials;

/* Create a set of special tokens. `data` has their bytes, one after another; lengths[count], each at least 1;
 * ids[count]. On success *specials is a handle, otherwise NULL. */
BPEFLOW_API int bpeflow_specials_new(const uint8_t *data, const uint32_t *lengths, const uint32_t *ids, uint32_t count,
                                     bpeflow_specials **specials);

BPEFLOW_API void bpeflow_specials_free(bpeflow_specials *specials);

/* A cache from pre-tokens to ids, shared by the encoders of one model, which any number of threads may use at once. */
typedef struct bpeflow_cache bpeflow_cache;

/* Create a cache. It grows on demand up to three quarters of `bytes`. Once it is full, each encoder takes up to a quarter
 * for a private one. On success *cache is a handle, otherwise NULL. */
BPEFLOW_API int bpeflow_cache_new(uint64_t bytes, bpeflow_cache **cache);

BPEFLOW_API void bpeflow_cache_free(bpeflow_cache *cache);

/* The state of one encoding thread. */
typedef struct bpeflow_encoder bpeflow_encoder;

/* Create an encoder. It borrows the model and the cache, which must outlive it. `instructions` as for
 * bpeflow_table_new. On success *encoder is a handle, otherwise NULL. */
BPEFLOW_API int bpeflow_encoder_new(const bpeflow_model *model, bpeflow_cache *cache, const char *instructions,
                                    bpeflow_encoder **encoder);

typedef struct {
    const bpeflow_pattern *pattern;   /* NULL: a text, or each part of it between special tokens, is one pre-token */
    uint32_t id_size;                 /* in bytes: 2 (if all ids are below 65,536) or 4 */
    const bpeflow_specials *specials; /* NULL to treat special tokens as ordinary text */
    void *ids;                        /* [capacity] */
    uint64_t capacity;                /* a text never has more ids than bytes */
    uint64_t written;                 /* result: the number of ids */
} bpeflow_encoding;

/* Encode `pieces` texts, one after another in `data`. Piece i ends at ends[i] (ascending), and its ids end at
 * id_ends[i]. `id_ends` may be NULL. With a pattern the texts must be valid UTF-8, or the status is BPEFLOW_NOT_UTF8. */
BPEFLOW_API int bpeflow_encoder_encode(bpeflow_encoder *encoder, bpeflow_encoding *encoding, const uint8_t *data,
                                       const uint64_t *ends, uint64_t pieces, uint64_t *id_ends);

/* The same for `count` texts anywhere in memory. */
BPEFLOW_API int bpeflow_encoder_encode_texts(bpeflow_encoder *encoder, bpeflow_encoding *encoding,
                                             const uint8_t *const *texts, const uint64_t *sizes, uint64_t count,
                                             uint64_t *id_ends);

/* PyList_GetItem and PyUnicode_AsUTF8AndSize of the interpreter that calls. */
typedef void *(*bpeflow_item_of)(void *list, ptrdiff_t index);
typedef const char *(*bpeflow_utf8_of)(void *text, ptrdiff_t *size);

/* Find the UTF-8 of the first `count` texts in a Python list. The caller holds the interpreter lock. Return how many were
 * found: less than `count` after an exception of Python. The strings own their UTF-8, and keep it. */
BPEFLOW_API uint64_t bpeflow_find_texts(void *list, uint64_t count, bpeflow_item_of item_of, bpeflow_utf8_of utf8_of,
                                        const uint8_t **texts, uint64_t *sizes);

/* An encoder with the parameters of its calls, prepared once for many texts. */
typedef struct {
    bpeflow_encoder *encoder;
    bpeflow_encoding encoding;
} bpeflow_prepared;

/* The same as bpeflow_encoder_encode for one text. Return the number of ids, or -status. */
BPEFLOW_API int32_t bpeflow_encode_prepared(bpeflow_prepared *prepared, const uint8_t *text, int32_t length);

BPEFLOW_API void bpeflow_encoder_free(bpeflow_encoder *encoder);

/* Decode `count` ids, each of id_size 2 or 4 bytes. If `data` is NULL, set *size to the size of their tokens' bytes, or
 * on BPEFLOW_UNKNOWN_ID to the index of the first unknown id. Otherwise write the bytes to data[*size]; any other size
 * than that gives BPEFLOW_NO_ROOM. */
BPEFLOW_API int bpeflow_model_decode(const bpeflow_model *model, const void *ids, uint32_t id_size, uint64_t count,
                                     uint8_t *data, uint64_t *size);

#ifdef __cplusplus
}
#endif

#endif
