// The bytes of a block as masks, by vector instructions: what those of all processors have in common.
//
// Included by classify_*.cpp, each of which is compiled for the instructions that it uses. Nothing here but templates
// over its own types, so that no function is compiled for one processor and called on another.
#pragma once

#include "masks.hpp"

#include <cstddef>
#include <cstdint>

namespace bpeflow {

// `Block` holds 64 bytes: Block::load(bytes), and as masks of bytes: equal(byte), below(first, count) for those from
// `first` on and fewer than `first + count`, the same of the bytes in lower case, and high() for those above 127.
template <typename Block> void classify_with(const std::uint8_t *text, std::size_t blocks, Masks *masks) {
    for (std::size_t i = 0; i < blocks; i++) {
        const Block block = Block::load(text + BLOCK * i);
        const std::uint64_t blank = block.equal(' ');
        masks[i] = {
            block.lower().within('a', 26),
            block.within('0', 10),
            blank | block.within('\t', 5), // what \s is of ASCII
            blank,
            block.equal('\n') | block.equal('\r'),
            block.equal('\''),
            block.within('A', 26),
            block.high(),
        };
    }
}

} // namespace bpeflow
