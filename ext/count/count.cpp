// Counting pre-tokens: the functions of libbpeflow_count. table.hpp tells how it works; scan/scanner.hpp cuts texts.

#include "border.hpp"
#include "bpeflow.h"
#include "partition.hpp"
#include "run.hpp"
#include "scanner.hpp"
#include "table.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bpeflow {
namespace {

// scan() of a text that may be empty, and a null pointer then.
template <typename Emit>
void scan_text(std::uint32_t pattern, const std::uint8_t *text, std::uint64_t length, const Emit &emit) {
    static constexpr std::uint8_t nothing[1] = {};
    if (!scan(pattern, text ? text : nothing, length, emit)) throw Failure{BPEFLOW_BAD_ARGUMENT};
}

} // namespace
} // namespace bpeflow

std::uint32_t bpeflow_abi() {
    return BPEFLOW_ABI;
}

const char *bpeflow_unicode_version() {
    return bpeflow::unicode::VERSION;
}

int bpeflow_table_new(bpeflow_table **table) {
    if (!table) return BPEFLOW_BAD_ARGUMENT;
    *table = nullptr;
    return bpeflow::status_of([&] { *table = new bpeflow_table(); });
}

int bpeflow_table_count(bpeflow_table *table, std::uint32_t pattern, const std::uint8_t *text, std::uint64_t length) {
    if (!table || (!text && length > 0)) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        bpeflow::Table &counts = table->table;
        const std::uint8_t *const end = text + length;
        bpeflow::scan_text(pattern, text, length, [&](const std::uint8_t *token, std::size_t size) {
            counts.add(token, size, static_cast<std::size_t>(end - token), 1);
        });
        counts.flush();
    });
}

int bpeflow_table_add(bpeflow_table *table, const std::uint8_t *data, const std::uint32_t *lengths,
                      const std::int64_t *counts, std::uint64_t tokens) {
    if (!table || ((!data || !lengths || !counts) && tokens > 0)) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        std::size_t left = 0;
        for (std::uint64_t i = 0; i < tokens; i++) {
            if (lengths[i] == 0 || counts[i] < 1) throw bpeflow::Failure{BPEFLOW_BAD_ARGUMENT};
            left += lengths[i];
        }
        for (std::uint64_t i = 0; i < tokens; i++) {
            table->table.add(data, lengths[i], left, counts[i]);
            data += lengths[i];
            left -= lengths[i];
        }
        table->table.flush();
    });
}

int bpeflow_table_size(const bpeflow_table *table, std::uint32_t partition, std::uint32_t partitions,
                       std::uint64_t *tokens, std::uint64_t *bytes) {
    if (!table || partition >= partitions || !tokens || !bytes) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        const bpeflow::PartitionSize size = bpeflow::size_of(table->table, {partition, partitions});
        *tokens = size.tokens;
        *bytes = size.bytes;
    });
}

int bpeflow_table_memory(const bpeflow_table *table, std::uint64_t more, std::uint64_t *bytes) {
    if (!table || !bytes) return BPEFLOW_BAD_ARGUMENT;
    *bytes = table->table.memory(more, sizeof(bpeflow::Entry));
    return BPEFLOW_OK;
}

int bpeflow_table_write(const bpeflow_table *table, std::uint32_t partition, std::uint32_t partitions,
                        std::uint8_t *data, const char *path) {
    if (!table || partition >= partitions || (!data && !path)) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        const std::vector<bpeflow::Entry> entries = bpeflow::sorted(table->table, {partition, partitions});
        if (data) {
            bpeflow::write_records(entries, [&](std::size_t size) { return std::exchange(data, data + size); });
        } else {
            bpeflow::RunWriter writer(path, bpeflow::RunWriter::usual_buffer);
            bpeflow::write_records(entries, [&](std::size_t size) { return writer.place(size); });
            writer.close();
        }
    });
}

void bpeflow_table_free(bpeflow_table *table) {
    delete table;
}
