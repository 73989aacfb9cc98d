// Classifying without vector instructions, on any processor.

#include "masks.hpp"
#include "unicode_tables.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace bpeflow {
namespace {

// Return a word whose byte k is 1 if `byte` belongs to the k-th mask of Masks. The words of eight bytes, each shifted
// by its index, combine into one word whose byte k is eight bits of the k-th mask.
constexpr std::uint64_t spread(unsigned byte) {
    const bool is[8] = {
        byte < 0x80 && (unicode::CLASSES[0][byte] & unicode::LETTER) != 0,
        byte < 0x80 && (unicode::CLASSES[0][byte] & unicode::NUMBER) != 0,
        byte < 0x80 && (unicode::CLASSES[0][byte] & unicode::SPACE) != 0,
        byte == ' ',
        byte == '\n' || byte == '\r',
        byte == '\'',
        byte >= 'A' && byte <= 'Z',
        byte >= 0x80,
    };
    std::uint64_t word = 0;
    for (unsigned k = 0; k < 8; k++) word |= std::uint64_t{is[k]} << (8 * k);
    return word;
}

constexpr std::array<std::uint64_t, 256> make_table() {
    std::array<std::uint64_t, 256> table{};
    for (unsigned byte = 0; byte < 256; byte++) table[byte] = spread(byte);
    return table;
}

constexpr std::array<std::uint64_t, 256> SPREAD = make_table();

} // namespace

void classify_scalar(const std::uint8_t *text, std::size_t blocks, Masks *masks) {
    for (std::size_t i = 0; i < blocks; i++) {
        std::uint64_t mask[8] = {};
        for (unsigned eight = 0; eight < BLOCK; eight += 8) {
            std::uint64_t word = 0;
            for (unsigned j = 0; j < 8; j++) word |= SPREAD[text[BLOCK * i + eight + j]] << j;
            for (unsigned k = 0; k < 8; k++) mask[k] |= (word >> (8 * k) & 0xFF) << eight;
        }
        masks[i] = {mask[0], mask[1], mask[2], mask[3], mask[4], mask[5], mask[6], mask[7]};
    }
}

} // namespace bpeflow
