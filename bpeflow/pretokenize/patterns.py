r"""The five named split patterns, exactly as their models publish them, and where each allows a cut.

A *safe cut* is a byte position ``p`` of a document such that, with ``A`` the bytes before ``p`` and ``B`` the rest,
``pretokens(A) + pretokens(B) == pretokens(A + B)`` whatever ``A`` and ``B`` hold. It is told from two ASCII bytes
alone: the one before ``p`` and the one at ``p``. (Both being ASCII, no character is split, and an invalid byte on
either side decodes the same with or without the other side.)

Why the cuts below are safe. Call ``x`` the character before ``p``, which is never white space, and ``w`` the one at
``p``, which always is.

1. *The tokens tile the text.* Every character is a letter, a number, white space or none of these, and each of the
   patterns matches at least one character at each of the four. So nothing is skipped between two tokens.
2. *Matching has no memory.* No pattern looks behind or uses ``^`` or ``\b``: the token that starts at a position is
   determined by the text from that position on. So from ``p`` on, the tokens are those of ``B``, provided that ``p``
   is a token's start.
3. *No token holds* ``x`` *followed by* ``w``, so a token ends at ``p`` and the next starts there. White space is
   matched at four kinds of places only: one character at a token's start; a run of it at a token's start, ended by
   ``\s+`` or ``[\r\n]``; a line end after punctuation (all patterns but gpt2: ``[^\s\p{L}\p{N}]+[\r\n]*``); and, in
   o200k, line ends and ``/`` mixed after punctuation. In the first two nothing but white space precedes it. The last
   two need punctuation and a line end, hence the stricter rule for those patterns: before a line end ``x`` must be a
   letter or a digit.
4. *Within* ``A`` *the tokens do not depend on* ``B``. A match that starts before ``p`` can see ``B`` only by looking
   at ``p``, and there it sees ``w`` in ``A + B`` and the end of the text in ``A`` alone. Whatever looks at ``p`` comes
   directly after ``x`` was matched. Both lookaheads, ``(?!\S)`` and the ``$`` of ``\s++$``, come directly after white
   space and so never look at ``p``. What is left are the repetitions and the contractions, which ask whether the
   character at ``p`` is a letter, a mark, a digit, punctuation, an apostrophe, or (after punctuation) a line end: for
   ``w`` as for the end of the text the answer is no, and every alternative goes on in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

# White space after anything printable, where no token carries a line end behind punctuation. (Both expressions look for
# the white space first and behind it second: `re` then skips to it by a table, five times as fast as the other way.)
_AFTER_ANYTHING = rb"[ \r\n](?<=[!-~][ \r\n])"
# Where a token may, line ends after letters and digits only.
_LINE_END_AFTER_WORD = rb"[ \r\n](?<=[!-~] |[0-9A-Za-z][\r\n])"


@dataclass(frozen=True)
class NamedPattern:
    """A split pattern with a name: ``name``, ``regex`` (syntax of the `regex` module) and ``cut``.

    ``cut`` is a regular expression over bytes; a document may be cut where a match of it starts.
    """

    name: str
    regex: str
    cut: bytes


_PATTERNS = (
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `r50k_pat_str`, which it uses for gpt2. Equal, on every text, to
    # the pattern in GPT-2's encoder.py, and faster.
    NamedPattern(
        "gpt2",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
        _AFTER_ANYTHING,
    ),
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `cl100k_base`. Older releases had the pattern that is `llama3`
    # below; the two differ in one place: white space that ends the text is one token here, line ends included.
    NamedPattern(
        "cl100k",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        _LINE_END_AFTER_WORD,
    ),
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `o200k_base`.
    NamedPattern(
        "o200k",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        _LINE_END_AFTER_WORD,
    ),
    # Meta's llama3 repository, llama/tokenizer.py, `pat_str`.
    NamedPattern(
        "llama3",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        _LINE_END_AFTER_WORD,
    ),
    # Qwen2's tokenizer.json, the `Split` pre-tokenizer; the same as `PRETOKENIZE_REGEX` in HuggingFace's
    # tokenization_qwen2.py. It differs from llama3 in taking digits one by one.
    NamedPattern(
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        _LINE_END_AFTER_WORD,
    ),
)

NAMED_PATTERNS = {pattern.name: pattern for pattern in _PATTERNS}
