// Cutting long pre-tokens into pieces.
#pragma once

#include "id_writer.hpp"
#include "pairs.hpp"
#include "pretoken_batch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bpeflow {

// Collects pieces of pre-tokens: the bytes between two places where no merge joins two bytes. They merge independently of
// each other. In ordinary vocabularies no merge joins two words. So a piece is about as long as a word and recurs as often,
// while a pre-token of many words hardly ever recurs.
class Pieces {
  public:
    explicit Pieces(const Pairs &pairs) : pairs_(pairs) {}

    // Return whether to look up the pieces of pre-tokens instead of the pre-tokens: if most bytes are in long ones.
    static bool are_better(const PretokenBatch &tokens) {
        std::uint32_t all = 0, in_long = 0;
        for (std::size_t i = 0; i < tokens.count; i++) {
            const std::uint32_t length = tokens.ends[i] - tokens.starts[i];
            all += length;
            in_long += length > longest ? length : 0;
        }
        return in_long > least && in_long > all / 2;
    }

    void clear() { count_ = 0; }

    std::size_t count() const { return count_; } // without those that were passed on

    // Add the pieces of the next pre-token of a text. When there is no room, call pass_on(pieces) with those that are
    // complete.
    template <typename PassOn>
    void add(const std::uint8_t *text, std::uint32_t start, std::uint32_t end, const PassOn &pass_on) {
        const auto make_room = [&] {
            if (count_ < half) return;
            pass_on(PretokenBatch{text, starts_, ends_, count_});
            starts_[0] = starts_[count_];
            count_ = 0;
        };
        make_room();
        starts_[count_] = start;
        for (std::uint32_t at = start + 1; at < end;) {
            const auto stop = static_cast<std::uint32_t>(std::min<std::size_t>(end, at + half));
            const std::size_t first = count_;
            count_ += pairs_.find_cuts(text, at, stop, starts_ + first + 1);
            for (std::size_t i = first; i < count_; i += RUN)
                std::memcpy(ends_ + i, starts_ + i + 1, RUN * sizeof *ends_);
            at = stop;
            make_room();
        }
        ends_[count_++] = end;
    }

    // Call pass_on(pieces) for the last pieces, if there are any.
    template <typename PassOn> void finish(const std::uint8_t *text, const PassOn &pass_on) {
        if (count_ > 0) pass_on(PretokenBatch{text, starts_, ends_, count_});
        count_ = 0;
    }

  private:
    // Bytes of a pre-token that is not long. More: those of two words are not cut. With 32, code takes 1.5 times as long with
    // the pattern `superbpe`. Less: words are cut, too.
    static constexpr std::uint32_t longest = 16;
    static constexpr std::uint32_t least = 2048; // bytes to cut at all: few pieces would await memory one after another
    static constexpr std::size_t half = PretokenBatch::MOST / 2; // pieces to pass on at least, bytes to cut at a time

    const Pairs &pairs_;
    // Of `count_` pieces, and perhaps of an incomplete one. `RUN` ends are copied at a time.
    std::uint32_t starts_[2 * half + 2 + RUN], ends_[2 * half + 1 + RUN];
    std::size_t count_ = 0;
};

} // namespace bpeflow
