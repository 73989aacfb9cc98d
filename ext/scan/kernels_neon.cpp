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
};

} // namespace

const Kernels KERNELS_NEON = {
    "neon", classify_with<BlockOf<Neon>>, Utf8Check<Neon>::is_utf8, positions_scalar, find_scalar, nullptr, nullptr};

} // namespace bpeflow
#endif
