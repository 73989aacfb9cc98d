/* Arrays that grow. */
#ifndef BPEFLOW_LEARN_ARRAY_H
#define BPEFLOW_LEARN_ARRAY_H

#include <stdint.h>
#include <stdlib.h>

/* Gives an array from malloc (or NULL, with capacity 0) room for at least `needed` elements of `size` bytes. Returns
 * the array, which may have moved; NULL if there is no memory, and then the old one is as it was.
 *
 * Room for a quarter more than needed: large arrays are not copied when they grow but remapped, which is cheap. */
static inline void *array_reserve(void *array, uint64_t *capacity, uint64_t needed, size_t size) {
    if (array && needed <= *capacity) return array;
    uint64_t larger = needed + needed / 4 + 16;
    if (larger > SIZE_MAX / size) return NULL;
    void *grown = realloc(array, (size_t)larger * size);
    if (grown) *capacity = larger;
    return grown;
}

#endif
