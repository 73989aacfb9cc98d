// The differences between the named patterns that token_starts.hpp knows.
//
// As compiled patterns alone, they take more time: gpt2 up to 10 % for counting and 29 % for encoding known text with AVX-512
// VBMI, and 14-29 % for counting with AVX2; o200k 4-30 % and 14-16 % with VBMI.
#pragma once

namespace bpeflow {

struct Rules {
    bool ignore_case;    // contractions may be in upper case
    bool any_prefix;     // any character but a letter, digit or line end may precede a word; otherwise only a space
    bool cased_words;    // a word is upper case followed by lower case, and includes its contraction
    unsigned max_digits; // digits per number; 0 for any number, after an optional space
    bool takes_slashes;  // punctuation includes the slashes between the line ends after it
    bool whole_at_end;   // white space at the end of the text is one token, whatever it contains
};

constexpr Rules GPT2 = {false, false, false, 0, false, true};
constexpr Rules CL100K = {true, true, false, 3, false, true};
constexpr Rules LLAMA3 = {true, true, false, 3, false, false};
constexpr Rules QWEN2 = {true, true, false, 1, false, false};
constexpr Rules O200K = {true, true, true, 3, true, false};

} // namespace bpeflow
