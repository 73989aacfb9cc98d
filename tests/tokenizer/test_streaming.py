"""Streams: the pieces of a text or of ids give the same result as the whole, in bounded memory."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from adversarial import PARTS as ADVERSARIAL_PARTS
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import real_data, real_text_start
from small import PARTS, SPECIAL_PARTS, small_spec

from bpeflow.errors import InputTypeError, InvalidTextError, SpecialTokenError, UnknownTokenError
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer import streaming
from bpeflow.tokenizer.parallel import cut_text
from bpeflow.tokenizer.special_tokens import SpecialTokens
from bpeflow.tokenizer.streaming import StreamDecoder, TextCutter
from bpeflow.tokenizer.tokenizer import Tokenizer

PATTERNS = [*NAMED_PATTERNS, r"\w+|\s+(?!\S)|[^\w]", r"(?<=a)b+|."]
INVALID = [b"\xe2", b"\x82", b"\xac", b"\xf0\x9f", b"\xed\xa0", b"a"]
texts = st.lists(st.sampled_from([*PARTS, *SPECIAL_PARTS, *ADVERSARIAL_PARTS]), max_size=16).map("".join)


def cut(text: str, positions: list[int]) -> list[str]:
    ends = sorted(position % (len(text) + 1) for position in positions)
    return [text[start:end] for start, end in itertools.pairwise([0, *ends, len(text)])]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=60)
@given(text=texts, positions=st.lists(st.integers(0, 200), max_size=12), block=st.integers(1, 12))
def test_pieces_have_the_ids_of_the_whole_text(
    encoder: str, pattern: str, text: str, positions: list[int], block: int
) -> None:
    """Blocks have few characters, so that a block ends at every position of the text."""
    tokenizer = Tokenizer.from_spec(small_spec(pattern), encoder=encoder)
    with patch.object(streaming, "BLOCK_CHARACTERS", block):
        assert list(tokenizer.encode_iterable(cut(text, positions))) == tokenizer.encode(text)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=50)
@given(text=texts, positions=st.lists(st.integers(0, 200), max_size=30))
def test_the_pieces_of_the_cutter_can_be_encoded_separately(
    encoder: str, pattern: str, text: str, positions: list[int]
) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(pattern), encoder=encoder)
    cutter = TextCutter(load_pretokenizer(pattern), SpecialTokens.of(tokenizer.special_tokens))
    arriving = [piece.encode() for piece in cut(text, positions)]
    pieces = [*map(cutter.feed, arriving), cutter.flush()]
    assert b"".join(pieces) == text.encode()
    assert [i for piece in pieces for i in tokenizer.encode(piece.decode())] == tokenizer.encode(text)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=50)
@given(text=texts, part_bytes=st.integers(1, 12))
def test_the_parts_of_a_large_text_can_be_encoded_separately(
    encoder: str, pattern: str, text: str, part_bytes: int
) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(pattern), encoder=encoder)
    data = text.encode()
    with patch("bpeflow.tokenizer.parallel.PART_BYTES", part_bytes):
        parts = cut_text(data, load_pretokenizer(pattern), SpecialTokens.of(tokenizer.special_tokens))
        assert b"".join(data[begin:end] for begin, end in parts) == data
        assert tokenizer.encode_to_numpy(text, num_threads=2).tolist() == tokenizer.encode(text)


def test_no_more_text_is_held_back_than_necessary() -> None:
    specials = SpecialTokens.of({"<|end|>": 300, "<|end|><|end|>": 301})
    cutter = TextCutter(load_pretokenizer("gpt2"), specials)
    assert cutter.feed(b"one two three") == b"one two"
    assert cutter.feed(b" four <|end") == b" three four"
    assert cutter.feed(b"ing> five <|end|>") == b" <|ending> five"  # the longer special token may follow
    assert cutter.feed(b"six <|end|> ") == b" <|end|>six <|end|>"
    assert cutter.flush() == b" "


def test_a_custom_pattern_is_cut_as_a_named_one() -> None:
    cutter = TextCutter(load_pretokenizer(r"\w+|\W"), SpecialTokens.of({"<a>": 300}))
    assert cutter.feed(b"one two three") == b"one two "
    assert cutter.flush() == b"three"


def test_a_pattern_that_is_not_compiled_is_cut_only_after_special_tokens() -> None:
    cutter = TextCutter(load_pretokenizer(r"\b\w+|\W|\w"), SpecialTokens.of({"<a>": 300}))
    assert cutter.feed(b"one two three") == b""
    assert cutter.feed(b"one two three <a> four") == b"one two threeone two three <a>"
    assert cutter.flush() == b" four"


def test_a_text_without_a_cut_is_not_searched_again_for_each_piece() -> None:
    cutter = TextCutter(load_pretokenizer("gpt2"), SpecialTokens.of({}))
    with patch.object(cutter, "_last_cut", wraps=cutter._last_cut) as search:
        for _ in range(1000):
            assert cutter.feed(b"aaaaaaaaaa") == b""
    assert sum(len(call.args[0]) for call in search.call_args_list) < 4 * 10_000
    assert len(cutter.flush()) == 10_000


def test_the_stream_is_lazy(encoder: str) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(), encoder=encoder)
    read = []

    def endless() -> Iterator[str]:
        for number in itertools.count():
            read.append(number)
            yield f"word {number}\n"

    ids = tokenizer.encode_iterable(endless())
    assert read == []
    next(ids)
    assert len(read) < 3 * streaming.BLOCK_CHARACTERS


@pytest.mark.parametrize("texts", [[], [""], ["", "", ""]])
def test_empty_text_has_no_ids(encoder: str, texts: list[str]) -> None:
    assert list(Tokenizer.from_spec(small_spec(), encoder=encoder).encode_iterable(texts)) == []


def test_line_ends_are_kept(encoder: str) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(), encoder=encoder)
    texts = ["a\r", "\nb\r\n", "\r", "c\n"]
    assert tokenizer.decode(list(tokenizer.encode_iterable(texts))) == "".join(texts)


def test_a_large_piece_is_divided(encoder: str) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(), encoder=encoder)
    text = "word aa abab <|endoftext|> " * 5000
    assert list(tokenizer.encode_iterable([text])) == tokenizer.encode(text)


def test_errors_are_raised_when_the_stream_reaches_them(encoder: str) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(), encoder=encoder)
    before = ["word " * 20_000]
    with pytest.raises(InvalidTextError, match=r"U\+D800, at character 100003"):
        list(tokenizer.encode_iterable([*before, "one\ud800"]))
    with pytest.raises(InputTypeError, match="not bytes, at index 1 of the iterable"):
        list(tokenizer.encode_iterable([*before, b"one"]))  # type: ignore[list-item]
    with pytest.raises(InputTypeError, match="not int"):
        list(tokenizer.encode_iterable(7))  # type: ignore[arg-type]
    with pytest.raises(SpecialTokenError):  # invalid arguments raise at once
        tokenizer.encode_iterable([], allowed_special=["no"])


@pytest.mark.parametrize("block", [1, 2, 5, 1000])
def test_disallowed_tokens_are_found_across_pieces(encoder: str, block: int) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(), encoder=encoder)
    texts = ["é one <|endo", "ftext", "|", "> two"]
    with (
        patch.object(streaming, "BLOCK_CHARACTERS", block),
        pytest.raises(SpecialTokenError, match=r"'<\|endoftext\|>' at character 6"),
    ):
        list(tokenizer.encode_iterable(texts, disallowed_special=["<|endoftext|>"]))


@given(text=texts, positions=st.lists(st.integers(0, 400), max_size=12))
def test_the_decoder_returns_the_whole_text(encoder: str, text: str, positions: list[int]) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(), encoder=encoder)
    ids = tokenizer.encode(text)
    decoder = tokenizer.stream_decoder()
    ends = sorted(position % (len(ids) + 1) for position in positions)
    pieces = [decoder.feed(ids[start:end]) for start, end in itertools.pairwise([0, *ends, len(ids)])]
    assert "".join([*pieces, decoder.flush()]) == text
    assert "".join(tokenizer.decode_stream(iter(ids))) == text


@given(data=st.binary(max_size=12) | st.lists(st.sampled_from(INVALID)).map(b"".join))
@pytest.mark.parametrize("errors", ["replace", "ignore"])
def test_the_decoder_treats_invalid_characters_as_the_whole_does(data: bytes, errors: str) -> None:
    decoder = StreamDecoder(bytes, errors)
    assert "".join(decoder.decode(data)) == data.decode(errors=errors)
    assert "".join(decoder.decode(data)) == data.decode(errors=errors)  # the decoder is ready for another text


def test_the_decoder_holds_incomplete_characters_back(encoder: str) -> None:
    decoder = Tokenizer.from_spec(small_spec(), encoder=encoder).stream_decoder()
    assert [decoder.feed(byte) for byte in "a😀".encode()] == ["a", "", "", "", "😀"]
    assert decoder.feed(np.array([0xE2, 0x82], np.uint16)) == ""
    assert decoder.feed(np.uint16(0xAC)) == "€"
    assert decoder.feed([0xE2]) == ""
    assert decoder.flush() == "\ufffd"
    assert decoder.flush() == ""
    with pytest.raises(UnknownTokenError):
        decoder.feed(70_000)


@pytest.mark.slow
def test_memory_of_python_objects_is_bounded(encoder: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(), encoder=encoder)
    sample = "".join(PARTS) * 10
    peaks = []
    for size in (100_000, 800_000):
        path = tmp_path / str(size)
        path.write_text("\n".join([sample] * (size // len(sample))), encoding="utf-8")
        with path.open(encoding="utf-8", newline="") as file:
            list(itertools.islice(tokenizer.encode_iterable(file), 1000))  # allocations that happen once
        with path.open(encoding="utf-8", newline="") as file:
            tracemalloc.start()
            for _ in tokenizer.encode_iterable(file):
                pass
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < 1_000_000
    assert peaks[1] < 1.2 * peaks[0]


_LIMITED = """
import resource, sys
from pathlib import Path
from bpeflow.tokenizer.tokenizer import Tokenizer

vocab, merges, text, encoder, way = sys.argv[1:]
tokenizer = Tokenizer.from_files(vocab, merges, encoder=encoder)
for _ in tokenizer.encode_iterable(["warm up\\n"] * 3):
    pass
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + 1_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
with open(text, encoding="utf-8", newline="") as file:
    if way == "stream":
        print(sum(1 for _ in tokenizer.encode_iterable(file)))
    else:
        print(len(tokenizer.encode(file.read())))
"""


def limited(encoder: str, text: Path, way: str) -> subprocess.CompletedProcess[str]:
    files = [str(real_data(f"vocabs/gpt2.{name}")) for name in ("encoder.json", "vocab.bpe")]
    command = [sys.executable, "-c", _LIMITED, *files, str(text), encoder, way]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not report the address space")
def test_a_megabyte_of_address_space_is_enough(gpt2: Tokenizer, encoder: str, tmp_path: Path) -> None:
    text = real_text_start("c4_2MB", 1_000_000 if encoder == "native" else 400_000) * (5 if encoder == "native" else 1)
    path = tmp_path / "text"
    path.write_text(text, encoding="utf-8", newline="")
    done = limited(encoder, path, "stream")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == gpt2.count_tokens(text)
    path.write_text(text * 3, encoding="utf-8", newline="")  # more than a megabyte
    assert limited(encoder, path, "whole").returncode != 0  # so the limit is effective
