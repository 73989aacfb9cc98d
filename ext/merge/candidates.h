/* The candidates: which pair is merged next. */
#ifndef BPEFLOW_MERGE_CANDIDATES_H
#define BPEFLOW_MERGE_CANDIDATES_H

#include "bpeflow.h"
#include "pairs.h"
#include "tokens.h"

/* A pair and the count that it had when it became a candidate. */
struct candidate {
    int64_t count;
    uint32_t left, right;
};

/* Whether `a` is merged before `b`. Two tokens of the same bytes can make two pairs that look alike: then ids decide. */
static inline bool candidate_before(const struct tokens *tokens, uint32_t order, struct candidate a, struct candidate b)
{
    if (a.count != b.count) return a.count > b.count;
    if (order == BPEFLOW_GREATEST_BYTES) {
        int by_bytes = token_compare(tokens, a.left, b.left);
        if (by_bytes == 0) by_bytes = token_compare(tokens, a.right, b.right);
        if (by_bytes != 0) return by_bytes > 0;
    }
    return a.left != b.left ? a.left < b.left : a.right < b.right;
}

/* A binary heap whose root comes before all others. It is lazy: counts fall in the table of pairs while the entries
 * here stay as they are. `lowest` keeps it small: pairs with a lower count are not in it at all. Most pairs stay there
 * for ever (of 2 million pairs a vocabulary of 32,000 merges 1.6 %), so the heap stays in the cache. */
struct heap {
    struct candidate *entries;
    uint64_t count, capacity;
    int64_t lowest;
    const struct tokens *tokens;
    uint32_t order;
};

static inline void heap_sift_down(struct heap *heap, uint64_t hole, struct candidate entry)
{
    for (uint64_t child; (child = 2 * hole + 1) < heap->count; hole = child) {
        const struct candidate *children = &heap->entries[child];
        if (child + 1 < heap->count && candidate_before(heap->tokens, heap->order, children[1], children[0])) child++;
        if (!candidate_before(heap->tokens, heap->order, heap->entries[child], entry)) break;
        heap->entries[hole] = heap->entries[child];
    }
    heap->entries[hole] = entry;
}

/* Adds an entry at the end, which leaves a heap only after heap_order or heap_sift_up; false if there is no memory. */
static inline bool heap_append(struct heap *heap, struct candidate entry)
{
    if (heap->count == heap->capacity) {
        uint64_t capacity = heap->capacity ? heap->capacity * 2 : 4096;
        struct candidate *grown = realloc(heap->entries, capacity * sizeof *grown);
        if (!grown) return false;
        heap->entries = grown;
        heap->capacity = capacity;
    }
    heap->entries[heap->count++] = entry;
    return true;
}

static inline void heap_order(struct heap *heap)
{
    for (uint64_t i = heap->count / 2; i-- > 0;) heap_sift_down(heap, i, heap->entries[i]);
}

static inline bool heap_push(struct heap *heap, struct candidate entry)
{
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

/* Takes the root away. */
static inline void heap_pop(struct heap *heap)
{
    struct candidate last = heap->entries[--heap->count];
    if (heap->count > 0) heap_sift_down(heap, 0, last);
}

/* Gives the root, whose pair occurs less often by now, its true count. */
static inline void heap_lower_root(struct heap *heap, int64_t count)
{
    struct candidate root = heap->entries[0];
    root.count = count;
    heap_sift_down(heap, 0, root);
}

#endif
