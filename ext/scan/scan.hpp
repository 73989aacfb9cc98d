// Cutting a text into pre-tokens.
//
// Most of the work is done with masks: token_starts.hpp finds the token starts of a block for all of its 64 bytes at
// once. Odd blocks are left to the scanner (scanner.hpp). No pattern has a lookbehind, so the two can take over from
// each other at any token.
#pragma once

#include "bpeflow.h"
#include "masks.hpp"
#include "rules.hpp"
#include "scanner.hpp"
#include "token_starts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bpeflow {

// Blocks classified at a time. With fewer, each call does little work. With more, text and masks leave the L1 cache in
// between.
constexpr std::size_t BLOCKS_AT_ONCE = 32;

template <const Rules &RULES, typename Emit> class Scan {
  public:
    Scan(const std::uint8_t *text, std::size_t length, const Emit &emit)
        : text_(text), end_(text + length), start_(text), starts_(end_), scanner_(end_), emit_(emit) {
        starts_.begin_at(text);
    }

    void run(Classify classify) {
        Masks masks[BLOCKS_AT_ONCE];
        const std::size_t blocks = static_cast<std::size_t>(end_ - text_) / BLOCK;
        for (std::size_t first = 0; first < blocks; first += BLOCKS_AT_ONCE) {
            const std::size_t some = std::min(BLOCKS_AT_ONCE, blocks - first);
            classify(text_ + first * BLOCK, some, masks);
            for (std::size_t i = 0; i < some; i++) block(masks[i], text_ + (first + i) * BLOCK, ~std::uint64_t{0});
        }
        const std::uint8_t *const rest = text_ + blocks * BLOCK;
        if (rest < end_) {
            const auto size = static_cast<std::size_t>(end_ - rest);
            std::uint8_t padded[BLOCK] = {};
            std::memcpy(padded, rest, size);
            classify(padded, 1, masks);
            block(masks[0], rest, (std::uint64_t{1} << size) - 1);
        }
        if (start_ < end_) emit_until(end_);
    }

  private:
    // Emit the tokens that end in a block. `text` is the mask of the bytes that belong to the text.
    void block(const Masks &masks, const std::uint8_t *block, std::uint64_t text) {
        if (start_ >= block + BLOCK) return; // the last token of an odd block covers this one
        std::uint64_t starts = starts_.of(masks, block, text);
        if (starts_.odd()) {
            while (start_ < block + BLOCK && start_ < end_) emit_until(scanner_.token_end(start_));
            starts_.begin_at(start_);
            return;
        }
        if (start_ >= block) starts &= ~std::uint64_t{1} << (start_ - block); // this token has started already
        for (; starts; starts &= starts - 1) emit_until(block + lowest(starts));
    }

    void emit_until(const std::uint8_t *next) {
        emit_(start_, static_cast<std::size_t>(next - start_));
        start_ = next;
    }

    const std::uint8_t *text_, *end_, *start_; // start_: start of the current token
    TokenStarts<RULES> starts_;
    Scanner<RULES> scanner_;
    const Emit &emit_;
};

template <const Rules &RULES, typename Emit>
void scan_with(Classify classify, const std::uint8_t *text, std::size_t length, const Emit &emit) {
    Scan<RULES, Emit>(text, length, emit).run(classify);
}

// Call emit(token, length) for each pre-token of a text, from left to right. The text must be valid UTF-8, and its
// pre-tokens cover it without gaps. Return false for an unknown pattern.
template <typename Emit>
bool scan(std::uint32_t pattern, Classify classify, const std::uint8_t *text, std::size_t length, const Emit &emit) {
    switch (pattern) {
    case BPEFLOW_GPT2:
        return scan_with<GPT2>(classify, text, length, emit), true;
    case BPEFLOW_CL100K:
        return scan_with<CL100K>(classify, text, length, emit), true;
    case BPEFLOW_O200K:
        return scan_with<O200K>(classify, text, length, emit), true;
    case BPEFLOW_LLAMA3:
        return scan_with<LLAMA3>(classify, text, length, emit), true;
    case BPEFLOW_QWEN2:
        return scan_with<QWEN2>(classify, text, length, emit), true;
    default:
        return false;
    }
}

} // namespace bpeflow
