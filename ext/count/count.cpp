// The functions of libbpeflow_count. counter.hpp cuts texts into pre-tokens and table.hpp counts them. sum.hpp adds up
// tables, and kway.hpp shards.

#include "bpeflow.h"
#include "canonical.hpp"
#include "counter.hpp"
#include "delimiters.hpp"
#include "failure.hpp"
#include "kernels.hpp"
#include "key.hpp"
#include "kway.hpp"
#include "shard.hpp"
#include "sorting.hpp"
#include "sum.hpp"
#include "table.hpp"
#include "unicode_tables.hpp"
#include "units.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

struct bpeflow_units {
    bpeflow::Units units;
};

struct bpeflow_table {
    bpeflow_table(const bpeflow::Kernels &kernels, bpeflow_units *units, std::int64_t weight)
        : counter(kernels, units ? &units->units : nullptr, weight) {}

    bpeflow::Counter counter;
};

struct bpeflow_sum {
    bpeflow::TableSum sum;
};

struct bpeflow_kway {
    bpeflow::KwaySum sum;
    bpeflow::CanonicalArrays arrays;
    bool placing = false;
};

std::uint32_t bpeflow_abi() {
    return BPEFLOW_ABI;
}

const char *bpeflow_unicode_version() {
    return bpeflow::unicode::VERSION;
}

const char *bpeflow_instructions() {
    return bpeflow::instructions();
}

int bpeflow_units_new(const bpeflow_vocabulary *vocabulary, const std::uint32_t *cells, std::uint64_t count,
                      bpeflow_units **units) {
    if (!units) return BPEFLOW_BAD_ARGUMENT;
    *units = nullptr;
    if (!vocabulary || !bpeflow::Model::is_valid(*vocabulary)) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { *units = new bpeflow_units{{*vocabulary, cells, count}}; });
}

void bpeflow_units_free(bpeflow_units *units) {
    delete units;
}

int bpeflow_table_new(const char *instructions, bpeflow_units *units, std::int64_t weight, bpeflow_table **table) {
    if (!table) return BPEFLOW_BAD_ARGUMENT;
    *table = nullptr;
    const bpeflow::Kernels *const kernels = bpeflow::find_kernels(instructions);
    if (!kernels || weight < 1) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { *table = new bpeflow_table(*kernels, units, weight); });
}

int bpeflow_table_count(bpeflow_table *table, const bpeflow_pattern *pattern, const bpeflow_delimiters *delimiters,
                        const std::uint8_t *text, std::uint64_t length, bpeflow_documents *counted) {
    if (!table || !pattern || !delimiters || (!text && length > 0) || !counted) return BPEFLOW_BAD_ARGUMENT;
    if (delimiters->count > 0 && (!delimiters->data || !delimiters->lengths)) return BPEFLOW_BAD_ARGUMENT;
    if (std::any_of(delimiters->lengths, delimiters->lengths + delimiters->count,
                    [](std::uint32_t size) { return size == 0; }))
        return BPEFLOW_BAD_ARGUMENT;
    *counted = {};
    return bpeflow::status_of([&] {
        table->counter.count_documents(pattern->pattern, bpeflow::Delimiters(*delimiters), text, length, *counted);
    });
}

int bpeflow_table_add(bpeflow_table *table, const std::uint8_t *data, const std::int64_t *offsets,
                      const std::int64_t *counts, std::uint64_t tokens, std::int64_t below, std::uint64_t one_in) {
    if (!table || ((!data || !offsets || !counts) && tokens > 0) || one_in == 0) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        bpeflow::Table &added = table->counter.completed();
        bpeflow::Key key; // only its hash
        for (std::uint64_t i = 0; i < tokens; i++) {
            const std::uint8_t *const token = data + offsets[i];
            const auto length = static_cast<std::size_t>(offsets[i + 1] - offsets[i]);
            const auto readable = static_cast<std::size_t>(offsets[tokens] - offsets[i]);
            std::int64_t count = counts[i];
            if (count < below) {
                key.set(token, length, readable, 0);
                if (key.hash > UINT64_MAX / one_in) continue;
                if (__builtin_mul_overflow(count, one_in, &count)) throw bpeflow::Failure{BPEFLOW_OVERFLOW};
            }
            added.add(token, length, readable, count);
        }
        added.flush();
    });
}

int bpeflow_table_size(const bpeflow_table *table, std::uint64_t *tokens, std::uint64_t *bytes) {
    if (!table || !tokens || !bytes) return BPEFLOW_BAD_ARGUMENT;
    *tokens = table->counter.table().tokens() + table->counter.cells();
    *bytes = table->counter.table().bytes() + bpeflow::cells::KEY * table->counter.cells();
    return BPEFLOW_OK;
}

int bpeflow_table_memory(const bpeflow_table *table, std::uint64_t more, std::uint64_t *bytes) {
    if (!table || !bytes) return BPEFLOW_BAD_ARGUMENT;
    *bytes = table->counter.table().memory(more + table->counter.cells(), sizeof(bpeflow::Entry));
    return BPEFLOW_OK;
}

int bpeflow_table_write(bpeflow_table *table, std::uint32_t partitions, std::uint8_t *data, const char *path,
                        std::uint64_t *tokens, std::uint64_t *sizes) {
    if (!table || partitions == 0 || (!data && !path) || !tokens || !sizes) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        bpeflow::Table &counts = table->counter.completed();
        const std::vector<bpeflow::Entry> entries = bpeflow::sorted(counts, partitions, tokens, sizes);
        bpeflow::ShardWriter writer(data, path);
        bpeflow::write_records(entries, writer);
        writer.close();
    });
}

void bpeflow_table_free(bpeflow_table *table) {
    delete table;
}

int bpeflow_sum_new(bpeflow_table *const *tables, std::uint64_t count, std::uint32_t threads, bpeflow_sum **sum) {
    if (!sum) return BPEFLOW_BAD_ARGUMENT;
    *sum = nullptr;
    if ((!tables && count > 0) || threads == 0) return BPEFLOW_BAD_ARGUMENT;
    if (std::any_of(tables, tables + count, [](const bpeflow_table *table) { return !table; }))
        return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        std::vector<bpeflow::Table *> completed(count);
        for (std::uint64_t i = 0; i < count; i++) completed[i] = &tables[i]->counter.completed();
        *sum = new bpeflow_sum{{std::move(completed), threads}};
    });
}

int bpeflow_sum_add_up(bpeflow_sum *sum) {
    if (!sum) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { sum->sum.add_up(); });
}

int bpeflow_sum_divide(bpeflow_sum *sum) {
    if (!sum) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { sum->sum.divide(); });
}

int bpeflow_sum_size(bpeflow_sum *sum, std::uint64_t *tokens, std::uint64_t *bytes) {
    if (!sum || !tokens || !bytes) return BPEFLOW_BAD_ARGUMENT;
    const bpeflow::TableSum::Size size = sum->sum.size();
    *tokens = size.tokens;
    *bytes = size.bytes;
    return BPEFLOW_OK;
}

int bpeflow_sum_distribute(bpeflow_sum *sum, std::uint8_t *data, std::int64_t *offsets, std::int64_t *counts) {
    if (!sum || !data || !offsets || !counts) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { sum->sum.distribute(data, offsets, counts); });
}

int bpeflow_sum_sort(bpeflow_sum *sum, std::uint8_t *data, std::int64_t *offsets, std::int64_t *counts) {
    if (!sum || !data || !offsets || !counts) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { sum->sum.sort(data, offsets, counts); });
}

void bpeflow_sum_free(bpeflow_sum *sum) {
    delete sum;
}

int bpeflow_kway_new(const bpeflow_shard *shards, std::uint64_t count, std::uint64_t buffer_size, bpeflow_kway **kway) {
    if (!kway) return BPEFLOW_BAD_ARGUMENT;
    *kway = nullptr;
    if ((!shards && count > 0) || buffer_size == 0) return BPEFLOW_BAD_ARGUMENT;
    for (std::uint64_t i = 0; i < count; i++)
        if (!shards[i].data && !shards[i].path) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        std::vector<bpeflow::ShardReader> readers;
        readers.reserve(count);
        for (std::uint64_t i = 0; i < count; i++) readers.emplace_back(shards[i], buffer_size);
        *kway = new bpeflow_kway{bpeflow::KwaySum(std::move(readers)), {}};
    });
}

int bpeflow_kway_write(bpeflow_kway *kway, std::uint8_t *data, const char *path, std::uint64_t *tokens,
                       std::uint64_t *size) {
    if (!kway || (!data && !path) || !tokens || !size) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        bpeflow::ShardWriter writer(data, path);
        *tokens = *size = 0;
        for (;;) {
            std::uint8_t *record;
            std::uint32_t length;
            const std::int64_t count = kway->sum.next([&](const bpeflow::Record &next) {
                length = next.length;
                record = writer.reserve(BPEFLOW_RECORD_SIZE + std::size_t{length});
                std::memcpy(record + BPEFLOW_RECORD_SIZE, next.bytes, length);
                return record + BPEFLOW_RECORD_SIZE;
            });
            if (count == 0) break;
            bpeflow::put_header(record, length, count);
            *tokens += 1;
            *size += BPEFLOW_RECORD_SIZE + std::uint64_t{length};
        }
        writer.close();
    });
}

int bpeflow_kway_place(bpeflow_kway *kway, std::uint64_t most, std::uint8_t *data, std::int64_t *offsets,
                       std::int64_t *counts, std::uint64_t *left) {
    if (!kway || !data || !offsets || !counts || !left) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        if (!std::exchange(kway->placing, true)) {
            kway->sum.each([&](const bpeflow::Record &record) { kway->arrays.note(record); });
            kway->arrays.begin(data, offsets, counts);
        }
        std::vector<std::uint8_t> bytes;
        for (; most > 0 && kway->arrays.left() > 0; most--) {
            const std::int64_t count = kway->sum.next([&](const bpeflow::Record &next) {
                bytes.assign(next.bytes, next.bytes + next.length);
                return bytes.data();
            });
            if (count == 0) throw bpeflow::Failure{BPEFLOW_DAMAGED}; // two shards had the same pre-token
            kway->arrays.put(bytes.data(), bytes.size(), count);
        }
        *left = kway->arrays.left();
    });
}

void bpeflow_kway_free(bpeflow_kway *kway) {
    const bool last = kway && kway->placing;
    delete kway;
#if defined(__GLIBC__)
    // After the last sum, the heaps of the threads that counted and summed are full of holes that no other thread can use.
    // Return them to the kernel before learning starts, which sets the peak memory of a training run. (600,000
    // pre-tokens: 176-181 MB in all without this, 166 MB with it.)
    if (last) malloc_trim(0);
#endif
}
