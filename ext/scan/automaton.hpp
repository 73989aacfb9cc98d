// The tables of a compiled split expression, expanded for matching.
//
// bpeflow/pretokenize/compiled.py explains the compact tables and how they come about. There are two machines. The
// *automaton* finds the end of the match at one position. The *transducer* runs over the text without stopping at
// tokens: its transitions say where pieces begin, and which matching has to be done again by the automaton.
#pragma once

#include "beliefs.hpp"
#include "bpeflow.h"
#include "characters.hpp"
#include "failure.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace bpeflow {

constexpr std::size_t CODE_POINTS = 0x110000;

// The class of each code point, in two levels.
class CharacterClasses {
  public:
    static constexpr std::size_t BLOCK_SIZE = 256, BLOCKS = CODE_POINTS / BLOCK_SIZE;

    // From ranges: range i begins at first[i], has class of[i] and ends before the next one. They must be valid.
    CharacterClasses(const std::uint32_t *first, const std::uint8_t *of, std::size_t ranges, std::size_t classes)
        : blocks_(BLOCKS), leaves_(classes * BLOCK_SIZE) {
        for (std::size_t i = 0; i < classes; i++) // blocks of a single class are shared
            std::fill_n(leaves_.begin() + static_cast<std::ptrdiff_t>(i * BLOCK_SIZE), BLOCK_SIZE,
                        static_cast<std::uint8_t>(i));
        std::size_t range = 0;
        for (std::size_t block = 0; block < BLOCKS; block++) {
            const std::size_t begin = block * BLOCK_SIZE, end = begin + BLOCK_SIZE;
            while (range + 1 < ranges && first[range + 1] <= begin) range++;
            if (range + 1 == ranges || first[range + 1] >= end) {
                blocks_[block] = of[range];
                continue;
            }
            blocks_[block] = static_cast<std::uint16_t>(leaves_.size() / BLOCK_SIZE);
            for (std::size_t code_point = begin; code_point < end; code_point++) {
                if (range + 1 < ranges && first[range + 1] == code_point) range++;
                leaves_.push_back(of[range]);
            }
        }
    }

    // From the classes of the named patterns: of_bits[bits] is the class of a character with these bits.
    explicit CharacterClasses(const std::uint8_t (&of_bits)[64])
        : blocks_(unicode::BLOCKS, unicode::BLOCKS + BLOCKS), leaves_(sizeof unicode::CLASSES) {
        const auto *const bits = reinterpret_cast<const std::uint8_t *>(unicode::CLASSES);
        std::transform(bits, bits + leaves_.size(), leaves_.begin(), [&](std::uint8_t of) { return of_bits[of]; });
    }

    // From two others: characters of the classes a and b have the class join(a, b).
    template <typename Join>
    CharacterClasses(const CharacterClasses &one, const CharacterClasses &other, const Join &join) : blocks_(BLOCKS) {
        std::map<std::pair<std::uint16_t, std::uint16_t>, std::uint16_t> known; // leaves, by those that they join
        for (std::uint32_t block = 0; block < BLOCKS; block++) {
            const auto leaf = static_cast<std::uint16_t>(leaves_.size() / BLOCK_SIZE);
            const auto [found, is_new] = known.try_emplace({one.blocks_[block], other.blocks_[block]}, leaf);
            blocks_[block] = found->second;
            if (!is_new) continue;
            const std::uint32_t first = block * BLOCK_SIZE;
            for (std::uint32_t i = first; i < first + BLOCK_SIZE; i++) leaves_.push_back(join(one[i], other[i]));
        }
    }

    std::uint8_t &operator[](std::uint32_t code_point) {
        return leaves_[std::size_t{blocks_[code_point / BLOCK_SIZE]} * BLOCK_SIZE + code_point % BLOCK_SIZE];
    }
    std::uint8_t operator[](std::uint32_t code_point) const {
        return leaves_[std::size_t{blocks_[code_point / BLOCK_SIZE]} * BLOCK_SIZE + code_point % BLOCK_SIZE];
    }

  private:
    std::vector<std::uint16_t> blocks_;
    std::vector<std::uint8_t> leaves_;
};

class Automaton {
  public:
    // Flags of a transition of the transducer. There, "here" is before the character that is read.
    enum : std::uint8_t {
        PIECE_HERE = 1,
        PIECE_BEFORE_PREVIOUS = 2,
        ATTEMPT_HERE = 4,
        ATTEMPT_BEFORE_PREVIOUS = 8,
        GAP_ENDS = 16, // before the previous character
        SPECIAL = 128, // match again from the start of the attempt
        RARE = PIECE_BEFORE_PREVIOUS | ATTEMPT_BEFORE_PREVIOUS | SPECIAL,
    };
    // Flags of a transition of two ASCII characters. Here, "here" is before the first one.
    enum : std::uint8_t {
        PAIR_PIECE_HERE = 1,
        PAIR_PIECE_INSIDE = 2,
        PAIR_PIECE_BEFORE_PREVIOUS = 4,
        PAIR_ATTEMPT_HERE = 8,
        PAIR_ATTEMPT_INSIDE = 16,
        PAIR_ATTEMPT_BEFORE_PREVIOUS = 32,
        PAIR_GAP_ENDS = 64,    // before the previous character
        PAIR_ONE_BY_ONE = 128, // the characters must be read one by one
        PAIR_RARE = PAIR_PIECE_BEFORE_PREVIOUS | PAIR_ATTEMPT_BEFORE_PREVIOUS | PAIR_ONE_BY_ONE,
    };
    // Flags of a configuration of the transducer.
    enum : std::uint8_t {
        IN_GAP = 1,
        FRESH = 2, // an attempt starts at the next character
    };

    struct Class {
        std::uint32_t number;
        std::uint32_t size; // of the character, in bytes
    };

    // A compact step, whose character classes have been expanded already. Throws Failure{BPEFLOW_BAD_ARGUMENT} if the
    // tables do not fit together.
    Automaton(const bpeflow_step &given, CharacterClasses expanded) : classes_(std::move(expanded)) {
        check(given);
        columns_ = given.classes + 1;
        has_gaps_ = given.has_gaps != 0;
        cuts_.assign(given.cuts, given.cuts + std::size_t{given.classes} * given.classes);
        for (unsigned byte = 0; byte < 128; byte++) ascii_[byte] = classes_[byte];
        next_.assign(columns_, 0); // of the dead state
        std::transform(given.next, given.next + std::size_t{given.states} * columns_, std::back_inserter(next_),
                       [&](std::uint32_t next) { return (next >> 1) * columns_ << 1 | (next & 1); });
        expand_transducer(given);
    }

    explicit Automaton(const bpeflow_step &given)
        : Automaton(given, (check_classes(given),
                            CharacterClasses(given.first, given.range_class, given.ranges, given.classes))) {}

    const CharacterClasses &classes() const { return classes_; }
    bool has_gaps() const { return has_gaps_; }
    bool has_transducer() const { return !flags_.empty(); }

    // Return the class of the character at `position`, which must be valid.
    Class class_at(const std::uint8_t *position) const {
        const std::uint32_t lead = *position;
        if (lead < 0x80) return {ascii_[lead], 1};
        const Decoded decoded = decode(position);
        return {classes_[decoded.code_point], decoded.size};
    }

    // Return 0 if a text must not be cut between two characters, 1 if cutting it changes nothing but the pieces of
    // unmatched text, and 2 if a piece always begins there.
    std::uint8_t cut(std::uint32_t before, std::uint32_t after) const {
        return cuts_[(columns_ - 1) * classes_[before] + classes_[after]];
    }

    // The automaton: after_state[class] is twice the next state, plus 1 if a match ends before the character. A state is
    // the index of its row.
    std::size_t start() const { return columns_; }
    std::size_t states() const { return next_.size() / columns_ - 1; }
    std::uint32_t next(std::size_t state, std::size_t character_class) const { return next_[state + character_class]; }
    bool matches_at_end(std::size_t state) const { return next_[state + columns_ - 1] & 1; }
    bool matches_alone(std::size_t character_class) const {
        if (!has_gaps_) return true;
        if (has_transducer()) return flags_[moves_[character_class] + end_column()] & PIECE_HERE;
        return matches_at_end(next(start(), character_class) >> 1);
    }

    // The transducer. A configuration is the index of its row.
    std::size_t end_column() const { return columns_ - 1; } // of the end of the text
    std::size_t after_gap() const { return after_gap_; }
    std::size_t configs() const { return moves_.size() / row_; }
    std::uint8_t info(std::size_t config) const { return pair_flags_[config + row_ - 1]; }
    std::size_t ascii_class(std::uint8_t character) const { return ascii_[character]; }
    const Beliefs &beliefs() const { return beliefs_; }
    std::size_t row() const { return row_; } // columns in a row
    const std::uint16_t *moves() const { return moves_.data(); }
    const std::uint8_t *flags() const { return flags_.data(); }
    const std::uint16_t *pair_moves() const { return pair_moves_.data(); }
    const std::uint8_t *pair_flags() const { return pair_flags_.data(); }
    const std::uint16_t *first_of_pair() const { return first_of_pair_; }
    const std::uint16_t *second_of_pair() const { return second_of_pair_; }

  private:
    static void require(bool sound) {
        if (!sound) throw Failure{BPEFLOW_BAD_ARGUMENT};
    }

    static void check_classes(const bpeflow_step &given) {
        require(given.first && given.range_class && given.ranges > 0 && given.first[0] == 0);
        require(given.classes > 0 && given.classes <= BPEFLOW_MOST_CLASSES);
        for (std::uint32_t i = 1; i < given.ranges; i++) require(given.first[i - 1] < given.first[i]);
        require(given.first[given.ranges - 1] < CODE_POINTS);
        require(std::all_of(given.range_class, given.range_class + given.ranges,
                            [&](std::uint8_t of) { return of < given.classes; }));
    }

    // The tables may come from a damaged cache.
    static void check(const bpeflow_step &given) {
        const std::size_t columns = std::size_t{given.classes} + 1;
        if (!given.next || !given.cuts) throw Failure{BPEFLOW_BAD_ARGUMENT};
        require(given.states > 0 && given.states < 1 << 15);
        require(std::all_of(given.next, given.next + given.states * columns,
                            [&](std::uint16_t next) { return next >> 1 <= given.states; }));
        // No match is empty: none ends before the first character.
        require(std::all_of(given.next, given.next + columns, [](std::uint16_t next) { return !(next & 1); }));
        if (given.configs == 0) return;
        if (!given.moves || !given.flags || !given.info) throw Failure{BPEFLOW_BAD_ARGUMENT};
        require(given.gap_start < given.configs);
        require(std::all_of(given.moves, given.moves + given.configs * columns,
                            [&](std::uint16_t config) { return config < given.configs; }));
    }

    void expand_transducer(const bpeflow_step &given) {
        std::vector<std::uint32_t> ascii; // the classes of ASCII characters
        for (unsigned byte = 0; byte < 128; byte++) {
            const auto known = std::find(ascii.begin(), ascii.end(), ascii_[byte]);
            second_of_pair_[byte] = static_cast<std::uint16_t>(known - ascii.begin());
            if (known == ascii.end()) ascii.push_back(ascii_[byte]);
        }
        for (unsigned byte = 0; byte < 128; byte++)
            first_of_pair_[byte] = static_cast<std::uint16_t>(second_of_pair_[byte] * ascii.size());
        row_ = std::max(ascii.size() * ascii.size(), std::size_t{columns_}) + 1; // the last column is that of `info`
        const std::size_t size = given.configs * row_;
        if (size == 0 || size >= 1 << 16) return; // the automaton alone does it
        after_gap_ = given.gap_start * row_;
        moves_.resize(size);
        flags_.resize(size);
        pair_moves_.resize(size);
        pair_flags_.resize(size);
        for (std::size_t config = 0; config < given.configs; config++)
            for (std::size_t column = 0; column < columns_; column++) {
                const std::size_t from = config * columns_ + column, to = config * row_ + column;
                const auto flags = static_cast<std::uint8_t>(given.flags[from] & (SPECIAL | 31));
                moves_[to] = static_cast<std::uint16_t>(given.moves[from] * row_);
                flags_[to] = flags;
            }
        for (std::size_t config = 0; config < size; config += row_)
            for (std::size_t first = 0; first < ascii.size(); first++)
                for (std::size_t second = 0; second < ascii.size(); second++)
                    set_pair(config + first * ascii.size() + second, config + ascii[first], ascii[second]);
        for (std::size_t config = 0; config < given.configs; config++)
            pair_flags_[(config + 1) * row_ - 1] = static_cast<std::uint8_t>(given.info[config] & (IN_GAP | FRESH));
        beliefs_.make(
            given.configs, ascii_,
            [&](std::size_t config, std::size_t column) { return flags_[config * row_ + column]; },
            [&](std::size_t config, std::size_t column) { return moves_[config * row_ + column] / row_; });
    }

    void set_pair(std::size_t pair, std::size_t first, std::size_t second) {
        const std::uint8_t one = flags_[first], two = flags_[moves_[first] + second];
        pair_moves_[pair] = moves_[moves_[first] + second];
        if ((one | two) & SPECIAL || two & GAP_ENDS) {
            pair_flags_[pair] = PAIR_ONE_BY_ONE;
            return;
        }
        unsigned flags = 0;
        const auto add = [&flags](bool is, unsigned flag) { flags |= is ? flag : 0; };
        add(one & PIECE_BEFORE_PREVIOUS, PAIR_PIECE_BEFORE_PREVIOUS);
        add(one & GAP_ENDS, PAIR_GAP_ENDS);
        add(one & PIECE_HERE || two & PIECE_BEFORE_PREVIOUS, PAIR_PIECE_HERE);
        add(two & PIECE_HERE, PAIR_PIECE_INSIDE);
        add(one & ATTEMPT_BEFORE_PREVIOUS, PAIR_ATTEMPT_BEFORE_PREVIOUS);
        add(one & ATTEMPT_HERE || two & ATTEMPT_BEFORE_PREVIOUS, PAIR_ATTEMPT_HERE);
        add(two & ATTEMPT_HERE, PAIR_ATTEMPT_INSIDE);
        pair_flags_[pair] = static_cast<std::uint8_t>(flags);
    }

    CharacterClasses classes_;
    std::uint32_t columns_ = 0;
    bool has_gaps_ = false;
    std::uint8_t ascii_[128];
    std::vector<std::uint8_t> cuts_;
    std::vector<std::uint32_t> next_;
    std::size_t row_ = 0, after_gap_ = 0;
    std::vector<std::uint8_t> flags_, pair_flags_;
    std::vector<std::uint16_t> moves_, pair_moves_;
    Beliefs beliefs_;
    std::uint16_t first_of_pair_[128] = {}, second_of_pair_[128] = {}; // their sum is the column of a pair
};

} // namespace bpeflow
