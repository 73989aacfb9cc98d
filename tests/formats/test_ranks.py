"""Merges as ids recovered from ranks, natively and in Python, and `load` without the merges themselves."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import read_ranks
from real_data import real_data

from bpeflow._util.packed import PackedBytes
from bpeflow.errors import FormatError, NativeError, NativeUnavailableError
from bpeflow.formats import ranks, tiktoken
from bpeflow.formats.ranks import read_lines, read_natively, recover_in_python, recover_merges, recover_natively
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab

BYTES = [bytes([byte]) for byte in range(256)]
short = st.lists(st.sampled_from([b"a", b"b", b"\xff"]), max_size=8).map(b"".join)


def write(path: Path, tokens: list[bytes], special_tokens: dict[str, int]) -> Path:
    lines = [b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens) if token]
    path.write_bytes(b"".join(lines))
    arguments = {"pat_str": r"\S+|\s+", "special_tokens": special_tokens}
    tiktoken.sidecar_path(path).write_text(json.dumps(arguments), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def _native() -> None:
    try:
        recover_natively(PackedBytes.of(BYTES))
    except NativeUnavailableError as error:
        pytest.skip(str(error))


@settings(max_examples=150)
@given(tokens=st.lists(short, max_size=20), bytes_after=st.booleans(), missing=st.sampled_from([b"", b"b", b"ab"]))
def test_native_code_recovers_the_same_merges(tokens: list[bytes], bytes_after: bool, missing: bytes) -> None:
    """With ranks in any order, gaps, equal tokens, tokens that no merge makes, and bytes without a token."""
    singles = [token for token in BYTES if token not in missing]
    tokens = [*tokens, *singles] if bytes_after else [*singles, *tokens]
    assert recover_natively(PackedBytes.of(tokens)).tolist() == recover_in_python(tokens).tolist()


def test_of_equal_tokens_only_the_first_has_a_merge() -> None:
    tokens = [*BYTES, b"ab", b"ab", b"abc", b"abd", b"abc"]
    assert recover_natively(PackedBytes.of(tokens)).tolist() == [[97, 98, 256], [256, 99, 258], [256, 100, 259]]


def test_a_long_token_is_recovered() -> None:
    tokens = [*BYTES, *(b"a" * (1 << n) for n in range(1, 10)), b"a" * 300]
    assert recover_natively(PackedBytes.of(tokens)).tolist() == recover_in_python(tokens).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r50k_base", "p50k_base"])
def test_native_code_recovers_the_merges_of_published_ranks(name: str) -> None:
    published = read_ranks(real_data(f"vocabs/{name}.tiktoken"))
    tokens = [b""] * (max(published.values()) + 1)
    for token, rank in published.items():
        tokens[rank] = token
    recovered = [(tokens[left], tokens[right]) for left, right, _ in recover_natively(PackedBytes.of(tokens)).tolist()]
    assert recovered == recover_merges(published)


def test_without_native_code_python_reads_ranks_and_recovers_merges(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.tiktoken", [*BYTES, b"", b"ab", b"bcd", b"cd"], {})
    native = tiktoken.load(path)

    def unavailable(_: object) -> None:
        raise NativeUnavailableError("no compiler")

    monkeypatch.setattr(ranks, "recover_natively", unavailable)
    monkeypatch.setattr(ranks, "read_natively", unavailable)
    loaded = tiktoken.load(path)
    assert loaded.vocab.merge_ids.tolist() == [[97, 98, 257], [98, 259, 258], [99, 100, 259]]
    assert loaded == native


def test_native_code_refuses_offsets_that_descend() -> None:
    tokens = PackedBytes.of(BYTES)
    tokens.offsets[7] = 300
    with pytest.raises(NativeError, match="rules"):
        recover_natively(tokens)


def test_loading_and_encoding_make_neither_the_tokens_nor_the_merges(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path / "x.tiktoken", [*BYTES, b"th", b"he", b"the"], {"<s>": 259}))
    assert tokenizer.encode("the<s>") == [258, 259]
    assert tokenizer.decode([258, 259]) == "the<s>"
    assert repr(tokenizer.vocab) == "Vocab(260 tokens, 3 merges, special tokens: <s>)"
    assert not vars(tokenizer.vocab).keys() & {"tokens", "merges"}
    assert tokenizer.vocab.tokens[255:] == (b"\xff", b"th", b"he", b"the", b"<s>")
    assert tokenizer.merges == ((b"t", b"h"), (b"h", b"e"), (b"th", b"e"))


def test_a_special_token_that_has_a_rank_is_the_result_of_its_merge(tmp_path: Path) -> None:
    tokens = [*BYTES, b"th", b"the"]
    loaded = tiktoken.load(write(tmp_path / "x.tiktoken", tokens, {"the": 257, "<s>": 258})).vocab
    assert loaded == Vocab((*tokens, b"<s>"), {"the": 257, "<s>": 258}, ((b"t", b"h"), (b"th", b"e")))
    assert loaded.merge_ids.tolist() == [[116, 104, 256], [256, 101, 257]]


LINES = b"".join(
    b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate([b"a", b"bc", b"def", b"ghij"])
)


@settings(max_examples=300)
@given(data=st.data())
def test_ranks_are_read_natively_as_in_python(data: st.DataObject) -> None:
    content = LINES
    for _ in range(data.draw(st.integers(0, 3))):
        at, end = sorted(data.draw(st.tuples(*[st.integers(0, len(content))] * 2)))
        content = (
            content[:at]
            + data.draw(st.sampled_from([b"", b" ", b"\n", b"=", b"A", b"5", b"-", b"\r\n"]))
            + content[end:]
        )
    read = read_natively(content)
    try:
        lines = read_lines(Path("x"), content)
    except FormatError as error:
        assert read is None or "already" in str(error)  # equal tokens or ranks are found afterwards
    else:
        assert read is None or dict(zip(*read, strict=True)) == lines


@settings(max_examples=100)
@given(st.lists(short, max_size=30), st.randoms(use_true_random=False))
def test_equal_tokens_are_left_to_python(tokens: list[bytes], random: Random) -> None:
    tokens = [*filter(None, tokens), *(b"%d" % i for i in range(70))]
    random.shuffle(tokens)
    read = read_natively(b"".join(b"%s 0\n" % base64.b64encode(token) for token in tokens))
    assert (read is None) == (len({*tokens}) < len(tokens))
    assert read is None or [*read[0]] == tokens


def test_ranks_are_read_natively() -> None:
    tokens, read = read_natively(LINES) or ([], None)
    assert ([*tokens], read is not None and read.tolist()) == ([b"a", b"bc", b"def", b"ghij"], [0, 1, 2, 3])
    tokens, read = read_natively(b"") or ([b""], None)
    assert ([*tokens], read is not None and read.tolist()) == ([], [])


def test_ranks_in_any_order_make_the_same_tokenizer(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tiktoken", [*BYTES, b"", b"ab", b"abc"], {"<s>": 256})
    in_order = tiktoken.load(path)
    path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))
    assert tiktoken.load(path) == in_order
    assert in_order.vocab.tokens[255:] == (b"\xff", b"<s>", b"ab", b"abc")


@pytest.mark.parametrize(
    "line",
    [
        *(b"YQ==", b"YQ== ", b" 1", b"YQ==  1", b"YQ==\t1", b"YQ== 1 ", b"YQ== -1", b"YQ== 1\r", b"YQ== 12345678901"),
        *(b"YQ= 1", b"YQ 1", b"Y=== 1", b"YQ=A 1", b"==== 1", b"=Q== 1", b"YQ==YQ== 1", b"Y-== 1", b"YQ==\n1", b""),
    ],
)
def test_other_lines_are_left_to_python(line: bytes) -> None:
    assert read_natively(LINES + b"Yg== 4\n") is not None
    assert read_natively(LINES + line + b"\nYg== 4\n") is None
    assert not line or read_natively(LINES + line) is None
