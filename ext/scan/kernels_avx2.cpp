// The kernels for AVX2: registers of 32 bytes.

#include "kernels.hpp"

#if defined(__AVX2__)
#include "kernel_templates.hpp"

#include <algorithm>
#include <immintrin.h>

namespace bpeflow {
namespace {

struct Avx2 {
    using Bytes = std::uint8_t __attribute__((vector_size(32)));

    static std::uint64_t top_bits(const Bytes (&block)[2]) {
        const auto mask = [](Bytes bytes) { return static_cast<std::uint32_t>(_mm256_movemask_epi8(__m256i(bytes))); };
        return mask(block[0]) | std::uint64_t{mask(block[1])} << 32;
    }
    static Bytes minus(Bytes bytes, std::uint8_t byte) {
        return Bytes(_mm256_subs_epu8(__m256i(bytes), _mm256_set1_epi8(static_cast<char>(byte))));
    }
    static Bytes lookup(const std::uint8_t (&table)[16], Bytes bytes) {
        const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i *>(table));
        return Bytes(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), __m256i(bytes)));
    }
    static bool any(Bytes bytes) { return _mm256_testz_si256(__m256i(bytes), __m256i(bytes)) == 0; }

    template <int BACK> static Bytes back(Bytes bytes, Bytes before) {
        const __m256i between = _mm256_permute2x128_si256(__m256i(before), __m256i(bytes), 0x21);
        return Bytes(_mm256_alignr_epi8(__m256i(bytes), between, 16 - BACK));
    }

    // A table of `16 * ROWS` entries. Looking up in 16 of them takes the lower half of an index, and returns 0 if its top bit is
    // set. So each row holds its difference from the one before it, and all those up to the row of an index add up to it: an index
    // is negative in the rows after that.
    template <std::size_t ROWS> class Table {
      public:
        explicit Table(const std::uint8_t *of) {
            for (std::size_t row = 0; row < ROWS; row++)
                differences_[row] = row % HALF == 0 ? load(of + 16 * row) : load(of + 16 * row) ^ load(of + 16 * (row - 1));
        }

        Bytes operator[](Bytes index) const {
            if (ROWS <= HALF) return half(index, 0);
            return Bytes(_mm256_blendv_epi8(__m256i(half(index, 0)), __m256i(half(index ^ 0x80, HALF)), __m256i(index)));
        }

      private:
        static constexpr std::size_t HALF = 8; // of the rows: indices with the top bit set are in the others

        static Bytes load(const std::uint8_t *row) {
            return Bytes(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(row))));
        }

        Bytes half(Bytes index, std::size_t first) const {
            Bytes found{};
            for (std::size_t row = first; row < std::min(first + HALF, ROWS); row++, index -= 16)
                found ^= Bytes(_mm256_shuffle_epi8(__m256i(differences_[row]), __m256i(index)));
            return found;
        }

        Bytes differences_[ROWS];
    };
};

std::size_t follow(const BeliefTables &tables, const std::uint8_t *text, std::size_t blocks, Followed *followed) {
    if (tables.size <= 32) return follow_with<Avx2, 2>(tables, text, blocks, followed);
    if (tables.size <= 64) return follow_with<Avx2, 4>(tables, text, blocks, followed);
    if (tables.size <= 128) return follow_with<Avx2, 8>(tables, text, blocks, followed);
    return follow_with<Avx2, 16>(tables, text, blocks, followed);
}

// Eight positions for each block without a branch.
std::size_t positions(const std::uint64_t *masks, std::size_t blocks, std::uint32_t first, std::uint32_t *positions) {
    std::uint32_t *next = positions;
    for (std::size_t i = 0; i < blocks; i++) {
        const int count = __builtin_popcountll(masks[i]);
        const auto here = static_cast<std::uint32_t>(first + i * BLOCK);
        std::uint64_t mask = masks[i];
        for (int put = 0; put < count; put += 8)
            for (int j = put; j < put + 8; j++, mask &= mask - 1)
                next[j] = here + static_cast<std::uint32_t>(__builtin_ctzll(mask));
        next += count;
    }
    return static_cast<std::size_t>(next - positions);
}

std::size_t ranks(const std::uint64_t *chosen, const std::uint64_t *masks, std::size_t blocks, std::uint16_t first,
                  std::uint16_t *ranks) {
    std::uint16_t *next = ranks;
    for (std::size_t i = 0; i < blocks; i++) {
        for (std::uint64_t rest = chosen[i]; rest; rest &= rest - 1)
            *next++ = static_cast<std::uint16_t>(first + __builtin_popcountll(masks[i] & (rest & -rest) - 1));
        first = static_cast<std::uint16_t>(first + __builtin_popcountll(masks[i]));
    }
    return static_cast<std::size_t>(next - ranks);
}

} // namespace

const Kernels KERNELS_AVX2 = {
    "avx2", classify_with<BlockOf<Avx2>>, Utf8Check<Avx2>::is_utf8, positions, find_scalar, follow, ranks};

} // namespace bpeflow
#endif
