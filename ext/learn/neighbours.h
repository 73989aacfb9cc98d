/* The neighbours of the occurrences being merged. The changes of a merge are added up for each neighbour, so that
 * the table of pairs is accessed once per distinct neighbour and not once per occurrence. C11 and C++17. */
#ifndef BPEFLOW_LEARN_NEIGHBOURS_H
#define BPEFLOW_LEARN_NEIGHBOURS_H

#include "array.h"
#include "ids.h"
#include "pairs.h"

#include <stdbool.h>
#include <string.h>

/* The cursor of a neighbour whose new pair needs no list. */
#define NOWHERE UINT64_MAX

/* The changes due to a neighbouring token. */
struct neighbour {
    union {
        int64_t weight; /* number of occurrences with this neighbour, weighted by pre-token counts; then, for lists: */
        int64_t back;   /* distance from the start of the new pair's left token to the new token */
    };
    uint64_t entries; /* number of occurrences with this neighbour */
    uint64_t cursor;  /* index in `lists` for the new pair's next occurrence, or NOWHERE */
};

/* One side of the occurrences, left or right. */
struct side {
    struct neighbour *neighbours; /* [capacity]; see neighbour_of; zero if not met */
    uint32_t *met;                /* [capacity + 1]; the distinct neighbours, which may include END */
    uint64_t met_count, capacity;
    void *ids;            /* the neighbour of each occurrence; see id_at */
    bool wide;            /* whether ids take 4 bytes; as in the corpus, where they come from */
    uint64_t id_capacity; /* in bytes */
};

/* Return the entry of a neighbour. END is a neighbour, too, which saves the walk a test: END + 1 wraps around to
 * index 0. */
static inline struct neighbour *neighbour_of(const struct side *side, uint32_t id) {
    return &side->neighbours[id + 1];
}

/* Forget all neighbours. */
static inline void side_clear(struct side *side) {
    for (uint64_t m = 0; m < side->met_count; m++)
        memset(neighbour_of(side, side->met[m]), 0, sizeof *side->neighbours);
    side->met_count = 0;
}

/* Clear the side, and make room for this many tokens and occurrences; false if out of memory. */
static inline bool side_reset(struct side *side, uint32_t tokens, uint64_t occurrences, bool wide) {
    void *ids = array_refill(side->ids, &side->id_capacity, occurrences * id_size(wide), 1);
    if (!ids) return false;
    side->ids = ids;
    side->wide = wide;
    if (tokens < side->capacity) {
        side_clear(side);
        return true;
    }
    free(side->neighbours);
    free(side->met);
    side->met_count = 0;
    side->capacity = ((uint64_t)tokens + 1) * 2;
    side->neighbours = (struct neighbour *)calloc(side->capacity, sizeof *side->neighbours);
    side->met = (uint32_t *)malloc((side->capacity + 1) * sizeof *side->met);
    return side->neighbours && side->met;
}

/* Enter a neighbour, if it is new, whose occurrences are recorded next. */
static inline void side_meet(struct side *side, uint32_t id) {
    side->met[side->met_count] = id; /* kept only if it is new */
    side->met_count += neighbour_of(side, id)->entries == 0;
}

/* Record a neighbour of `entries` occurrences. Weights cannot overflow: their sum is at most the count of the merged
 * pair. */
static inline void side_add(struct side *side, uint32_t id, int64_t weight, uint64_t entries) {
    side_meet(side, id);
    struct neighbour *neighbour = neighbour_of(side, id);
    neighbour->entries += entries;
    neighbour->weight += weight;
}

/* Record the neighbour of one occurrence. */
ALWAYS_INLINE void side_note(struct side *side, uint32_t id, uint64_t occurrence, int64_t weight, bool wide) {
    side_add(side, id, weight, 1);
    set_id(side->ids, occurrence, id, wide);
}

ALWAYS_INLINE void side_write_entries(const struct side *side, const uint32_t *positions, uint64_t length,
                                      uint64_t strips, uint32_t *lists, bool wide) {
    for (uint64_t o = 0;; o++) {
        for (uint64_t end = o + list_span(positions + o, length - o, strips); o < end; o++) {
            struct neighbour *neighbour = neighbour_of(side, id_at(side->ids, o, wide));
            if (neighbour->cursor != NOWHERE) lists[neighbour->cursor++] = positions[o] - (uint32_t)neighbour->back;
        }
        if (o == length) return;
        for (uint64_t m = 0; m < side->met_count; m++) {
            struct neighbour *neighbour = neighbour_of(side, side->met[m]);
            if (neighbour->cursor != NOWHERE) lists[neighbour->cursor++] = MARK;
        }
    }
}

/* Write the occurrences at positions[length] to the lists of the new pairs. */
static inline void side_write_lists(const struct side *side, const uint32_t *positions, uint64_t length,
                                    uint64_t strips, uint32_t *lists) {
    if (side->wide)
        side_write_entries(side, positions, length, strips, lists, true);
    else
        side_write_entries(side, positions, length, strips, lists, false);
}

static inline uint64_t side_memory(const struct side *side) {
    return side->capacity * (sizeof *side->neighbours + sizeof *side->met) + side->id_capacity;
}

static inline void side_free(struct side *side) {
    free(side->neighbours);
    free(side->met);
    free(side->ids);
}

/* A part of the occurrences being merged: all of them, or those of one thread. */
struct part {
    struct side before, after;
    uint32_t *positions; /* [length]: the occurrences that were merged, and MARKs as in a list */
    uint64_t length, capacity;
    uint64_t merged; /* number of occurrences */
};

/* Clear the part, and make room for this many tokens and occurrences; false if out of memory. */
static inline bool part_reset(struct part *part, uint32_t tokens, uint64_t occurrences, bool wide) {
    uint32_t *positions = (uint32_t *)array_refill(part->positions, &part->capacity, occurrences, sizeof *positions);
    if (!positions) return false;
    part->positions = positions;
    part->length = part->merged = 0;
    return side_reset(&part->before, tokens, occurrences, wide) && side_reset(&part->after, tokens, occurrences, wide);
}

static inline uint64_t part_memory(const struct part *part) {
    return side_memory(&part->before) + side_memory(&part->after) + part->capacity * sizeof *part->positions;
}

static inline void part_free(struct part *part) {
    side_free(&part->before);
    side_free(&part->after);
    free(part->positions);
}

#endif
