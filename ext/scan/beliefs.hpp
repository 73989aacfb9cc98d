// What the last few characters reveal about the configuration of a transducer.
#pragma once

#include "kernels.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bpeflow {

// The tables for `Kernels::follow`, made from those of a transducer.
//
// A *belief* is a set of configurations, one of which the transducer is in. The first belief is the set of all. Reading
// a character leads from each belief to the set of the next configurations, or to a larger belief if that set has no
// number. Most sets shrink to a single configuration within two or three characters. A transition of a belief has the
// flags of its configurations if these agree. Otherwise, or if one of them is special, it is `UNKNOWN`, and so are all
// configurations after it: the caller runs the transducer over that block.
//
// So beliefs need no order: they can be computed for all places of a block at once, each from the characters before it.
//
// *Why it is exact.* The belief after `HISTORY` characters contains the configuration after them, if the transducer has
// read them one after another, and took no special transition: by induction over the characters, as the first belief
// contains all configurations. So if no transition in a block is `UNKNOWN`, its flags are those of the transducer.
class Beliefs {
  public:
    // flags(config, class) and move(config, class) describe the transducer. `class_of` are the classes of ASCII characters.
    template <typename Flags, typename Move>
    void make(std::size_t configs, const std::uint8_t (&class_of)[128], const Flags &flags, const Move &move) {
        if (configs > 64) return;
        std::vector<std::uint8_t> classes;
        for (unsigned byte = 0; byte < 128; byte++) {
            const auto known = std::find(classes.begin(), classes.end(), class_of[byte]);
            tables_.column[byte] = static_cast<std::uint8_t>(known - classes.begin());
            if (known == classes.end()) classes.push_back(class_of[byte]);
        }
        const std::size_t columns = classes.size(), most = BeliefTables::SIZE / columns;
        std::vector<std::uint64_t> beliefs{~std::uint64_t{0} >> (64 - configs)};
        for (std::size_t number = 0; number < beliefs.size(); number++)
            for (std::size_t column = 0; column < columns; column++) {
                std::uint64_t after = 0;
                unsigned all = 0, common = 255;
                for (std::size_t config = 0; config < configs; config++) {
                    if (!(beliefs[number] >> config & 1)) continue;
                    const unsigned here = flags(config, classes[column]);
                    all |= here;
                    common &= here;
                    if (!(here & Followed::UNKNOWN)) after |= std::uint64_t{1} << move(config, classes[column]);
                }
                const std::size_t next = find_or_add(beliefs, after, most);
                const bool vague = (beliefs[next] & (beliefs[next] - 1)) != 0;
                const std::size_t entry = number * columns + column;
                tables_.next[entry] = static_cast<std::uint8_t>(next * columns);
                tables_.flags[entry] = static_cast<std::uint8_t>(all | (all != common ? Followed::UNKNOWN : 0) |
                                                                 (vague ? Followed::VAGUE : 0));
            }
        for (std::size_t number = 0; number < beliefs.size(); number++)
            config_[number * columns] = static_cast<std::uint8_t>(__builtin_ctzll(beliefs[number]));
        made_ = true;
    }

    bool made() const { return made_; }
    const BeliefTables &tables() const { return tables_; }

    // Return the configuration before `position`, if the belief is not vague there.
    std::size_t config_before(const std::uint8_t *position) const {
        std::size_t belief = 0;
        for (std::size_t back = BeliefTables::HISTORY + 1; back > 0; back--)
            belief = tables_.next[belief + tables_.column[*(position - back)]];
        return config_[belief];
    }

  private:
    // Return the number of a belief. If it has none and there is no room, return that of the smallest one around it.
    static std::size_t find_or_add(std::vector<std::uint64_t> &beliefs, std::uint64_t set, std::size_t most) {
        std::size_t best = 0;
        for (std::size_t number = 0; set != 0 && number < beliefs.size(); number++) {
            if (beliefs[number] == set) return number;
            const bool around = (set & ~beliefs[number]) == 0;
            if (around && __builtin_popcountll(beliefs[number]) < __builtin_popcountll(beliefs[best])) best = number;
        }
        if (set == 0 || beliefs.size() == most) return best;
        beliefs.push_back(set);
        return beliefs.size() - 1;
    }

    bool made_ = false;
    BeliefTables tables_{};
    std::array<std::uint8_t, BeliefTables::SIZE> config_{};
};

} // namespace bpeflow
