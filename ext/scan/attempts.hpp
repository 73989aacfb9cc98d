// Matching at one position after another with the automaton, in linear time.
#pragma once

#include "automaton.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <unordered_set>
#include <vector>

namespace bpeflow {

// Finds matches of a step in one piece of text.
//
// An attempt to match may read far beyond its match (or find none), and the next attempt reads the same text again: with
// `a+b|.`, each of 10 million `a` would be read up to the end. The rest of an attempt depends only on the position and
// the state there. So if an attempt comes to a pair of these, a *dead end*, after which an earlier attempt has found no
// longer match, it can stop: it finds none either. Two records have dead ends:
//
// * The *path* of the last attempt: its states in the first `NEAR` bytes. They are dead ends beyond its match, where the
//   next attempt starts at the earliest. Where that comes to the path, the rest of the path is its own. Most attempts do
//   so within a few characters.
// * If an attempt has read more than `NEAR` bytes without finding a longer match, positions for dead ends are multiples of
//   a power of two, which grows with the distance from the start of the attempt. Hence an attempt leaves only a few
//   hundred, however far it reads. It stops before the first dead end that it comes to or leaves new ones that are
//   closer to each other, so for each state, a stretch of text is read at most once for each power of two: n log n for a
//   text of n bytes, plus at most 2 * NEAR bytes for each attempt.
class Attempts {
  public:
    using Bytes = const std::uint8_t *;

    static constexpr std::ptrdiff_t FAR = 8; // an attempt that reads more bytes is far ahead of the next one

    explicit Attempts(const Automaton &automaton) : automaton_(automaton) {}

    // Continue with another text.
    void begin(Bytes text, Bytes end) {
        text_ = text;
        end_ = end;
        if (!dead_ends_.empty()) dead_ends_.clear();
        path_end_ = nullptr;
    }

    struct Result {
        Bytes end;  // of the match; null if there is none
        Bytes read; // the first character that was not read
    };

    // Match at a position, which must not be before the end of the last match.
    Result match(Bytes start) {
        std::size_t state = automaton_.start();
        Bytes found = nullptr, position = start;
        const Bytes near = start + std::min(NEAR, static_cast<std::size_t>(end_ - start));
        passed_.clear();
        for (;;) {
            const Bytes checkpoint = checkpoint_after(start, position);
            while (position < checkpoint) {
                const Automaton::Class character = automaton_.class_at(position);
                const std::uint32_t next = automaton_.next(state, character.number);
                if (next & 1) found = position;
                state = next >> 1;
                if (!state) return leave(start, found, position, std::min(position + 1, near));
                position += character.size;
                if (position >= near) continue;
                std::uint32_t &here = path_[position_in_path(position)];
                if (here == state && position < path_end_)
                    return leave(start, found, position, std::min(path_end_, near));
                here = static_cast<std::uint32_t>(state);
            }
            if (position == end_) {
                if (automaton_.matches_at_end(state)) found = position;
                return leave(start, found, position, near);
            }
            const DeadEnd here = {position, state};
            if (!dead_ends_.empty() && dead_ends_.count(key(here)) != 0)
                return leave(start, found, position, std::min(position, near));
            if (static_cast<std::size_t>(position - (found ? found : start)) > NEAR) passed_.push_back(here);
        }
    }

  private:
    static constexpr std::size_t NEAR = 64;

    struct DeadEnd {
        Bytes position;
        std::size_t state;
    };

    Bytes checkpoint_after(Bytes start, Bytes position) const {
        std::size_t spacing = NEAR;
        while (spacing * 64 < static_cast<std::size_t>(position - start)) spacing *= 2;
        const std::size_t next = (static_cast<std::size_t>(position - text_) | (spacing - 1)) + 1; // the next multiple
        return next < static_cast<std::size_t>(end_ - text_) ? text_ + next : end_;
    }

    static std::size_t position_in_path(Bytes position) { return reinterpret_cast<std::uintptr_t>(position) % NEAR; }

    Result leave(Bytes start, Bytes found, Bytes read, Bytes path_end) {
        path_end_ = path_end;
        for (const DeadEnd &passed : passed_)
            if (!found || passed.position > found) dead_ends_.insert(key(passed));
        if (dead_ends_.size() > most_) forget_before(start);
        return {found, read};
    }

    void forget_before(Bytes start) {
        const std::uint64_t first = key({start, 0});
        for (auto each = dead_ends_.begin(); each != dead_ends_.end();)
            each = *each < first ? dead_ends_.erase(each) : std::next(each);
        most_ = std::max(most_, 2 * dead_ends_.size());
    }

    std::uint64_t key(const DeadEnd &of) const {
        return static_cast<std::uint64_t>(of.position - text_) << 22 | of.state;
    }

    const Automaton &automaton_;
    Bytes text_ = nullptr, end_ = nullptr;
    std::uint32_t path_[NEAR] = {};
    Bytes path_end_ = nullptr;    // of the path, which begins after the start of the next attempt
    std::vector<DeadEnd> passed_; // by the current attempt
    std::unordered_set<std::uint64_t> dead_ends_;
    std::size_t most_ = 1 << 14;
};

} // namespace bpeflow
