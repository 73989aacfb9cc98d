// The kernels without vector instructions, for any processor.

#include "hash.hpp"
#include "kernels.hpp"
#include "unicode_tables.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

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

void classify(const std::uint8_t *text, std::size_t blocks, Masks *masks) {
    for (std::size_t i = 0; i < blocks; i++) {
        std::uint64_t mask[8] = {}, lead = 0;
        for (unsigned eight = 0; eight < BLOCK; eight += 8) {
            std::uint64_t word = 0;
            for (unsigned j = 0; j < 8; j++) word |= SPREAD[text[BLOCK * i + eight + j]] << j;
            for (unsigned k = 0; k < 8; k++) mask[k] |= (word >> (8 * k) & 0xFF) << eight;
        }
        if (mask[7] != 0)
            for (unsigned j = 0; j < BLOCK; j++) lead |= std::uint64_t{text[BLOCK * i + j] >= 0xC0} << j;
        masks[i] = {mask[0], mask[1], mask[2], mask[3], mask[4], mask[5], mask[6], mask[7], lead};
    }
}

// Return the size of the character at `position`, 0 if it is invalid. The Unicode Standard, table 3-7, is the
// definition: nothing overlong, no surrogates, nothing above U+10FFFF.
std::size_t utf8_size(const std::uint8_t *position, const std::uint8_t *end) {
    const unsigned lead = position[0];
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (static_cast<std::size_t>(end - position) < size) return 0;
    const unsigned lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (position[1] < lowest || position[1] > highest) return 0;
    for (std::size_t i = 2; i < size; i++)
        if ((position[i] & 0xC0) != 0x80) return 0;
    return size;
}

bool is_utf8(const std::uint8_t *position, const std::uint8_t *end) {
    constexpr std::size_t stride = 32;
    while (position < end) {
        if (static_cast<std::size_t>(end - position) >= stride) {
            std::uint64_t words[stride / 8];
            std::memcpy(words, position, stride);
            if (((words[0] | words[1] | words[2] | words[3]) & 0x8080808080808080u) == 0) {
                position += stride;
                continue;
            }
        }
        // Skip to the next non-ASCII character, then check it and all that directly follow it.
        while (position < end && *position < 0x80) position++;
        while (position < end && *position >= 0x80) {
            const std::size_t size = utf8_size(position, end);
            if (size == 0) return false;
            position += size;
        }
    }
    return true;
}

} // namespace

std::size_t positions_scalar(const std::uint64_t *masks, std::size_t blocks, std::uint32_t first,
                             std::uint32_t *positions) {
    std::uint32_t *next = positions;
    for (std::size_t i = 0; i < blocks; i++)
        for (std::uint64_t mask = masks[i]; mask; mask &= mask - 1)
            *next++ = first + static_cast<std::uint32_t>(i * BLOCK) + static_cast<std::uint32_t>(__builtin_ctzll(mask));
    return static_cast<std::size_t>(next - positions);
}

// Without branches, which could not be predicted: compilers make branches of `?:` here, so this is arithmetic.
std::size_t find_scalar(const KeyTable &table, const std::uint8_t *text, const std::uint32_t *starts,
                        const std::uint32_t *ends, std::size_t count, std::uint32_t *slots, std::uint32_t *misses) {
    const std::uint32_t none = std::uint32_t{1} << table.bits;
    std::size_t missed = 0;
    for (std::size_t i = 0; i < count; i++) {
        const std::uint32_t start = starts[i], length = ends[i] - start;
        const std::uint64_t is_short = length <= 8;
        const std::uint64_t word = load_word(text + start);
        const std::uint64_t kept = ~std::uint64_t{0} >> ((64 - 8 * length) & 63 & (0 - is_short)) & (0 - is_short);
        const std::uint64_t key = word & kept;
        const auto slot = static_cast<std::uint32_t>(table.slot_of(key));
        // The last byte of a key is not zero. This is false for a token that is too long, too.
        const auto hit = static_cast<std::uint32_t>((table.keys[slot] == key) & (key > kept >> 8));
        slots[i] = none ^ ((none ^ slot) & (0 - hit));
        misses[missed] = static_cast<std::uint32_t>(i);
        missed += 1 - hit;
    }
    return missed;
}

const Kernels KERNELS_SCALAR = {"scalar", classify, is_utf8, positions_scalar, find_scalar, nullptr, nullptr};

} // namespace bpeflow
