/* Learning merges: the C backend. One thread, plain C11. learner.h has the algorithm, this file the C interface. */

#include "learner.h"

struct bpeflow_learner {
    struct learner learner;
    struct part part;
    struct share *share; /* until the lists are written */
};

uint32_t bpeflow_abi(void) {
    return BPEFLOW_ABI;
}

/* Store the pre-tokens, count their pairs, and allocate the pairs' lists. */
static int set_up(struct bpeflow_learner *learner, const bpeflow_merge_task *task) {
    struct learner *l = &learner->learner;
    if (!learner_init(l, task)) return BPEFLOW_NO_MEMORY;
    if (task->ids) return set_up_encoded(l, task);
    corpus_lay_out(&l->corpus, task, 0, task->words);
    learner->share = calloc(1, sizeof *learner->share);
    if (!learner->share) return BPEFLOW_NO_MEMORY;
    if (!count_byte_pairs(learner->share, task, 0, task->words)) return BPEFLOW_OVERFLOW;
    return add_byte_pairs(l, learner->share->pairs, task->byte_ids) ? BPEFLOW_OK : BPEFLOW_NO_MEMORY;
}

int bpeflow_learner_new(const bpeflow_merge_task *task, bpeflow_learner **learner) {
    if (!learner) return BPEFLOW_BAD_ARGUMENT;
    *learner = NULL;
    if (!task) return BPEFLOW_BAD_ARGUMENT;
    int status = task_check(task);
    if (status != BPEFLOW_OK) return status;

    double start = seconds();
    struct bpeflow_learner *made = calloc(1, sizeof *made);
    if (!made) return BPEFLOW_NO_MEMORY;
    status = set_up(made, task);
    if (status != BPEFLOW_OK) {
        bpeflow_learner_free(made);
        return status;
    }
    made->learner.statistics.threads = 1;
    made->learner.statistics.setup_seconds = seconds() - start;
    *learner = made;
    return BPEFLOW_OK;
}

/* Write the pairs' lists before the first merge, when the caller has had time to free what it set up the learner with. */
static void list_first_pairs(struct bpeflow_learner *learner) {
    struct learner *l = &learner->learner;
    if (l->listed) return;
    double start = seconds();
    if (learner->share)
        list_byte_pairs(l, learner->share);
    else
        list_id_pairs(l);
    free(learner->share);
    learner->share = NULL;
    l->listed = true;
    l->statistics.setup_seconds += seconds() - start;
}

static struct candidate scan(const struct learner *l) {
    return scan_best(&l->heap, &l->pairs, l->limits.min_frequency, 0, pairs_size(&l->pairs));
}

int bpeflow_learner_step(bpeflow_learner *learner, uint64_t max_merges, bpeflow_merge_record *records,
                         uint64_t *learned) {
    if (!learner || !learned || (!records && max_merges > 0)) return BPEFLOW_BAD_ARGUMENT;
    struct learner *l = &learner->learner;
    list_first_pairs(learner);
    for (*learned = 0; *learned < max_merges; ++*learned) {
        bpeflow_merge_record *merge = &records[*learned];
        bool found;
        if (!next_merge(l, scan, merge, &found)) return BPEFLOW_NO_MEMORY;
        if (!found) return BPEFLOW_OK;
        double start = seconds();
        const struct pair pair = *pairs_slot(&l->pairs, pair_key(merge->left, merge->right));
        if (!merge_occurrences(l, &pair, merge, &learner->part)) return BPEFLOW_NO_MEMORY;
        l->statistics.update_seconds += seconds() - start;
    }
    return BPEFLOW_OK;
}

int bpeflow_learner_statistics(const bpeflow_learner *learner, bpeflow_merge_statistics *statistics) {
    if (!learner || !statistics) return BPEFLOW_BAD_ARGUMENT;
    *statistics = learner->learner.statistics;
    statistics->memory_bytes += part_memory(&learner->part);
    return BPEFLOW_OK;
}

void bpeflow_learner_free(bpeflow_learner *learner) {
    if (!learner) return;
    learner_free(&learner->learner);
    part_free(&learner->part);
    free(learner->share);
    free(learner);
}
