// How the named patterns differ from each other.
#pragma once

namespace bpeflow {

struct Rules {
    bool contractions;       // 's 'd 'm 't 'll 've 're stand on their own
    bool ignore_case;        // … in either case
    bool any_prefix;         // one character that is no letter, digit or line end may stand before a word; else a space
    bool cased_words;        // a word is upper case and then lower case, and carries its contraction
    unsigned max_digits;     // in a number; 0: any number of them, after an optional space
    bool takes_line_ends;    // punctuation takes line ends that follow it, and
    bool takes_slashes;      // … slashes among them
    bool stops_at_line_ends; // white space up to its last line end is a token
    bool whole_at_end;       // … but white space that ends the text is one, whatever is in it
};

constexpr Rules GPT2 = {true, false, false, false, 0, false, false, false, true};
constexpr Rules CL100K = {true, true, true, false, 3, true, false, true, true};
constexpr Rules LLAMA3 = {true, true, true, false, 3, true, false, true, false};
constexpr Rules QWEN2 = {true, true, true, false, 1, true, false, true, false};
constexpr Rules O200K = {false, true, true, true, 3, true, true, true, false};

} // namespace bpeflow
