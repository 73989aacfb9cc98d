// One transducer for two steps of a pattern.
#pragma once

#include "automaton.hpp"
#include "bpeflow.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace bpeflow {

// Runs the transducers of two steps side by side. A configuration is a pair of theirs. Where a piece of the first step
// ends, the second one reads the end of a text, and then the character from its first configuration, as it would in the
// piece that begins there. So the boundaries are those of the second step in the pieces of the first.
//
// The first step must know each boundary when it reads the character after it, neither may leave gaps, and the second
// must not match again. Then nothing but the transducer is run: the automaton, of which there is none, is not needed. That
// holds for StarCoder's digits and GPT-2, which take 30-70 % more time to count as two steps.
class Join {
  public:
    // Return the joined step, if there is one.
    static std::optional<Automaton> of(const Automaton &first, const Automaton &second) {
        if (!first.has_transducer() || !second.has_transducer() || first.has_gaps() || second.has_gaps()) return {};
        Join both(first, second);
        if (!both.run()) return {};
        Automaton joined = both.automaton();
        if (!joined.has_transducer()) return {};
        return joined;
    }

  private:
    using Pair = std::pair<std::size_t, std::size_t>;

    Join(const Automaton &first, const Automaton &second)
        : first_(first), second_(second), characters_(first.classes(), second.classes(), [this](auto one, auto other) {
              const auto [found, is_new] = numbers_.try_emplace({one, other}, classes_.size());
              if (is_new) classes_.push_back(found->first);
              return static_cast<std::uint8_t>(found->second);
          }) {}

    // Make the transitions of all configurations. Return false if the steps cannot be joined.
    bool run() {
        if (classes_.size() > BPEFLOW_MOST_CLASSES) return false;
        number({0, 0});
        for (std::size_t i = 0; i < configs_.size(); i++) {
            for (const Pair &characters : classes_)
                if (!read(configs_[i], characters)) return false;
            if (!end(configs_[i])) return false;
        }
        return true;
    }

    bool read(const Pair &config, const Pair &characters) {
        const std::size_t one = config.first + characters.first, start = characters.second;
        const std::size_t other = config.second + start, end = config.second + second_.end_column();
        const bool is_boundary = first_.flags()[one] == Automaton::PIECE_HERE;
        const unsigned flags = second_.flags()[is_boundary ? end : other];
        if ((first_.flags()[one] && !is_boundary) || flags & Automaton::SPECIAL) return false;
        if (is_boundary && second_.flags()[start]) return false;
        moves_.push_back(number({first_.moves()[one], second_.moves()[is_boundary ? start : other]}));
        flags_.push_back(static_cast<std::uint8_t>(flags));
        return configs_.size() <= MOST_CONFIGS;
    }

    bool end(const Pair &config) {
        const unsigned flags = second_.flags()[config.second + second_.end_column()];
        moves_.push_back(0);
        flags_.push_back(static_cast<std::uint8_t>(flags));
        return !((first_.flags()[config.first + first_.end_column()] & ~Automaton::PIECE_HERE) |
                 (flags & Automaton::SPECIAL));
    }

    std::uint16_t number(const Pair &config) {
        const auto [found, is_new] = config_numbers_.try_emplace(config, configs_.size());
        if (is_new) configs_.push_back(config);
        return static_cast<std::uint16_t>(found->second);
    }

    Automaton automaton() const {
        const std::vector<std::uint16_t> dead(classes_.size() + 1);
        const std::vector<std::uint8_t> cuts(classes_.size() * classes_.size()), info(configs_.size());
        bpeflow_step step{};
        step.classes = static_cast<std::uint32_t>(classes_.size());
        step.states = 1;
        step.next = dead.data();
        step.cuts = cuts.data();
        step.configs = static_cast<std::uint32_t>(configs_.size());
        step.moves = moves_.data();
        step.flags = flags_.data();
        step.info = info.data();
        return Automaton(step, characters_);
    }

    static constexpr std::size_t MOST_CONFIGS = 1000;

    const Automaton &first_, &second_;
    std::vector<Pair> classes_, configs_;
    std::map<Pair, std::size_t> numbers_, config_numbers_;
    std::vector<std::uint16_t> moves_;
    std::vector<std::uint8_t> flags_;
    const CharacterClasses characters_;
};

} // namespace bpeflow
