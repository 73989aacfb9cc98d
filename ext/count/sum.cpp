// The functions of libbpeflow_count for sums of tables. The algorithms are in sum.hpp.

#include "sum.hpp"
#include "bpeflow.h"
#include "count.hpp"
#include "failure.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

struct bpeflow_sum {
    bpeflow::TableSum sum;
};

struct bpeflow_sorted {
    bpeflow::SortedPart part;
};

int bpeflow_sum_new(bpeflow_table *const *tables, std::uint64_t count, std::uint32_t partition,
                    std::uint32_t partitions, bpeflow_sum **sum) {
    if (!sum) return BPEFLOW_BAD_ARGUMENT;
    *sum = nullptr;
    if ((!tables && count > 0) || partition >= partitions) return BPEFLOW_BAD_ARGUMENT;
    for (std::uint64_t i = 0; i < count; i++)
        if (!tables[i] || !tables[i]->counter.table().settled() || tables[i]->counter.cells() > 0)
            return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        std::vector<bpeflow::Table *> summed;
        summed.reserve(count);
        for (std::uint64_t i = 0; i < count; i++) summed.push_back(&tables[i]->counter.settled());
        *sum = new bpeflow_sum{{summed, partition, partitions}};
    });
}

void bpeflow_sum_free(bpeflow_sum *sum) {
    delete sum;
}

int bpeflow_sorted_new(const bpeflow_sum *const *sums, std::uint64_t count, std::uint64_t part, std::uint64_t parts,
                       bpeflow_sorted **sorted, std::uint64_t *tokens, std::uint64_t *bytes) {
    if (!sorted) return BPEFLOW_BAD_ARGUMENT;
    *sorted = nullptr;
    if ((!sums && count > 0) || part >= parts || !tokens || !bytes) return BPEFLOW_BAD_ARGUMENT;
    if (std::any_of(sums, sums + count, [](const bpeflow_sum *sum) { return !sum; })) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        std::vector<const bpeflow::TableSum *> all;
        all.reserve(count);
        for (std::uint64_t i = 0; i < count; i++) {
            all.push_back(&sums[i]->sum);
            const bool others = all[i]->tables() != all[0]->tables() || !all[i]->is(i, count);
            if (others) throw bpeflow::Failure{BPEFLOW_BAD_ARGUMENT};
        }
        *sorted = new bpeflow_sorted{{all, part, parts}};
        *tokens = (*sorted)->part.tokens();
        *bytes = (*sorted)->part.bytes();
    });
}

int bpeflow_sorted_write(const bpeflow_sorted *sorted, std::int64_t begin, std::uint8_t *data, std::int64_t *ends,
                         std::int64_t *counts) {
    if (!sorted) return BPEFLOW_BAD_ARGUMENT;
    if (sorted->part.tokens() == 0) return BPEFLOW_OK;
    if (!data || !ends || !counts) return BPEFLOW_BAD_ARGUMENT;
    sorted->part.write(begin, data, ends, counts);
    return BPEFLOW_OK;
}

void bpeflow_sorted_free(bpeflow_sorted *sorted) {
    delete sorted;
}
