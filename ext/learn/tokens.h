/* The tokens: their bytes, comparison, and look-up by bytes. C11 and C++17. */
#ifndef BPEFLOW_LEARN_TOKENS_H
#define BPEFLOW_LEARN_TOKENS_H

#include "array.h"
#include "bpeflow.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct tokens {
    uint32_t count;
    uint64_t *starts; /* [capacity]; token t is bytes[starts[t]:starts[t + 1]] */
    uint64_t *spans;  /* [spans_capacity]; the number of positions that each token takes; see corpus.h */
    uint8_t *bytes;   /* [bytes_capacity]; all tokens, one after another */
    uint64_t capacity, spans_capacity, bytes_capacity;
    /* If tokens are reused: an index of the task's tokens by their bytes, with open addressing. 0 is an empty slot,
     * t + 1 is token t. Learned tokens need not be in it, as no string becomes a token twice. */
    uint32_t *index;
    uint64_t index_size; /* a power of two, at least twice the number of tokens in the index */
};

static inline uint64_t token_length(const struct tokens *tokens, uint32_t token) {
    return tokens->starts[token + 1] - tokens->starts[token];
}

static inline const uint8_t *token_bytes(const struct tokens *tokens, uint32_t token) {
    return tokens->bytes + tokens->starts[token];
}

/* Compare two tokens as byte strings. The result is below, equal to or above 0 as `a` is smaller than, equal to or
 * greater than `b`. */
static inline int token_compare(const struct tokens *tokens, uint32_t a, uint32_t b) {
    if (a == b) return 0;
    uint64_t length_a = token_length(tokens, a), length_b = token_length(tokens, b);
    int order = memcmp(token_bytes(tokens, a), token_bytes(tokens, b), length_a < length_b ? length_a : length_b);
    if (order != 0) return order;
    return (length_a > length_b) - (length_a < length_b);
}

/* Return the index slot of the token with these bytes, or the empty slot where it belongs. */
static inline uint32_t *tokens_slot(const struct tokens *tokens, const uint8_t *bytes, uint64_t length) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (uint64_t i = 0; i < length; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    for (uint64_t i = hash ^ (hash >> 32);; i++) {
        uint32_t *slot = &tokens->index[i & (tokens->index_size - 1)];
        if (*slot == 0) return slot;
        uint32_t token = *slot - 1;
        if (token_length(tokens, token) == length && memcmp(token_bytes(tokens, token), bytes, length) == 0)
            return slot;
    }
}

/* Add a token to the index, unless an earlier one has the same bytes. */
static inline void tokens_enter(struct tokens *tokens, uint32_t token) {
    uint64_t length = token_length(tokens, token);
    uint32_t *slot = tokens_slot(tokens, token_bytes(tokens, token), length);
    if (*slot == 0) *slot = token + 1;
}

/* Make room for `more` tokens of `bytes` bytes in all; false if out of memory. */
static inline bool tokens_reserve(struct tokens *tokens, uint64_t more, uint64_t bytes) {
    uint64_t used = tokens->count > 0 ? tokens->starts[tokens->count] : 0;
    uint8_t *grown = (uint8_t *)array_reserve(tokens->bytes, &tokens->bytes_capacity, used + bytes, sizeof *grown);
    if (!grown) return false;
    tokens->bytes = grown;
    uint64_t *spans =
        (uint64_t *)array_reserve(tokens->spans, &tokens->spans_capacity, tokens->count + more, sizeof *spans);
    if (!spans) return false;
    tokens->spans = spans;
    if (tokens->starts && tokens->count + more < tokens->capacity) return true;

    uint64_t *starts =
        (uint64_t *)array_reserve(tokens->starts, &tokens->capacity, tokens->count + more + 1, sizeof *starts);
    if (!starts) return false;
    starts[0] = 0;
    tokens->starts = starts;
    return true;
}

/* Copy the tokens of a task; false if out of memory. */
static inline bool tokens_copy(struct tokens *tokens, const bpeflow_merge_task *task) {
    const int64_t *offsets = task->token_offsets;
    uint64_t bytes = (uint64_t)(offsets[task->tokens] - offsets[0]);
    if (!tokens_reserve(tokens, task->tokens, bytes)) return false;
    memcpy(tokens->bytes, task->token_data + offsets[0], bytes);
    tokens->count = task->tokens;
    for (uint32_t token = 0; token < task->tokens; token++)
        tokens->starts[token + 1] = (uint64_t)(offsets[token + 1] - offsets[0]);
    for (uint32_t token = 0; token < task->tokens; token++)
        tokens->spans[token] = task->ids ? 1 : token_length(tokens, token);
    if (!task->reuse_tokens) return true;

    for (tokens->index_size = 1024; tokens->index_size / 2 < task->tokens;) tokens->index_size *= 2;
    tokens->index = (uint32_t *)calloc(tokens->index_size, sizeof *tokens->index);
    if (!tokens->index) return false;
    for (uint32_t token = 0; token < task->tokens; token++) tokens_enter(tokens, token);
    return true;
}

/* Return the token made of `left` and `right`: a new one or, if tokens are reused, the one with these bytes. Room
 * for it must have been reserved. */
static inline uint32_t tokens_join(struct tokens *tokens, uint32_t left, uint32_t right) {
    uint64_t end = tokens->starts[tokens->count];
    uint64_t length_left = token_length(tokens, left), length_right = token_length(tokens, right);
    memcpy(tokens->bytes + end, token_bytes(tokens, left), length_left);
    memcpy(tokens->bytes + end + length_left, token_bytes(tokens, right), length_right);
    if (tokens->index) {
        uint32_t slot = *tokens_slot(tokens, tokens->bytes + end, length_left + length_right);
        if (slot != 0) {
            tokens->spans[slot - 1] = tokens->spans[left] + tokens->spans[right];
            return slot - 1;
        }
    }
    tokens->spans[tokens->count] = tokens->spans[left] + tokens->spans[right];
    tokens->starts[tokens->count + 1] = end + length_left + length_right;
    return tokens->count++;
}

static inline uint64_t tokens_memory(const struct tokens *tokens) {
    return tokens->bytes_capacity + tokens->capacity * sizeof *tokens->starts +
           tokens->spans_capacity * sizeof *tokens->spans + tokens->index_size * sizeof *tokens->index;
}

static inline void tokens_free(struct tokens *tokens) {
    free(tokens->bytes);
    free(tokens->starts);
    free(tokens->spans);
    free(tokens->index);
}

#endif
