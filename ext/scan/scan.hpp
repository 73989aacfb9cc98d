// Cutting a text into pre-tokens.
//
// Most of the work is done with masks: token_starts.hpp finds the token starts of a block for all of its 64 bytes at
// once. Odd blocks are left to the scanner (scanner.hpp). No pattern has a lookbehind, so the two can take over from
// each other at any token.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"
#include "kernels.hpp"
#include "rules.hpp"
#include "scanner.hpp"
#include "token_starts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace bpeflow {

// Blocks classified at a time. With fewer, each call does little work. With more, text and masks leave the L1 cache in
// between.
constexpr std::size_t BLOCKS_AT_ONCE = 32;

// Consecutive pre-tokens of a text: number i is the bytes from text + starts[i] to text + starts[i + 1].
struct PretokenBatch {
    const std::uint8_t *text;
    const std::uint32_t *starts; // [count + 1]
    std::size_t count;

    // Return the number of pre-tokens, from the first on, from whose start 8 bytes can be read before `readable_end`.
    std::size_t with_words(const std::uint8_t *readable_end) const {
        std::size_t number = count;
        while (number > 0 && readable_end - (text + starts[number - 1]) < 8) number--;
        return number;
    }

    static constexpr std::size_t MOST = 4096 + BLOCKS_AT_ONCE * BLOCK;
};

template <const Rules &RULES, typename Emit> class Scan {
  public:
    Scan(const Kernels &kernels, const std::uint8_t *text, std::size_t length, const Emit &emit)
        : kernels_(kernels), text_(text), end_(text + length), start_(text), base_(text), starts_(end_), scanner_(end_),
          emit_(emit) {
        starts_.begin_at(text);
    }

    void run() {
        Masks masks[BLOCKS_AT_ONCE];
        const std::size_t blocks = static_cast<std::size_t>(end_ - text_) / BLOCK;
        for (std::size_t first = 0; first < blocks; first += BLOCKS_AT_ONCE) {
            const std::size_t some = std::min(BLOCKS_AT_ONCE, blocks - first);
            const std::uint8_t *const position = text_ + first * BLOCK;
            kernels_.classify(position, some, masks);
            for (std::size_t i = 0; i < some; i++) found_[i] = block(masks[i], position + i * BLOCK, ~std::uint64_t{0});
            add(position, some);
        }
        const std::uint8_t *const rest = text_ + blocks * BLOCK;
        if (rest < end_) {
            const auto size = static_cast<std::size_t>(end_ - rest);
            std::uint8_t padded[BLOCK] = {};
            std::memcpy(padded, rest, size);
            kernels_.classify(padded, 1, masks);
            found_[0] = block(masks[0], rest, (std::uint64_t{1} << size) - 1);
            add(rest, 1);
        }
        make_room_for(end_);
        batch_[waiting_] = offset(end_);
        emit_(PretokenBatch{base_, batch_, waiting_});
    }

  private:
    // Return the token starts in a block. `text` is the mask of the bytes that belong to the text.
    std::uint64_t block(const Masks &masks, const std::uint8_t *block, std::uint64_t text) {
        const std::uint8_t *const next = block + BLOCK;
        if (start_ >= next || start_ == end_) return 0; // the last token of an odd block covers this one
        const std::uint64_t first = start_ >= block ? std::uint64_t{1} << (start_ - block) : 0; // a known start
        std::uint64_t starts = starts_.of(masks, block, text) & text; // after the last contraction, no token starts
        if (starts_.odd()) {
            starts = 0;
            while (start_ < next && start_ < end_) {
                if (start_ >= block) starts |= std::uint64_t{1} << (start_ - block);
                start_ = scanner_.token_end(start_);
            }
            starts_.begin_at(start_);
            return starts;
        }
        if (first) starts = (starts & (0 - first)) | first;
        if (starts) start_ = block + highest(starts);
        return starts;
    }

    // Add the starts found in some blocks, the first of which is at `position`.
    void add(const std::uint8_t *position, std::size_t blocks) {
        make_room_for(position + blocks * BLOCK);
        waiting_ += kernels_.positions(found_, blocks, offset(position), batch_ + waiting_);
        if (waiting_ > batch_size) emit_batch();
    }

    void emit_batch() {
        if (waiting_ < 2) return;
        emit_(PretokenBatch{base_, batch_, waiting_ - 1});
        batch_[0] = batch_[waiting_ - 1]; // whose end is not known yet
        waiting_ = 1;
    }

    // Make sure that positions up to `position` have offsets below 2^31.
    void make_room_for(const std::uint8_t *position) {
        static constexpr std::ptrdiff_t most = std::numeric_limits<std::int32_t>::max();
        if (position - base_ <= most) return;
        emit_batch();
        base_ += batch_[0];
        batch_[0] = 0;
        if (position - base_ > most) throw Failure{BPEFLOW_TOO_LARGE};
    }

    std::uint32_t offset(const std::uint8_t *position) const { return static_cast<std::uint32_t>(position - base_); }

    // Pre-tokens passed on at a time, or a few more. With fewer, loops over them are short. With more, the text leaves
    // the L2 cache.
    static constexpr std::size_t batch_size = PretokenBatch::MOST - BLOCKS_AT_ONCE * BLOCK;
    static constexpr std::size_t beyond = 16; // starts that the kernels may overwrite

    const Kernels &kernels_;
    const std::uint8_t *const text_, *const end_;
    const std::uint8_t *start_; // of the current token
    const std::uint8_t *base_;  // the position whose offset is 0
    TokenStarts<RULES> starts_;
    Scanner<RULES> scanner_;
    const Emit &emit_;
    std::uint64_t found_[BLOCKS_AT_ONCE];
    std::uint32_t batch_[PretokenBatch::MOST + 1 + beyond]; // offsets of starts
    std::size_t waiting_ = 0;                               // their number
};

template <const Rules &RULES, typename Emit>
void scan_with(const Kernels &kernels, const std::uint8_t *text, std::size_t length, const Emit &emit) {
    Scan<RULES, Emit>(kernels, text, length, emit).run();
}

// Call emit(batch) for the pre-tokens of a text, in batches from left to right. The text must be valid UTF-8 and not
// empty, and its pre-tokens cover it without gaps. Return false for an unknown pattern. Throws `Failure` if a pre-token
// has 2^31 bytes or more.
template <typename Emit>
bool scan(std::uint32_t pattern, const Kernels &kernels, const std::uint8_t *text, std::size_t length,
          const Emit &emit) {
    switch (pattern) {
    case BPEFLOW_GPT2:
        return scan_with<GPT2>(kernels, text, length, emit), true;
    case BPEFLOW_CL100K:
        return scan_with<CL100K>(kernels, text, length, emit), true;
    case BPEFLOW_O200K:
        return scan_with<O200K>(kernels, text, length, emit), true;
    case BPEFLOW_LLAMA3:
        return scan_with<LLAMA3>(kernels, text, length, emit), true;
    case BPEFLOW_QWEN2:
        return scan_with<QWEN2>(kernels, text, length, emit), true;
    default:
        return false;
    }
}

} // namespace bpeflow
