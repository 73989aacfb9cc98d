// Counting the pre-tokens of texts: scanner → [units →] table.
#pragma once

#include "bpeflow.h"
#include "delimiters.hpp"
#include "kernels.hpp"
#include "pattern.hpp"
#include "scan.hpp"
#include "table.hpp"
#include "units.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
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
    // Count pairs or fragments instead of pre-tokens if there are units.
    Counter(const Kernels &kernels, Units *units, std::int64_t weight)
        : kernels_(kernels), table_(kernels, weight),
          reader_(units ? new UnitReader(*units, kernels, table_) : nullptr) {}

    // Count the pre-tokens of the documents in a text, up to the first document that is not valid UTF-8. Keep `counted`
    // up to date, so that it is right if this throws.
    void count_documents(const Pattern &pattern, const Delimiters &delimiters, const std::uint8_t *text,
                         std::size_t length, bpeflow_documents &counted) {
        const std::uint8_t *const end = text + length, *start = text;
        Document document;
        while (start < end) {
            document.find(delimiters, start, end);
            if (!kernels_.is_utf8(start, document.end)) break;
            for (const auto &[first, last] : document.pieces) count_piece(pattern, text, first, last, end, counted);
            start = document.next;
            counted.bytes = static_cast<std::uint64_t>(start - text);
            counted.documents++;
            counted.open = !document.closed;
        }
        table_.flush();
    }

    // Bring all counts into the table, which can be read after this, until more is counted.
    Table &completed() {
        if (reader_) reader_->pairs().give_to(table_);
        table_.complete();
        return table_;
    }

    // The table without the cells of pairs that were counted since it was completed.
    const Table &table() const { return table_; }

    // The number of these cells.
    std::size_t cells() const { return reader_ ? reader_->pairs().used() : 0; }

  private:
    using Bytes = const std::uint8_t *;

    // Count the pre-tokens of a piece of a text.
    void count_piece(const Pattern &pattern, Bytes text, Bytes start, Bytes end, Bytes text_end,
                     bpeflow_documents &counted) {
        const Unmatched found = scan(pattern, kernels_, start, static_cast<std::size_t>(end - start),
                                     [&](const PretokenBatch &tokens) { add(tokens, text_end); });
        const auto place = [text](Bytes at) { return static_cast<std::uint64_t>(at - text); };
        if (found.bytes > 0 && counted.unmatched == 0) {
            counted.unmatched_start = place(found.start);
            counted.unmatched_end = place(found.end);
            counted.piece_start = place(start);
            counted.piece_end = place(end);
        }
        counted.unmatched += found.bytes;
        counted.searched += place(end) - place(start);
    }

    // Bytes up to `readable_end` may be read.
    void add(const PretokenBatch &tokens, const std::uint8_t *readable_end) {
        if (reader_)
            reader_->count(tokens, readable_end);
        else
            table_.count(tokens, readable_end);
    }

    const Kernels &kernels_;
    Table table_;
    const std::unique_ptr<UnitReader> reader_; // null to count pre-tokens
};

} // namespace bpeflow
