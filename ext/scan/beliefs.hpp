// What the last few characters reveal about the configuration of a transducer.
#pragma once

#include "kernels.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace bpeflow {

// The tables for `Kernels::follow`, made from those of a transducer.
//
// A *belief* is a set of configurations, one of which the transducer is in. The first belief is the set of all. Reading
// a character leads from each belief to the set of the next configurations, or to a larger belief if that set has no
// number. Most sets shrink to a single configuration within two or three characters. A transition of a belief has the
// flags of its configurations if these agree. Otherwise, or if one of them is special, it is `UNKNOWN`, and the caller
// finds the configuration: from the last character before which the belief is a single one, it runs the transducer.
//
// So beliefs need no order: they can be computed for all places of a block at once, each from the characters before it.
// As a belief and a column must fit into a byte, classes that differ little share a column: any of them may be read.
//
// *Why it is exact.* The belief after `HISTORY` characters contains the configuration after them, if the transducer has
// read them one after another, and took no special transition: by induction over the characters, as the first belief
// contains all configurations. So a single configuration is that of the transducer, and so are flags that are known.
class Beliefs {
  public:
    static constexpr std::uint8_t NONE = 255; // no single configuration

    // flags(config, class) and move(config, class) describe the transducer. `class_of` are the classes of ASCII characters.
    template <typename Flags, typename Move>
    void make(std::size_t configs, const std::uint8_t (&class_of)[128], const Flags &flags, const Move &move) {
        if (configs > 64) return;
        const std::vector<std::vector<std::uint8_t>> columns = columns_of(class_of, [&](unsigned one, unsigned other) {
            std::size_t different = 0;
            for (std::size_t config = 0; config < configs; config++)
                different += flags(config, one) != flags(config, other) || move(config, one) != move(config, other);
            return different;
        });
        const std::size_t width = columns.size(), most = BeliefTables::SIZE / width;
        std::vector<std::uint64_t> beliefs{~std::uint64_t{0} >> (64 - configs)};
        for (std::size_t number = 0; number < beliefs.size(); number++)
            for (std::size_t column = 0; column < width; column++) {
                std::uint64_t after = 0;
                unsigned all = 0, common = 255;
                for (std::size_t config = 0; config < configs; config++) {
                    if (!(beliefs[number] >> config & 1)) continue;
                    for (const std::uint8_t read : columns[column]) {
                        const unsigned here = flags(config, read);
                        all |= here;
                        common &= here;
                        if (!(here & Followed::UNKNOWN)) after |= std::uint64_t{1} << move(config, read);
                    }
                }
                const std::size_t entry = number * width + column;
                tables_.next[entry] = static_cast<std::uint8_t>(find_or_add(beliefs, after, most) * width);
                tables_.flags[entry] = static_cast<std::uint8_t>(all == common ? all : unsigned{Followed::UNKNOWN});
                const bool single = (beliefs[number] & (beliefs[number] - 1)) == 0;
                config_[entry] = single ? static_cast<std::uint8_t>(__builtin_ctzll(beliefs[number])) : NONE;
            }
        find_sixteens(width);
        made_ = true;
    }

    bool made() const { return made_; }
    const BeliefTables &tables() const { return tables_; }

    // Return the configuration before the character of an entry of the tables, if it is known.
    std::uint8_t config(std::uint8_t entry) const { return config_[entry]; }

  private:
    static constexpr std::size_t MOST_COLUMNS = 8;

    // Find how many entries may be read after each number of characters. Few beliefs follow from one or two, and they have the
    // first numbers.
    void find_sixteens(std::size_t width) {
        std::vector<std::uint8_t> beliefs{0};
        for (std::uint8_t &sixteens : tables_.sixteens) {
            const std::size_t last = *std::max_element(beliefs.begin(), beliefs.end()) + width - 1;
            sixteens = static_cast<std::uint8_t>(last / 16 + 1);
            std::set<std::uint8_t> next;
            for (const std::uint8_t belief : beliefs) next.insert(tables_.next + belief, tables_.next + belief + width);
            beliefs.assign(next.begin(), next.end());
        }
    }

    // Set the column of each character, and return the classes of each. difference(one, other) compares two classes.
    template <typename Difference>
    std::vector<std::vector<std::uint8_t>> columns_of(const std::uint8_t (&class_of)[128],
                                                      const Difference &difference) {
        std::vector<std::vector<std::uint8_t>> columns;
        for (const std::uint8_t read : class_of)
            if (std::none_of(columns.begin(), columns.end(), [&](const auto &column) { return column[0] == read; }))
                columns.push_back({read});
        while (columns.size() > MOST_COLUMNS) {
            std::size_t least = SIZE_MAX, into = 0, from = 0;
            for (std::size_t i = 0; i < columns.size(); i++)
                for (std::size_t j = i + 1; j < columns.size(); j++) {
                    const std::size_t here = difference(columns[i][0], columns[j][0]);
                    if (here >= least) continue;
                    least = here;
                    into = i;
                    from = j;
                }
            columns[into].insert(columns[into].end(), columns[from].begin(), columns[from].end());
            columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(from));
        }
        for (std::size_t i = 0; i < columns.size(); i++)
            for (unsigned byte = 0; byte < 128; byte++)
                if (std::count(columns[i].begin(), columns[i].end(), class_of[byte]))
                    tables_.column[byte] = static_cast<std::uint8_t>(i);
        return columns;
    }

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
