// The kernels without vector instructions, for any processor.

#include "hash.hpp"
#include "kernel_templates.hpp"
#include "kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bpeflow {
namespace {

// Compilers make what the processor has of it.
struct Portable {
    using Bytes = std::uint8_t __attribute__((vector_size(16)));

    static std::uint64_t top_bits(const Bytes (&block)[4]) {
        const auto *const bytes = reinterpret_cast<const std::uint8_t *>(block);
        std::uint64_t mask = 0;
        for (unsigned eight = 0; eight < BLOCK; eight += 8) {
            const std::uint64_t bits = load_word(bytes + eight) >> 7 & 0x0101010101010101u;
            mask |= (bits * 0x0102040810204080u >> 56) << eight; // the product moves bit 8 * i to bit 56 + i
        }
        return mask;
    }
    static Bytes minus(Bytes bytes, std::uint8_t byte) { return Bytes(bytes > byte) & (bytes - byte); }
};

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

std::size_t positions(const std::uint64_t *masks, std::size_t blocks, std::uint32_t first, std::uint32_t *positions) {
    std::uint32_t *next = positions;
    for (std::size_t i = 0; i < blocks; i++)
        for (std::uint64_t mask = masks[i]; mask; mask &= mask - 1)
            *next++ = first + static_cast<std::uint32_t>(i * BLOCK) + static_cast<std::uint32_t>(__builtin_ctzll(mask));
    return static_cast<std::size_t>(next - positions);
}

} // namespace

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

const Kernels KERNELS_SCALAR = {"scalar", classify_with<BlockOf<Portable>>, is_utf8, positions, find_scalar, nullptr,
                                nullptr};

} // namespace bpeflow
