// Counting the pre-tokens of texts: scanner → table.
#pragma once

#include "bpeflow.h"
#include "delimiters.hpp"
#include "failure.hpp"
#include "kernels.hpp"
#include "scan.hpp"
#include "table.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bpeflow {

// One document of a text, without its delimiters.
struct Document {
    using Bytes = const std::uint8_t *;

    std::vector<std::pair<Bytes, Bytes>> pieces; // the text between delimiters
    Bytes end = nullptr, next = nullptr;         // end of its text; start of the next document
    bool closed = false;                         // by a separator

    // Find the document that starts at `start` in a text that ends at `text_end`.
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

class Counter {
  public:
    explicit Counter(const Kernels &kernels) : kernels_(kernels), table_(kernels) {}

    // Count the pre-tokens of a text, which must be valid UTF-8.
    void count(std::uint32_t pattern, const std::uint8_t *text, std::size_t length) {
        count_piece(pattern, text, text + length, text + length);
        table_.flush();
    }

    // Count the pre-tokens of the documents in a text, up to the first document that is not valid UTF-8. Keep `counted`
    // up to date, so that it is right if this throws.
    void count_documents(std::uint32_t pattern, const Delimiters &delimiters, const std::uint8_t *text,
                         std::size_t length, bpeflow_documents &counted) {
        const std::uint8_t *const end = text + length, *start = text;
        Document document;
        while (start < end) {
            document.find(delimiters, start, end);
            if (!kernels_.is_utf8(start, document.end)) break;
            for (const auto &[first, last] : document.pieces) count_piece(pattern, first, last, end);
            start = document.next;
            counted.bytes = static_cast<std::uint64_t>(start - text);
            counted.documents++;
            counted.open = !document.closed;
        }
        table_.flush();
    }

    Table &table() { return table_; }
    const Table &table() const { return table_; }

  private:
    // Count the pre-tokens between `start` and `end`. Bytes up to `readable_end` may be read.
    void count_piece(std::uint32_t pattern, const std::uint8_t *start, const std::uint8_t *end,
                     const std::uint8_t *readable_end) {
        const bool known = scan(pattern, kernels_, start, static_cast<std::size_t>(end - start),
                                [&](const PretokenBatch &tokens) { table_.count(tokens, readable_end); });
        if (!known) throw Failure{BPEFLOW_BAD_ARGUMENT};
    }

    const Kernels &kernels_;
    Table table_;
};

} // namespace bpeflow
