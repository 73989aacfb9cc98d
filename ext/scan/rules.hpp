// The differences between the named patterns.
#pragma once

namespace bpeflow {

struct Rules {
    bool contractions;       // 's 'd 'm 't 'll 've 're are tokens of their own
    bool ignore_case;        // … in upper or lower case
    bool any_prefix;         // any character but a letter, digit or line end may precede a word; otherwise only a space
    bool cased_words;        // a word is upper case followed by lower case, and includes its contraction
    unsigned max_digits;     // digits per number; 0 for any number, after an optional space
    bool takes_line_ends;    // punctuation includes the line ends after it
    bool takes_slashes;      // … and slashes between them
    bool stops_at_line_ends; // white space up to its last line end is a token
    bool whole_at_end;       // … but white space at the end of the text is one token, whatever it contains
};

constexpr Rules GPT2 = {true, false, false, false, 0, false, false, false, true};
constexpr Rules CL100K = {true, true, true, false, 3, true, false, true, true};
constexpr Rules LLAMA3 = {true, true, true, false, 3, true, false, true, false};
constexpr Rules QWEN2 = {true, true, true, false, 1, true, false, true, false};
constexpr Rules O200K = {false, true, true, true, 3, true, true, true, false};

} // namespace bpeflow
