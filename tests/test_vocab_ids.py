"""The ids of merges and of ordinary text in a vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from bpeflow.errors import FormatError
from bpeflow.vocab import Vocab

MERGES = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the")]


def test_merge_ids_are_left_right_and_result() -> None:
    ids = Vocab.build(MERGES, ["<s>"]).merge_ids
    assert ids.dtype == np.uint32
    assert ids.tolist() == [[116, 104, 257], [257, 101, 258], [32, 258, 259]]


def test_merge_ids_without_merges_have_three_columns() -> None:
    assert Vocab.build([]).merge_ids.shape == (0, 3)


def test_a_merge_and_a_special_token_of_the_same_bytes_have_separate_ids() -> None:
    vocab = Vocab.build(MERGES, ["the"])
    assert vocab.merge_ids.tolist()[1] == [257, 101, 258]
    assert (vocab.ordinary_tokens[256], vocab.ordinary_tokens[258]) == (b"", b"the")


@pytest.mark.parametrize("special", ["the", "Ġthe"])
def test_in_huggingfaces_mode_they_share_an_id(special: str) -> None:
    vocab = Vocab.build(MERGES, [special], special_tokens_first=True, reuse_tokens=True)
    [*_, rank_1, rank_2] = vocab.merge_ids.tolist()
    assert 0 in (rank_1[2], rank_2[2])
    assert vocab.ordinary_tokens[0] in (b"the", b" the")


def test_a_merge_without_an_id_of_its_own_shares_the_special_tokens() -> None:
    tokens = [bytes([byte]) for byte in range(256)]
    vocab = Vocab((*tokens, b"th", b"the", b" the"), {" the": 258}, tuple(MERGES))
    assert vocab.merge_ids.tolist()[2] == [32, 257, 258]
    assert vocab.ordinary_tokens[258] == b" the"


def test_merges_that_make_the_same_string_have_the_lower_id() -> None:
    vocab = Vocab.build([(b"a", b"b"), (b"ab", b"c"), (b"b", b"c"), (b"a", b"bc")])
    assert vocab.merge_ids[:, 2].tolist() == [256, 257, 258, 257]
    assert vocab.ordinary_tokens[256:] == (b"ab", b"abc", b"bc", b"")


def test_special_tokens_and_gaps_are_not_ordinary() -> None:
    tokens = [bytes([byte]) for byte in range(256)]
    vocab = Vocab((*tokens, b"", b"<s>", b"whole"), {"<s>": 257}, ())
    assert vocab.ordinary_tokens[256:] == (b"", b"", b"whole")


@pytest.mark.parametrize(("merge", "missing"), [((b"xx", b"y"), b"xx"), ((b"y", b"xx"), b"xx"), ((b"y", b"x"), b"yx")])
def test_a_merge_whose_part_or_result_has_no_id_is_named(merge: tuple[bytes, bytes], missing: bytes) -> None:
    tokens = tuple(bytes([byte]) for byte in range(256))
    vocab = Vocab((*tokens, b"th"), {}, ((b"t", b"h"), merge))
    with pytest.raises(FormatError) as error:
        _ = vocab.merge_ids
    assert f"merge 1, {merge[0]!r} + {merge[1]!r}" in str(error.value)
    assert f"no token {missing!r}" in str(error.value)


def test_a_byte_without_an_id_is_named() -> None:
    vocab = Vocab(tuple(bytes([byte]) for byte in range(256) if byte not in (7, 65)), {}, ())
    with pytest.raises(FormatError, match="2 of the 256 bytes, the first of them 0x07"):
        _ = vocab.byte_ids
