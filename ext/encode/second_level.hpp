// The merges of superwords, which join the ids that the merges of words yield.
//
// Encoding in two levels. Let the first level be the merges of the lowest ranks. As the lowest rank merges first, merging a
// pre-token begins with merging it by the first level alone, until none of its merges applies. The tokens are then called
// units. This can be done in pieces: between two bytes that no merge of the first level joins.
//
// From then on only *late* merges apply: those after the first level, and those of the first level of which a part is the
// result of a late merge, as all other pairs were there before and did not merge. (In a trained vocabulary the latter do
// not exist.) So a token consists of units: of one that it is, or of those of the parts that a late merge joined. Put a
// unit and a token into one class if the token may begin with the unit. A late merge puts its left part and its result
// into one class. Likewise for their ends. So two units, side by side, can be joined only if some late merge has a left part
// that is in one class with the left unit by their ends, and a right part that is in one class with the right unit by
// their beginnings. Between any others the units can be cut, and what is between two cuts merged independently.
//
// Nothing is assumed about ranks and tokens. A token may have several merges, in any order.
#pragma once

#include "bpeflow.h"
#include "cache_key.hpp"
#include "filter.hpp"
#include "pairs.hpp"
#include "tokens.hpp"
#include "whole_tokens.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace bpeflow {

class SecondLevel {
  public:
    // `ordinary` are the tokens that text can yield.
    SecondLevel(const bpeflow_vocabulary &given, const Tokens &ordinary)
        : SecondLevel(given, ordinary,
                      find_late(given.merges, static_cast<std::uint32_t>(given.first_level),
                                static_cast<std::uint32_t>(given.merge_count), ordinary.count())) {}

    const WholeTokens &whole_tokens() const { return whole_tokens_; }

    // The late merges.
    const Pairs &pairs() const { return pairs_; }

    // Return whether two units can be joined. If not, it can be true, too, but rarely is.
    bool can_join(std::uint32_t left, std::uint32_t right) const { return joints_.may_have(Pairs::hash(left, right)); }

  private:
    SecondLevel(const bpeflow_vocabulary &given, const Tokens &ordinary, const std::vector<bool> &late)
        : pairs_(given.byte_ids, given.merges, static_cast<std::uint32_t>(given.merge_count), ordinary, late),
          joints_(spread * (given.merge_count - given.first_level)), whole_tokens_(ordinary, given.whole_tokens) {
        add_joints(given, late);
    }

    void add_joints(const bpeflow_vocabulary &given, const std::vector<bool> &late) {
        Classes starts(given.tokens), ends(given.tokens);
        std::vector<bool> is_unit(given.tokens);
        for (unsigned byte = 0; byte < 256; byte++) is_unit[given.byte_ids[byte]] = true;
        for (std::uint64_t rank = 0; rank < given.merge_count; rank++) {
            const std::uint32_t *const merge = given.merges + 3 * rank;
            if (rank < given.first_level) is_unit[merge[2]] = true;
            if (!late[rank]) continue;
            starts.unite(merge[2], merge[0]);
            ends.unite(merge[2], merge[1]);
        }
        const Members lefts(ends, is_unit), rights(starts, is_unit);
        std::uint64_t room = most * given.merge_count;
        for (std::uint64_t rank = 0; rank < given.merge_count; rank++) {
            if (!late[rank]) continue;
            const std::uint32_t *const merge = given.merges + 3 * rank;
            lefts.each(ends.of(merge[0]), [&](std::uint32_t left) {
                rights.each(starts.of(merge[1]), [&](std::uint32_t right) {
                    joints_.add(Pairs::hash(left, right));
                    return --room > 0;
                });
                return room > 0;
            });
            if (room == 0) {
                joints_.add_all();
                return;
            }
        }
    }

    // Return which merges are late, or may be: nothing is wrong with too many.
    static std::vector<bool> find_late(const std::uint32_t *merges, std::uint32_t first, std::uint32_t count,
                                       std::uint32_t tokens) {
        std::vector<bool> late(count), made(tokens); // by late merges
        bool changed = true;
        for (unsigned pass = 0; changed; pass++) {
            if (pass == most_passes) return std::vector<bool>(count, true);
            changed = false;
            for (std::uint32_t rank = 0; rank < count; rank++) {
                const std::uint32_t *const merge = merges + std::size_t{3} * rank;
                if (late[rank] || (rank < first && !made[merge[0]] && !made[merge[1]])) continue;
                late[rank] = made[merge[2]] = changed = true;
            }
        }
        return late;
    }

    // Classes of tokens, by union-find.
    class Classes {
      public:
        explicit Classes(std::uint32_t tokens) : parents_(tokens) { std::iota(parents_.begin(), parents_.end(), 0); }

        std::uint32_t of(std::uint32_t token) {
            while (parents_[token] != token) token = parents_[token] = parents_[parents_[token]];
            return token;
        }

        void unite(std::uint32_t token, std::uint32_t other) { parents_[of(token)] = of(other); }

      private:
        std::vector<std::uint32_t> parents_;
    };

    // The units of each class.
    class Members {
      public:
        Members(Classes &classes, const std::vector<bool> &is_unit)
            : first_(is_unit.size(), none), next_(is_unit.size(), none) {
            for (std::uint32_t id = 0; id < is_unit.size(); id++)
                if (is_unit[id]) next_[id] = std::exchange(first_[classes.of(id)], id);
        }

        // Call visit(unit) for each, while it returns true.
        template <typename Visit> void each(std::uint32_t of, const Visit &visit) const {
            std::uint32_t id = first_[of];
            while (id != none && visit(id)) id = next_[id];
        }

      private:
        static constexpr std::uint32_t none = UINT32_MAX;
        std::vector<std::uint32_t> first_, next_; // by class, by unit
    };

    static constexpr std::size_t spread = 4;    // more: fewer units are taken for joined, but the filter is larger
    static constexpr std::uint64_t most = 64;   // pairs of units to add for each merge; one in trained vocabularies
    static constexpr unsigned most_passes = 16; // two or three in trained vocabularies

    const Pairs pairs_;
    Filter joints_;
    const WholeTokens whole_tokens_;
};

} // namespace bpeflow
