/* The ids of the tokens at positions. C11 and C++17.
 *
 * An id takes 2 bytes as long as there are few enough tokens, and 4 from then on, when the lists of occurrences have long
 * become shorter. Accesses are scattered, so smaller ids also save time: 8 % of it and 17 % of the memory for the 33
 * million positions of 150 MB of multilingual text, 5 % and 17 % for the 7 million of 150 MB of English.
 *
 * An id is stored plus 1, so 0 is END for both widths. Functions that access ids take the width as `wide`, and are
 * always inlined where it is a constant, so each is compiled once for each width and none tests it. */
#ifndef BPEFLOW_LEARN_IDS_H
#define BPEFLOW_LEARN_IDS_H

#include <stdbool.h>
#include <stdint.h>

#define END UINT32_MAX /* the id between pre-tokens; no token has it */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Return whether ids below `tokens` need 4 bytes. */
static inline bool ids_wide(uint32_t tokens) {
    return tokens > UINT16_MAX;
}

static inline uint64_t id_size(bool wide) {
    return wide ? sizeof(uint32_t) : sizeof(uint16_t);
}

ALWAYS_INLINE uint32_t id_at(const void *ids, uint64_t position, bool wide) {
    uint32_t stored = wide ? ((const uint32_t *)ids)[position] : ((const uint16_t *)ids)[position];
    return stored - 1;
}

ALWAYS_INLINE void set_id(void *ids, uint64_t position, uint32_t id, bool wide) {
    if (wide)
        ((uint32_t *)ids)[position] = id + 1;
    else
        ((uint16_t *)ids)[position] = (uint16_t)(id + 1);
}

/* Return the ids from a position on. */
ALWAYS_INLINE void *ids_from(void *ids, uint64_t position, bool wide) {
    return (char *)ids + position * id_size(wide);
}

/* Prefetch the ids of an occurrence of `size` bytes, which are going to be written, and of its neighbours. They can be in
 * two cache lines. */
ALWAYS_INLINE void prefetch_occurrence(const void *ids, uint64_t position, uint64_t size, bool wide) {
    __builtin_prefetch((const char *)ids + (position - 1) * id_size(wide), 1);
    __builtin_prefetch((const char *)ids + (position + size) * id_size(wide), 1);
}

#endif
