"""tiktoken's format: tiktoken and bpeflow read what is written, and merges are recovered from ranks."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import open_tiktoken, published_spec
from real_data import real_data

import bpeflow
from bpeflow.errors import FormatError
from bpeflow.formats import gpt2, tiktoken
from bpeflow.formats.ranks import final_merge, recover_merges
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Merge, Vocab

WORDS = {" the": 90, " then": 30, "\n": 20, " naïve": 9, "日本": 5, " \xa0": 4, "hen": 12, "aaaaaaa": 3}
BYTES = {bytes([byte]): byte for byte in range(256)}


@pytest.fixture
def spec() -> TokenizerSpec:
    specials = ["<|endoftext|>", "<pad token>"]
    return TokenizerSpec(Vocab.build(bpeflow.learn_merges(WORDS, 280, specials), specials), "cl100k")


def write(path: Path, ranks: dict[bytes, int], arguments: object = None) -> Path:
    lines = [b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items()]
    path.write_bytes(b"".join(lines))
    arguments = {"pat_str": r"\S+|\s+", "special_tokens": {}} if arguments is None else arguments
    tiktoken.sidecar_path(path).write_text(json.dumps(arguments), encoding="utf-8")
    return path


def test_a_tokenizer_survives_saving_and_loading(tmp_path: Path, spec: TokenizerSpec) -> None:
    paths = tiktoken.save(spec, tmp_path / "mine.tiktoken")
    assert [path.name for path in paths] == ["mine.tiktoken", "mine.tiktoken.json"]
    assert tiktoken.load(paths[0]) == spec


def test_whole_tokens_is_set_only_where_it_makes_a_difference(tmp_path: Path) -> None:
    """So a tokenizer that was saved equals itself, and token files of either fit the other."""
    ranks = {token: rank for rank, token in enumerate([*BYTES, b"ab", b"abc"])}
    assert not tiktoken.load(write(tmp_path / "x.tiktoken", ranks)).whole_tokens
    ranks[b"xyz"] = len(ranks)  # merging never yields it
    assert tiktoken.load(write(tmp_path / "y.tiktoken", ranks)).whole_tokens


def test_tiktoken_loads_the_ranks_and_their_sidecar(tmp_path: Path, spec: TokenizerSpec) -> None:
    ranks, _ = tiktoken.save(spec, tmp_path / "mine.tiktoken")
    encoding = open_tiktoken(ranks)
    assert encoding.name == "mine"
    assert encoding.n_vocab == len(spec.vocab)
    assert encoding.encode("<pad token>", allowed_special="all") == [257]
    for text in (" then the naïve", "日本\n", "aaaaaaaaaaaaaa"):
        assert encoding.encode(text) == Tokenizer.from_spec(spec).encode(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r50k_base", "cl100k_base", "o200k_base"])
def test_published_files_are_reproduced_byte_for_byte(name: str, tmp_path: Path) -> None:
    again, _ = tiktoken.save(published_spec(name), tmp_path / "again.tiktoken")
    assert again.read_bytes() == real_data(f"vocabs/{name}.tiktoken").read_bytes()


@pytest.mark.slow
def test_gpt2s_merges_are_recovered_from_its_ranks() -> None:
    theirs = gpt2.load_files(real_data("vocabs/gpt2.encoder.json"), real_data("vocabs/gpt2.vocab.bpe"))
    assert published_spec("r50k_base").vocab.merges == theirs.merges


def merge_by_ranks(text: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """Merge a pre-token that is not a token as tiktoken does, in the simplest way."""
    pieces = [bytes([byte]) for byte in text]
    while True:
        joined = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]  # noqa: B905, RUF007
        if not joined:
            return pieces
        at = min(joined)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


def merge_by_list(text: bytes, merges: list[Merge]) -> list[bytes]:
    """Merge a pre-token by a list of merges: lowest rank first, leftmost first."""
    rank_of = {pair: rank for rank, pair in reversed([*enumerate(merges)])}
    pieces = [bytes([byte]) for byte in text]
    while True:
        joined = [(rank_of[p], i) for i, p in enumerate(zip(pieces, pieces[1:])) if p in rank_of]  # noqa: B905, RUF007
        if not joined:
            return pieces
        at = min(joined)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


short = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=2, max_size=7).map(b"".join)


@pytest.mark.slow
@settings(max_examples=500)
@given(
    tokens=st.lists(short, max_size=14, unique=True), text=st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=14)
)
def test_recovered_merges_merge_any_text_as_ranks_do(tokens: list[bytes], text: list[bytes]) -> None:
    """This holds for ranks of any strings in any order, not only for learned ones."""
    ranks = BYTES | {token: 256 + index for index, token in enumerate(tokens)}
    merges = recover_merges(ranks)
    assert merge_by_list(b"".join(text), merges) == merge_by_ranks(b"".join(text), ranks)
    for token in tokens:
        merged = merge_by_ranks(token, ranks) == [token]
        assert merged == (final_merge(token, ranks) is not None) == (token in {a + b for a, b in merges})


@pytest.mark.slow
@settings(max_examples=150)
@given(
    tokens=st.lists(short, max_size=14, unique=True), text=st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=14)
)
def test_a_list_of_all_ways_to_make_each_token_merges_as_ranks_do(tokens: list[bytes], text: list[bytes]) -> None:
    """HuggingFace's converter writes such lists."""
    ranks = BYTES | {token: 256 + index for index, token in enumerate(tokens)}
    merges = [(t[:i], t[i:]) for t in tokens for i in range(1, len(t)) if t[:i] in ranks and t[i:] in ranks]
    assert merge_by_list(b"".join(text), merges) == merge_by_ranks(b"".join(text), ranks)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    tokens=st.lists(short, max_size=14, unique=True), text=st.lists(st.sampled_from("abc "), max_size=20).map("".join)
)
def test_any_ranks_encode_as_in_tiktoken(tokens: list[bytes], text: str, tmp_path: Path) -> None:
    ranks = BYTES | {token: 256 + index for index, token in enumerate(tokens)}
    path = write(tmp_path / "x.tiktoken", ranks, {"name": "x", "pat_str": r"\S+|\s+", "special_tokens": {}})
    spec = tiktoken.load(path)
    theirs = open_tiktoken(path)
    assert Tokenizer.from_spec(spec, encoder="python").encode(text) == theirs.encode(text)
    written, _ = tiktoken.save(spec, tmp_path / "again.tiktoken")
    assert written.read_bytes() == b"".join(
        sorted(path.read_bytes().splitlines(True), key=lambda line: int(line.split()[1]))
    )


@pytest.mark.timeout(60)
def test_a_long_token_does_not_take_quadratic_time(tmp_path: Path) -> None:
    """200,000 bytes would take minutes if each merge visited all pieces."""
    path = write(tmp_path / "x.tiktoken", BYTES | {b"ab": 256, b"ab" * 100_000: 257})
    assert tiktoken.load(path).vocab.merges == ((b"a", b"b"),)


def test_a_token_without_a_merge_is_used_for_whole_pre_tokens(tmp_path: Path) -> None:
    spec = tiktoken.load(write(tmp_path / "x.tiktoken", BYTES | {b"xyz": 256}))
    assert spec.vocab.merges == ()
    assert spec.whole_tokens
    assert Tokenizer.from_spec(spec).encode("xyz xyzz") == [256, 32, *b"xyzz"]


def test_a_token_without_a_merge_is_refused_if_it_is_not_used_for_whole_pre_tokens(tmp_path: Path) -> None:
    vocab = tiktoken.load(write(tmp_path / "x.tiktoken", BYTES | {b"xyz": 256})).vocab
    with pytest.raises(FormatError, match=r"again\.tiktoken: .* b'xyz' \(id 256\) is not the result of any merge"):
        tiktoken.save(TokenizerSpec(vocab), tmp_path / "again.tiktoken")
    assert not (tmp_path / "again.tiktoken").exists()


def test_merges_in_a_different_order_than_their_ids_are_refused(tmp_path: Path) -> None:
    tokens = (*(bytes([byte]) for byte in range(256)), b"bc", b"ab")
    vocab = Vocab(tokens, {}, ((b"a", b"b"), (b"b", b"c")))
    with pytest.raises(FormatError, match=r"merge 0 is b'a' \+ b'b', and by ranks b'b' \+ b'c'"):
        tiktoken.save(TokenizerSpec(vocab), tmp_path / "x.tiktoken")


def test_merges_that_make_a_token_from_other_parts_are_refused(tmp_path: Path) -> None:
    tokens = (*(bytes([byte]) for byte in range(256)), b"ab", b"bc", b"abc")
    vocab = Vocab(tokens, {}, ((b"a", b"b"), (b"b", b"c"), (b"a", b"bc")))
    with pytest.raises(FormatError, match=r"merge 2 is b'a' \+ b'bc', and by ranks b'ab' \+ b'c'"):
        tiktoken.save(TokenizerSpec(vocab, whole_tokens=True), tmp_path / "x.tiktoken")


def test_one_string_with_two_ids_is_refused(tmp_path: Path) -> None:
    tokens = (*(bytes([byte]) for byte in range(256)), b"ab", b"ab")
    with pytest.raises(FormatError, match=r"b'ab' \(id 257\) has two"):
        tiktoken.save(TokenizerSpec(Vocab(tokens, {}, ((b"a", b"b"),))), tmp_path / "x.tiktoken")


def test_a_special_token_that_is_also_a_merge_keeps_its_own_id(tmp_path: Path) -> None:
    spec = TokenizerSpec(Vocab.build([(b"t", b"h"), (b"th", b"e")], ["the"]))
    path, _ = tiktoken.save(spec, tmp_path / "x.tiktoken")
    assert tiktoken.load(path) == spec
    theirs = open_tiktoken(path)
    assert theirs.encode("the", disallowed_special=()) == Tokenizer.from_spec(spec).encode_ordinary("the") == [258]
    assert theirs.encode("the", allowed_special="all") == Tokenizer.from_spec(spec).encode("the") == [256]


def test_a_special_token_that_shares_an_id_with_other_bytes_is_refused(tmp_path: Path) -> None:
    vocab = Vocab.build([(b" ", b"a")], ["Ġa"], special_tokens_first=True, reuse_tokens=True)
    with pytest.raises(FormatError, match=r"'Ġa' shares id 0 with b' a'"):
        tiktoken.save(TokenizerSpec(vocab), tmp_path / "x.tiktoken")


def test_a_special_token_that_is_a_prefix_of_another_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        tiktoken.save(TokenizerSpec(Vocab.build([], ["<a>", "<a>!", "<b>"])), tmp_path / "x.tiktoken")
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'x.tiktoken'}: special token '<a>' is a prefix of '<a>!': tiktoken may match either of "
        "them, bpeflow matches the longer"
    ]


def test_unknown_ranks_without_a_sidecar_are_refused_with_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path / "cl100k_base.tiktoken", BYTES)
    tiktoken.sidecar_path(path).unlink()
    with pytest.raises(
        FormatError,
        match=r"without a pattern, and not one of .*\(pattern='…'.*\(known='NAME'\): .*p50k_edit",
    ):
        tiktoken.load(path)


@pytest.mark.parametrize("pattern", [r"\w+$", r"^\w+", r"a\Z", r"[a[b]]", r"[a&&b]", r"\h+", r"(?s).", r"(?m:a)"])
def test_a_pattern_that_tiktoken_reads_differently_is_refused(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"x\.tiktoken: pattern .* fancy-regex and the regex module read"):
        tiktoken.save(TokenizerSpec(Vocab.build([]), pattern), tmp_path / "x.tiktoken")
    arguments = {"pat_str": pattern, "special_tokens": {}}
    with pytest.raises(FormatError, match=r"x\.tiktoken\.json: pattern .* fancy-regex and the regex module read"):
        tiktoken.load(write(tmp_path / "x.tiktoken", BYTES, arguments))


def test_a_custom_pattern_survives_saving_and_loading(tmp_path: Path) -> None:
    spec = TokenizerSpec(Vocab.build([]), r"[^\s$^]++|\s{1,3}+|(?i:a)\$")
    path, _ = tiktoken.save(spec, tmp_path / "x.tiktoken")
    assert tiktoken.load(path) == spec
