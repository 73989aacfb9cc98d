"""Small vocabularies, and strategies for text that exercises them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Merge, Vocab

BYTES = {byte: bytes([byte]) for byte in range(256)}

SPECIALS = ["<|endoftext|>", "<|endoftext|><|endoftext|>", "<|end", "text|><|", "<a>", "<a><b>", "<b><c>", "é<"]

#: Repeated tokens, overlaps, results that can be made in two ways, characters of several bytes.
MERGES: list[Merge] = [
    *[(b"a", b"a"), (b"aa", b"a"), (b"aa", b"aa"), (b"b", b"a"), (b"a", b"b"), (b"ab", b"ab"), (b" ", b" ")],
    *[(b"  ", b"  "), (b" ", b"a"), (b"l", b"l"), (b"'", b"ll"), (b"'", b"s"), (b"\xc3", b"\xa9"), (b"\n", b"\n")],
    *[(b"w", b"o"), (b"r", b"d"), (b"wo", b"rd"), (b" ", b"word"), (b"1", b"2"), (b"12", b"3"), (b"<", b"|")],
    *[(b"<|", b"e"), (b"\xe6", b"\x97"), (b"\xe6\x97", b"\xa5"), (b"a", b"aa"), (b"t", b"h"), (b"th", b"e")],
]

#: Text that these merges apply to. `SPECIAL_PARTS` are pieces of special tokens.
PARTS = [
    *"ab",
    "aa",
    "aaaa",
    "abab",
    " ",
    "  ",
    "word",
    " word",
    "'ll",
    "'s",
    "'",
    "é",
    "日",
    "😀",
    "\n",
    "\r\n",
    "123",
]
SPECIAL_PARTS = [*SPECIALS, "<|", "<|endo", "ftext|>", "|>", "<", ">", "<b>", "<c>"]

text = st.lists(st.sampled_from(PARTS) | st.characters(exclude_categories=["Cs"]), max_size=20).map("".join)
special_text = st.lists(st.sampled_from(PARTS + SPECIAL_PARTS), max_size=20).map("".join)


def small_vocab(*special_tokens: str) -> Vocab:
    """Return a vocabulary of `MERGES`, with special tokens after the bytes."""
    return Vocab.build(MERGES, special_tokens, reuse_tokens=False)


def small_spec(pattern: str = "gpt2", whole_tokens: bool = False) -> TokenizerSpec:
    return TokenizerSpec(small_vocab(*SPECIALS), pattern, whole_tokens)


def small(encoder: str, pattern: str = "gpt2") -> Tokenizer:
    return Tokenizer.from_spec(small_spec(pattern), encoder=encoder)


def spec_of(merges: list[Merge], pattern: str = "gpt2") -> TokenizerSpec:
    """Return the bytes and these merges, without special tokens."""
    tokens = [*(bytes([byte]) for byte in range(256)), *(left + right for left, right in merges)]
    return TokenizerSpec(Vocab(tuple(tokens), {}, tuple(merges)), pattern)


def merge_naively(pretoken: bytes, merges: list[Merge]) -> list[bytes]:
    """Merge by the definition: the lowest rank first, leftmost first, until none applies."""
    tokens = [bytes([byte]) for byte in pretoken]
    while True:
        pairs = list(pairwise(tokens))
        ranks = [merges.index(pair) for pair in pairs if pair in merges]
        if not ranks:
            return tokens
        position = pairs.index(merges[min(ranks)])
        tokens[position : position + 2] = [tokens[position] + tokens[position + 1]]
