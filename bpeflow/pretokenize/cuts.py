r"""Where each named pattern allows a document to be cut, and why; a cut is a match of a regular expression over bytes.

A *safe cut* is a byte position ``p`` of a document such that, with ``A`` the bytes before ``p`` and ``B`` the rest,
``pretokens(A) + pretokens(B) == pretokens(A + B)`` whatever else ``A`` and ``B`` hold. Call ``x`` the character before
``p`` and ``w`` the one at ``p``; the rules look at these two alone. L, M, N and S are the letters, marks, numbers and
white space of Unicode (``\p{L}`` …, ``\s``).

Four facts hold for every pattern.

1. *Bytes.* Every cut is made before a byte that is not a continuation byte (80–BF). Such a byte never continues a
   character: a character that is whole stays so, and an incomplete one becomes U+FFFD under ``errors="replace"`` in the
   same way whether that byte or the end of the text comes after it. So ``decode(A) + decode(B) == decode(A + B)``,
   however invalid the bytes. For the same reason a lead byte always begins a character, and where its continuation
   bytes follow it in full and are allowed there (all ranges below are such), that character is what is decoded.
2. *The tokens tile the text.* Every character is in L, N, S or none of these, and each pattern matches at least one
   character at each of the four. So nothing is skipped between two tokens.
3. *Matching has no memory.* No pattern looks behind or uses ``^`` or ``\b``. So if a token starts at ``p``, the tokens
   from there on are those of ``B``.
4. *Matching looks ahead by one character*, at the one behind what it has matched so far. So a match that starts before
   ``p`` learns of ``B`` only by looking at ``w`` after it has matched ``x``.

Hence ``p`` is safe if nothing that can be asked of ``w`` *after* ``x`` *was matched* is answered otherwise than by the
end of the text: then the token that holds ``x`` is the same in ``A`` as in ``A + B``, and ends at ``p``. The two
lookaheads, ``(?!\S)`` and the ``$`` of ``\s++$``, stand behind white space, so they ask only where ``x`` is in S. (That
``$`` also holds before a line end that ends the text makes no difference: ``\s++`` has taken it.)

*Rule 1, all patterns:* ``x`` *in L,* ``w`` *not in L or M and not an apostrophe* (``'``, the only one in the patterns).
A letter is matched in words and in contractions. What may follow one there are letters, in o200k also marks and a
contraction; and the letters that complete ``'ll``, ``'ve`` and ``'re``. ``w`` is none of them; nor is the end. (In
o200k upper case before lower case needs no thought: letters of any case are asked for letters and marks only.)

*Rule 2, all patterns:* ``x`` *in N,* ``w`` *not in N.* A number is matched in a run of numbers, which nothing but
numbers continues; it is neither a prefix of a word nor in a contraction. Where runs are divided into threes they are
so from their start, which is not touched. *In qwen2,* ``w`` *may be anything*: ``\p{N}`` takes one, and asks no more.

*Rule 3, all patterns:* ``x`` *not in S,* ``w`` *in S and no line end.* After a character that is not white space,
patterns ask for letters, marks, numbers, punctuation, contractions, and (after punctuation) line ends; in o200k also
for ``/``. ``w`` is none of them. *In gpt2* ``w`` *may be a line end, too*: there nothing asks for one after such an
``x``. (The others do: ``[^\s\p{L}\p{N}]+[\r\n]*``.)

*Rule 4, all but gpt2:* ``x`` *a line end,* ``w`` *not in S, and not* ``/``. A line end is matched at two places. Behind
punctuation, by ``[\r\n]*`` (o200k: ``[\r\n/]*``), which ``w`` does not continue. Or in a run of white space, which ends
at ``p``, in ``A`` as in ``A + B``. In such a run no word and no punctuation can start (white space follows each of its
characters but ``x``, and a line end cannot stand before a word, nor can it before punctuation), so its first token is
``\s*[\r\n]+``, in cl100k ``\s*[\r\n]``: both reach as far as the last line end of the run, which is ``x``. cl100k's
``\s++$`` matches the same at the end of ``A`` and nothing before ``w``. (In gpt2 ``\s+(?!\S)`` takes the two line ends
of ``"\n\n"`` together, and those of ``"\n\na"`` apart.)

*What cannot be cut.* A run of letters is one token, however long; so are a run of punctuation, a run of white space
without line ends (but for its last character), and in gpt2 a run of digits. Digits in threes (cl100k, o200k, llama3)
could be cut, but only by counting from where the run began, which may be anywhere. Safe but not looked for, since they
hardly ever stand alone: the place between a digit and a letter behind it (every letter would have to be looked at, in a
search that now skips them ten times as fast), and the one between a letter and punctuation in scripts that are written
with spaces. White space and line ends serve those.
"""

from __future__ import annotations

import re
from mmap import mmap

#: Text in UTF-8. An `mmap` is a file that looks as if it were in memory.
Utf8 = bytes | bytearray | memoryview | mmap
LOOK_BEHIND = 3


"""A cut at p is judged by at most so many bytes before p …"""


LOOK_AHEAD = 3


"""… and so many from p on."""


# Letters of scripts written without spaces, by their bytes; all in L since Unicode 14, older than any `regex` accepted.
_CJK_LETTER = (
    rb"(?:\xe3(?:\x81[\x81-\xbf]|\x82[\x80-\x96])"  # hiragana U+3041–3096
    rb"|\xe3(?:\x82[\xa1-\xbf]|\x83[\x80-\xba\xbc-\xbe])"  # katakana U+30A1–30FA, and U+30FC–30FE, its long vowel …
    rb"|(?:\xe4[\xb8-\xbf]|[\xe5-\xe9][\x80-\xbf])[\x80-\xbf]"  # unified ideographs U+4E00–9FFF
    rb"|(?:\xea[\xb0-\xbf]|[\xeb\xec][\x80-\xbf]|\xed[\x80-\x9d])[\x80-\xbf]|\xed\x9e[\x80-\xa3])"  # hangul U+AC00–D7A3
)

# Punctuation that is not ASCII, and the ideographic space: not L, M or N. Its first byte, and then the others.
_WIDE_BREAK = (
    rb"(?:(?<=\xe3)(?=\x80[\x80-\x84\x88-\xa0]|\x83\xbb)"  # U+3000–3004, 3008–3020: space, 、。, brackets; 30FB: ・
    rb"|(?<=\xef)(?=\xbc[\x81-\x8f\x9a-\xa0]|\xbd[\x9b-\xa5])"  # U+FF01–FF0F, FF1A–FF20, FF5B–FF65: full width
    rb"|(?<=\xe2)(?=\x80[\x90-\xa7]))"  # U+2010–2027: dashes, quotation marks, dots
)

# Neither in S nor ASCII, likewise.
_WIDE_NO_SPACE = (
    rb"(?:(?<=[\xc3-\xe0\xe4-\xf4])|(?<=\xe1)(?=[\x80-\x99\x9b-\xbf])|(?<=\xe3)(?=\x80[\x81-\xbf]|[\x81-\xbf]))"
)

# All white space that is not ASCII, of two bytes and of three.
_WIDE_SPACE_2 = rb"\xc2[\x85\xa0]"
_WIDE_SPACE_3 = rb"(?:\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)"


def _cut(spaces: bytes, line_starts: bool, digits: bool) -> bytes:
    """The rules as one expression.

    ``spaces``: the ASCII white space that rule 3 allows as w. ``line_starts``: whether rule 4 holds; it is used where w
    is not ASCII, which serves lines of any script. ``digits``: whether w may be anything behind an ASCII digit.

    It is put together for speed: a set of bytes, to which `re` skips by a table, and a look-behind at two bytes, the
    last of x and the first of w, which turns most places down. As w's first byte has been matched by then, look-behinds
    reach over it, and look-aheads see the rest of w.
    """
    leads = rb"\xc3-\xf4" if line_starts or digits else rb"\xe2\xe3\xef"
    return b"".join([
        rb"(?s)[\t\n\r -&(-@[-`{-~", leads, rb"]",
        rb"(?<=[A-Za-z].|[0-9]", rb"." if digits else rb"[^0-9]", rb"|[!-~][", spaces, rb"]",
        rb"|[\x80-\xbf][\t-~\xe2\xe3\xef]", rb"|[\r\n][\xc3-\xf4]" if line_starts else b"", rb")",
        rb"(?:(?<=[\t-~])(?:",  # w is ASCII, no letter and no apostrophe; and no digit behind a digit
        rb"(?<=[A-Za-z0-9].)|(?<=[\x80-\xbf].)(?<=", _CJK_LETTER, rb".)",  # rules 1 and 2
        rb"|(?<=[!-~\x80-\xbf][", spaces, rb"])(?<!", _WIDE_SPACE_2, rb".)(?<!", _WIDE_SPACE_3, rb".))",  # rule 3
        rb"|(?=[\x80\x83\xbc\xbd])", _WIDE_BREAK, rb"(?:(?<=[A-Za-z0-9].)|(?<=", _CJK_LETTER, rb".))",  # rules 1 and 2
        rb"|(?<=[\r\n].)" + _WIDE_NO_SPACE if line_starts else b"",  # rule 4
        rb"|(?<=[0-9].)" if digits else b"",  # rule 2 in qwen2
        rb")",
    ])  # fmt: skip


GPT2 = _cut(rb"\t\n\r ", line_starts=False, digits=False)
CL100K = O200K = LLAMA3 = _cut(rb"\t ", line_starts=True, digits=False)
QWEN2 = _cut(rb"\t ", line_starts=True, digits=True)

# In the middle of such a run no rule allows a cut, but for digits in qwen2, of which `find_cut` never meets two. (The
# last is of all bytes but ASCII and those that begin a wide break.)
_RUN = re.compile(rb"[0-9]+|[!-/:-@[-`{-~]+|[\t\n\r ]+|[\x80-\xe1\xe4-\xee\xf0-\xff]+")
_STRETCH = 512


"""Searched before a run is looked for. Larger: longer until a run is passed over; smaller: more steps of Python."""


def find_cut(cut: re.Pattern[bytes], window: Utf8, start: int) -> int | None:
    """The first position ``>= start`` of ``window`` where a match of ``cut`` starts, or None.

    The search itself is slow where each byte is one that it has to look at, and passes over long runs of those: of
    digits, punctuation, white space, ideographs … at 1 GB/s instead of 20–70 MB/s. ASCII letters, at 400 MB/s, need no
    help; kana and wide punctuation stay at 15–50 MB/s, since a run of them longer than a few lines is hardly text.
    """
    while start < len(window):
        match = cut.search(window, start, start + _STRETCH)
        if match is not None:
            return match.start()
        if start + _STRETCH >= len(window):
            break
        start += _STRETCH - (LOOK_AHEAD - 1)  # from there on w may have been cut off by the stretch's end
        run = _RUN.match(window, start - 1)
        if run is not None:
            start = max(start, run.end())
    return None


_LAST_STRETCH = 16


"""Searched first for the last cut. Larger: more cuts to pass over until the last; smaller: more steps without one."""


def find_last_cut(cut: re.Pattern[bytes], window: Utf8) -> int | None:
    """The last position of ``window`` where a match of ``cut`` starts, or None: `find_cut`, from the end.

    Searches stretches that double, so that a window without a cut takes no more than twice the time of `find_cut`.
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
