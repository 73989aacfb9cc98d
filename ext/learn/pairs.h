/* The pairs: a hash table from (left, right) to the pair's count and the list of its occurrences, and the memory for
 * these lists. C11 and C++17. */
#ifndef BPEFLOW_LEARN_PAIRS_H
#define BPEFLOW_LEARN_PAIRS_H

#include "array.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct pair {
    uint64_t key;  /* see pair_key; 0 is an empty slot */
    int64_t count; /* exact at the end of every merge */
    uint64_t list; /* the occurrences: start in `lists`, and length */
    uint64_t length;
};

/* Open addressing with linear probing. Pairs are stored in the table itself, so a look-up costs one cache miss, but
 * they move when it grows. At most two thirds full: a fuller table has long probes, and an emptier one makes the
 * kernel clear more pages. */
struct pairs {
    struct pair *slots;
    uint64_t used;
    unsigned bits; /* there are 2^bits slots */
};

/* Make a key. No key is 0, so memory from calloc is an empty table. */
static inline uint64_t pair_key(uint32_t left, uint32_t right) {
    return (((uint64_t)left + 1) << 32) | right;
}
static inline uint32_t key_left(uint64_t key) {
    return (uint32_t)(key >> 32) - 1;
}
static inline uint32_t key_right(uint64_t key) {
    return (uint32_t)key;
}

static inline uint64_t pairs_size(const struct pairs *pairs) {
    return pairs->slots ? (uint64_t)1 << pairs->bits : 0;
}

static inline uint64_t pairs_home(const struct pairs *pairs, uint64_t key) {
    /* The upper bits of a product depend on all bits of its factors, unlike the lower ones: so multiply, mix,
     * multiply, and take the upper bits. This also preserves the order of slots when the table doubles, which is
     * then copied front to back. */
    key = (key ^ key >> 32) * 0x9E3779B97F4A7C15u;
    return ((key ^ key >> 32) * 0xD6E8FEB86659FD93u) >> (64 - pairs->bits);
}

/* Return the pair's slot, or the empty slot where it belongs. */
static inline struct pair *pairs_slot(const struct pairs *pairs, uint64_t key) {
    for (uint64_t i = pairs_home(pairs, key);; i++) {
        struct pair *pair = &pairs->slots[i & (pairs_size(pairs) - 1)];
        if (pair->key == key || pair->key == 0) return pair;
    }
}

/* Prefetch the home slot of a pair. */
static inline void pairs_prefetch(const struct pairs *pairs, uint64_t key) {
    __builtin_prefetch(&pairs->slots[pairs_home(pairs, key)], 1);
}

/* Make room for `more` pairs; false if out of memory. Pairs that no longer occur are dropped when the table grows. */
static inline bool pairs_reserve(struct pairs *pairs, uint64_t more) {
    if (pairs->slots && pairs->used + more <= pairs_size(pairs) / 3 * 2) return true;
    uint64_t alive = 0;
    for (uint64_t i = 0; i < pairs_size(pairs); i++) alive += pairs->slots[i].count > 0;
    struct pairs grown = {NULL, alive, 12};
    while (alive + more > ((uint64_t)1 << grown.bits) / 2) grown.bits++;
    grown.slots = (struct pair *)calloc((uint64_t)1 << grown.bits, sizeof *grown.slots);
    if (!grown.slots) return false;
    for (uint64_t i = 0; i < pairs_size(pairs); i++) {
        const struct pair *pair = &pairs->slots[i];
        if (pair->count > 0) *pairs_slot(&grown, pair->key) = *pair;
    }
    free(pairs->slots);
    *pairs = grown;
    return true;
}

static inline uint64_t pairs_memory(const struct pairs *pairs) {
    return pairs_size(pairs) * sizeof *pairs->slots;
}
static inline void pairs_free(struct pairs *pairs) {
    free(pairs->slots);
}

/* All occurrence lists, one after another. An entry is the position of an occurrence in its strip, which is at least 1.
 * Between the entries of two strips there is a MARK: every list has one less than there are strips. */
#define MARK 0

/* Released parts of lists to remember. More would take longer to search. */
#define GAPS 32

struct gap {
    uint64_t start, length;
};

struct lists {
    uint32_t *entries; /* moves when it grows */
    uint64_t used, capacity;
    uint64_t needed;       /* entries of pairs that may still be chosen */
    struct gap gaps[GAPS]; /* parts to use again */
};

/* Make room for `more` entries; false if out of memory. */
static inline bool lists_reserve(struct lists *lists, uint64_t more) {
    void *entries = array_reserve(lists->entries, &lists->capacity, lists->used + more, sizeof *lists->entries);
    if (!entries) return false;
    lists->entries = (uint32_t *)entries;
    return true;
}

/* Return memory that no list needs now to the system; false if out of memory. */
static inline bool lists_shrink(struct lists *lists) {
    lists->capacity = 0; /* reallocate it */
    return lists_reserve(lists, 0);
}

/* Allocate a list, in a gap if it fits into one; false if out of memory. */
static inline bool lists_new(struct lists *lists, uint64_t length, uint64_t *list) {
    struct gap *gap = lists->gaps, *end = gap + GAPS;
    while (gap < end && gap->length < length) gap++;
    if (gap < end) {
        *list = gap->start;
        gap->start += length;
        gap->length -= length;
    } else {
        if (!lists_reserve(lists, length)) return false;
        *list = lists->used;
        lists->used += length;
    }
    lists->needed += length;
    return true;
}

/* Release the last `released` entries of a pair's list, to be reused. They take the place of the shortest gap, which is lost
 * until lists_compact. (Lists took 314 MB with a single gap, and 277 with 32, with 320 MB of multilingual text.) */
static inline void lists_release(struct lists *lists, struct pair *pair, uint64_t released) {
    pair->length -= released;
    lists->needed -= released;
    struct gap *shortest = lists->gaps;
    for (struct gap *gap = lists->gaps; gap < lists->gaps + GAPS; gap++)
        if (gap->length < shortest->length) shortest = gap;
    if (shortest->length >= released) return;
    shortest->start = pair->list + pair->length;
    shortest->length = released;
}

static inline int compare_lists(const void *a, const void *b) {
    uint64_t first = (*(struct pair *const *)a)->list, second = (*(struct pair *const *)b)->list;
    return (first > second) - (first < second);
}

/* Move the lists of all pairs with at least this count together, and forget all other lists and the released one; false if
 * out of memory. */
static inline bool lists_compact(struct lists *lists, struct pairs *pairs, int64_t min_count) {
    uint64_t kept = 0;
    for (uint64_t i = 0; i < pairs_size(pairs); i++) kept += pairs->slots[i].count >= min_count;
    struct pair **in_order = (struct pair **)malloc((kept + 1) * sizeof *in_order);
    if (!in_order) return false;
    kept = 0;
    for (uint64_t i = 0; i < pairs_size(pairs); i++)
        if (pairs->slots[i].count >= min_count) in_order[kept++] = &pairs->slots[i];
    qsort((void *)in_order, kept, sizeof *in_order, compare_lists);
    lists->used = 0;
    memset(lists->gaps, 0, sizeof lists->gaps);
    for (uint64_t i = 0; i < kept; i++) {
        struct pair *pair = in_order[i];
        memmove(&lists->entries[lists->used], &lists->entries[pair->list], pair->length * sizeof *lists->entries);
        pair->list = lists->used;
        lists->used += pair->length;
    }
    free((void *)in_order);
    lists->needed = lists->used;
    return true;
}

/* Return the number of entries in list[length] up to the next MARK, or the end. */
static inline uint64_t list_span(const uint32_t *list, uint64_t length, uint64_t strips) {
    if (strips == 1) return length;
    uint64_t span = 0;
    while (span < length && list[span] != MARK) span++;
    return span;
}

static inline uint64_t lists_memory(const struct lists *lists) {
    return lists->capacity * sizeof *lists->entries;
}
static inline void lists_free(struct lists *lists) {
    free(lists->entries);
}

#endif
