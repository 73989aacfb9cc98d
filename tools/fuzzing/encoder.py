"""The encoder: native and Python code give the same ids, bytes and errors for any vocabulary, cache and text."""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import Any
from unittest.mock import patch

import numpy as np

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.errors import InvalidTextError, UnknownTokenError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.native import native_instructions
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import Pretokenizer, load_pretokenizer
from bpeflow.tokenizer import parallel
from bpeflow.tokenizer.encoder import Encoder
from bpeflow.tokenizer.native_encoder import NativeEncoder, new_model
from bpeflow.tokenizer.offsets import token_offsets
from bpeflow.tokenizer.python_encoder import PythonEncoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from bpeflow.vocab import Merge, Vocab
from fuzzing.choices import Choices
from fuzzing.difference import REFUSED, must_equal, outcome

_PATTERNS = (*NAMED_PATTERNS, r"[a-z]+| ", r"(a)|\w+?|\s", r"(?s).+")
_UNMATCHED: tuple[UnmatchedPolicy, ...] = ("isolate", "drop", "error")
_LETTERS = (b"a", b"b", b"c", b" ", b"'", b"s", b"\n", b"1", b"\xc3", b"\xa9", b"<", b">")
_SPECIALS = ("<a>", "<a><a>", "<a", "é", "aa", "b", "a b", "><")
#: Parts of texts that such vocabularies and special tokens apply to. The last ones are not UTF-8.
_PARTS = (
    *(b"a", b"b", b"c", b"aa", b"ab", b"abc", b" ", b"  ", b" a", b"\n", b"'s", b"1", b"123", b"."),
    *("é".encode(), b"<a>", b"<a><a>", b"<a", b"><", b"<", b">", "日".encode(), "\u0301".encode(), "\u2003".encode()),
    *(b"\xc3", b"\xa9", b"\xff"),
)
_INVALID = (InvalidTextError,)
#: No cache, a single slot, caches that fill up and are cleared often, and one that is not.
_CACHES = (0, 128, 4096, 1 << 15, 1 << 20)


def check(data: bytes) -> None:
    choices = Choices(data)
    spec = TokenizerSpec(_make_vocab(choices), choices.one_of(_PATTERNS), choices.flag(), choices.one_of(_UNMATCHED))
    specials = SpecialTokens.of(spec.vocab.special_tokens) if choices.flag() else NO_SPECIAL_TOKENS
    dtype: np.dtype[Any] = choices.one_of((np.dtype(np.uint32), np.dtype(np.uint16)))
    model = new_model(spec, choices.below(len(spec.vocab.merge_ids) + 1))
    native = NativeEncoder(spec, choices.one_of(_CACHES), choices.one_of(native_instructions()), model)
    specified = PythonEncoder(spec, 0)
    _check_decoding(choices, native, specified, dtype)
    part_bytes = choices.below(64) + 1
    texts = _make_texts(choices)
    case = f"{spec}, {specials}, {texts}"
    valid: list[bytes] = []
    for text in texts:
        ids = outcome(_INVALID, specified.encode, text, specials)
        must_equal(case, outcome(_INVALID, native.encode, text, specials), ids)
        if ids != REFUSED:
            valid.append(text)
            _check_valid(case, native, spec, specials, text, ids, dtype, part_bytes)
    for each in (texts, valid):
        batches = [outcome(_INVALID, _batch, encoder, each, specials, dtype) for encoder in (native, specified)]
        must_equal(f"batch, {case}", *batches)


def _check_valid(
    case: str,
    native: Encoder,
    spec: TokenizerSpec,
    specials: SpecialTokens,
    text: bytes,
    ids: list[int],
    dtype: np.dtype[Any],
    part_bytes: int,
) -> None:
    """Check that all other ways of encoding a text give the same ids."""
    pretokenizer = _pretokenizer(spec.pattern, spec.unmatched)
    exact = memoryview(np.frombuffer(text, np.uint8).copy())  # AddressSanitizer detects reads past the end
    must_equal(f"array, {case}", native.encode_to_array(exact, specials, dtype).tolist(), ids)
    with patch.object(parallel, "PART_BYTES", part_bytes):
        spans = parallel.cut_text(exact, pretokenizer, specials)
        parts = [bytes(exact[begin:end]) for begin, end in spans]
    must_equal(f"parts {parts}, {case}", [*chain(*(native.encode(part, specials) for part in parts))], ids)
    lengths = [len(spec.vocab.decoded_tokens[token_id]) for token_id in ids]
    offsets = token_offsets(text, lengths, specials, pretokenizer, in_bytes=True)
    encoded = b"".join(text[start:end] for start, end in offsets)
    must_equal(f"decoded, {case}", native.decode(np.array(ids, dtype)), encoded)
    if not pretokenizer.custom or pretokenizer.unmatched != "drop":
        must_equal(f"tiled, {case}", encoded, text)


def _check_decoding(choices: Choices, native: Encoder, specified: Encoder, dtype: np.dtype[Any]) -> None:
    ids = np.array([choices.below(330) for _ in range(choices.below(24))], dtype)
    decoded = [outcome((UnknownTokenError,), encoder.decode, ids) for encoder in (native, specified)]
    must_equal(f"decode {ids.tolist()}", *decoded)


def _batch(
    encoder: Encoder, texts: list[bytes], specials: SpecialTokens, dtype: np.dtype[Any]
) -> tuple[list[int], list[int]]:
    ids, ends = encoder.encode_batch([text.decode("utf-8", "surrogateescape") for text in texts], specials, dtype)
    return ids.tolist(), ends.tolist()


def _make_vocab(choices: Choices) -> Vocab:
    """Make a vocabulary of few letters and many merges, in any order, so that some never apply or make duplicates."""
    tokens = [bytes([byte]) for byte in range(256)]
    known, merges = [*_LETTERS[: choices.below(len(_LETTERS)) + 1]], list[Merge]()
    for _ in range(choices.below(40)):
        left, right = choices.one_of(known), choices.one_of(known)
        merges.insert(choices.below(len(merges) + 1) if choices.flag() else len(merges), (left, right))
        if left + right not in tokens:
            tokens.append(left + right)
            known.append(left + right)
    if choices.flag():
        tokens += [b"", *(letter * 9 for letter in _LETTERS[:3])]  # a gap, and tokens that no merge makes
    specials = {}
    for special in {choices.one_of(_SPECIALS): None for _ in range(choices.below(5))}:
        specials[special] = len(tokens)
        tokens.append(special.encode())
    return Vocab(tuple(tokens), specials, tuple(merges))


def _make_texts(choices: Choices) -> list[bytes]:
    texts = [b""]
    while choices.left:
        choice = choices.below(256)
        if choice == 255:
            texts.append(b"")
        elif choice == 254:  # thousands of pre-tokens, so that caches must grow
            texts[-1] += b" ".join(b"%dab" % number for number in range(choices.below(3000)))
        elif choice >= 192:  # repetitions: long pre-tokens use a different algorithm
            texts[-1] += b"".join(choices.one_of(_PARTS[:6]) for _ in range(choice % 4 + 1)) * choices.below(256)
        else:
            texts[-1] += _PARTS[choice % len(_PARTS)]
    return texts


@cache
def _pretokenizer(pattern: str, unmatched: UnmatchedPolicy) -> Pretokenizer:
    return load_pretokenizer(pattern, unmatched)
