// The functions of libbpeflow_count for sums of tables. The algorithms are in sum.hpp.

#include "sum.hpp"
#include "bpeflow.h"
#include "count.hpp"
#include "failure.hpp"
#include "table.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

struct bpeflow_sum {
    bpeflow::TableSum sum;
};

int bpeflow_sum_new(bpeflow_table *const *tables, std::uint64_t count, std::uint32_t parts, bpeflow_sum **sum) {
    if (!sum) return BPEFLOW_BAD_ARGUMENT;
    *sum = nullptr;
    if ((!tables && count > 0) || parts == 0) return BPEFLOW_BAD_ARGUMENT;
    if (std::any_of(tables, tables + count, [](const bpeflow_table *table) { return !table; }))
        return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        std::vector<bpeflow::Table *> completed(count);
        for (std::uint64_t i = 0; i < count; i++) completed[i] = &tables[i]->counter.completed();
        *sum = new bpeflow_sum{{std::move(completed), parts}};
    });
}

int bpeflow_sum_add_up(bpeflow_sum *sum, std::uint32_t partition) {
    if (!sum || partition >= sum->sum.parts()) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { sum->sum.add_up(partition); });
}

int bpeflow_sum_sort(bpeflow_sum *sum, std::uint32_t part, std::uint64_t *tokens, std::uint64_t *bytes) {
    if (!sum || part >= sum->sum.parts() || !tokens || !bytes) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        sum->sum.sort(part);
        *tokens = sum->sum.tokens(part);
        *bytes = sum->sum.bytes(part);
    });
}

int bpeflow_sum_write(const bpeflow_sum *sum, std::uint32_t part, std::int64_t begin, std::uint8_t *data,
                      std::int64_t *ends, std::int64_t *counts) {
    if (!sum || part >= sum->sum.parts() || !data || !ends || !counts) return BPEFLOW_BAD_ARGUMENT;
    sum->sum.write(part, begin, data, ends, counts);
    return BPEFLOW_OK;
}

void bpeflow_sum_free(bpeflow_sum *sum) {
    delete sum;
}
