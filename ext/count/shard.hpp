// Shards: layout, comparison, reading and writing of their records. bpeflow.h defines the format.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bpeflow {

// Write the length and the count of a record.
inline void put_header(std::uint8_t *record, std::uint32_t length, std::int64_t count) {
    std::memcpy(record, &length, sizeof length);
    std::memcpy(record + sizeof length, &count, sizeof count);
}

// Return the first 8 bytes as a big-endian number, padded with zeros. `readable` bytes, at least `length`, may be read
// from `bytes` on.
//
// If the prefixes of two pre-tokens differ, the one with the smaller prefix is also smaller as a byte string: the first
// differing byte decides, and the padding is at most any byte. Equal prefixes decide nothing, because a zero can be
// padding or a byte.
inline std::uint64_t prefix_of(const std::uint8_t *bytes, std::size_t length, std::size_t readable) {
    std::uint64_t prefix = 0;
    if (readable < 8) {
        for (std::size_t i = 0; i < 8; i++) prefix = prefix << 8 | (i < length ? bytes[i] : 0);
        return prefix;
    }
    for (std::size_t i = 0; i < 8; i++) prefix = prefix << 8 | bytes[i]; // compiles to a single load
    const std::size_t bits = 4 * std::min<std::size_t>(length, 8); // of half the bytes, as no word is shifted by 64
    return prefix & ~(~std::uint64_t{0} >> bits >> bits);          // no branch
}

// Compare byte strings. The result is below, equal to or above 0 as `a` sorts before, equals or sorts after `b`.
inline int order_of_bytes(const std::uint8_t *a, std::size_t a_length, const std::uint8_t *b, std::size_t b_length) {
    const int order = std::memcmp(a, b, std::min(a_length, b_length));
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

// A pre-token and its count in a shard.
struct Record {
    const std::uint8_t *bytes;
    std::uint32_t length;
    std::int64_t count;
    std::uint64_t prefix;
};

struct CloseFile {
    void operator()(std::FILE *file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

inline File open_file(const char *path, const char *mode) {
    File file(std::fopen(path, mode));
    if (!file) throw FileFailure(errno);
    std::setvbuf(file.get(), nullptr, _IONBF, 0); // the callers do the buffering
    return file;
}

// Reads the records of a shard, and checks that its size, its number of records and each length are consistent. KwaySum
// checks the order. A file is opened for each block, as a process may often have no more than 1024 files open. That takes a
// fraction of the time of reading the block.
class ShardReader {
  public:
    // Copy the path, borrow the data.
    ShardReader(const bpeflow_shard &shard, std::size_t buffer_size)
        : shard_(shard), path_(shard.data ? "" : shard.path), buffer_size_(buffer_size) {
        restart();
    }

    // Go back to the first record.
    void restart() {
        next_ = shard_.data;
        end_ = shard_.data ? shard_.data + shard_.size : nullptr;
        unread_ = shard_.data ? 0 : shard_.size;
        tokens_left_ = shard_.tokens;
    }

    // Advance to the next record, which invalidates the bytes of the one before. Return false at the end.
    bool next() {
        if (tokens_left_ == 0) {
            if (next_ != end_ || unread_ != 0) throw Failure{BPEFLOW_DAMAGED};
            return false;
        }
        if (available() < BPEFLOW_RECORD_SIZE) fill(BPEFLOW_RECORD_SIZE);
        std::memcpy(&record_.length, next_, sizeof record_.length);
        if (available() < BPEFLOW_RECORD_SIZE + std::size_t{record_.length})
            fill(BPEFLOW_RECORD_SIZE + std::size_t{record_.length});
        std::memcpy(&record_.count, next_ + sizeof record_.length, sizeof record_.count);
        if (record_.length == 0 || record_.count < 1) throw Failure{BPEFLOW_DAMAGED};
        record_.bytes = next_ + BPEFLOW_RECORD_SIZE;
        next_ = record_.bytes + record_.length;
        record_.prefix = prefix_of(record_.bytes, record_.length, static_cast<std::size_t>(end_ - record_.bytes));
        tokens_left_--;
        return true;
    }

    const Record &record() const { return record_; }

  private:
    std::size_t available() const { return static_cast<std::size_t>(end_ - next_); }

    // Read until at least `needed` bytes are available.
    void fill(std::size_t needed) {
        const std::size_t kept = available();
        if (needed > kept + unread_) throw Failure{BPEFLOW_DAMAGED};
        const std::size_t size =
            static_cast<std::size_t>(std::min<std::uint64_t>(std::max(needed, buffer_size_), kept + unread_));
        if (kept > 0) std::memmove(buffer_.data(), next_, kept);
        if (size > buffer_.size()) buffer_.resize(size);
        read(buffer_.data() + kept, size - kept);
        next_ = buffer_.data();
        end_ = next_ + size;
    }

    void read(std::uint8_t *to, std::size_t size) {
        const File file = open_file(path_.c_str(), "rb");
        const auto position = static_cast<long>(shard_.offset + shard_.size - unread_);
        if (std::fseek(file.get(), position, SEEK_SET) != 0) throw FileFailure(errno);
        errno = 0;
        if (std::fread(to, 1, size, file.get()) != size) {
            if (std::ferror(file.get())) throw FileFailure(errno);
            throw Failure{BPEFLOW_DAMAGED}; // the file has been truncated
        }
        unread_ -= size;
    }

    bpeflow_shard shard_;
    std::string path_;
    std::size_t buffer_size_;
    const std::uint8_t *next_ = nullptr, *end_ = nullptr; // bytes read but not yet returned as records
    std::uint64_t unread_ = 0, tokens_left_ = 0;
    std::vector<std::uint8_t> buffer_;
    Record record_ = {};
};

// Writes records to memory that has room for them, or to a new file through a buffer.
class ShardWriter {
  public:
    // The file is at `path` if `data` is null.
    ShardWriter(std::uint8_t *data, const char *path) : data_(data) {
        if (data) return;
        file_ = open_file(path, "wbx");
        buffer_.resize(usual_buffer);
    }

    // Return the memory for the next `size` bytes, to be filled before the next call.
    std::uint8_t *reserve(std::size_t size) {
        if (data_) return std::exchange(data_, data_ + size);
        if (size > buffer_.size() - used_) {
            flush();
            if (size > buffer_.size()) buffer_.resize(size);
        }
        return buffer_.data() + std::exchange(used_, used_ + size);
    }

    // The file is complete only after this.
    void close() {
        if (!file_) return;
        flush();
        if (std::fclose(file_.release()) != 0) throw FileFailure(errno);
    }

  private:
    // A larger buffer gains nothing, a smaller one costs system calls.
    static constexpr std::size_t usual_buffer = std::size_t{1} << 18;

    void flush() {
        if (std::fwrite(buffer_.data(), 1, used_, file_.get()) != used_) throw FileFailure(errno);
        used_ = 0;
    }

    std::uint8_t *data_;
    File file_;
    std::vector<std::uint8_t> buffer_;
    std::size_t used_ = 0;
};

} // namespace bpeflow
