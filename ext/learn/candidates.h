/* Candidates: choosing the pair to merge next. C11 and C++17. */
#ifndef BPEFLOW_LEARN_CANDIDATES_H
#define BPEFLOW_LEARN_CANDIDATES_H

#include "array.h"
#include "bpeflow.h"
#include "pairs.h"
#include "tokens.h"

/* A pair and its count when it became a candidate. */
struct candidate {
    int64_t count;
    uint64_t key; /* see pair_key */
};

/* Return whether `a` is merged before `b`. Two tokens with the same bytes can make pairs with equal bytes, so the
 * final tie-break is by ids, which is the order of keys. */
static inline bool candidate_before(const struct tokens *tokens, uint32_t order, struct candidate a,
                                    struct candidate b) {
    if (a.count != b.count) return a.count > b.count;
    if (order == BPEFLOW_GREATEST_BYTES) {
        int by_bytes = token_compare(tokens, key_left(a.key), key_left(b.key));
        if (by_bytes == 0) by_bytes = token_compare(tokens, key_right(a.key), key_right(b.key));
        if (by_bytes != 0) return by_bytes > 0;
    }
    return a.key < b.key;
}

/* A binary max-heap in the order of candidate_before. It is lazy: counts in the table of pairs fall while the
 * entries here keep their old counts. `lowest` keeps it small: pairs with a lower count are not in it. Most pairs
 * never enter it (of the 685,000 pairs of 600,000 words, 32,000 tokens merge 5 %), so the heap stays in the cache. */
struct heap {
    struct candidate *entries;
    uint64_t count, capacity;
    int64_t lowest;
    const struct tokens *tokens;
    uint32_t order;
};

static inline void heap_sift_down(struct heap *heap, uint64_t hole, struct candidate entry) {
    for (uint64_t child; (child = 2 * hole + 1) < heap->count; hole = child) {
        const struct candidate *children = &heap->entries[child];
        if (child + 1 < heap->count && candidate_before(heap->tokens, heap->order, children[1], children[0])) child++;
        if (!candidate_before(heap->tokens, heap->order, heap->entries[child], entry)) break;
        heap->entries[hole] = heap->entries[child];
    }
    heap->entries[hole] = entry;
}

/* Append an entry without restoring the heap order; false if out of memory. */
static inline bool heap_append(struct heap *heap, struct candidate entry) {
    void *entries = array_reserve(heap->entries, &heap->capacity, heap->count + 1, sizeof entry);
    if (!entries) return false;
    heap->entries = (struct candidate *)entries;
    heap->entries[heap->count++] = entry;
    return true;
}

static inline bool heap_push(struct heap *heap, struct candidate entry) {
    if (!heap_append(heap, entry)) return false;
    uint64_t hole = heap->count - 1;
    for (uint64_t parent; hole > 0; hole = parent) {
        parent = (hole - 1) / 2;
        if (!candidate_before(heap->tokens, heap->order, entry, heap->entries[parent])) break;
        heap->entries[hole] = heap->entries[parent];
    }
    heap->entries[hole] = entry;
    return true;
}

static inline void heap_pop(struct heap *heap) {
    struct candidate last = heap->entries[--heap->count];
    if (heap->count > 0) heap_sift_down(heap, 0, last);
}

/* Fill the empty heap with the pairs whose count is at least half of the highest count. So there are at most as many
 * refills as a count has bits. A higher limit would mean more refills, a lower one a larger heap. */
static inline bool heap_fill(struct heap *heap, const struct pairs *pairs, int64_t min_frequency) {
    int64_t highest = 0;
    for (uint64_t i = 0; i < pairs_size(pairs); i++)
        if (pairs->slots[i].count > highest) highest = pairs->slots[i].count;
    heap->lowest = highest - highest / 2;
    if (heap->lowest < min_frequency) heap->lowest = min_frequency;
    for (uint64_t i = 0; i < pairs_size(pairs); i++) {
        const struct pair *pair = &pairs->slots[i];
        struct candidate entry = {pair->count, pair->key};
        if (entry.count >= heap->lowest && !heap_append(heap, entry)) return false;
    }
    for (uint64_t i = heap->count / 2; i-- > 0;) heap_sift_down(heap, i, heap->entries[i]);
    return true;
}

/* Pop the best pair (count 0 if there is none); false if out of memory. */
static inline bool heap_best(struct heap *heap, const struct pairs *pairs, int64_t min_frequency, uint64_t *stale_pops,
                             struct candidate *best) {
    for (;;) {
        if (heap->count == 0 && !heap_fill(heap, pairs, min_frequency)) return false;
        best->count = 0;
        if (heap->count == 0) return true;
        *best = heap->entries[0];
        /* Every pair that is better than the root, or ever was, has an entry above it. So the root is the best pair
         * if its count is still up to date. */
        struct candidate now = *best;
        now.count = pairs_slot(pairs, best->key)->count;
        if (now.count < best->count && now.count >= heap->lowest)
            heap_sift_down(heap, 0, now);
        else
            heap_pop(heap);
        if (now.count == best->count) return true;
        ++*stale_pops;
    }
}

static inline uint64_t heap_memory(const struct heap *heap) {
    return heap->capacity * sizeof *heap->entries;
}
static inline void heap_free(struct heap *heap) {
    free(heap->entries);
}

/* Find the best pair by looking at all pairs in slots first to last - 1 of the table; count 0 if there is none. */
static inline struct candidate scan_best(const struct heap *heap, const struct pairs *pairs, int64_t min_frequency,
                                         uint64_t first, uint64_t last) {
    struct candidate best = {0, 0};
    for (uint64_t i = first; i < last; i++) {
        struct candidate candidate = {pairs->slots[i].count, pairs->slots[i].key};
        if (candidate.count < min_frequency || candidate.count < best.count) continue;
        if (candidate_before(heap->tokens, heap->order, candidate, best)) best = candidate;
    }
    return best;
}

#endif
