// The kernels for AVX-512 (F, BW, DQ, VL): one register of 64 bytes, and comparisons that return masks.

#include "kernels.hpp"

#if defined(__AVX512BW__)
#include "kernel_templates.hpp"

#include <algorithm>
#include <cstring>
#include <immintrin.h>
#include <iterator>

namespace bpeflow {
namespace {

// Unlike `BlockOf`, with comparisons that return masks.
struct Block512 {
    __m512i bytes;

    static Block512 load(const std::uint8_t *text) { return {_mm512_loadu_si512(text)}; }

    Block512 lower() const { return {_mm512_or_si512(bytes, all(0x20))}; }
    std::uint64_t equal(char byte) const { return _mm512_cmpeq_epi8_mask(bytes, all(byte)); }
    std::uint64_t within(char first, char count) const {
        return _mm512_cmplt_epu8_mask(_mm512_sub_epi8(bytes, all(first)), all(count));
    }
    std::uint64_t high() const { return _mm512_movepi8_mask(bytes); }

    static __m512i all(char byte) { return _mm512_set1_epi8(byte); }
};

struct Avx512 {
    using Bytes = std::uint8_t __attribute__((vector_size(64)));

    static Bytes minus(Bytes bytes, std::uint8_t byte) {
        return Bytes(_mm512_subs_epu8(__m512i(bytes), _mm512_set1_epi8(static_cast<char>(byte))));
    }
    static Bytes lookup(const std::uint8_t (&table)[16], Bytes bytes) {
        const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i *>(table));
        return Bytes(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), __m512i(bytes)));
    }
    static bool any(Bytes bytes) { return _mm512_test_epi8_mask(__m512i(bytes), __m512i(bytes)) != 0; }
};

#define WITH_VBMI __attribute__((target("avx512vbmi,avx512vbmi2,bmi2,popcnt")))
#define WITH_VBMI_INLINE WITH_VBMI __attribute__((always_inline))

// Return whether this processor has VBMI and VBMI2. All since Ice Lake and Zen 4 have both.
bool has_vbmi() {
    static const bool here = __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
    return here;
}

struct Numbers {
    std::uint8_t of[BLOCK];
    constexpr Numbers() : of{} {
        for (std::size_t i = 0; i < BLOCK; i++) of[i] = static_cast<std::uint8_t>(i);
    }
};
constexpr Numbers NUMBERS;

// Two vectors of sixteen positions for each block without a branch, as few blocks have more.
WITH_VBMI std::size_t positions_with_vbmi(const std::uint64_t *masks, std::size_t blocks, std::uint32_t first,
                                          std::uint32_t *positions) {
    const __m512i each = _mm512_loadu_si512(NUMBERS.of);
    std::uint32_t *next = positions;
    for (std::size_t i = 0; i < blocks; i++) {
        const auto count = static_cast<std::size_t>(__builtin_popcountll(masks[i]));
        const __m512i here = _mm512_set1_epi32(static_cast<int>(first + i * BLOCK));
        const __m512i found = _mm512_maskz_compress_epi8(masks[i], each);
        const auto store = [&](std::size_t at, __m128i sixteen) WITH_VBMI_INLINE {
            _mm512_storeu_si512(next + at, _mm512_add_epi32(here, _mm512_cvtepu8_epi32(sixteen)));
        };
        store(0, _mm512_castsi512_si128(found));
        store(16, _mm512_extracti32x4_epi32(found, 1));
        if (count > 32) {
            store(32, _mm512_extracti32x4_epi32(found, 2));
            store(48, _mm512_extracti32x4_epi32(found, 3));
        }
        next += count;
    }
    return static_cast<std::size_t>(next - positions);
}

WITH_VBMI std::size_t ranks_with_vbmi(const std::uint64_t *chosen, const std::uint64_t *masks, std::size_t blocks,
                                      std::uint16_t first, std::uint16_t *ranks) {
    const __m512i each = _mm512_loadu_si512(NUMBERS.of);
    std::uint16_t *next = ranks;
    for (std::size_t i = 0; i < blocks; i++) {
        const std::uint64_t among = _pext_u64(chosen[i], masks[i]);
        const __m256i found = _mm512_castsi512_si256(_mm512_maskz_compress_epi8(among, each));
        const __m512i here = _mm512_set1_epi16(static_cast<short>(first));
        _mm512_storeu_si512(next, _mm512_add_epi16(here, _mm512_cvtepu8_epi16(found)));
        first = static_cast<std::uint16_t>(first + __builtin_popcountll(masks[i]));
        next += __builtin_popcountll(among);
    }
    return static_cast<std::size_t>(next - ranks);
}

std::size_t positions(const std::uint64_t *masks, std::size_t blocks, std::uint32_t first, std::uint32_t *positions) {
    if (has_vbmi()) return positions_with_vbmi(masks, blocks, first, positions);
    const __m512i each = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    std::uint32_t *next = positions;
    for (std::size_t i = 0; i < blocks; i++)
        for (unsigned quarter = 0; quarter < BLOCK; quarter += 16) {
            const auto mask = static_cast<__mmask16>(masks[i] >> quarter);
            const __m512i here = _mm512_set1_epi32(static_cast<int>(first + i * BLOCK + quarter));
            _mm512_storeu_si512(next, _mm512_maskz_compress_epi32(mask, _mm512_add_epi32(here, each)));
            next += __builtin_popcount(mask);
        }
    return static_cast<std::size_t>(next - positions);
}

// Load eight words, by one load each: processors split the instruction for this into more operations.
template <typename At> __m512i load_eight(const At &at) {
    const auto two = [&](std::size_t i) {
        return _mm_unpacklo_epi64(_mm_loadl_epi64(static_cast<const __m128i *>(at(i))),
                                  _mm_loadl_epi64(static_cast<const __m128i *>(at(i + 1))));
    };
    const auto four = [&](std::size_t i) {
        return _mm256_inserti128_si256(_mm256_castsi128_si256(two(i)), two(i + 2), 1);
    };
    return _mm512_inserti64x4(_mm512_castsi256_si512(four(0)), four(4), 1);
}

// Eight pre-tokens at once.
std::size_t find(const KeyTable &table, const std::uint8_t *text, const std::uint32_t *starts,
                 const std::uint32_t *ends, std::size_t count, std::uint32_t *slots, std::uint32_t *misses) {
    const __m512i ones = _mm512_set1_epi64(-1), none = _mm512_set1_epi64(std::int64_t{1} << table.bits);
    const __m512i multiplier = _mm512_set1_epi64(static_cast<std::int64_t>(KeyTable::MULTIPLIER));
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(64 - table.bits));
    const __m256i each = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    std::uint32_t *next = misses;
    for (std::size_t i = 0; i < count; i += 8) {
        const auto live = static_cast<__mmask8>(count - i >= 8 ? 0xFF : (1u << (count - i)) - 1);
        const __m256i start = _mm256_mask_loadu_epi32(_mm256_set1_epi32(static_cast<int>(starts[i])), live, starts + i);
        const __m256i length = _mm256_sub_epi32(_mm256_maskz_loadu_epi32(live, ends + i), start);
        alignas(32) std::uint32_t from[8];
        _mm256_store_si256(reinterpret_cast<__m256i *>(from), start);
        const __m512i words = load_eight([&](std::size_t j) -> const void * { return text + from[j]; });
        const __m512i unused = _mm512_sub_epi64(
            _mm512_set1_epi64(64), _mm512_slli_epi64(_mm512_cvtepu32_epi64(length), 3)); // bits; wraps if too long
        const __m512i kept = _mm512_srlv_epi64(ones, unused);                            // 0 if the token is too long
        const __m512i keys = _mm512_and_si512(words, kept);
        // The last byte of a key is not zero. This is false for a token that is too long, too.
        const __mmask8 valid = _mm512_mask_cmpgt_epu64_mask(live, keys, _mm512_srli_epi64(kept, 8));
        const __m512i slot = _mm512_srl_epi64(_mm512_mullo_epi64(keys, multiplier), shift);
        alignas(64) std::uint64_t at[8];
        _mm512_store_si512(at, slot);
        const __m512i present = load_eight([&](std::size_t j) -> const void * { return table.keys + at[j]; });
        const __mmask8 hit = _mm512_mask_cmpeq_epi64_mask(valid, present, keys);
        const __m512i result = _mm512_mask_blend_epi64(hit, none, slot);
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(slots + i), _mm512_cvtepi64_epi32(result));
        const auto miss = static_cast<__mmask8>(live & ~hit);
        const __m256i index = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(i)), each);
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(next), _mm256_maskz_compress_epi32(miss, index));
        next += __builtin_popcount(miss);
    }
    return static_cast<std::size_t>(next - misses);
}

// A table of bytes for the index of a transition: the first half of it if no index is greater.
template <bool SMALL> struct ByteTable {
    __m512i quarters[4];

    WITH_VBMI_INLINE explicit ByteTable(const std::uint8_t (&of)[256])
        : quarters{_mm512_loadu_si512(of), _mm512_loadu_si512(of + 64), _mm512_loadu_si512(of + 128),
                   _mm512_loadu_si512(of + 192)} {}

    WITH_VBMI_INLINE __m512i operator[](__m512i index) const {
        const __m512i low = _mm512_permutex2var_epi8(quarters[0], index, quarters[1]);
        if (SMALL) return low;
        return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low,
                                      _mm512_permutex2var_epi8(quarters[2], index, quarters[3]));
    }
};

// For each byte, the one `BACK` before it. Each 16 bytes of `before` are the 16 before those of `bytes`.
template <int BACK> __m512i back(__m512i bytes, __m512i before) {
    return _mm512_alignr_epi8(bytes, before, 16 - BACK);
}

template <bool SMALL>
WITH_VBMI std::size_t follow_with_vbmi(const BeliefTables &tables, const std::uint8_t *text, std::size_t blocks,
                                       Followed *followed) {
    static_assert(BeliefTables::HISTORY == 4);
    const __m512i first_columns = _mm512_loadu_si512(tables.column), others = _mm512_loadu_si512(tables.column + 64);
    const ByteTable<SMALL> next(tables.next), flags(tables.flags);
    std::int32_t history;
    std::memcpy(&history, text - BeliefTables::HISTORY, sizeof history);
    __m512i read = _mm512_maskz_set1_epi32(1 << 15, history);
    if (_mm512_movepi8_mask(read)) return 0;
    __m512i columns = _mm512_permutex2var_epi8(first_columns, read, others);
    for (std::size_t i = 0; i < blocks; i++) {
        read = _mm512_loadu_si512(text + i * BLOCK);
        const __m512i last_columns = columns;
        columns = _mm512_permutex2var_epi8(first_columns, read, others);
        const __m512i before = _mm512_alignr_epi64(columns, last_columns, 6);
        const auto step = [&](__m512i index, __m512i column)
                              WITH_VBMI_INLINE { return _mm512_add_epi8(next[index], column); };
        // The belief after the first character is in the first row.
        __m512i index = _mm512_permutexvar_epi8(back<4>(columns, before), next.quarters[0]);
        index = _mm512_add_epi8(index, back<3>(columns, before));
        index = step(index, back<2>(columns, before));
        index = step(index, back<1>(columns, before));
        index = step(index, columns);
        const __m512i of = flags[index];
        const auto with = [&](Followed::Flag flag) WITH_VBMI_INLINE {
            return std::uint64_t{_mm512_test_epi8_mask(of, _mm512_set1_epi8(static_cast<char>(flag)))};
        };
        const std::uint64_t unknown = with(Followed::UNKNOWN);
        if (_mm512_movepi8_mask(read) || __builtin_popcountll(unknown) > Followed::MOST_UNKNOWN) return i;
        followed[i] = {with(Followed::PIECE_HERE),
                       with(Followed::PIECE_BEFORE_PREVIOUS),
                       with(Followed::ATTEMPT_HERE),
                       with(Followed::ATTEMPT_BEFORE_PREVIOUS),
                       with(Followed::GAP_ENDS),
                       unknown,
                       {}};
        _mm512_storeu_si512(followed[i].entries, index);
    }
    return blocks;
}

std::size_t follow(const BeliefTables &tables, const std::uint8_t *text, std::size_t blocks, Followed *followed) {
    if (!has_vbmi()) return KERNELS_AVX2.follow(tables, text, blocks, followed);
    const bool small = *std::max_element(std::begin(tables.sixteens), std::end(tables.sixteens)) <= 8;
    return (small ? follow_with_vbmi<true> : follow_with_vbmi<false>)(tables, text, blocks, followed);
}

std::size_t ranks(const std::uint64_t *chosen, const std::uint64_t *masks, std::size_t blocks, std::uint16_t first,
                  std::uint16_t *ranks) {
    return (has_vbmi() ? ranks_with_vbmi : KERNELS_AVX2.ranks)(chosen, masks, blocks, first, ranks);
}

} // namespace

const Kernels KERNELS_AVX512 = {"avx512", classify_with<Block512>, Utf8Check<Avx512>::is_utf8, positions, find, follow,
                                ranks};

} // namespace bpeflow
#endif
