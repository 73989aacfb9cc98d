r"""Safe cuts: where each named pattern allows a document to be cut, with the proof that no cut changes a pre-token.

A *safe cut* is a byte position ``p`` in a document such that ``pretokens(A) + pretokens(B) == pretokens(A + B)``, where
``A`` is the bytes before ``p`` and ``B`` the bytes from ``p`` on, whatever else ``A`` and ``B`` contain. Let ``x`` be
the character before ``p`` and ``w`` the character at ``p``. The rules below depend only on these two. L, M, N and S are
the letters, marks, numbers and white space of Unicode (``\p{L}``, ``\p{M}``, ``\p{N}``, ``\s``). The rules of a pattern
are one regular expression over bytes, whose matches start at safe cuts.

Four facts hold for every pattern.

1. *Bytes.* Every cut is before a byte that is not a continuation byte (80–BF). Such a byte never continues a character.
   So a complete character before the cut stays complete. An incomplete one becomes U+FFFD under ``errors="replace"``
   in the same way whether that byte or the end of the text follows it. So ``decode(A) + decode(B) == decode(A + B)``,
   however invalid the bytes are. For the same reason a lead byte always begins a character. If all of its continuation
   bytes follow and are allowed after it (as in all ranges below), that character is what is decoded.
2. *The tokens tile the text.* Every character is in L, N, S or none of these, and at a character of each of these four
   kinds, each pattern matches at least one character. So nothing is skipped between two tokens.
3. *Matching has no memory.* No pattern uses a lookbehind, ``^`` or ``\b``. So if a token starts at ``p``, the tokens
   from there on are those of ``B``.
4. *Matching looks ahead by one character*, the one after what it has matched so far. So a match that starts before
   ``p`` can depend on ``B`` only by testing ``w`` after it has matched ``x``.

Hence ``p`` is safe if every test of ``w`` *after* ``x`` *was matched* has the same result as at the end of the text.
Then the token that contains ``x`` is the same in ``A`` as in ``A + B``, and it ends at ``p``. The two lookaheads,
``(?!\S)`` and the ``$`` of ``\s++$``, follow white space, so they test ``w`` only if ``x`` is in S. (``$`` also matches
before a line end that ends the text. This makes no difference, because ``\s++`` has taken that line end.)

*Rule 1, all patterns:* ``x`` *in L,* ``w`` *not in L or M and not an apostrophe* (``'``, the only one in the patterns).
A letter is matched in words and in contractions. There, a letter can be followed by letters, in o200k also by marks and
by a contraction, and by the letters that complete ``'ll``, ``'ve`` and ``'re``. ``w`` is none of these, and neither is
the end of the text. (In o200k, upper case before lower case needs no argument of its own: after a letter of any case,
only letters and marks are tested for.)

*Rule 2, all patterns:* ``x`` *in N,* ``w`` *not in N.* A number is matched in a run of numbers, which only numbers
continue. It is neither a prefix of a word nor part of a contraction. Patterns that divide runs into groups of three
count from the start of the run, which the cut does not change. *In qwen2,* ``w`` *may be anything*: ``\p{N}`` matches
one number and tests nothing after it.

*Rule 3, all patterns:* ``x`` *not in S,* ``w`` *in S and not a line end.* After a character that is not white space,
patterns test for letters, marks, numbers, punctuation, contractions and (after punctuation) line ends, and in o200k
also for ``/``. ``w`` is none of these. *In gpt2* ``w`` *may also be a line end*: gpt2 does not test for one after such
an ``x``. (The others do, in ``[^\s\p{L}\p{N}]+[\r\n]*``.)

*Rule 4, all but gpt2:* ``x`` *a line end,* ``w`` *not in S and not* ``/``. A line end is matched in two places. One is
after punctuation, by ``[\r\n]*`` (in o200k ``[\r\n/]*``), which ``w`` does not continue. The other is in a run of white
space, which ends at ``p`` both in ``A`` and in ``A + B``. In such a run, no word and no punctuation can start: each of
its characters except ``x`` is followed by white space, and ``x`` is a line end, which can be the prefix neither of a
word nor of punctuation. So the first token of the run is ``\s*[\r\n]+``, in cl100k ``\s*[\r\n]``. Both reach as far as
the last line end of the run, which is ``x``. cl100k's ``\s++$`` matches the same at the end of ``A``, and nothing
before ``w``. (In gpt2, ``\s+(?!\S)`` takes the two line ends of ``"\n\n"`` together, but those of ``"\n\na"`` apart.)

*What cannot be cut.* A run of letters is one token, however long. So are a run of punctuation, a run of white space
without line ends (except for its last character) and, in gpt2, a run of digits. Groups of three digits (cl100k, o200k,
llama3) could be cut apart, but only by counting from the start of the run, which may be arbitrarily far back. Two more
positions are safe, but the search ignores them because other cuts are nearly always close by: between a digit and a
letter after it (the search would have to look at every letter, and now skips letters ten times as fast), and between a
letter and punctuation in scripts that are written with spaces and are not ASCII. For those, white space and line ends
are enough.

*Normalized text.* With a normalizer ``n``, a cut is safe if ``n(A) + n(B) == n(A + B)`` and the rules above hold for
``x'``, the last character of ``n(A)``, and ``w'``, the first of ``n(B)``. A step of ``n`` is a normalization form of
Unicode or the lower case of each character. Of all safe cuts, those of the following three kinds are kept. For
them, each step preserves what is said of ``x`` and ``w`` below, so steps can follow one another.

1. *ASCII before* ``p`` *and after it.* ASCII characters are starters, none of them has a decomposition, and none is
   composed with a character before it. So the forms have a boundary at ``p``, and ``x' == x``, which no character after
   it can change. ``w`` may be composed with marks after it, but only if it is a letter, which becomes a letter, or one
   of ``<=>``, which become mathematical symbols (``≮≠≯``). That is the same kind of character for the rules (letter, or
   other), it still decomposes to ``w`` first, and neither is an apostrophe or ``/``. Lower case keeps letters letters.
2. ``x`` *not in S,* ``w`` *one of rule 3's spaces.* The boundary is as before. White space is never composed, so
   ``w' == w``. No character outside S has a decomposition that ends in white space, so ``x'`` is not in S either. (But
   a letter such as ``ガ`` may become one that ends in a mark. So of the other rules, only ASCII remains.)
3. ``x`` *a line end,* ``w`` *in U+4000–9FFF.* These are starters without decompositions and compositions, so
   ``w' == w``. (If the bytes are invalid, ``w`` is U+FFFD, for which the same holds.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from mmap import mmap

#: Text in UTF-8, in memory or in a mapped file.
Utf8 = bytes | bytearray | memoryview | mmap

#: Whether a position is a cut depends on at most this many bytes before it.
LOOK_BEHIND = 3

#: Whether a position is a cut depends on at most this many bytes from it on.
LOOK_AHEAD = 3

#: Bytes that `find_cut` searches before it tries to skip a run. Larger: it reaches the skipping later; smaller: more
#: steps in Python.
_STRETCH = 512

#: Bytes that `find_last_cut` searches first. Larger: more cuts to step over up to the last; smaller: more steps where
#: there is no cut.
_LAST_STRETCH = 16

# Letters of scripts written without spaces, and Hangul, in UTF-8. All are in L since Unicode 14, which is older than
# the Unicode of any version of `regex` that is accepted.
_CJK_LETTER = (
    rb"(?:\xe3(?:\x81[\x81-\xbf]|\x82[\x80-\x96])"  # hiragana U+3041–3096
    rb"|\xe3(?:\x82[\xa1-\xbf]|\x83[\x80-\xba\xbc-\xbe])"  # katakana U+30A1–30FA, and U+30FC–30FE, its long vowel …
    rb"|(?:\xe4[\xb8-\xbf]|[\xe5-\xe9][\x80-\xbf])[\x80-\xbf]"  # unified ideographs U+4E00–9FFF
    rb"|(?:\xea[\xb0-\xbf]|[\xeb\xec][\x80-\xbf]|\xed[\x80-\x9d])[\x80-\xbf]|\xed\x9e[\x80-\xa3])"  # hangul U+AC00–D7A3
)

# Punctuation outside ASCII, and the ideographic space, none of which is in L, M or N. A lookbehind tests the first
# byte, then a lookahead tests the others.
_WIDE_BREAK = (
    rb"(?:(?<=\xe3)(?=\x80[\x80-\x84\x88-\xa0]|\x83\xbb)"  # U+3000–3004, 3008–3020: space, 、。, brackets; 30FB: ・
    rb"|(?<=\xef)(?=\xbc[\x81-\x8f\x9a-\xa0]|\xbd[\x9b-\xa5])"  # U+FF01–FF0F, FF1A–FF20, FF5B–FF65: full width
    rb"|(?<=\xe2)(?=\x80[\x90-\xa7]))"  # U+2010–2027: dashes, quotation marks, dots
)

# Characters outside ASCII that are not in S, in the same form. First bytes that begin white space as well are left out
# or tested further.
_WIDE_NO_SPACE = (
    rb"(?:(?<=[\xc3-\xe0\xe4-\xf4])|(?<=\xe1)(?=[\x80-\x99\x9b-\xbf])|(?<=\xe3)(?=\x80[\x81-\xbf]|[\x81-\xbf]))"
)

# All white space outside ASCII, of two bytes and of three bytes.
_WIDE_SPACE_2 = rb"\xc2[\x85\xa0]"
_WIDE_SPACE_3 = rb"(?:\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)"


def _cut(spaces: bytes, line_starts: bool, digits: bool) -> bytes:
    """Return the rules as one regular expression: rule 3's ASCII spaces, whether rule 4 holds, and qwen2's rule 2."""
    # The expression is built for speed. It begins with a set of bytes, to which `re` skips by a table. Then comes a
    # lookbehind at two bytes, the last of x and the first of w, which rejects most positions. As the first byte of w
    # has been matched by then, lookbehinds reach over it, and lookaheads see the rest of w. Rule 4 is used only where w
    # is not ASCII, which is enough for lines in any script.
    leads = rb"\xc3-\xf4" if line_starts or digits else rb"\xe2\xe3\xef"
    return b"".join([
        rb"(?s)[\t\n\r -&(-@[-`{-~", leads, rb"]",
        rb"(?<=[A-Za-z].|[0-9]", rb"." if digits else rb"[^0-9]", rb"|[!-~][", spaces, rb"]",
        rb"|[\x80-\xbf][\t-~\xe2\xe3\xef]", rb"|[\r\n][\xc3-\xf4]" if line_starts else b"", rb")",
        rb"(?:(?<=[\t-~])(?:",  # w is ASCII, but not a letter or an apostrophe, nor a digit after a digit
        rb"(?<=[A-Za-z0-9].)|(?<=[\x80-\xbf].)(?<=", _CJK_LETTER, rb".)",  # rules 1 and 2
        rb"|(?<=[!-~\x80-\xbf][", spaces, rb"])(?<!", _WIDE_SPACE_2, rb".)(?<!", _WIDE_SPACE_3, rb".))",  # rule 3
        rb"|(?=[\x80\x83\xbc\xbd])", _WIDE_BREAK, rb"(?:(?<=[A-Za-z0-9].)|(?<=", _CJK_LETTER, rb".))",  # rules 1 and 2
        rb"|(?<=[\r\n].)" + _WIDE_NO_SPACE if line_starts else b"",  # rule 4
        rb"|(?<=[0-9].)" if digits else b"",  # rule 2 in qwen2
        rb")",
    ])  # fmt: skip


def _normalized(cut: bytes, spaces: bytes) -> bytes:
    """Restrict the rules to the cuts that are safe in normalized text, too, given the white space of rule 3."""
    return cut + rb"(?<=[\x00-\x7f]{2}|[\x80-\xbf][" + spaces + rb"]|[\r\n][\xe4-\xe9])"


_SPACES = rb"\t\n\r "
_BLANKS = rb"\t "

GPT2 = _cut(_SPACES, line_starts=False, digits=False)
CL100K = O200K = LLAMA3 = _cut(_BLANKS, line_starts=True, digits=False)
QWEN2 = _cut(_BLANKS, line_starts=True, digits=True)

#: For each of these, the cuts that a normalizer leaves.
NORMALIZED = {GPT2: _normalized(GPT2, _SPACES)} | {cut: _normalized(cut, _BLANKS) for cut in (CL100K, QWEN2)}

# Runs in the middle of which no rule allows a cut. (In qwen2, rule 2 allows cuts between digits. `find_cut` finds such
# a cut before it tries to skip a run, so it never skips two digits there.) The last alternative has all bytes outside
# ASCII, except the first bytes of a `_WIDE_BREAK`.
_RUN = re.compile(rb"[0-9]+|[!-/:-@[-`{-~]+|[\t\n\r ]+|[\x80-\xe1\xe4-\xee\xf0-\xff]+")


def find_cut(cut: re.Pattern[bytes], window: Utf8, start: int) -> int | None:
    """Return the first position ``>= start`` in `window` where a match of `cut` starts, or None.

    Searching for a match is slow where `re` has to look at every byte. So long runs of such bytes (digits, punctuation,
    white space, ideographs …) are skipped at 1 GB/s instead of searched at 20–70 MB/s. ASCII letters, at 400 MB/s, need
    no help. Kana and wide punctuation stay at 15–50 MB/s, because a run of them longer than a few lines is hardly text.
    """
    while start < len(window):
        match = cut.search(window, start, start + _STRETCH)
        if match is not None:
            return match.start()
        if start + _STRETCH >= len(window):
            break
        start += _STRETCH - (LOOK_AHEAD - 1)  # from here on, the stretch's end may have cut off w
        run = _RUN.match(window, start - 1)
        if run is not None:
            start = max(start, run.end())
    return None


def find_last_cut(cut: re.Pattern[bytes], window: Utf8) -> int | None:
    """Return the last position in `window` where a match of `cut` starts, or None.

    The search runs backwards from the end in stretches that double in length, so a window without a cut takes at most
    twice as long as with `find_cut`.
    """
    start, stretch = len(window), _LAST_STRETCH
    while start > 0:
        start = max(start - stretch, 0)
        stretch *= 2
        found = find_cut(cut, window, start)
        if found is not None:
            while (later := find_cut(cut, window, found + 1)) is not None:
                found = later
            return found
    return None


# ---- the named patterns ----


@dataclass(frozen=True)
class NamedPattern:
    """A split pattern with a name.

    Attributes:
        name: the name.
        regex: the pattern, in the syntax of the `regex` module.
        cut: a regular expression over bytes. A document may be cut where a match of it starts (see above).
    """

    name: str
    regex: str
    cut: bytes


_PATTERNS = (
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `r50k_pat_str`, which it uses for gpt2. On every text it is
    # equivalent to the pattern in GPT-2's encoder.py, and it is faster.
    NamedPattern(
        "gpt2",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
        GPT2,
    ),
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `cl100k_base`. Older releases had the pattern `llama3` below. The
    # only difference: here, white space at the end of the text is one token, including line ends.
    NamedPattern(
        "cl100k",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        CL100K,
    ),
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `o200k_base`.
    NamedPattern(
        "o200k",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        O200K,
    ),
    # Meta's llama3 repository, llama/tokenizer.py, `pat_str`.
    NamedPattern(
        "llama3",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        LLAMA3,
    ),
    # Qwen2's tokenizer.json, the `Split` pre-tokenizer, which is also `PRETOKENIZE_REGEX` in HuggingFace's
    # tokenization_qwen2.py. Unlike llama3, it makes every digit a token of its own.
    NamedPattern(
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        QWEN2,
    ),
)

#: The named patterns by name.
NAMED_PATTERNS = {pattern.name: pattern for pattern in _PATTERNS}

#: The regular expressions of the named patterns. They match all text.
NAMED_REGEXES = frozenset(pattern.regex for pattern in _PATTERNS)
