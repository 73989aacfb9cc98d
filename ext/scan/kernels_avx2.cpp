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

    // A table of up to 256 entries. A look-up in sixteen of them takes the lower half of an index, and returns 0 if its top bit
    // is set. So each sixteen entries are stored as their difference from the sixteen before, and the differences up to those of
    // an index add up to its entry: in later look-ups the index, less what was passed, is negative.
    class Table {
      public:
        Table(const std::uint8_t *entries, std::size_t sixteens) {
            for (std::size_t i = 0; i < sixteens; i++) {
                differences_[i] = load(entries + 16 * i);
                if (i % HALF) differences_[i] ^= load(entries + 16 * (i - 1));
            }
        }

        // Look up indices, all in the first `sixteens`.
        Bytes get(Bytes index, std::size_t sixteens) const {
            const Bytes low = add_up(index, 0, std::min(sixteens, HALF));
            if (sixteens <= HALF) return low;
            const Bytes high = add_up(index ^ 0x80, HALF, sixteens);
            return Bytes(_mm256_blendv_epi8(__m256i(low), __m256i(high), __m256i(index)));
        }

      private:
        static constexpr std::size_t HALF = 8; // of the sixteens: indices with the top bit set are in the others

        static Bytes load(const std::uint8_t *entries) {
            return Bytes(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(entries))));
        }

        Bytes add_up(Bytes index, std::size_t first, std::size_t end) const {
            Bytes sum{};
            for (std::size_t i = first; i < end; i++, index -= 16)
                sum ^= Bytes(_mm256_shuffle_epi8(__m256i(differences_[i]), __m256i(index)));
            return sum;
        }

        Bytes differences_[16];
    };
};

} // namespace

const Kernels KERNELS_AVX2 = {"avx2",
                              classify_with<BlockOf<Avx2>>,
                              Utf8Check<Avx2>::is_utf8,
                              positions_with<Avx2>,
                              find_scalar,
                              follow_with<Avx2>,
                              ranks_with<Avx2>};

} // namespace bpeflow
#endif
