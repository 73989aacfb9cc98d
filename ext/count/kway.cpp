// The functions of libbpeflow_count for k-way sums. The algorithm is in kway.hpp.

#include "kway.hpp"
#include "bpeflow.h"
#include "failure.hpp"
#include "shard.hpp"
#include "sinks.hpp"
#include "status.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace bpeflow {
namespace {

// Create a file, call write(writer) and close the file. Return the bytes written.
template <typename Write> std::uint64_t write_file(const char *path, const Write &write) {
    ShardWriter writer(path, ShardWriter::usual_buffer);
    write(writer);
    writer.close();
    return writer.written();
}

// A k-way sum in either order, and the records gathered from it.
class ShardSum {
  public:
    ShardSum(const bpeflow_shard *shards, std::uint64_t count, std::uint32_t order, std::uint64_t buffer_size,
             const bpeflow_range *range)
        : range_(range ? KeyRange(*range) : KeyRange()), sum_(std::in_place_index<BPEFLOW_BY_BYTES>, readers_) {
        readers_.reserve(count);
        for (std::uint64_t i = 0; i < count; i++) {
            readers_.emplace_back(shards[i], buffer_size, range_);
            size_ += shards[i].size;
        }
        if (order == BPEFLOW_BY_COUNT) sum_.emplace<BPEFLOW_BY_COUNT>(readers_);
    }

    ShardSum(const ShardSum &) = delete; // sum_ refers to readers_
    ShardSum &operator=(const ShardSum &) = delete;

    bool is_by_bytes() const { return sum_.index() == BPEFLOW_BY_BYTES; }
    std::uint64_t gathered_size() const { return gathered_.size(); }

    // Index of the shard that the last call failed on. UINT64_MAX if it did not fail on a shard.
    std::uint64_t failed() const { return failed_; }

    bool ended() {
        bool ended = false;
        with_sum([&](auto &sum) { ended = sum.ended(); });
        return ended;
    }

    // Pass records to `sink` until it is full or all shards have ended.
    template <typename Sink> void pass_all(Sink &sink) {
        with_sum([&](auto &sum) {
            while (sum.pass(sink)) {
            }
        });
    }

    // Write the remaining records to a new file. Return its size.
    std::uint64_t write(const char *path, std::uint64_t mark_every, std::uint64_t &tokens) {
        std::uint64_t size = 0;
        with_sum([&](auto &sum) {
            size = write_file(path, [&](ShardWriter &writer) {
                ShardFile file(writer, mark_every);
                while (sum.pass(file)) {
                }
                tokens = file.tokens;
                marks_ = std::move(file.marks);
            });
        });
        return size;
    }

    const std::vector<bpeflow_mark> &marks() const { return marks_; }

    void gather(std::uint64_t memory, std::uint64_t &tokens, std::uint64_t &size) {
        with_sum([&](auto &sum) {
            gathered_ = Gathered(); // frees the earlier records first
            Gathered gathered(memory, size_);
            while (sum.pass(gathered)) {
            }
            gathered.sort();
            tokens = gathered.tokens();
            size = gathered.size();
            gathered_ = std::move(gathered);
        });
    }

    // Write the gathered records to a new file, or to `data` if there is no path.
    void save(std::uint8_t *data, const char *path) const {
        if (path) {
            write_file(path, [&](ShardWriter &writer) {
                gathered_.write([&](std::size_t size) { return writer.reserve(size); });
            });
        } else if (data) {
            gathered_.write([&](std::size_t size) { return std::exchange(data, data + size); });
        }
    }

  private:
    // Call work(sum) with the KwaySum of the right order. If it fails on a shard, remember which.
    template <typename Work> void with_sum(const Work &work) {
        failed_ = UINT64_MAX;
        std::visit(
            [&](auto &sum) {
                try {
                    work(sum);
                } catch (const OutputFailure &) {
                    throw;
                } catch (const Failure &failure) {
                    if (failure.status == BPEFLOW_IO || failure.status == BPEFLOW_DAMAGED) failed_ = sum.reading();
                    throw;
                }
            },
            sum_);
    }

    KeyRange range_;
    std::vector<ShardReader> readers_;                     // which refer to range_
    std::variant<KwaySum<ByBytes>, KwaySum<ByCount>> sum_; // indexed by enum bpeflow_shard_order
    std::uint64_t size_ = 0;                               // of all shards
    std::uint64_t failed_ = UINT64_MAX;
    Gathered gathered_;
    std::vector<bpeflow_mark> marks_;
};

} // namespace
} // namespace bpeflow

struct bpeflow_kway {
    bpeflow::ShardSum sum;
};

int bpeflow_kway_new(const bpeflow_shard *shards, std::uint64_t count, std::uint32_t order, std::uint64_t buffer_size,
                     const bpeflow_range *range, bpeflow_kway **kway) {
    if (!kway) return BPEFLOW_BAD_ARGUMENT;
    *kway = nullptr;
    if ((!shards && count > 0) || order > BPEFLOW_BY_COUNT || buffer_size == 0) return BPEFLOW_BAD_ARGUMENT;
    if (range && order != BPEFLOW_BY_BYTES) return BPEFLOW_BAD_ARGUMENT;
    for (std::uint64_t i = 0; i < count; i++)
        if (!shards[i].data && !shards[i].path) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { *kway = new bpeflow_kway{{shards, count, order, buffer_size, range}}; });
}

std::uint64_t bpeflow_kway_failed(const bpeflow_kway *kway) {
    return kway ? kway->sum.failed() : UINT64_MAX;
}

int bpeflow_kway_ended(bpeflow_kway *kway, std::uint32_t *ended) {
    if (!kway || !ended) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { *ended = kway->sum.ended(); });
}

int bpeflow_kway_read(bpeflow_kway *kway, std::uint64_t max_tokens, std::uint64_t max_bytes, std::int64_t begin,
                      std::uint8_t *data, std::int64_t *ends, std::int64_t *counts, std::uint64_t *tokens,
                      std::uint64_t *bytes) {
    if (!kway || !tokens || !bytes || ((!ends || !counts) && max_tokens > 0) || (!data && max_bytes > 0))
        return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        bpeflow::Columns columns(max_tokens, max_bytes, begin, data, ends, counts);
        kway->sum.pass_all(columns);
        *tokens = columns.tokens;
        *bytes = columns.bytes;
    });
}

int bpeflow_kway_write(bpeflow_kway *kway, const char *path, std::uint64_t mark_every, std::uint64_t *tokens,
                       std::uint64_t *size, std::uint64_t *marks) {
    if (!kway || !path || !tokens || !size || !marks) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        *size = kway->sum.write(path, mark_every, *tokens);
        *marks = kway->sum.marks().size();
    });
}

int bpeflow_kway_marks(const bpeflow_kway *kway, bpeflow_mark *marks) {
    if (!kway || (!marks && !kway->sum.marks().empty())) return BPEFLOW_BAD_ARGUMENT;
    std::copy(kway->sum.marks().begin(), kway->sum.marks().end(), marks);
    return BPEFLOW_OK;
}

int bpeflow_kway_gather(bpeflow_kway *kway, std::uint64_t memory, std::uint64_t *tokens, std::uint64_t *size) {
    if (!kway || !kway->sum.is_by_bytes() || !tokens || !size) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { kway->sum.gather(memory, *tokens, *size); });
}

int bpeflow_kway_save(bpeflow_kway *kway, std::uint8_t *data, const char *path) {
    if (!kway || (!data && !path && kway->sum.gathered_size() > 0)) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { kway->sum.save(data, path); });
}

void bpeflow_kway_free(bpeflow_kway *kway) {
    if (!kway) return;
    delete kway;
#if defined(__GLIBC__)
    // The heaps of the threads that counted and summed are full of holes that no other thread can use. Return them to
    // the kernel before learning starts, which sets the peak memory of a training run. (600,000 pre-tokens: 176-181 MB
    // in all without this, 166 MB with it.)
    malloc_trim(0);
#endif
}
