// Many short texts in one call: copied together, and their pre-tokens looked up together.
#pragma once

#include "pretoken_batch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace bpeflow {

// Texts from anywhere in memory, one after another.
class PackedTexts {
  public:
    void pack(const std::uint8_t *const *texts, const std::uint64_t *sizes, std::uint64_t count) {
        ends_.resize(count);
        std::uint64_t end = 0;
        for (std::uint64_t i = 0; i < count; i++) ends_[i] = end += sizes[i];
        if (end > capacity_) {
            data_.reset(new std::uint8_t[end]); // not initialized
            capacity_ = end;
        }
        for (std::uint64_t i = 0; i < count; i++)
            if (sizes[i] > 0) std::memcpy(data_.get() + ends_[i] - sizes[i], texts[i], sizes[i]);
    }

    const std::uint8_t *data() const { return data_.get(); }
    const std::uint64_t *ends() const { return ends_.data(); }

    // Release the memory of very long texts.
    void trim() {
        if (capacity_ <= MOST_KEPT) return;
        data_.reset();
        capacity_ = 0;
    }

  private:
    static constexpr std::uint64_t MOST_KEPT = std::uint64_t{8} << 20;

    std::unique_ptr<std::uint8_t[]> data_;
    std::uint64_t capacity_ = 0;
    std::vector<std::uint64_t> ends_;
};

// The pre-tokens of short texts, collected to be looked up together: while one is awaited from memory, the next are
// requested, which a text of twenty words ends before it has begun.
class ShortTexts {
  public:
    // Write the ends of the ids of each text to `id_ends`.
    void begin(std::uint64_t *id_ends) {
        clear();
        id_ends_ = id_ends;
    }

    bool empty() const { return count_ == 0; }
    PretokenBatch tokens() const { return {base_, starts_, ends_, count_}; }

    // Add pre-tokens, or return false if there are so many that they are looked up alone. Call look_up(), which must look
    // up those that were added before, if there is no room for more.
    template <typename LookUp> bool take(const PretokenBatch &tokens, const LookUp &look_up) {
        if (tokens.count == 0) return true;
        const bool many = tokens.count > MANY;
        if (count_ > 0 && (many || count_ + tokens.count > PretokenBatch::MOST || !in_reach(tokens))) look_up();
        if (many) return false;
        if (count_ == 0) base_ = tokens.text;
        const auto shift = static_cast<std::uint32_t>(tokens.text - base_);
        for (std::size_t i = 0; i < tokens.count; i++) {
            starts_[count_ + i] = tokens.starts[i] + shift;
            ends_[count_ + i] = tokens.ends[i] + shift;
        }
        count_ += tokens.count;
        return true;
    }

    // End a text after `written` ids and the pre-tokens that have been added. Return whether these must be looked up.
    bool end_text(std::uint64_t written) {
        if (count_ == 0) {
            *id_ends_++ = written;
            return false;
        }
        borders_[border_count_++] = static_cast<std::uint32_t>(count_);
        return border_count_ == MOST_BORDERS;
    }

    // Writes the end of each text's ids when they are known.
    struct Borders {
        const std::uint32_t *next, *end; // pre-tokens at which texts end
        std::uint64_t *&id_ends;

        template <typename Ids> void pass(std::size_t done, std::size_t until, const Ids &ids) {
            for (; next != end && *next <= until; next++) *id_ends++ = ids.written() + (*next - done);
        }
    };
    Borders borders() { return {borders_, borders_ + border_count_, id_ends_}; }

    void clear() { count_ = border_count_ = 0; }

  private:
    static constexpr std::size_t MANY = 1024, MOST_BORDERS = 4096;

    // Return whether the kernels can address pre-tokens from the first text on.
    bool in_reach(const PretokenBatch &tokens) const {
        return tokens.text + tokens.ends[tokens.count - 1] - base_ <= std::numeric_limits<std::int32_t>::max();
    }

    const std::uint8_t *base_ = nullptr;
    std::size_t count_ = 0, border_count_ = 0;
    std::uint64_t *id_ends_ = nullptr; // of the next text to end
    std::uint32_t starts_[PretokenBatch::MOST], ends_[PretokenBatch::MOST], borders_[MOST_BORDERS];
};

} // namespace bpeflow
