// The functions of libbpeflow_count for k-way sums, canonical order and hashes. The algorithms are in kway.hpp,
// canonical.hpp and key.hpp.

#include "kway.hpp"
#include "bpeflow.h"
#include "canonical.hpp"
#include "failure.hpp"
#include "key.hpp"
#include "shard.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace bpeflow {
namespace {

// Files are kept open while they are read, unless there are more of them. A process may often have no more than 1024
// open, and opening one for each block takes a fraction of the time of reading it.
constexpr std::uint64_t MOST_OPEN = 128;

std::vector<ShardReader> readers_of(const bpeflow_shard *shards, std::uint64_t count, std::uint64_t buffer_size) {
    std::vector<ShardReader> readers;
    readers.reserve(count);
    for (std::uint64_t i = 0; i < count; i++) readers.emplace_back(shards[i], buffer_size, count <= MOST_OPEN);
    return readers;
}

} // namespace
} // namespace bpeflow

struct bpeflow_kway {
    bpeflow::KwaySum sum;
    bpeflow::CanonicalArrays arrays;
    bool placing = false;
};

int bpeflow_kway_new(const bpeflow_shard *shards, std::uint64_t count, std::uint64_t buffer_size, bpeflow_kway **kway) {
    if (!kway) return BPEFLOW_BAD_ARGUMENT;
    *kway = nullptr;
    if ((!shards && count > 0) || buffer_size == 0) return BPEFLOW_BAD_ARGUMENT;
    for (std::uint64_t i = 0; i < count; i++)
        if (!shards[i].data && !shards[i].path) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of(
        [&] { *kway = new bpeflow_kway{bpeflow::KwaySum(bpeflow::readers_of(shards, count, buffer_size)), {}}; });
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

int bpeflow_canonical_order(const std::uint8_t *data, const std::int64_t *starts, const std::int64_t *ends,
                            const std::int64_t *counts, std::uint64_t tokens, std::int64_t *order) {
    if ((!data || !starts || !ends || !counts || !order) && tokens > 0) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { bpeflow::canonical_order(data, starts, ends, counts, tokens, order); });
}

int bpeflow_hashes(const std::uint8_t *data, const std::int64_t *offsets, std::uint64_t tokens, std::uint64_t *hashes) {
    if ((!data || !offsets || !hashes) && tokens > 0) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        bpeflow::Key key;
        for (std::uint64_t i = 0; i < tokens; i++) {
            const auto size = static_cast<std::size_t>(offsets[i + 1] - offsets[i]);
            key.set(data + offsets[i], size, static_cast<std::size_t>(offsets[tokens] - offsets[i]), 0);
            hashes[i] = key.hash;
        }
    });
}
