// The kernels for NEON, which every arm64 processor has: registers of 16 bytes.

#include "kernels.hpp"

#if defined(__aarch64__) && defined(__ARM_NEON)
#include "kernel_templates.hpp"

#include <arm_neon.h>

namespace bpeflow {
namespace {

struct BlockNeon {
    uint8x16_t quarters[4];

    static BlockNeon load(const std::uint8_t *text) {
        return {{vld1q_u8(text), vld1q_u8(text + 16), vld1q_u8(text + 32), vld1q_u8(text + 48)}};
    }

    BlockNeon lower() const {
        return each([](uint8x16_t bytes) { return vorrq_u8(bytes, vdupq_n_u8(0x20)); });
    }
    std::uint64_t equal(std::uint8_t byte) const {
        return each([byte](uint8x16_t bytes) { return vceqq_u8(bytes, vdupq_n_u8(byte)); }).mask();
    }
    std::uint64_t within(std::uint8_t first, std::uint8_t count) const {
        return each([first, count](uint8x16_t bytes) {
                   return vcltq_u8(vsubq_u8(bytes, vdupq_n_u8(first)), vdupq_n_u8(count));
               })
            .mask();
    }
    std::uint64_t high() const {
        return each([](uint8x16_t bytes) { return vcgeq_u8(bytes, vdupq_n_u8(0x80)); }).mask();
    }

    // Return a bit per byte, for bytes that are 0xFF or 0. Each byte keeps the bit of its index modulo 8. Three
    // pairwise additions then combine eight bytes into one.
    std::uint64_t mask() const {
        static constexpr std::uint8_t bits_of_bytes[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
        const uint8x16_t bit = vld1q_u8(bits_of_bytes);
        const BlockNeon bits = each([bit](uint8x16_t bytes) { return vandq_u8(bytes, bit); });
        const uint8x16_t low = vpaddq_u8(bits.quarters[0], bits.quarters[1]);
        const uint8x16_t high = vpaddq_u8(bits.quarters[2], bits.quarters[3]);
        const uint8x16_t sums = vpaddq_u8(low, high);
        return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)), 0);
    }

    template <typename Change> BlockNeon each(Change change) const {
        return {{change(quarters[0]), change(quarters[1]), change(quarters[2]), change(quarters[3])}};
    }
};

struct VectorNeon {
    static constexpr std::size_t SIZE = 16;
    uint8x16_t bytes;

    static VectorNeon load(const std::uint8_t *text) { return {vld1q_u8(text)}; }
    static VectorNeon all(std::uint8_t byte) { return {vdupq_n_u8(byte)}; }

    VectorNeon upper_halves() const { return {vshrq_n_u8(bytes, 4)}; }
    VectorNeon lower_halves() const { return *this & all(0x0F); }
    VectorNeon lookup(const std::uint8_t (&table)[16]) const { return {vqtbl1q_u8(vld1q_u8(table), bytes)}; }
    VectorNeon minus(std::uint8_t byte) const { return {vqsubq_u8(bytes, all(byte).bytes)}; } // at least 0
    bool any() const { return vmaxvq_u8(bytes) != 0; }
    bool any_high() const { return vmaxvq_u8(bytes) >= 0x80; }

    friend VectorNeon operator&(VectorNeon a, VectorNeon b) { return {vandq_u8(a.bytes, b.bytes)}; }
    friend VectorNeon operator|(VectorNeon a, VectorNeon b) { return {vorrq_u8(a.bytes, b.bytes)}; }
    friend VectorNeon operator^(VectorNeon a, VectorNeon b) { return {veorq_u8(a.bytes, b.bytes)}; }
};

} // namespace

const Kernels KERNELS_NEON = {
    "neon", classify_with<BlockNeon>, Utf8Check<VectorNeon>::is_utf8, positions_scalar, find_scalar, nullptr, nullptr};

} // namespace bpeflow
#endif
