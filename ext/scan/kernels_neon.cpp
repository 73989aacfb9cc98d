// The kernels for NEON, which every arm64 processor has: registers of 16 bytes.

#include "kernels.hpp"

#if defined(__aarch64__) && defined(__ARM_NEON)
#include "kernel_templates.hpp"

#include <arm_neon.h>

namespace bpeflow {
namespace {

struct Neon {
    using Bytes = uint8x16_t;

    // Each byte keeps the bit of its index modulo 8. Three pairwise additions then combine eight bytes into one.
    static std::uint64_t top_bits(const Bytes (&block)[4]) {
        static constexpr std::uint8_t bits_of_bytes[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
        const auto bits = [](Bytes bytes) {
            return vandq_u8(vcgeq_u8(bytes, vdupq_n_u8(0x80)), vld1q_u8(bits_of_bytes));
        };
        const Bytes low = vpaddq_u8(bits(block[0]), bits(block[1])), high = vpaddq_u8(bits(block[2]), bits(block[3]));
        const Bytes sums = vpaddq_u8(low, high);
        return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)), 0);
    }
    static Bytes minus(Bytes bytes, std::uint8_t byte) { return vqsubq_u8(bytes, vdupq_n_u8(byte)); }
    static Bytes lookup(const std::uint8_t (&table)[16], Bytes bytes) { return vqtbl1q_u8(vld1q_u8(table), bytes); }
    static bool any(Bytes bytes) { return vmaxvq_u8(bytes) != 0; }

    template <int BACK> static Bytes back(Bytes bytes, Bytes before) { return vextq_u8(before, bytes, 16 - BACK); }

    // A look-up of an index that is not in a quarter leaves the entry as it is.
    class Table {
      public:
        Table(const std::uint8_t *entries, std::size_t sixteens) {
            for (std::size_t i = 0; i < quarters(sixteens); i++) quarters_[i] = vld1q_u8_x4(entries + 64 * i);
        }

        // Look up indices, all in the first `sixteens`.
        Bytes get(Bytes index, std::size_t sixteens) const {
            Bytes entry = vqtbl4q_u8(quarters_[0], index);
            for (std::size_t i = 1; i < quarters(sixteens); i++) entry = vqtbx4q_u8(entry, quarters_[i], index -= 64);
            return entry;
        }

      private:
        static std::size_t quarters(std::size_t sixteens) { return (sixteens + 3) / 4; }

        uint8x16x4_t quarters_[4];
    };
};

} // namespace

const Kernels KERNELS_NEON = {"neon",
                              classify_with<BlockOf<Neon>>,
                              Utf8Check<Neon>::is_utf8,
                              positions_with<Neon>,
                              find_scalar,
                              follow_with<Neon>,
                              ranks_with<Neon>};

} // namespace bpeflow
#endif
