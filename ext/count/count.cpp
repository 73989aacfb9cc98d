// Counting pre-tokens: the functions of libbpeflow_count. table.hpp tells how it works; scan/scan.hpp cuts texts.

#include "border.hpp"
#include "bpeflow.h"
#include "delimiters.hpp"
#include "instructions.hpp"
#include "partition.hpp"
#include "run.hpp"
#include "scan.hpp"
#include "table.hpp"
#include "utf8.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

struct bpeflow_table {
    bpeflow::Classify classify;
    bpeflow::Table table;
};

namespace bpeflow {
namespace {

using Bytes = const std::uint8_t *;

// Counts the pre-tokens of the text from `start` to `end`; what is behind that may be read up to `readable_end`.
void count_text(bpeflow_table &counting, std::uint32_t pattern, Bytes start, Bytes end, Bytes readable_end) {
    const bool known = scan(pattern, counting.classify, start, static_cast<std::size_t>(end - start),
                            [&](Bytes token, std::size_t size) {
                                counting.table.add(token, size, static_cast<std::size_t>(readable_end - token), 1);
                            });
    if (!known) throw Failure{BPEFLOW_BAD_ARGUMENT};
}

// The pieces of a document: what is between its delimiters.
struct Document {
    std::vector<std::pair<Bytes, Bytes>> pieces;
    Bytes end, next; // of its text; where the next document starts
    bool closed;     // by a separator

    // Finds the document that starts at `start` in a text that ends at `end`.
    void find(const Delimiters &delimiters, Bytes start, Bytes text_end) {
        pieces.clear();
        for (Delimiters::Match match{start, start, false, 0};;) {
            const Bytes piece = match.end;
            match = delimiters.find(piece, text_end);
            pieces.emplace_back(piece, match.start);
            if (match.separator || match.start == text_end) {
                end = match.start;
                next = match.end;
                closed = match.separator;
                return;
            }
        }
    }
};

} // namespace
} // namespace bpeflow

std::uint32_t bpeflow_abi() {
    return BPEFLOW_ABI;
}

const char *bpeflow_unicode_version() {
    return bpeflow::unicode::VERSION;
}

const char *bpeflow_instructions() {
    return bpeflow::instructions();
}

int bpeflow_table_new(const char *instructions, bpeflow_table **table) {
    if (!table) return BPEFLOW_BAD_ARGUMENT;
    *table = nullptr;
    const bpeflow::Classify classify = bpeflow::find_classify(instructions);
    if (!classify) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { *table = new bpeflow_table{classify, {}}; });
}

int bpeflow_table_count(bpeflow_table *table, std::uint32_t pattern, const std::uint8_t *text, std::uint64_t length) {
    if (!table || (!text && length > 0)) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        bpeflow::count_text(*table, pattern, text, text + length, text + length);
        table->table.flush();
    });
}

int bpeflow_table_count_documents(bpeflow_table *table, std::uint32_t pattern, const bpeflow_delimiters *given,
                                  const std::uint8_t *text, std::uint64_t length, bpeflow_documents *counted) {
    if (!table || !given || (!text && length > 0) || !counted) return BPEFLOW_BAD_ARGUMENT;
    if (given->count > 0 && (!given->data || !given->lengths)) return BPEFLOW_BAD_ARGUMENT;
    if (std::any_of(given->lengths, given->lengths + given->count, [](std::uint32_t size) { return size == 0; }))
        return BPEFLOW_BAD_ARGUMENT;
    *counted = {};
    return bpeflow::status_of([&] {
        const bpeflow::Delimiters delimiters(*given);
        const std::uint8_t *const end = text + length, *start = text;
        bpeflow::Document document;
        while (start < end) {
            document.find(delimiters, start, end);
            if (!bpeflow::is_utf8(start, document.end)) break;
            for (const auto &piece : document.pieces)
                bpeflow::count_text(*table, pattern, piece.first, piece.second, end);
            start = document.next;
            counted->bytes = static_cast<std::uint64_t>(start - text);
            counted->documents++;
            counted->open = !document.closed;
        }
        table->table.flush();
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
