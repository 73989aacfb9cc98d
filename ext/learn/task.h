/* Checking a task, and the values that both native backends derive from it. C11 and C++17. */
#ifndef BPEFLOW_LEARN_TASK_H
#define BPEFLOW_LEARN_TASK_H

#include "bpeflow.h"

#include <stdbool.h>

/* Upper bound on the positions of a strip; see corpus.h. */
#define MAX_SHARD_POSITIONS (UINT32_MAX - 1)

/* Return the position of a pre-token's first unit. One position is left free before each pre-token. For `word` equal
 * to task->words, this is the total number of positions; see corpus.h. */
static inline uint64_t task_position(const bpeflow_merge_task *task, uint64_t word) {
    if (task->words == 0) return 1;
    return (uint64_t)(task->offsets[word] - task->offsets[0]) + word + 1;
}

/* Return the first pre-token that starts at or after a position. For positions after the last unit of all pre-tokens
 * this is task->words or, after their last END, too, task->words + 1. */
static inline uint64_t task_word_at(const bpeflow_merge_task *task, uint64_t position) {
    uint64_t low = 0, high = task->words + 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (task_position(task, middle) < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Return one past the last pre-token of the strip that begins with pre-token `first`: as many as fit, but at least
 * one. */
static inline uint64_t task_strip_end(const bpeflow_merge_task *task, uint64_t first) {
    uint64_t limit = task->max_strip_positions;
    if (limit == 0 || limit > MAX_SHARD_POSITIONS) limit = MAX_SHARD_POSITIONS;
    uint64_t last = task_word_at(task, task_position(task, first) + limit) - 1;
    return last > first || task->words == 0 ? last : first + 1;
}

/* Return the token with which unit `unit` of all pre-tokens begins. */
static inline uint32_t task_unit_id(const bpeflow_merge_task *task, int64_t unit) {
    return task->ids ? task->ids[unit] : task->byte_ids[task->data[unit]];
}

/* Return the length of a pre-token in bytes. */
static inline uint64_t task_word_length(const bpeflow_merge_task *task, uint64_t word) {
    if (!task->ids) return (uint64_t)(task->offsets[word + 1] - task->offsets[word]);
    uint64_t length = 0;
    for (int64_t unit = task->offsets[word]; unit < task->offsets[word + 1]; unit++) {
        uint32_t token = task->ids[unit];
        length += (uint64_t)(task->token_offsets[token + 1] - task->token_offsets[token]);
    }
    return length;
}

/* Which texts may become a token: learning reads them byte by byte, as they consist of several tokens. */
struct text_rules {
    uint64_t max_words; /* separated by ASCII white space; UINT64_MAX for no limit */
    bool colon_rule;    /* no colon and then a space */
};

static inline bool text_rules_any(const struct text_rules *rules) {
    return rules->max_words != UINT64_MAX || rules->colon_rule;
}

/* A text read so far. Initially all zero. */
struct text_state {
    uint64_t words;
    uint8_t last; /* 0 before the first byte */
};

static inline bool is_white_space(uint8_t byte) {
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Read more of a text; false if the rules forbid it. */
static inline bool text_read(struct text_state *state, const struct text_rules *rules, const uint8_t *bytes,
                             uint64_t length) {
    for (uint64_t i = 0; i < length; i++) {
        bool begins = !is_white_space(bytes[i]) && (state->words == 0 || is_white_space(state->last));
        if (begins && ++state->words > rules->max_words) return false;
        if (rules->colon_rule && state->last == ':' && bytes[i] == ' ') return false;
        state->last = bytes[i];
    }
    return true;
}

static inline struct text_rules task_text_rules(const bpeflow_merge_task *task) {
    struct text_rules rules = {task->max_words ? task->max_words : UINT64_MAX, task->colon_rule != 0};
    return rules;
}

/* Return whether the rules allow the text of a pre-token. */
static inline bool task_word_allowed(const bpeflow_merge_task *task, const struct text_rules *rules, uint64_t word) {
    struct text_state state = {0, 0};
    const int64_t *ends = task->offsets + word;
    if (!task->ids) return text_read(&state, rules, task->data + ends[0], (uint64_t)(ends[1] - ends[0]));
    for (int64_t unit = ends[0]; unit < ends[1]; unit++) {
        const int64_t *token = task->token_offsets + task->ids[unit];
        if (!text_read(&state, rules, task->token_data + token[0], (uint64_t)(token[1] - token[0]))) return false;
    }
    return true;
}

/* Return whether pre-token `word` is the first one with its count. */
static inline int task_count_changes(const bpeflow_merge_task *task, uint64_t word) {
    return word == 0 || task->counts[word] != task->counts[word - 1];
}

/* Return a count below which no pair is ever chosen, so that rarer pairs need not be kept: the count of the n-th
 * most frequent pre-token that can become a token, with n = max_tokens - 256. (At 600,000 words and 32,000 tokens
 * this is 40, and the last pair chosen has 95. 66,000 of 685,000 pairs are kept, which fit into the cache: 0.22 s
 * instead of 0.40 s.) `lowest_count` in bpeflow/backends/base.py has the proof. */
static inline int64_t task_lowest_count(const bpeflow_merge_task *task) {
    uint64_t longest = task->max_token_length ? task->max_token_length : UINT64_MAX;
    uint64_t needed = task->max_tokens > 256 ? task->max_tokens - 256 : 1;
    struct text_rules rules = task_text_rules(task);
    for (uint64_t word = 0; word < task->words; word++) {
        uint64_t length = task_word_length(task, word);
        bool possible = length >= 2 && length <= longest;
        if (possible && text_rules_any(&rules)) possible = task_word_allowed(task, &rules, word);
        needed -= possible;
        if (needed == 0) return task->counts[word] > task->min_frequency ? task->counts[word] : task->min_frequency;
    }
    return task->min_frequency;
}

static inline int task_check_tokens(const bpeflow_merge_task *task) {
    if (task->tokens == UINT32_MAX) return BPEFLOW_TOO_LARGE;
    if (task->tokens == 0 || task->token_offsets[0] < 0) return BPEFLOW_BAD_ARGUMENT;
    for (uint32_t token = 0; token < task->tokens; token++)
        if (task->token_offsets[token + 1] < task->token_offsets[token]) return BPEFLOW_BAD_ARGUMENT;
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t token = task->byte_ids[byte];
        if (token >= task->tokens) return BPEFLOW_BAD_ARGUMENT;
        int64_t start = task->token_offsets[token];
        if (task->token_offsets[token + 1] - start != 1 || task->token_data[start] != byte) return BPEFLOW_BAD_ARGUMENT;
    }
    return BPEFLOW_OK;
}

static inline int task_check_words(const bpeflow_merge_task *task) {
    if (task->words == 0) return BPEFLOW_OK;
    if (task->offsets[0] < 0 || task->counts[task->words - 1] < 1) return BPEFLOW_BAD_ARGUMENT;
    uint64_t runs = 0;
    for (uint64_t word = 0; word < task->words; word++) {
        if (task->offsets[word + 1] <= task->offsets[word]) return BPEFLOW_BAD_ARGUMENT;
        if (task->offsets[word + 1] - task->offsets[word] > MAX_SHARD_POSITIONS - 2) return BPEFLOW_TOO_LARGE;
        if (word > 0 && task->counts[word] > task->counts[word - 1]) return BPEFLOW_BAD_ARGUMENT;
        runs += task_count_changes(task, word) ? 1 : 0;
    }
    for (int64_t unit = task->offsets[0]; task->ids && unit < task->offsets[task->words]; unit++)
        if (task->ids[unit] >= task->tokens) return BPEFLOW_BAD_ARGUMENT;
    return runs >= UINT32_MAX ? BPEFLOW_TOO_LARGE : BPEFLOW_OK;
}

/* Return BPEFLOW_OK, or the status of the first rule that the task breaks. */
static inline int task_check(const bpeflow_merge_task *task) {
    if (task->min_frequency < 1 || task->order > BPEFLOW_SMALLEST_IDS) return BPEFLOW_BAD_ARGUMENT;
    int status = task_check_tokens(task);
    return status == BPEFLOW_OK ? task_check_words(task) : status;
}

#endif
