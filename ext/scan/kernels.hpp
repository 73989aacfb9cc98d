// Kernels: the innermost loops over text, one version of each per instruction set. The set is selected at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace bpeflow {

constexpr std::size_t BLOCK = 64;

// For each class of bytes, one bit per byte of a block of 64, the first byte lowest.
struct Masks {
    std::uint64_t letter, digit, space, blank, line_end, apostrophe, upper; // ASCII only; `space` includes the next two
    std::uint64_t high, lead; // bytes of non-ASCII characters, and the first of each
};

// A direct-mapped table of short keys. A key is the bytes of a pre-token of at most 8 bytes, the first byte lowest,
// padded with zeros. A pre-token that ends in a zero byte has no key: so the key alone gives the length.
struct KeyTable {
    const std::uint64_t *keys; // [2^bits], 0 in an empty slot
    unsigned bits;

    static constexpr std::uint64_t MULTIPLIER = 0x9E3779B97F4A7C15u;

    std::size_t slot_of(std::uint64_t key) const { return static_cast<std::size_t>(key * MULTIPLIER >> (64 - bits)); }
};

// The tables of beliefs (beliefs.hpp). A belief is the index of its row.
struct BeliefTables {
    static constexpr std::size_t SIZE = 256;
    static constexpr std::size_t HISTORY = 4; // characters from which a belief follows

    std::uint8_t column[128];             // of an ASCII character
    std::uint8_t next[SIZE], flags[SIZE]; // [belief + column]
    std::uint8_t sixteens[HISTORY + 1];   // after n characters, only the first 16 * sixteens[n] entries are read
};

// What is known of the transitions in a block: one bit per byte for each flag.
struct Followed {
    enum Flag : std::uint8_t { // all but UNKNOWN as in `Automaton`
        PIECE_HERE = 1,
        PIECE_BEFORE_PREVIOUS = 2,
        ATTEMPT_HERE = 4,
        ATTEMPT_BEFORE_PREVIOUS = 8,
        GAP_ENDS = 16,
        UNKNOWN = 128, // then there are no other flags
    };
    static constexpr int MOST_UNKNOWN = 12; // in a block that is worth following

    std::uint64_t piece_here, piece_before_previous, attempt_here, attempt_before_previous, gap_ends, unknown;
    std::uint8_t entries[BLOCK]; // belief + column of each transition

    // Set the flags of an unknown transition.
    void set(std::size_t at, unsigned flags) {
        const auto set = [&](std::uint64_t &mask, Flag flag) {
            mask = (mask & ~(std::uint64_t{1} << at)) | std::uint64_t{(flags & flag) != 0} << at;
        };
        set(piece_here, PIECE_HERE);
        set(piece_before_previous, PIECE_BEFORE_PREVIOUS);
        set(attempt_here, ATTEMPT_HERE);
        set(attempt_before_previous, ATTEMPT_BEFORE_PREVIOUS);
        set(gap_ends, GAP_ENDS);
    }
};

struct Kernels {
    const char *name;

    // Compute the masks of `blocks` blocks.
    void (*classify)(const std::uint8_t *text, std::size_t blocks, Masks *masks);

    // Return whether a text is valid UTF-8.
    bool (*is_utf8)(const std::uint8_t *start, const std::uint8_t *end);

    // Write the position of each bit of `blocks` masks, the first bit having the position `first`. Return their number.
    // Up to 32 more positions may be overwritten.
    std::size_t (*positions)(const std::uint64_t *masks, std::size_t blocks, std::uint32_t first,
                             std::uint32_t *positions);

    // Look up `count` pre-tokens: i is the text from starts[i] to ends[i]. Write the slot of each, 2^bits for one
    // that is not in the table, and the indices of the latter. Return their number. Eight bytes of text must be
    // readable from each start on. All starts are below 2^31. Up to 8 more slots and misses may be overwritten.
    std::size_t (*find)(const KeyTable &table, const std::uint8_t *text, const std::uint32_t *starts,
                        const std::uint32_t *ends, std::size_t count, std::uint32_t *slots, std::uint32_t *misses);

    // Follow the beliefs through up to `blocks` blocks. Stop before the first one that has a character beyond ASCII (or
    // one within HISTORY bytes before it), or too many unknown transitions. Return the number of blocks before that.
    // HISTORY bytes before the text are read. Null if the instruction set has no such kernel.
    std::size_t (*follow)(const BeliefTables &tables, const std::uint8_t *text, std::size_t blocks, Followed *followed);

    // Write the rank of each chosen bit among the bits of `blocks` masks, the first bit having the rank `first`. Return their
    // number. At most 32 bits of a mask are chosen. Up to 32 more ranks may be overwritten. Null if `follow` is.
    std::size_t (*ranks)(const std::uint64_t *chosen, const std::uint64_t *masks, std::size_t blocks,
                         std::uint16_t first, std::uint16_t *ranks);
};

std::size_t find_scalar(const KeyTable &table, const std::uint8_t *text, const std::uint32_t *starts,
                        const std::uint32_t *ends, std::size_t count, std::uint32_t *slots, std::uint32_t *misses);

// Return the names of the instruction sets that this processor supports, best first, separated by spaces. "scalar" is
// the last.
const char *instructions();

// Return the kernels of the named instruction set, or of the best one if `name` is null. Null if the name is unknown or
// the processor does not support it.
const Kernels *find_kernels(const char *name);

#if defined(__x86_64__)
extern const Kernels KERNELS_AVX512, KERNELS_AVX2;
#elif defined(__aarch64__) && defined(__ARM_NEON)
extern const Kernels KERNELS_NEON;
#endif
extern const Kernels KERNELS_SCALAR;

} // namespace bpeflow
