// The functions of libbpeflow_count that count pre-tokens. counter.hpp cuts texts into pre-tokens and table.hpp counts
// them.

#include "count.hpp"
#include "bpeflow.h"
#include "counter.hpp"
#include "delimiters.hpp"
#include "failure.hpp"
#include "kernels.hpp"
#include "shard.hpp"
#include "sorting.hpp"
#include "unicode_tables.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

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

int bpeflow_table_unmatched(const bpeflow_table *table, bpeflow_unmatched_text *unmatched) {
    if (!table || !unmatched) return BPEFLOW_BAD_ARGUMENT;
    *unmatched = table->counter.unmatched();
    return BPEFLOW_OK;
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
