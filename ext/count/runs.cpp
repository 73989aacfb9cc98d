// Runs of counts: the functions of libbpeflow_count that merge them. merge_runs.hpp tells how it works.

#include "border.hpp"
#include "bpeflow.h"
#include "merge_runs.hpp"
#include "run.hpp"
#include "sinks.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

struct bpeflow_run_merge {
    std::vector<bpeflow::RunReader> readers;
    std::variant<bpeflow::RunMerge<bpeflow::ByBytes>, bpeflow::RunMerge<bpeflow::ByCount>> merge;
    std::uint64_t size = 0; // of all runs
    std::uint64_t failed = UINT64_MAX;
    bpeflow::Gathered gathered;

    bpeflow_run_merge(std::vector<bpeflow::RunReader> &&of, std::uint32_t order)
        : readers(std::move(of)), merge(std::in_place_index<0>, readers) {
        if (order == BPEFLOW_BY_COUNT) merge.emplace<1>(readers);
    }
};

namespace bpeflow {
namespace {

// Calls work(merge) with the merge of the right order, and makes a status of what it throws.
template <typename Work> int status_of_merge(bpeflow_run_merge *handle, const Work &work) noexcept {
    handle->failed = UINT64_MAX;
    return std::visit(
        [&](auto &merge) noexcept {
            return status_of([&] {
                try {
                    work(merge);
                } catch (const OutputFailure &) {
                    throw;
                } catch (const Failure &failure) {
                    if (failure.status == BPEFLOW_IO || failure.status == BPEFLOW_DAMAGED)
                        handle->failed = merge.reading();
                    throw;
                }
            });
        },
        handle->merge);
}

// Calls write(writer) with a new file.
template <typename Write> std::uint64_t write_file(const char *path, const Write &write) {
    RunWriter writer(path, RunWriter::usual_buffer);
    write(writer);
    writer.close();
    return writer.written();
}

} // namespace
} // namespace bpeflow

int bpeflow_run_merge_new(const bpeflow_run *runs, std::uint64_t count, std::uint32_t order, std::uint64_t buffer_size,
                          bpeflow_run_merge **merge) {
    if (!merge) return BPEFLOW_BAD_ARGUMENT;
    *merge = nullptr;
    if ((!runs && count > 0) || order > BPEFLOW_BY_COUNT || buffer_size == 0) return BPEFLOW_BAD_ARGUMENT;
    for (std::uint64_t i = 0; i < count; i++)
        if (!runs[i].data && !runs[i].path) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        std::vector<bpeflow::RunReader> readers;
        readers.reserve(count);
        std::uint64_t size = 0;
        for (std::uint64_t i = 0; i < count; i++) {
            readers.emplace_back(runs[i], buffer_size);
            size += runs[i].size;
        }
        *merge = new bpeflow_run_merge(std::move(readers), order);
        (*merge)->size = size;
    });
}

std::uint64_t bpeflow_run_merge_failed(const bpeflow_run_merge *merge) {
    return merge ? merge->failed : UINT64_MAX;
}

int bpeflow_run_merge_ended(bpeflow_run_merge *merge, std::uint32_t *ended) {
    if (!merge || !ended) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of_merge(merge, [&](auto &records) { *ended = records.ended(); });
}

int bpeflow_run_merge_read(bpeflow_run_merge *merge, std::uint64_t max_tokens, std::uint64_t max_bytes,
                           std::int64_t begin, std::uint8_t *data, std::int64_t *ends, std::int64_t *counts,
                           std::uint64_t *tokens, std::uint64_t *bytes) {
    if (!merge || !tokens || !bytes || ((!ends || !counts) && max_tokens > 0) || (!data && max_bytes > 0))
        return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of_merge(merge, [&](auto &records) {
        bpeflow::Columns columns(max_tokens, max_bytes, begin, data, ends, counts);
        while (records.pass(columns)) {
        }
        *tokens = columns.tokens;
        *bytes = columns.bytes;
    });
}

int bpeflow_run_merge_write(bpeflow_run_merge *merge, const char *path, std::uint64_t *tokens, std::uint64_t *size) {
    if (!merge || !path || !tokens || !size) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of_merge(merge, [&](auto &records) {
        *size = bpeflow::write_file(path, [&](bpeflow::RunWriter &writer) {
            bpeflow::RunFile file(writer);
            while (records.pass(file)) {
            }
            *tokens = file.tokens;
        });
    });
}

int bpeflow_run_merge_gather(bpeflow_run_merge *merge, std::uint64_t memory, std::uint64_t *tokens,
                             std::uint64_t *size) {
    if (!merge || merge->merge.index() != BPEFLOW_BY_BYTES || !tokens || !size) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of_merge(merge, [&](auto &records) {
        merge->gathered = bpeflow::Gathered(); // frees the earlier ones first
        bpeflow::Gathered gathered(memory, merge->size);
        while (records.pass(gathered)) {
        }
        gathered.sort();
        *tokens = gathered.tokens();
        *size = gathered.size();
        merge->gathered = std::move(gathered);
    });
}

int bpeflow_run_merge_save(bpeflow_run_merge *merge, std::uint8_t *data, const char *path) {
    if (!merge || (!data && !path && merge->gathered.size() > 0)) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        if (!path) {
            merge->gathered.write([&](std::size_t size) { return std::exchange(data, data + size); });
        } else {
            bpeflow::write_file(path, [&](bpeflow::RunWriter &writer) {
                merge->gathered.write([&](std::size_t size) { return writer.place(size); });
            });
        }
    });
}

void bpeflow_run_merge_free(bpeflow_run_merge *merge) {
    if (!merge) return;
    delete merge;
#if defined(__GLIBC__)
    // The heaps of the threads that have counted and merged are full of holes that nobody else can use. The kernel gets
    // them back before the merges are learned, whose memory is the most of a run. (176-181 MB in all for 600,000
    // pre-tokens without, 166 with.)
    malloc_trim(0);
#endif
}
