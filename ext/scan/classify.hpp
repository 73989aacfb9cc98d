// Classifying the bytes of a block with vector instructions: the code shared by all instruction sets.
//
// Included by classify_*.cpp, each of which is compiled for its own instruction set. This header has only templates
// over types local to those files, so that no function is compiled for one instruction set and called on another.
#pragma once

#include "masks.hpp"

#include <cstddef>
#include <cstdint>

namespace bpeflow {

// Classify `blocks` blocks.
//
// `Block` holds 64 bytes, loaded by Block::load(bytes). Its methods return masks with a bit per byte: equal(byte);
// within(first, count) for bytes from `first` to `first + count - 1`; high() for bytes above 127. lower() returns the
// block in lower case.
template <typename Block> void classify_with(const std::uint8_t *text, std::size_t blocks, Masks *masks) {
    for (std::size_t i = 0; i < blocks; i++) {
        const Block block = Block::load(text + BLOCK * i);
        const std::uint64_t blank = block.equal(' ');
        masks[i] = {
            block.lower().within('a', 26),
            block.within('0', 10),
            blank | block.within('\t', 5), // with the blank, the ASCII part of \s
            blank,
            block.equal('\n') | block.equal('\r'),
            block.equal('\''),
            block.within('A', 26),
            block.high(),
        };
    }
}

} // namespace bpeflow
