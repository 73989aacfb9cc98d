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
// `a+b|.`, each of 10 million `a` would be read up to the end. So where an attempt has read more than FAR bytes without
// finding a longer match, it leaves *dead ends*: pairs of a position and the state there. The rest of an attempt depends
// only on these two, so a later attempt that comes to a dead end can stop: it finds no longer match either. Positions
// for dead ends are multiples of a power of two, which grows with the distance from the start of the attempt. Hence an
// attempt leaves only a few hundred, however far it reads. An attempt stops before the first dead end that it comes to
// or leaves new ones that are closer to each other, so for each state, a stretch of text is read at most once for each
// power of two: n log n for a text of n bytes, plus at most 2 * FAR bytes for each attempt.
class Attempts {
  public:
    using Bytes = const std::uint8_t *;

    static constexpr std::size_t FAR = 8;

    explicit Attempts(const Automaton &automaton) : automaton_(automaton) {}

    // Continue with another text.
    void begin(Bytes text, Bytes end) {
        text_ = text;
        end_ = end;
        if (!dead_ends_.empty()) dead_ends_.clear();
    }

    struct Result {
        Bytes end;  // of the match; null if there is none
        Bytes read; // the first character that was not read
    };

    Result match(Bytes start) {
        std::size_t state = automaton_.start();
        Bytes found = nullptr, position = start;
        passed_.clear();
        for (;;) {
            const Bytes checkpoint = checkpoint_after(start, position);
            while (position < checkpoint) {
                const Automaton::Class character = automaton_.class_at(position);
                const std::uint32_t next = automaton_.next(state, character.number);
                if (next & 1) found = position;
                state = next >> 1;
                if (!state) return leave(start, found, position);
                position += character.size;
            }
            if (position == end_) {
                if (automaton_.matches_at_end(state)) found = position;
                return leave(start, found, position);
            }
            const DeadEnd here = {position, state};
            if (!dead_ends_.empty() && dead_ends_.count(key(here)) != 0) return leave(start, found, position);
            if (static_cast<std::size_t>(position - (found ? found : start)) > FAR) passed_.push_back(here);
        }
    }

  private:
    struct DeadEnd {
        Bytes position;
        std::size_t state;
    };

    Bytes checkpoint_after(Bytes start, Bytes position) const {
        std::size_t spacing = FAR;
        while (spacing * 64 < static_cast<std::size_t>(position - start)) spacing *= 2;
        const std::size_t next = (static_cast<std::size_t>(position - text_) | (spacing - 1)) + 1; // the next multiple
        return next < static_cast<std::size_t>(end_ - text_) ? text_ + next : end_;
    }

    Result leave(Bytes start, Bytes found, Bytes read) {
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
    std::vector<DeadEnd> passed_; // by the current attempt
    std::unordered_set<std::uint64_t> dead_ends_;
    std::size_t most_ = 1 << 14;
};

} // namespace bpeflow
