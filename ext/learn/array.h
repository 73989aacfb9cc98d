/* Growing arrays. C11 and C++17.
 *
 * They are in pages of the usual size. Huge pages for ids, lists and pairs took 0.1 s less with 150 MB of multilingual text
 * when the same process learned again and again, but 0.2 to 0.3 s more in a training run, in set-up: there the kernel has to
 * find them first. */
#ifndef BPEFLOW_LEARN_ARRAY_H
#define BPEFLOW_LEARN_ARRAY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* Grow an array from malloc (or NULL with capacity 0) to at least `needed` elements of `size` bytes. Return the
 * array, which may have moved. On failure return NULL and leave the array as it was.
 *
 * The capacity is a quarter more than needed. Large arrays are not copied when they grow but remapped, which is
 * cheap. */
static inline void *array_reserve(void *array, uint64_t *capacity, uint64_t needed, size_t size) {
    if (array && needed <= *capacity) return array;
    uint64_t larger = needed + needed / 4 + 16;
    if (larger > SIZE_MAX / size) return NULL;
    void *grown = realloc(array, (size_t)larger * size);
    if (grown) *capacity = larger;
    return grown;
}

/* Return freed memory to the system, which malloc otherwise keeps for later. */
static inline void return_freed_memory(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* Grow an array that is filled from the start again and again. If it was much longer before, return that memory to the
 * system: the longest list of occurrences is among the first, when the lists in all have yet to grow. (521 MB became 485
 * MB with 300 MB of multilingual text.) */
static inline void *array_refill(void *array, uint64_t *capacity, uint64_t needed, size_t size) {
    uint64_t least = 1 << 16; /* elements; smaller arrays are not worth a system call */
    if (needed < least) needed = least;
    if (needed >= *capacity / 8) return array_reserve(array, capacity, needed, size);
    bool large = *capacity * size > 1 << 22; /* a few times in all: it takes milliseconds */
    *capacity = 0;                           /* reallocate it */
    array = array_reserve(array, capacity, needed, size);
    if (array && large) return_freed_memory();
    return array;
}

#endif
