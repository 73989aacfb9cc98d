// The handles of tables and units.
#pragma once

#include "counter.hpp"
#include "kernels.hpp"
#include "units.hpp"

struct bpeflow_units {
    bpeflow::Units units;
};

struct bpeflow_table {
    bpeflow_table(const bpeflow::Kernels &kernels, bpeflow_units *units, std::int64_t weight)
        : counter(kernels, units ? &units->units : nullptr, weight) {}

    bpeflow::Counter counter;
};
