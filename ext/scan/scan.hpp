// Cutting a text into pre-tokens.
//
// A compiled pattern is a sequence of steps (step_scan.hpp). The named patterns have a faster way: token_starts.hpp finds
// the token starts of a block for all of its 64 bytes at once. Odd blocks are left to the step that the pattern is
// compiled to. No pattern has a lookbehind, so the two can take over from each other at any token.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"
#include "kernels.hpp"
#include "pattern.hpp"
#include "pretoken_batch.hpp"
#include "rules.hpp"
#include "step_scan.hpp"
#include "token_starts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace bpeflow {

template <const Rules &RULES, typename Emit> class Scan {
  public:
    Scan(const Kernels &kernels, const Automaton &automaton, const std::uint8_t *text, std::size_t length,
         const Emit &emit)
        : kernels_(kernels), text_(text), end_(text + length), start_(text), base_(text), starts_(end_),
          odd_(kernels, automaton, nullptr, nowhere_), emit_(emit) {
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
        emit_(PretokenBatch{base_, batch_, batch_ + 1, waiting_});
    }

  private:
    // Return the token starts in a block. `text` is the mask of the bytes that belong to the text.
    std::uint64_t block(const Masks &masks, const std::uint8_t *block, std::uint64_t text) {
        const std::uint8_t *const next = block + BLOCK;
        if (start_ >= next || start_ == end_) return 0; // the last token of an odd block covers this one
        const std::uint64_t first = start_ >= block ? std::uint64_t{1} << (start_ - block) : 0; // a known start
        std::uint64_t starts = starts_.of(masks, block, text) & text; // after the last contraction, no token starts
        if (starts_.odd()) {
            starts = first;
            const std::uint8_t *const stop = std::min(next, end_);
            odd_.cut_until(start_, stop, end_, [&](const std::uint8_t *start) {
                start_ = start;
                if (start < stop) starts |= std::uint64_t{1} << (start - block);
            });
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
        emit_(PretokenBatch{base_, batch_, batch_ + 1, waiting_ - 1});
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
    static constexpr std::size_t beyond = 32; // starts that the kernels may overwrite

    const Kernels &kernels_;
    const std::uint8_t *const text_, *const end_;
    const std::uint8_t *start_; // of the current token
    const std::uint8_t *base_;  // the position whose offset is 0
    TokenStarts<RULES> starts_;
    PieceSink nowhere_{};
    StepScan odd_; // cuts odd blocks
    const Emit &emit_;
    std::uint64_t found_[BLOCKS_AT_ONCE];
    std::uint32_t batch_[PretokenBatch::MOST + 1 + beyond]; // offsets of starts
    std::size_t waiting_ = 0;                               // their number
};

// Cut a text by a compiled pattern.
template <typename Emit>
Unmatched scan_steps(const Pattern &pattern, const Kernels &kernels, const std::uint8_t *text, std::size_t length,
                     const Emit &emit) {
    const auto pass = [](const void *context, const PretokenBatch &batch) {
        (*static_cast<const Emit *>(context))(batch);
    };
    const std::vector<Automaton> &steps = pattern.scanned();
    PieceSink sink{pass, &emit, pattern.unmatched, {}};
    const auto cut = [&](StepScan &first) {
        first.cut(text, text + length, false);
        first.finish();
        return sink.unmatched;
    };
    StepScan last(kernels, steps.back(), nullptr, sink);
    if (steps.size() == 1) return cut(last);
    std::vector<std::unique_ptr<StepScan>> before; // last but one, …
    StepScan *next = &last;
    for (std::size_t i = steps.size() - 1; i-- > 0; next = before.back().get())
        before.push_back(std::make_unique<StepScan>(kernels, steps[i], next, sink));
    return cut(*next);
}

// Call emit(batch) for the pre-tokens of a text, in batches from left to right. The text must be valid UTF-8. Return the
// text that the pattern does not match. Throws `Failure` if a pre-token has 2^31 bytes or nearly so, and if text is
// unmatched and the pattern does not allow that.
template <typename Emit>
Unmatched scan(const Pattern &pattern, const Kernels &kernels, const std::uint8_t *text, std::size_t length,
               const Emit &emit) {
    if (length == 0) return {};
    const Automaton &first = pattern.steps.front();
    switch (pattern.name) {
    case BPEFLOW_GPT2:
        Scan<GPT2, Emit>(kernels, first, text, length, emit).run();
        return {};
    case BPEFLOW_CL100K:
        Scan<CL100K, Emit>(kernels, first, text, length, emit).run();
        return {};
    case BPEFLOW_O200K:
        Scan<O200K, Emit>(kernels, first, text, length, emit).run();
        return {};
    case BPEFLOW_LLAMA3:
        Scan<LLAMA3, Emit>(kernels, first, text, length, emit).run();
        return {};
    case BPEFLOW_QWEN2:
        Scan<QWEN2, Emit>(kernels, first, text, length, emit).run();
        return {};
    default:
        return scan_steps(pattern, kernels, text, length, emit);
    }
}

} // namespace bpeflow
