// Learning merges: the OpenMP backend, in C++17. Set-up and merges with many occurrences use several threads.
// learner.hpp has the algorithm, this file the C interface.

#include "bpeflow.h"
#include "learner.hpp"
#include "status.hpp"
#include "task.h"

#include <cstdint>

struct bpeflow_learner {
    bpeflow::Learner learner;
};

std::uint32_t bpeflow_abi() {
    return BPEFLOW_ABI;
}

int bpeflow_learner_new(const bpeflow_merge_task *task, bpeflow_learner **learner) {
    if (!learner) return BPEFLOW_BAD_ARGUMENT;
    *learner = nullptr;
    if (!task) return BPEFLOW_BAD_ARGUMENT;
    if (const int status = task_check(task); status != BPEFLOW_OK) return status;
    return bpeflow::status_of([&] { *learner = new bpeflow_learner{bpeflow::Learner(*task)}; });
}

int bpeflow_learner_step(bpeflow_learner *learner, std::uint64_t max_merges, bpeflow_merge_record *records,
                         std::uint64_t *learned) {
    if (!learner || !learned || (!records && max_merges > 0)) return BPEFLOW_BAD_ARGUMENT;
    *learned = 0;
    return bpeflow::status_of([&] {
        while (*learned < max_merges && learner->learner.next(records[*learned])) ++*learned;
    });
}

int bpeflow_learner_statistics(const bpeflow_learner *learner, bpeflow_merge_statistics *statistics) {
    if (!learner || !statistics) return BPEFLOW_BAD_ARGUMENT;
    *statistics = learner->learner.statistics();
    return BPEFLOW_OK;
}

void bpeflow_learner_free(bpeflow_learner *learner) {
    delete learner;
}
