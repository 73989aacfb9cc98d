// Blocks of text in which beliefs (beliefs.hpp) say where pieces begin, for many characters at once.
#pragma once

#include "automaton.hpp"
#include "kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace bpeflow {

class FollowedBlocks {
  public:
    using Bytes = const std::uint8_t *;

    // Blocks whose beliefs are followed at a time.
    static constexpr std::size_t MOST = 16;

    FollowedBlocks(const Kernels &kernels, const Automaton &automaton) : kernels_(kernels), automaton_(automaton) {}

    // Follow the beliefs from `position` on, through as many blocks as possible before `end`. Return whether there are any.
    bool follow(Bytes position, Bytes end) {
        const std::size_t blocks = std::min(MOST, static_cast<std::size_t>(end - position) / BLOCK);
        text_ = position;
        size_ = kernels_.follow(automaton_.beliefs().tables(), position, blocks, blocks_) * BLOCK;
        return size_ > 0;
    }

    Bytes text() const { return text_; }
    Bytes end() const { return text_ + size_; }

    // Read the unknown transitions from number `from` on, in a given configuration. Return the number of the first special
    // one, or that of all, and set the configuration before it. Unless reading starts where the beliefs were followed from,
    // it must have continued for HISTORY characters before `from`.
    std::size_t read_unknown(std::size_t from, std::size_t &config) {
        const std::uint8_t *const flags_of = automaton_.flags();
        const std::uint16_t *const moves = automaton_.moves();
        std::size_t at = from; // the configuration before it is `config`
        for (std::size_t i = from / BLOCK; i < size_ / BLOCK; i++) {
            std::uint64_t places = blocks_[i].unknown;
            if (i == from / BLOCK) places &= ~std::uint64_t{0} << from % BLOCK;
            if (i + 1 == size_ / BLOCK) places |= std::uint64_t{1} << 63;
            for (; places; places &= places - 1) {
                const std::size_t to = i * BLOCK + static_cast<std::size_t>(__builtin_ctzll(places));
                std::size_t first = to;
                std::uint8_t known = Beliefs::NONE;
                for (;; first--) {
                    known = automaton_.beliefs().config(blocks_[first / BLOCK].entries[first % BLOCK]);
                    if (known != Beliefs::NONE || first <= at) break;
                }
                if (known != Beliefs::NONE) config = known * automaton_.row();
                for (at = first;; at++) {
                    const std::size_t transition = config + automaton_.ascii_class(text_[at]);
                    const unsigned flags = flags_of[transition];
                    if (flags & Automaton::SPECIAL) return at;
                    config = moves[transition];
                    if (at == to) {
                        blocks_[i].set(at % BLOCK, flags);
                        break;
                    }
                    if (blocks_[at / BLOCK].unknown >> at % BLOCK & 1) blocks_[at / BLOCK].set(at % BLOCK, flags);
                }
                at++;
            }
        }
        return size_;
    }

    // Return the flags of the transition with this number that concern the character before it.
    unsigned before_previous(std::size_t at) const {
        const auto bit = [&](std::uint64_t mask, unsigned flag) { return mask >> at % BLOCK & 1 ? flag : 0; };
        const Followed &here = blocks_[at / BLOCK];
        return bit(here.piece_before_previous, Automaton::PIECE_BEFORE_PREVIOUS) |
               bit(here.attempt_before_previous, Automaton::ATTEMPT_BEFORE_PREVIOUS) |
               bit(here.gap_ends, Automaton::GAP_ENDS);
    }

    // Where pieces and attempts start and gaps end in a block, one bit per byte.
    struct Starts {
        std::uint64_t pieces, attempts, gaps;
    };

    // Return the starts in block i that the transitions from number `from` to `to` reveal. One before `from` is left out.
    Starts starts(std::size_t i, std::size_t from, std::size_t to) const {
        const std::size_t last = (to - 1) / BLOCK;
        const std::uint64_t after = i == from / BLOCK ? ~std::uint64_t{0} << from % BLOCK : ~std::uint64_t{0};
        const std::uint64_t before = i == last ? ~std::uint64_t{0} >> (63 - (to - 1) % BLOCK) : ~std::uint64_t{0};
        const Followed &here = blocks_[i], &next = blocks_[i < last ? i + 1 : i];
        const std::uint64_t with_next = std::uint64_t{i < last} << 63;
        const auto earlier = [&](std::uint64_t Followed::*of) {
            return ((here.*of & before) >> 1 | (next.*of << 63 & with_next)) & after;
        };
        return {(here.piece_here & before & after) | earlier(&Followed::piece_before_previous),
                (here.attempt_here & before & after) | earlier(&Followed::attempt_before_previous),
                earlier(&Followed::gap_ends)};
    }

  private:
    const Kernels &kernels_;
    const Automaton &automaton_;
    Bytes text_ = nullptr;
    std::size_t size_ = 0;
    Followed blocks_[MOST];
};

} // namespace bpeflow
