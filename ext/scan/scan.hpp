// Goes through a text token by token.
//
// Most of it by masks: where tokens start in a block is worked out for all of its 64 bytes at once (token_starts.hpp).
// Odd blocks, and the end of the text, which the masks of a whole block would reach beyond, are left to the scanner
// (scanner.hpp). As no pattern looks behind itself, the two can take turns at any token.
#pragma once

#include "bpeflow.h"
#include "masks.hpp"
#include "rules.hpp"
#include "scanner.hpp"
#include "token_starts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace bpeflow {

// Blocks classified at a time. Few: a call for little work; many: text and masks leave the L1 cache in between.
constexpr std::size_t BLOCKS_AT_ONCE = 32;

template <const Rules &RULES, typename Emit>
void scan_with(Classify classify, const std::uint8_t *text, std::size_t length, const Emit &emit) {
    const std::uint8_t *const end = text + length, *start = text;
    const Scanner<RULES> scanner(end);
    const auto emit_until = [&](const std::uint8_t *next) {
        emit(start, static_cast<std::size_t>(next - start));
        start = next;
    };

    TokenStarts<RULES> starts(end);
    starts.begin_at(text);
    Masks masks[BLOCKS_AT_ONCE];
    const std::size_t blocks = length < 2 * BLOCK ? 0 : length / BLOCK - 1; // one of which is behind each of them
    for (std::size_t first = 0; first < blocks; first += BLOCKS_AT_ONCE) {
        const std::size_t some = std::min(BLOCKS_AT_ONCE, blocks - first);
        classify(text + first * BLOCK, some, masks);
        for (std::size_t i = 0; i < some; i++) {
            const std::uint8_t *const block = text + (first + i) * BLOCK;
            if (start >= block + BLOCK) continue; // an odd block ended with a long token
            std::uint64_t places = starts.of(masks[i], block);
            if (starts.odd()) {
                while (start < block + BLOCK) emit_until(scanner.token_end(start));
                starts.begin_at(start);
                continue;
            }
            if (start >= block) places &= ~std::uint64_t{1} << (start - block); // it has started already
            for (; places; places &= places - 1) emit_until(block + lowest(places));
        }
    }
    while (start < end) emit_until(scanner.token_end(start));
}

// Calls emit(token, length) for each pre-token of a text, which must be valid UTF-8, from left to right; they tile it.
// False for an unknown pattern.
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
