// Runs: how their records are laid out, compared, read and written. bpeflow.h says what a run is.
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

inline void put_record(std::uint8_t *to, const std::uint8_t *bytes, std::uint32_t length, std::int64_t count) {
    std::memcpy(to, &length, sizeof length);
    std::memcpy(to + sizeof length, &count, sizeof count);
    std::memcpy(to + BPEFLOW_RECORD_SIZE, bytes, length);
}

// The first 8 bytes as a number, the first byte highest, zeros if there are fewer. Of two pre-tokens the one with the
// smaller prefix, by bytes or by zeros where it has ended, is smaller as bytes too. The same prefix says nothing, for
// zeros may be bytes. From `bytes` on `readable` may be read, `length` at least.
inline std::uint64_t prefix_of(const std::uint8_t *bytes, std::size_t length, std::size_t readable) {
    std::uint64_t prefix = 0;
    if (readable < 8) {
        for (std::size_t i = 0; i < 8; i++) prefix = prefix << 8 | (i < length ? bytes[i] : 0);
        return prefix;
    }
    for (std::size_t i = 0; i < 8; i++) prefix = prefix << 8 | bytes[i]; // compilers make one load of it
    return length >= 8 ? prefix : prefix & ~(~std::uint64_t{0} >> 8 * length);
}

// Below, at or above 0 as bytes a come before, are, or come after bytes b.
inline int order_of_bytes(const std::uint8_t *a, std::size_t a_length, const std::uint8_t *b, std::size_t b_length) {
    const int order = std::memcmp(a, b, std::min(a_length, b_length));
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

// A pre-token and its count, as they stand in a run.
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

template <typename OnFailure> File open_file(const std::string &path, const char *mode) {
    File file(std::fopen(path.c_str(), mode));
    if (!file) throw OnFailure(errno);
    std::setvbuf(file.get(), nullptr, _IONBF, 0); // the buffers are ours
    return file;
}

// Reads the records of a run, and sees that it is one: its size, its number of records and each length must fit. (Who
// merges sees that it is in order.)
class ShardReader {
  public:
    // The path is copied, the data borrowed.
    explicit ShardReader(const bpeflow_shard &shard, std::size_t buffer_size)
        : next_(shard.data), end_(shard.data ? shard.data + shard.size : nullptr), path_(shard.data ? "" : shard.path),
          buffer_size_(buffer_size), unread_(shard.data ? 0 : shard.size), tokens_left_(shard.tokens) {}

    // Goes on to the next record; false at the end. What record() told before is gone.
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

    // Reads on, so that `needed` bytes are there.
    void fill(std::size_t needed) {
        const std::size_t kept = available();
        if (needed > kept + unread_) throw Failure{BPEFLOW_DAMAGED};
        if (!file_) open();
        const std::size_t room =
            static_cast<std::size_t>(std::min<std::uint64_t>(std::max(needed, buffer_size_), kept + unread_));
        if (room > capacity_) {
            std::unique_ptr<std::uint8_t[]> larger(new std::uint8_t[room]);
            if (kept > 0) std::memcpy(larger.get(), next_, kept);
            buffer_ = std::move(larger);
            capacity_ = room;
        } else if (kept > 0) {
            std::memmove(buffer_.get(), next_, kept);
        }
        const std::size_t wanted = room - kept;
        errno = 0;
        if (std::fread(buffer_.get() + kept, 1, wanted, file_.get()) != wanted) {
            if (std::ferror(file_.get())) throw FileFailure(errno);
            throw Failure{BPEFLOW_DAMAGED}; // it has become shorter
        }
        unread_ -= wanted;
        next_ = buffer_.get();
        end_ = next_ + room;
        if (unread_ == 0) file_.reset();
    }

    void open() {
        file_ = open_file<FileFailure>(path_, "rb");
        if (std::fseek(file_.get(), 0, SEEK_END) != 0) throw FileFailure(errno);
        const long size = std::ftell(file_.get());
        if (size < 0) throw FileFailure(errno);
        if (static_cast<std::uint64_t>(size) != unread_) throw Failure{BPEFLOW_DAMAGED};
        if (std::fseek(file_.get(), 0, SEEK_SET) != 0) throw FileFailure(errno);
    }

    const std::uint8_t *next_, *end_; // what has been read and not yet been given
    std::string path_;
    std::size_t buffer_size_;
    std::uint64_t unread_, tokens_left_;
    File file_;
    std::unique_ptr<std::uint8_t[]> buffer_;
    std::size_t capacity_ = 0;
    Record record_ = {};
};

// Writes a new file through a buffer. It is complete after close() only.
class ShardWriter {
  public:
    // Larger ones gain nothing, smaller ones cost calls.
    static constexpr std::size_t usual_buffer = std::size_t{1} << 18;

    ShardWriter(const char *path, std::size_t buffer_size)
        : file_(open_file<OutputFailure>(path, "wbx")), buffer_(buffer_size) {}

    // Where the next `size` bytes go. They may be written up to the next call.
    std::uint8_t *reserve(std::size_t size) {
        if (size > buffer_.size() - used_) {
            flush();
            if (size > buffer_.size()) buffer_.resize(size);
        }
        written_ += size;
        return buffer_.data() + std::exchange(used_, used_ + size);
    }

    std::uint64_t written() const { return written_; }

    void close() {
        flush();
        if (std::fclose(file_.release()) != 0) throw OutputFailure(errno);
    }

  private:
    void flush() {
        if (std::fwrite(buffer_.data(), 1, used_, file_.get()) != used_) throw OutputFailure(errno);
        used_ = 0;
    }

    File file_;
    std::vector<std::uint8_t> buffer_;
    std::size_t used_ = 0;
    std::uint64_t written_ = 0;
};

} // namespace bpeflow
