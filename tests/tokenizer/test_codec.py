"""Encoding and decoding: round trips, agreement of the methods, threads, offsets, and invalid text and ids."""

from __future__ import annotations

import gc
import mmap
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import BYTES, small, small_spec, special_text

from bpeflow.errors import (
    ConfigError,
    InputTypeError,
    InvalidTextError,
    SpecialTokenError,
    UnknownTokenError,
)
from bpeflow.tokenizer.parallel import group_texts
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS
from bpeflow.tokenizer.tokenizer import Tokenizer, new_encoder
from bpeflow.vocab import Vocab


@pytest.fixture
def tokenizer(encoder: str) -> Tokenizer:
    return small(encoder)


@given(text=special_text)
def test_text_round_trips(encoder: str, text: str) -> None:
    tokenizer = small(encoder)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode()
    assert tokenizer.decode(tokenizer.encode_ordinary(text)) == text


@given(data=st.binary(max_size=40))
def test_any_bytes_can_be_decoded(encoder: str, data: bytes) -> None:
    tokenizer = small(encoder)
    assert tokenizer.decode_bytes(list(data)) == data
    assert tokenizer.decode(list(data)) == data.decode(errors="replace")
    assert tokenizer.decode(list(data), errors="ignore") == data.decode(errors="ignore")


@pytest.mark.slow
@pytest.mark.threads
@given(texts=st.lists(special_text, max_size=5), threads=st.sampled_from([None, 1, 3]))
def test_all_methods_agree(encoder: str, texts: list[str], threads: int | None) -> None:
    tokenizer = small(encoder)
    lists = [tokenizer.encode(text) for text in texts]
    with patch("bpeflow.tokenizer.parallel.PART_BYTES", 8):
        assert tokenizer.encode_batch(texts, num_threads=threads) == lists
        assert tokenizer.encode_batch(iter(texts)) == lists
        assert [*map(tokenizer.count_tokens, texts)] == [*map(len, lists)]
    for text, ids in zip(texts, lists, strict=True):
        assert tokenizer.encode_to_numpy(text, num_threads=threads).tolist() == ids
        assert tokenizer.encode_to_numpy(text.encode()).tolist() == ids
        assert tokenizer.count_tokens(text) == tokenizer.count_tokens(text.encode()) == len(ids)
        assert tokenizer.encode_with_offsets(text)[0] == ids
    assert tokenizer.decode_batch(lists) == texts


@pytest.mark.slow
@pytest.mark.threads
def test_threads_share_a_tokenizer(encoder: str) -> None:
    tokenizer = small(encoder)
    texts = [f"word {number} <|endoftext|>{'ab' * number}" for number in range(200)]
    expected = [tokenizer.encode(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(tokenizer.encode, texts)) == expected
            assert list(pool.map(lambda text: list(tokenizer.encode_iterable([text])), texts)) == expected


@pytest.mark.threads
def test_a_text_encoded_in_threads_is_free_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpeflow.tokenizer.parallel.PART_BYTES", 2)
    (tmp_path / "text").write_bytes(b"ab cd ef gh")
    gc.disable()
    try:
        with (tmp_path / "text").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text:
            assert len(Tokenizer(BYTES, []).encode_to_numpy(text, num_threads=2)) == 11
        text.close()  # raises while a buffer of it is in use
    finally:
        gc.enable()


@pytest.mark.threads
def test_texts_are_grouped_for_threads() -> None:
    texts = ["ab", "cd", "", "efghi", "j"]
    with patch("bpeflow.tokenizer.parallel.PART_BYTES", 4):
        assert list(group_texts(texts, 1)) == [(0, 2), (2, 4), (4, 5)]
    with patch("bpeflow.tokenizer.parallel.PART_BYTES", 1), patch("bpeflow.tokenizer.parallel.GROUP_BYTES", 3):
        assert list(group_texts(texts, 1)) == [(0, 1), (1, 2), (2, 4), (4, 5)]
    assert list(group_texts([], 2)) == []


@given(text=special_text, pattern=st.sampled_from(["gpt2", r"[a-z]+|é", r"\d{1,2}| ?[^\s\d]+"]))
def test_byte_offsets_locate_the_bytes_of_each_token(encoder: str, text: str, pattern: str) -> None:
    """Text that a custom pattern does not match is between the offsets."""
    tokenizer = small(encoder, pattern)
    ids, offsets = tokenizer.encode_with_offsets(text, byte_offsets=True)
    data = text.encode()
    assert [data[start:end] for start, end in offsets] == [tokenizer.vocab.tokens[token_id] for token_id in ids]
    assert all(before <= start for (_, before), (start, _) in pairwise(offsets))
    _, character_offsets = tokenizer.encode_with_offsets(text)
    starts = [position for position, byte in enumerate(data) if byte & 0xC0 != 0x80]
    for (start, end), (first, last) in zip(offsets, character_offsets, strict=True):
        assert starts[first] <= start < end <= [*starts, len(data)][last]
        assert [*starts, len(data)][first + 1] > start
        assert starts[last - 1] < end


def test_offsets_of_characters_of_several_bytes(tokenizer: Tokenizer) -> None:
    _, offsets = tokenizer.encode_with_offsets("é日a<|endoftext|>😀")
    assert offsets == [(0, 1), (1, 2), (2, 3), (3, 16), *[(16, 17)] * 4]


@pytest.mark.parametrize("pattern", ["gpt2", r" ?\p{L}+"])
def test_text_that_shares_an_id_with_a_special_token_round_trips(encoder: str, pattern: str) -> None:
    """In HuggingFace's mode "Ġthe" has the id of " the". HuggingFace's ByteLevel decoder also returns the latter."""
    merges = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the")]
    vocab = Vocab.build(merges, ["Ġthe", "é"], special_tokens_first=True, reuse_tokens=True)
    tokenizer = Tokenizer(vocab, merges, pattern=pattern, encoder=encoder)
    assert tokenizer.encode_ordinary(" the") == tokenizer.encode("Ġthe") == [0]
    assert tokenizer.decode(tokenizer.encode_ordinary("a the the")) == "a the the"
    assert tokenizer.decode_bytes([1]) == b"\xe9"
    ids, offsets = tokenizer.encode_with_offsets("a theĠthe thea", byte_offsets=True)
    assert ids[1:4] == [0, 0, 0]
    assert offsets == [(0, 1), (1, 5), (5, 10), (10, 14), (14, 15)]
    assert tokenizer.encode_with_offsets("a theĠthe theé")[1] == [(0, 1), (1, 5), (5, 9), (9, 13), (13, 14)]


@pytest.mark.parametrize(("tokens", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_the_dtype_is_the_smallest_that_holds_every_id(encoder: str, tokens: int, dtype: type) -> None:
    vocab = BYTES | {tokens - 1: b"last"}
    tokenizer = Tokenizer(vocab, [], ["last"], encoder=encoder)
    ids = tokenizer.encode_to_numpy("a last")
    assert (tokenizer.dtype, ids.dtype, ids.tolist()) == (dtype, dtype, [97, 32, tokens - 1])
    assert tokenizer.encode_to_numpy("a last", dtype="uint32").tolist() == ids.tolist()


def test_an_unsuitable_dtype_is_rejected() -> None:
    tokenizer = Tokenizer(BYTES | {70_000: b"x"}, [])
    with pytest.raises(ConfigError, match="uint16 cannot hold the ids of a vocabulary of 70,001"):
        tokenizer.encode_to_numpy("a", dtype=np.uint16)
    with pytest.raises(ConfigError, match="dtype is int64"):
        tokenizer.encode_to_numpy("a", dtype=np.int64)


@pytest.mark.parametrize("text", ["", " ", "a", "😀"])
def test_short_text(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode_batch([text, "", text])[1] == []
    assert len(tokenizer.encode_to_numpy("")) == 0
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.decode([]) == tokenizer.decode(np.array([])) == ""
    assert tokenizer.encode_with_offsets("") == ([], [])


@pytest.mark.parametrize("text", [b"bytes", 7, None, ["a list"]])
def test_text_must_be_a_str(tokenizer: Tokenizer, text: Any) -> None:
    for call in (tokenizer.encode, tokenizer.encode_ordinary, tokenizer.encode_with_offsets):
        with pytest.raises(InputTypeError, match=f"text to encode must be a str, not {type(text).__name__}"):
            call(text)
    with pytest.raises(InputTypeError, match="must be a str, not"):
        tokenizer.encode_batch(["a", text])
    if not isinstance(text, bytes):
        with pytest.raises(InputTypeError, match="must be a str, or bytes in UTF-8, not"):
            tokenizer.encode_to_numpy(text)


def test_bytes_may_be_an_array(tokenizer: Tokenizer, tmp_path: Path) -> None:
    text = "aé low<|endoftext|>lower" * 3
    (tmp_path / "text").write_bytes(text.encode())
    expected = tokenizer.encode(text)
    for data in (np.memmap(tmp_path / "text", mode="r"), np.frombuffer(text.encode(), np.uint8)):
        assert tokenizer.encode_to_numpy(data).tolist() == expected
        assert tokenizer.count_tokens(data) == len(expected)
    assert tokenizer.count_tokens(np.array([], np.uint8)) == 0
    with pytest.raises(InputTypeError, match="not ndarray"):
        tokenizer.count_tokens(np.array([97, 98]))  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="not contiguous"):
        tokenizer.count_tokens(np.zeros(4, np.uint8)[::2])


def test_a_lone_surrogate_is_an_error_with_its_position(tokenizer: Tokenizer) -> None:
    for call in (tokenizer.encode, tokenizer.encode_to_numpy, tokenizer.count_tokens, tokenizer.encode_with_offsets):
        with pytest.raises(InvalidTextError, match=r"lone surrogate, U\+DC80, at character 3") as error:
            call("aé \udc80")
        assert "surrogatepass" in str(error.value)
    repaired = "a\ud83d\ude00 \udc80".encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert tokenizer.decode(tokenizer.encode(repaired)) == "a😀 \ufffd"  # the remedy works


def test_errors_in_a_batch_have_the_index(tokenizer: Tokenizer) -> None:
    index = "at index 1 of the batch: "
    for texts, error, message in (
        (["a", b"b"], InputTypeError, f"{index}text to encode must be a str, not bytes"),
        (iter(["a", "b\udc80"]), InvalidTextError, f"{index}the text has a lone surrogate"),
        ("ab", InputTypeError, "a batch must be a list, or iterable in order, not str"),
        (None, InputTypeError, "a batch must be a list, or iterable in order, not NoneType"),
    ):
        with pytest.raises(error, match=message):
            tokenizer.encode_batch(texts)  # type: ignore[arg-type]
    with pytest.raises(SpecialTokenError, match=f"{index}the text has the special token '<a>' at character 1"):
        tokenizer.encode_batch(["a", "b<a>"], disallowed_special={"<a>"})
    for batch, expected_error, expected_message in (
        ([[97], [60_000]], UnknownTokenError, f"{index}unknown id 60000 at index 0"),
        (iter([[97], 97]), InputTypeError, f"{index}ids to decode must be a sequence"),
        (None, InputTypeError, "a batch must be a list, or iterable in order, not NoneType"),
    ):
        with pytest.raises(expected_error, match=expected_message):
            tokenizer.decode_batch(batch)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W"])
def test_bytes_that_are_not_utf8_are_rejected(encoder: str, pattern: str) -> None:
    tokenizer = small(encoder, pattern)
    for call in (tokenizer.encode_to_numpy, tokenizer.count_tokens):
        with pytest.raises(InvalidTextError, match="not UTF-8: invalid start byte at byte 10"):
            call(b"ab ab <a> \xff <a>")
        with pytest.raises(InputTypeError, match="not contiguous"):
            call(memoryview(b"abcd")[::2])
    with (
        patch("bpeflow.tokenizer.parallel.PART_BYTES", 3),
        pytest.raises(InvalidTextError, match="unexpected end of data at byte 12"),
    ):
        tokenizer.encode_to_numpy(b"ab ab <a> ab\xc3", num_threads=2)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([97, 60_000], "unknown id 60000 at index 1: the vocabulary has the ids 0 to"),
        ([97, 98, -1], "unknown id -1 at index 2"),
        ([2**40], "unknown id 1099511627776 at index 0"),
        ([2**70], "at index 0"),
        (np.array([97, -3]), "unknown id -3 at index 1"),
        (np.array([97, 60_000], np.int32), "unknown id 60000 at index 1"),
        (np.array([97, 60_000], np.uint16), "unknown id 60000 at index 1"),
        (np.array([2**40], np.uint64), "unknown id 1099511627776 at index 0"),
    ],
)
def test_an_unknown_id_is_named_with_its_index(tokenizer: Tokenizer, ids: Any, message: str) -> None:
    for call in (tokenizer.decode, tokenizer.decode_bytes, lambda ids: tokenizer.decode_batch([[97], ids])):
        with pytest.raises(UnknownTokenError, match=message):
            call(ids)


def test_a_gap_in_the_vocabulary_cannot_be_decoded(encoder: str) -> None:
    tokenizer = Tokenizer(BYTES | {300: b"x y"}, [], encoder=encoder)
    assert tokenizer.decode([300, 97]) == "x ya"
    with pytest.raises(UnknownTokenError, match="id 299 at index 1 has no token"):
        tokenizer.decode([300, 299])


@given(
    ids=st.lists(st.integers(0, 255), max_size=100),
    others=st.lists(st.sampled_from([-301, -300, -1, 256, 299, 300, 301])),
)
def test_a_few_ids_in_a_list_are_decoded_as_many_and_as_arrays(encoder: str, ids: list[int], others: list[int]) -> None:
    """Negative ones too, which Python would count from the end."""
    tokenizer = Tokenizer(BYTES | {300: b"x y"}, [], encoder=encoder)
    for some in (ids, ids + others):
        many = some + [97] * 100
        try:
            expected = tokenizer.decode_bytes(np.array(some, np.int64))
        except UnknownTokenError:
            for unknown in (some, many):
                with pytest.raises(UnknownTokenError):
                    tokenizer.decode_bytes(unknown)
        else:
            assert tokenizer.decode_bytes(some) == expected
            assert tokenizer.decode_bytes(many) == expected + b"a" * 100


class _Row:
    """A row of a tensor, as PyTorch has it: not comparable, and an index only with a single element."""

    ndim = 1

    def __repr__(self) -> str:
        return "_Row()"

    def __index__(self) -> int:
        raise TypeError


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([97, 98.0], "98.0 at index 1 is not a token id"),
        (["a"], "'a' at index 0"),
        ([None], "None at index 0"),
        ([[97]], r"\[97\] at index 0 .*; decode_batch"),
        ([_Row()], r"_Row\(\) at index 0 .*; decode_batch"),
        ("abc", "not str"),
        (b"abc", "not bytes"),
        (97, "not int"),
        (np.array([1.0]), "1.0.* at index 0 is not a token id"),
        (np.array([[97]]), r"at index 0 .*; decode_batch"),
        (np.array([True]), "True.* at index 0 is not a token id"),
        (np.array(97), "not ndarray"),
    ],
)
def test_ids_that_are_not_integers_are_rejected(tokenizer: Tokenizer, ids: Any, message: str) -> None:
    with pytest.raises(InputTypeError, match=message):
        tokenizer.decode(ids)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, ">u2"])
def test_arrays_of_any_integers_are_decoded(tokenizer: Tokenizer, dtype: Any) -> None:
    ids = np.array([97, 0, 98, 0], dtype)
    assert tokenizer.decode(ids[::2]) == "ab"
    assert tokenizer.decode(list(ids)) == "a\0b\0"
    assert tokenizer.decode(tuple(ids[:1])) == "a"


@pytest.mark.parametrize("pattern", ["gpt2", r"\w+"])
@pytest.mark.parametrize("whole_tokens", [False, True])
def test_pretokens_are_encoded_as_they_are(encoder: str, pattern: str, whole_tokens: bool) -> None:
    """They are not split, whatever the pattern, and special tokens in them are ordinary text."""
    chosen = new_encoder(small_spec(pattern, whole_tokens), encoder)
    alone = new_encoder(small_spec("(?s).+", whole_tokens), "python")
    pretokens = [b"aaaa word", b"word\n", b"", b"<a>the", "日é123".encode()]
    data = np.frombuffer(b"".join([b"other", *pretokens]), np.uint8)
    offsets = np.cumsum([5, *map(len, pretokens)])
    ids, ends = chosen.encode_pretokens(data, offsets, np.dtype(np.uint32))
    expected = [alone.encode(pretoken, NO_SPECIAL_TOKENS) for pretoken in pretokens]
    assert [part.tolist() for part in np.split(ids, ends[:-1])] == expected
    assert ends[-1] == len(ids)
