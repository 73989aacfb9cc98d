"""Many texts as one array, and as the rows of a matrix."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow import BpeflowError, ConfigError, InputTypeError, Padding, SpecialTokenError, Tokenizer
from bpeflow.tokenizer.native_encoder import NativeEncoder

BYTES = {byte: bytes([byte]) for byte in range(256)}
VOCAB = {**BYTES, 256: b"ab"}
TOKENIZER = Tokenizer(VOCAB, [(b"a", b"b")], ["<s>"])


@pytest.mark.threads
@given(texts=st.lists(st.text("ab<s> é", max_size=9), max_size=6), threads=st.sampled_from([None, 1, 3]))
def test_a_batch_has_the_ids_of_its_texts(encoder: str, texts: list[str], threads: int | None) -> None:
    tokenizer = Tokenizer(VOCAB, [(b"a", b"b")], ["<s>"], encoder=encoder)
    for dtype, choice in ((None, {}), (np.uint32, {"allowed_special": ()})):
        with patch("bpeflow.tokenizer.parallel.PART_BYTES", 8), patch("bpeflow.tokenizer.parallel.GROUP_BYTES", 8):
            ids, offsets = tokenizer.encode_batch_to_numpy(texts, dtype=dtype, num_threads=threads, **choice)  # type: ignore[arg-type]
        assert ids.dtype == (dtype or tokenizer.dtype)
        assert offsets.dtype == np.int64
        rows = [ids[begin:end].tolist() for begin, end in pairwise(offsets)]
        assert rows == [tokenizer.encode(text, **choice) for text in texts]  # type: ignore[arg-type]
        assert offsets[-1] == len(ids)


@given(
    lengths=st.lists(st.sampled_from([0, 1, 2, 3, 70, 1023, 1024, 1025, 5000, 6143, 6144, 6145]), max_size=9),
    many=st.sampled_from([0, 4094, 4095, 4096, 4097]),
    seed=st.integers(0, 2**32),
)
def test_texts_that_are_looked_up_together_keep_their_borders(
    encoder: str, lengths: list[int], many: int, seed: int
) -> None:
    """Texts of this many pre-tokens, before and after many of one: the buffers end anywhere (short_texts.hpp)."""
    random = np.random.default_rng(seed)
    tokenizer = Tokenizer(VOCAB, [(b"a", b"b")], ["<s>"], encoder=encoder)
    words = np.array([" ab", " a", " é日本語", " abababababababab", "<s>", "\n", " 12"])
    texts = ["".join(random.choice(words, length)) for length in lengths if encoder == "native" or length < 100]
    texts[1:1] = [*random.choice(words[:2], many if encoder == "native" else min(many, 9))]
    ids, offsets = tokenizer.encode_batch_to_numpy(texts, num_threads=1)
    assert [ids[begin:end].tolist() for begin, end in pairwise(offsets)] == [tokenizer.encode(text) for text in texts]


def test_texts_in_which_the_pattern_matches_nothing_have_no_ids(encoder: str) -> None:
    tokenizer = Tokenizer(VOCAB, [(b"a", b"b")], pattern=r"\w+", unmatched="drop", encoder=encoder)
    assert tokenizer.encode_batch(["a", "--", "", "ab-", "-"]) == [[97], [], [], [256], []]


def test_strings_of_any_kind_are_texts(encoder: str) -> None:
    class Text(str):
        __slots__ = ()

    tokenizer = Tokenizer(VOCAB, [(b"a", b"b")], encoder=encoder)
    texts = ["ab", Text("abé"), "é", "日本", "😀", "a\0b", ""]
    assert tokenizer.encode_batch(texts) == tokenizer.encode_batch(iter(texts)) == [tokenizer.encode(t) for t in texts]


@pytest.mark.parametrize(("wrong", "message"), [(5, "str, not int"), (b"a", "str, not bytes"), ("a\ud800", "U\\+D800")])
def test_the_index_of_what_is_no_text_is_named(encoder: str, wrong: Any, message: str) -> None:
    tokenizer = Tokenizer(VOCAB, [(b"a", b"b")], encoder=encoder)
    with pytest.raises(BpeflowError, match=f"at index 2 of the batch: .*{message}"):
        tokenizer.encode_batch(["ab", "é", wrong, "x"])


def test_the_arrays_of_a_call_are_not_those_of_another() -> None:
    """A session keeps its memory for ids."""
    first, _ = TOKENIZER.encode_batch_to_numpy(["abc"])
    second = TOKENIZER.encode_to_numpy("abc")
    TOKENIZER.encode_batch_to_numpy(["<s>" * 5000])
    TOKENIZER.encode_to_numpy("x" * 5000, dtype=np.uint32)
    assert first.tolist() == second.tolist() == TOKENIZER.encode("abc")


@pytest.mark.usefixtures("native_library")
def test_ids_that_exceed_the_memory_of_a_session_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpeflow.tokenizer.native_encoder._REUSED_ROOM", 10)
    tokenizer = Tokenizer(VOCAB, [(b"a", b"b")], encoder="native")
    assert isinstance(tokenizer._encoder, NativeEncoder)
    texts = ["abc", "ab" * 20, "x", "yab" * 9]
    assert tokenizer.encode_batch_to_numpy(texts)[0].tolist() == [i for t in texts for i in tokenizer.encode(t)]
    assert [tokenizer.encode_to_numpy(text).tolist() for text in texts] == [tokenizer.encode(text) for text in texts]


@pytest.mark.parametrize(
    ("padded", "rows", "lengths"),
    [
        (5, [[97, 256, 99, 0, 0], [0] * 5, [120, 0, 0, 0, 0]], [3, 0, 1]),
        (Padding(), [[97, 256, 99], [0, 0, 0], [120, 0, 0]], [3, 0, 1]),
        (Padding(side="left"), [[97, 256, 99], [0, 0, 0], [0, 0, 120]], [3, 0, 1]),
        (Padding(2, truncation="right"), [[97, 256], [0, 0], [120, 0]], [2, 0, 1]),
        (Padding(2, truncation="left", side="left"), [[256, 99], [0, 0], [0, 120]], [2, 0, 1]),
        (Padding(3, pad_id=7), [[97, 256, 99], [7, 7, 7], [120, 7, 7]], [3, 0, 1]),
    ],
)
def test_rows_are_padded_and_truncated(padded: Padding | int, rows: list[list[int]], lengths: list[int]) -> None:
    tokenizer = Tokenizer({**VOCAB, 0: b"<pad>", 257: b"\0"}, [(b"a", b"b")], ["<pad>", "<s>"])
    matrix, kept = tokenizer.encode_batch_to_numpy(["aabc", "", "x"], padded=padded)
    assert (matrix.tolist(), kept.tolist(), matrix.dtype) == (rows, lengths, np.uint16)


def test_a_batch_without_texts_has_no_rows() -> None:
    ids, offsets = TOKENIZER.encode_batch_to_numpy([])
    assert (ids.tolist(), offsets.tolist()) == ([], [0])
    matrix, lengths = TOKENIZER.encode_batch_to_numpy([], padded=3)
    assert (matrix.shape, lengths.tolist()) == ((0, 3), [])


def test_padding_is_the_end_token_if_there_is_no_other() -> None:
    assert TOKENIZER.encode_batch_to_numpy(["a"], padded=2)[0].tolist() == [[97, 257]]
    with pytest.raises(SpecialTokenError, match="no special token"):
        Tokenizer(BYTES, []).encode_batch_to_numpy(["a"], padded=2)


def test_padded_true_makes_rows_as_long_as_the_longest_text() -> None:
    batch = ["a", "abab", ""]
    for padded, same in ((True, Padding()), (False, None)):
        found, expected = (TOKENIZER.encode_batch_to_numpy(batch, padded=value) for value in (padded, same))
        assert [part.tolist() for part in found] == [part.tolist() for part in expected]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"texts": ["a", "abab", "abab"], "padded": 1}, ConfigError, "at index 1 of .* 2 ids, .* truncation='right'"),
        ({"padded": "longest"}, InputTypeError, "padded is 'longest'; it must be True, a length or a bpeflow.Padding"),
        ({"padded": 0}, ConfigError, "padding length is 0"),
        ({"padded": {"side": "middle"}}, ConfigError, "padding side is 'middle'; need left or right"),
        ({"padded": {"truncation": True}}, ConfigError, "truncation is True; need left or right"),
        ({"padded": {"pad_id": 258}}, ConfigError, "pad_id is 258; need an id from 0 to 257"),
        ({"dtype": np.int64}, ConfigError, "dtype is int64"),
        ({"num_threads": 0}, ConfigError, "the number of threads is 0"),
        ({"texts": "a"}, InputTypeError, "a batch must be a list, or iterable in order, not str"),
        ({"texts": ["a", None]}, InputTypeError, "at index 1 of .* a str, not NoneType"),
        ({"texts": ["a", "<s>"], "disallowed_special": {"<s>"}}, SpecialTokenError, "at index 1 of"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_an_error(arguments: dict[str, Any], error: type[BpeflowError], message: str) -> None:
    with pytest.raises(error, match=message):
        padded = arguments.get("padded")
        if isinstance(padded, dict):
            arguments = {**arguments, "padded": Padding(**padded)}
        TOKENIZER.encode_batch_to_numpy(**{"texts": ["a"], **arguments})
