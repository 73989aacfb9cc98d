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
#include <memory>
#include <vector>

namespace bpeflow {

// Cuts a text by the rules of a named pattern.
template <const Rules &RULES> class NamedScan : StepScan {
  public:
    NamedScan(const Kernels &kernels, const Automaton &automaton, PieceSink &sink, Bytes text, std::size_t length)
        : StepScan(kernels, automaton, nullptr, sink), text_(text), end_(text + length), start_(text), starts_(end_) {}

    void run() {
        begin_at(text_);
        starts_.begin_at(text_);
        Masks masks[BLOCKS_AT_ONCE];
        const std::size_t blocks = static_cast<std::size_t>(end_ - text_) / BLOCK;
        for (std::size_t first = 0; first < blocks; first += BLOCKS_AT_ONCE) {
            const std::size_t count = std::min(BLOCKS_AT_ONCE, blocks - first);
            kernels_.classify(text_ + first * BLOCK, count, masks);
            cut_blocks(masks, text_ + first * BLOCK, count, ~std::uint64_t{0});
        }
        const Bytes rest = text_ + blocks * BLOCK;
        if (rest < end_) {
            const auto size = static_cast<std::size_t>(end_ - rest);
            std::uint8_t padded[BLOCK] = {};
            std::memcpy(padded, rest, size);
            kernels_.classify(padded, 1, masks);
            cut_blocks(masks, rest, 1, (std::uint64_t{1} << size) - 1);
        }
        if (last() != end_) put(end_);
        finish();
    }

  private:
    // `text` is the mask of the bytes in each block that belong to the text.
    void cut_blocks(const Masks *masks, Bytes first, std::size_t blocks, std::uint64_t text) {
        std::uint64_t found[BLOCKS_AT_ONCE];
        std::size_t put_before = 0; // the blocks whose token starts have been put
        const auto put_until = [&](std::size_t block) {
            // The offset of a block that the last boundary is in may wrap around. Those of the token starts in it do not.
            make_room(std::max(first, last()), first + blocks * BLOCK);
            put_ += kernels_.positions(found + put_before, block - put_before,
                                       static_cast<std::uint32_t>(first + put_before * BLOCK - base_), put_);
            put_before = block;
        };
        for (std::size_t i = 0; i < blocks; i++) {
            const Bytes block = first + i * BLOCK, next = block + BLOCK;
            found[i] = 0;
            if (start_ >= next || start_ == end_) continue;      // the last token of an odd block covers this one
            found[i] = starts_.of(masks[i], block, text) & text; // after the last contraction, no token starts
            if (starts_.odd()) {
                found[i] = 0;
                put_until(i + 1);
                scan(last(), std::min(next, end_), end_);
                start_ = last();
                starts_.begin_at(start_);
            } else if (start_ >= block) {
                found[i] &= ~std::uint64_t{1} << (start_ - block); // what starts here has been put
            }
        }
        put_until(blocks);
    }

    const Bytes text_, end_;
    Bytes start_; // of the token with which the rules began, or began again after an odd block
    TokenStarts<RULES> starts_;
};

// Cut a text by the steps of a pattern.
inline void scan_steps(const Pattern &pattern, const Kernels &kernels, const std::uint8_t *text, std::size_t length,
                       PieceSink &sink) {
    std::vector<std::unique_ptr<StepScan>> scans; // the last one first
    const std::vector<Automaton> &steps = pattern.scanned();
    for (std::size_t i = steps.size(); i-- > 0;)
        scans.push_back(
            std::make_unique<StepScan>(kernels, steps[i], scans.empty() ? nullptr : scans.back().get(), sink));
    scans.back()->cut(text, text + length, false);
    scans.back()->finish();
}

// Call emit(batch) for the pre-tokens of a text, in batches from left to right. The text must be valid UTF-8. Return the
// text that the pattern does not match. Throws `Failure` if a pre-token has 2^31 bytes or nearly so, and if text is
// unmatched and the pattern does not allow that.
template <typename Emit>
Unmatched scan(const Pattern &pattern, const Kernels &kernels, const std::uint8_t *text, std::size_t length,
               const Emit &emit) {
    if (length == 0) return {};
    const auto pass = [](const void *context, const PretokenBatch &batch) {
        (*static_cast<const Emit *>(context))(batch);
    };
    PieceSink sink{pass, &emit, pattern.unmatched, {}};
    const Automaton &first = pattern.steps.front();
    switch (pattern.name) {
    case BPEFLOW_GPT2:
        NamedScan<GPT2>(kernels, first, sink, text, length).run();
        break;
    case BPEFLOW_CL100K:
        NamedScan<CL100K>(kernels, first, sink, text, length).run();
        break;
    case BPEFLOW_O200K:
        NamedScan<O200K>(kernels, first, sink, text, length).run();
        break;
    case BPEFLOW_LLAMA3:
        NamedScan<LLAMA3>(kernels, first, sink, text, length).run();
        break;
    case BPEFLOW_QWEN2:
        NamedScan<QWEN2>(kernels, first, sink, text, length).run();
        break;
    default:
        scan_steps(pattern, kernels, text, length, sink);
    }
    return sink.unmatched;
}

} // namespace bpeflow
