// The index of the counting table: from a hash to the places of records.
#pragma once

#include "pages.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace bpeflow {

// Buckets of one cache line. Each holds the tags (lower halves of hashes) and the places of up to eight records. One
// that finds its bucket full goes to the next.
class Index {
  public:
    struct Bucket {
        std::uint32_t tags[8]; // 0: empty
        std::uint32_t places[8];

        void put(int at, std::uint32_t tag, std::uint32_t place) {
            tags[at] = tag;
            places[at] = place;
        }
    };
    static_assert(sizeof(Bucket) == 64);

    Index() : pages_(sizeof(Bucket) << least_bits) {}

    // The number of records that there is room for.
    std::size_t room() const { return room(bits_); }

    // The size in bytes with room for `records`, after growing.
    std::size_t memory(std::size_t records) const {
        unsigned bits = bits_;
        while (room(bits) < records) bits++;
        return sizeof(Bucket) << bits;
    }

    // Make room for `records`. A tag says in which bucket it belongs, however many there are, so this reads no records.
    void grow(std::size_t records) {
        const std::size_t before = mask() + 1;
        unsigned bits = bits_ + (bits_ < few_bits ? 2 : 1);
        while (room(bits) < records) bits++;
        if (sizeof(Bucket) << bits > pages_.size()) pages_.grow(sizeof(Bucket) << bits);
        bits_ = bits;
        // Until all buckets have been emptied once, each record is either in its own bucket or put aside.
        std::vector<std::pair<std::uint32_t, std::uint32_t>> aside; // tags and places
        for (std::size_t number = 0; number < before; number++) {
            const Bucket old = std::exchange(bucket(number), {});
            for (int i = 0; i < 8 && old.tags[i] != 0; i++) {
                Bucket &here = bucket(home(old.tags[i]));
                if (const unsigned empty = equal(here, 0))
                    here.put(__builtin_ctz(empty), old.tags[i], old.places[i]);
                else
                    aside.emplace_back(old.tags[i], old.places[i]);
            }
        }
        for (const auto &[tag, place] : aside) {
            const auto put = [tag = tag, place = place](Bucket &here, int empty) { here.put(empty, tag, place); };
            search(tag, [](std::uint32_t) { return false; }, put);
        }
    }

    // Return the memory to the kernel. Nothing can be found after this.
    void discard() const { pages_.discard(0, pages_.size()); }

    void prefetch(std::uint64_t hash) const { __builtin_prefetch(&bucket(home(tag(hash)))); }

    // Return the place that is most likely that of a record with this hash, or 0.
    std::uint32_t guess(std::uint64_t hash) const {
        const Bucket &first = bucket(home(tag(hash)));
        const unsigned same = equal(first, tag(hash));
        return first.places[__builtin_ctz(same | 0x80)] & (0 - std::uint32_t{same != 0});
    }

    // Call is(place) for the places of records with this hash, and return the first for which it is true, 0 if there is
    // none.
    template <typename Is> std::uint32_t find(std::uint64_t hash, const Is &is) const {
        return search(tag(hash), is, [](Bucket &, int) {});
    }

    // The same, but if there is none, insert the place that add() returns.
    template <typename Is, typename Add> std::uint32_t find(std::uint64_t hash, const Is &is, const Add &add) {
        return search(tag(hash), is, [&](Bucket &here, int empty) { here.put(empty, tag(hash), add()); });
    }

  private:
    static constexpr unsigned least_bits = 9, few_bits = 15;

    static std::size_t room(unsigned bits) { return (std::size_t{8} << bits) / 4 * 3; }
    static std::uint32_t tag(std::uint64_t hash) { return static_cast<std::uint32_t>(hash) | 1; }
    std::size_t mask() const { return (std::size_t{1} << bits_) - 1; }
    std::size_t home(std::uint32_t tag) const { return tag >> 1 & mask(); }
    Bucket &bucket(std::size_t i) const { return reinterpret_cast<Bucket *>(pages_.data())[i]; }

    // Return the place for which is() is true; 0 if there is none, after calling at_end() with the empty slot where it
    // belongs.
    template <typename Is, typename AtEnd>
    std::uint32_t search(std::uint32_t tag, const Is &is, const AtEnd &at_end) const {
        for (std::size_t number = home(tag);; number = (number + 1) & mask()) {
            Bucket &here = bucket(number);
            for (unsigned same = equal(here, tag); same; same &= same - 1)
                if (const std::uint32_t place = here.places[__builtin_ctz(same)]; is(place)) return place;
            if (const unsigned empty = equal(here, 0)) {
                at_end(here, __builtin_ctz(empty));
                return 0;
            }
        }
    }

    // Return a bit for each of the eight tags, set if it is `tag`.
    static unsigned equal(const Bucket &bucket, std::uint32_t tag) {
#if defined(__SSE2__)
        const auto *tags = reinterpret_cast<const __m128i *>(bucket.tags);
        const __m128i wanted = _mm_set1_epi32(static_cast<int>(tag));
        const __m128i low = _mm_cmpeq_epi32(_mm_load_si128(tags), wanted);
        const __m128i high = _mm_cmpeq_epi32(_mm_load_si128(tags + 1), wanted);
        return static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(low)) | _mm_movemask_ps(_mm_castsi128_ps(high))
                                                                                  << 4);
#else
        unsigned same = 0;
        for (unsigned i = 0; i < 8; i++) same |= unsigned{bucket.tags[i] == tag} << i;
        return same;
#endif
    }

    Pages pages_;
    unsigned bits_ = least_bits;
};

} // namespace bpeflow
