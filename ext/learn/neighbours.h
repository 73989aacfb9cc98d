/* The neighbours of the occurrences being merged. The changes of a merge are added up for each neighbour, so that
 * the table of pairs is accessed once per distinct neighbour and not once per occurrence. */
#ifndef BPEFLOW_LEARN_NEIGHBOURS_H
#define BPEFLOW_LEARN_NEIGHBOURS_H

#include "array.h"
#include "corpus.h"

#include <stdbool.h>

/* The changes that one neighbouring token causes. */
struct neighbour {
    int64_t weight;   /* number of occurrences with this neighbour, weighted by pre-token counts */
    uint32_t entries; /* number of occurrences with this neighbour */
    uint32_t back;    /* distance from the start of the new pair's left token to the new token */
    uint64_t cursor;  /* arena index for the new pair's next occurrence */
};

/* One side of the occurrences, left or right. */
struct side {
    struct neighbour *neighbours; /* [capacity]; all zero between merges; see neighbour_of */
    uint32_t *met;                /* [capacity + 1]; the ids, including END, whose neighbours are not zero */
    uint64_t met_count, capacity;
    uint32_t *ids; /* the neighbour of each occurrence */
    uint64_t id_capacity;
};

/* Return the entry of a neighbour. END is a neighbour, too, which saves the walk a test: END + 1 wraps around to
 * index 0. */
static inline struct neighbour *neighbour_of(const struct side *side, uint32_t id) {
    return &side->neighbours[id + 1];
}

/* Make room for this many tokens and occurrences; false if out of memory. Only between merges. */
static inline bool side_reserve(struct side *side, uint32_t tokens, uint64_t occurrences) {
    uint32_t *ids = array_reserve(side->ids, &side->id_capacity, occurrences, sizeof *ids);
    if (!ids) return false;
    side->ids = ids;
    if (tokens < side->capacity) return true;
    side->capacity = ((uint64_t)tokens + 1) * 2;
    free(side->neighbours);
    free(side->met);
    side->neighbours = calloc(side->capacity, sizeof *side->neighbours);
    side->met = malloc((side->capacity + 1) * sizeof *side->met);
    return side->neighbours && side->met;
}

/* Record the neighbour of one occurrence. Weights cannot overflow: their sum is at most the count of the merged
 * pair. */
static inline void side_note(struct side *side, uint32_t id, uint32_t occurrence, int64_t weight) {
    struct neighbour *neighbour = neighbour_of(side, id);
    side->met[side->met_count] = id; /* kept only if it is new */
    side->met_count += neighbour->entries == 0;
    neighbour->entries++;
    neighbour->weight += weight;
    side->ids[occurrence] = id;
}

/* Reset all neighbours to zero. */
static inline void side_clear(struct side *side) {
    for (uint64_t m = 0; m < side->met_count; m++) *neighbour_of(side, side->met[m]) = (struct neighbour){0};
    side->met_count = 0;
}

static inline uint64_t side_memory(const struct side *side) {
    return side->capacity * (sizeof *side->neighbours + sizeof *side->met) + side->id_capacity * sizeof *side->ids;
}

static inline void side_free(struct side *side) {
    free(side->neighbours);
    free(side->met);
    free(side->ids);
}

#endif
