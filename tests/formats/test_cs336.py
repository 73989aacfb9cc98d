"""CS336's pickles: the course's code can load ours, and reading others' never runs code."""

from __future__ import annotations

import io
import logging
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bpeflow
from bpeflow.errors import FormatError
from bpeflow.formats import cs336
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.vocab import Vocab

WORDS = {" the": 90, " then": 30, "\n": 20, " naïve": 9, "日本": 5, "hen": 12}
BYTES = {byte: bytes([byte]) for byte in range(256)}
SPECIALS = ["<|endoftext|>", "<pad token>"]


@pytest.fixture
def spec() -> TokenizerSpec:
    return TokenizerSpec(Vocab.build(bpeflow.learn_merges(WORDS, 280, SPECIALS), SPECIALS))


class Pickle(bytes):
    """A pickle to write as it is."""


def write(folder: Path, vocab: object, merges: object, protocol: int = 4) -> Path:
    for name, value in (("vocab.pkl", vocab), ("merges.pkl", merges)):
        (folder / name).write_bytes(value if isinstance(value, Pickle) else pickle.dumps(value, protocol=protocol))
    return folder / "vocab.pkl"


def test_pickles_have_the_values_of_the_course(tmp_path: Path, spec: TokenizerSpec) -> None:
    vocab_path, merges_path = cs336.save(spec, tmp_path / "vocab.pkl")
    assert pickle.loads(vocab_path.read_bytes()) == spec.vocab.to_dict()
    assert pickle.loads(merges_path.read_bytes()) == list(spec.vocab.merges)
    assert cs336.load(vocab_path) == spec


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_pickles_of_other_programs_are_read(tmp_path: Path, protocol: int) -> None:
    vocab = {**BYTES, 300: b"ab", 256: "<é>".encode()}
    spec = cs336.load(write(tmp_path, vocab, [(b"a", b"b")], protocol))
    assert spec.vocab.special_tokens == {"<é>": 256}
    assert spec.vocab.merges == ((b"a", b"b"),)
    assert spec.vocab.tokens[257:] == (b"",) * 43 + (b"ab",)


def test_the_merges_of_any_name_with_vocab_are_found_beside_it(tmp_path: Path) -> None:
    write(tmp_path, BYTES, [])
    (tmp_path / "vocab.pkl").rename(tmp_path / "owt_vocab.pkl")
    with pytest.raises(FormatError, match=r"owt_merges\.pkl: cannot be read: No such file"):
        cs336.load(tmp_path / "owt_vocab.pkl")
    with pytest.raises(FormatError, match="need a file name with 'vocab' in it"):
        cs336.load(tmp_path / "merges.pkl")


class CreatesFolder:
    """An object that creates a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("protocol", range(6))
def test_reading_a_pickle_never_runs_code(tmp_path: Path, protocol: int) -> None:
    created = tmp_path / "created"
    vocab: dict[int, Any] = {**BYTES, 256: CreatesFolder(created)}
    with pytest.raises(FormatError, match=r"vocab\.pkl, byte \d+: not a pickle of a dict of int: bytes"):
        cs336.load(write(tmp_path, vocab, [], protocol))
    merges = Pickle(pickle.dumps([CreatesFolder(created)], protocol=protocol))
    with pytest.raises(FormatError, match=r"merges\.pkl, byte \d+: not a pickle of a list of pairs of bytes"):
        cs336.load(write(tmp_path, BYTES, merges))
    with pytest.raises(pickle.UnpicklingError, match=r"refers to posix\.mkdir"):
        cs336._Unpickler(io.BytesIO(merges)).load()
    assert not created.exists()


@pytest.mark.parametrize(
    ("vocab", "merges", "message"),
    [
        ([b"a"], [], r"vocab\.pkl, byte \d+: not a pickle of a dict of int: bytes \(it has EMPTY_LIST\)"),
        (7, [], r"vocab\.pkl: need a dict of int: bytes, found int 7"),
        ({**BYTES, 256: "a"}, [], r"vocab\.pkl, byte \d+: not a pickle .*\(it has SHORT_BINUNICODE 'a'\)"),
        ({**BYTES, 256: 5}, [], r"vocab\.pkl: need a dict of int: bytes"),
        ({**BYTES, b"a": b"a"}, [], r"vocab\.pkl: need a dict of int: bytes"),
        ({**BYTES, -1: b"ab"}, [], r"vocab\.pkl: b'ab' has the negative id -1"),
        ({**BYTES, 10**9: b"ab"}, [], r"vocab\.pkl: ids up to 1000000000, but only 257 tokens"),
        ({i: t for i, t in BYTES.items() if i != 7}, [], r"vocab\.pkl: no token for 1 of the 256 bytes, .* 0x07"),
        ({**BYTES, 256: b"\xff\xfe"}, [], r"vocab\.pkl: b'\\xff\\xfe' is neither a byte .* because it is not UTF-8"),
        (BYTES, {}, r"merges\.pkl, byte \d+: not a pickle of a list of pairs of bytes \(it has EMPTY_DICT\)"),
        (BYTES, b"a", r"merges\.pkl: need a list of pairs of bytes, found bytes b'a'"),
        (BYTES, [(b"a", b"b")], r"merges\.pkl: merge 0, b'a' \+ b'b', .* no token b'ab'"),
        (BYTES, [(b"a", b"")], r"merges\.pkl: merge 0: need a pair of bytes"),
        (BYTES, [(b"a", [])], r"merges\.pkl: merge 0: need a pair of bytes"),
        (BYTES, [(b"a", b"b", b"c")], r"merges\.pkl, byte \d+: not a pickle .*\(it has TUPLE3\)"),
        (BYTES, [[b"a", b"b"]], r"merges\.pkl: merge 0: need a pair of bytes"),
        (BYTES, Pickle(pickle.dumps([(b"a", b"b")])[:-4]), r"merges\.pkl, byte \d+: not a pickle"),
        (BYTES, Pickle(b""), r"merges\.pkl, byte 0: not a pickle"),
        (BYTES, Pickle(b"\x80\x04."), r"merges\.pkl, byte 2: not a pickle .*underflow"),
        (BYTES, Pickle(b"\x80\x04e."), r"merges\.pkl, byte 3: not a pickle"),
        (BYTES, Pickle(b"\x80\x04h\x07."), r"merges\.pkl, byte 4: not a pickle"),
        (BYTES, Pickle(b"\x80\x04B\xff\xff\xff\x7fab."), r"merges\.pkl, byte 0: not a pickle"),
        (BYTES, Pickle(b"\x80\x04]q\x00h\x00a."), r"merges\.pkl: merge 0: need a pair of bytes, found \["),
    ],
)  # fmt: skip
def test_broken_pickles_are_refused_with_the_position(
    tmp_path: Path, vocab: object, merges: object, message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        cs336.load(write(tmp_path, vocab, merges))


def test_exponentially_nested_values_have_a_short_message(tmp_path: Path) -> None:
    doubled = b"\x80\x04](t" + b"q\x00h\x00\x86" * 200 + b"a."  # 2^200 tuples if printed in full
    with pytest.raises(FormatError, match=r"merge 0: need a pair of bytes, found \(") as caught:
        cs336.load(write(tmp_path, BYTES, Pickle(doubled)))
    assert len(str(caught.value)) < 1000


def test_a_nested_tuple_is_no_key(tmp_path: Path) -> None:
    """Its hash would overflow the stack."""
    for operations in (b")" + b"\x85" * 1_000_000, b"K\x00" + b"K\x00\x86" * 1_000_000):
        with pytest.raises(FormatError, match=r"vocab\.pkl, byte \d+: not a pickle .*\(it has (EMPTY_)?TUPLE"):
            cs336.load(write(tmp_path, Pickle(b"\x80\x04}" + operations + b"K\x00s."), []))


def test_a_memo_larger_than_the_file_is_refused(tmp_path: Path) -> None:
    """The unpickler would have a table of twice as many entries."""
    with pytest.raises(FormatError, match=r"merges\.pkl, byte 3: not a pickle .*\(it has LONG_BINPUT 16777215\)"):
        cs336.load(write(tmp_path, BYTES, Pickle(b"\x80\x04]r\xff\xff\xff\x00.")))


@given(content=st.binary(max_size=40), at=st.integers(0, 3000))
def test_arbitrary_bytes_cause_no_other_error(tmp_path: Path, content: bytes, at: int) -> None:
    whole = pickle.dumps(BYTES)
    for damaged in (content, b"\x80\x04" + content + b".", whole[:at] + content + whole[at + len(content) :]):
        path = write(tmp_path, Pickle(damaged), [])
        with suppress(FormatError):
            cs336.load(path)


def test_a_special_token_that_is_also_a_merge_is_recognised_by_its_lower_id(tmp_path: Path) -> None:
    spec = TokenizerSpec(Vocab.build([(b"t", b"h"), (b"th", b"e")], ["the", "<s>"]))
    assert cs336.load(cs336.save(spec, tmp_path / "vocab.pkl")[0]) == spec


def test_a_special_token_that_shares_its_id_is_refused(tmp_path: Path) -> None:
    vocab = Vocab.build([(b"t", b"h"), (b"th", b"e")], ["the"], special_tokens_first=True, reuse_tokens=True)
    with pytest.raises(FormatError, match=r"'the' shares id 0 with b'the'"):
        cs336.save(TokenizerSpec(vocab), tmp_path / "vocab.pkl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("special", ["é", "Ġ", "Ġthe"])
def test_a_special_token_that_shares_its_id_with_other_bytes_is_refused(tmp_path: Path, special: str) -> None:
    merges = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the")]
    vocab = Vocab.build(merges, [special], special_tokens_first=True, reuse_tokens=True)
    with pytest.raises(FormatError, match=rf"special token '{special}' shares id 0 with b'"):
        cs336.save(TokenizerSpec(vocab), tmp_path / "vocab.pkl")
    assert list(tmp_path.iterdir()) == []


def test_whole_tokens_are_refused_where_they_matter(tmp_path: Path, spec: TokenizerSpec) -> None:
    tokens = (*BYTES.values(), b"xyz")
    with pytest.raises(
        FormatError, match=r"no setting for pre-tokens .* b'xyz' \(id 256\) is not the result of any merge"
    ):
        cs336.save(TokenizerSpec(Vocab(tokens, {}, ()), whole_tokens=True), tmp_path / "vocab.pkl")
    cs336.save(TokenizerSpec(spec.vocab, whole_tokens=True), tmp_path / "vocab.pkl")


def test_another_pattern_is_warned_about(tmp_path: Path, spec: TokenizerSpec, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        cs336.save(TokenizerSpec(spec.vocab, "llama3"), tmp_path / "vocab.pkl")
    assert "does not store the pattern, llama3" in caplog.text
