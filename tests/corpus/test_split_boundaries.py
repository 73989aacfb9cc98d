from __future__ import annotations

import io
from dataclasses import replace

from rules import rules

from bpeflow.corpus.documents import Delimiters
from bpeflow.corpus.split import WINDOW_BYTES, BoundaryFinder
from bpeflow.corpus.text_rules import TextRules

FAR = 1 << 20


class CountingFile(io.BytesIO):
    """A file in memory that counts the bytes read from it."""

    bytes_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.bytes_read += len(data)
        return data


def _boundary(data: bytes, target: int, delimiters: Delimiters, *, cut: bool = False, reach: int = FAR) -> int:
    text_rules = replace(rules(cut=cut), delimiters=delimiters)
    return _finder(io.BytesIO(data), len(data), text_rules).next_boundary(target, reach)


def _finder(file: io.BytesIO, size: int, text_rules: TextRules) -> BoundaryFinder:
    def read_at(start: int, length: int) -> bytes:
        file.seek(start)
        return file.read(length)

    return BoundaryFinder("file", read_at, lambda _: size, text_rules)


def test_a_separator_in_the_middle_of_a_run_is_not_trusted() -> None:
    # Read from the left, the separators end at 3, 5 and 7. Reading from 4 finds others, so only the text after the run
    # is safe.
    data = b"a\n\n\n\n\n\nb\n\nc"
    assert [_boundary(data, target, Delimiters("\n\n")) for target in (1, 2, 4, 7)] == [3, 3, 10, 10]


def test_a_separator_inside_a_longer_special_token_is_not_trusted() -> None:
    data = b"<|sep|>one|two"
    assert _boundary(data, 2, Delimiters("|", ["<|sep|>"])) == 11


def test_a_separator_across_a_window_edge_is_found() -> None:
    for shift in range(-12, 3):
        data = b"x" * (WINDOW_BYTES + shift) + b"<|endoftext|>" + b"x" * 100
        assert _boundary(data, 1, Delimiters("<|endoftext|>")) == len(data) - 100


def test_a_longer_delimiter_across_a_window_edge_is_not_mistaken_for_a_shorter_one() -> None:
    for shift in range(-12, 3):
        data = b"x" * (WINDOW_BYTES + shift) + b"<|e|><|x|>" + b"x<|e|>x"
        assert _boundary(data, 1, Delimiters("<|e|>", ["<|e|><|x|>"])) == len(data) - 1


def test_a_special_token_across_a_window_edge_is_skipped_as_a_whole() -> None:
    for shift in range(-12, 3):
        data = b"x" * (WINDOW_BYTES + shift) + b"<|sep|>one|two"
        assert _boundary(data, 1, Delimiters("|", ["<|sep|>"])) == len(data) - 3


def test_a_run_longer_than_a_window_is_not_trusted_anywhere() -> None:
    for length in (2 * WINDOW_BYTES, 2 * WINDOW_BYTES + 1):
        data = b"a" + b"\n" * length + b"b\n\nc"
        assert _boundary(data, 4, Delimiters("\n\n")) == len(data) - 1


def test_a_delimiter_is_never_cut() -> None:
    data = b"xx the end of it"
    assert _boundary(data, 3, Delimiters(None), cut=True) == 6
    assert _boundary(data, 3, Delimiters(None, ["the end"]), cut=True) == 10
    assert _boundary(data, 3, Delimiters(None, ["the"]), cut=True) == 6  # just after one


def test_a_cut_at_a_window_edge_is_found() -> None:
    for shift in range(-2, 3):
        length = WINDOW_BYTES + shift
        assert _boundary(b"x" * length + b" y", 1, Delimiters(None), cut=True) == length


def test_a_cut_between_wide_characters_at_a_window_edge_is_found() -> None:
    for shift in range(-8, 9):
        data = b"x" * (WINDOW_BYTES + shift) + "字。".encode() + b"x" * 100
        assert _boundary(data, 1, Delimiters(None), cut=True) == WINDOW_BYTES + shift + 3


def test_a_wide_space_across_a_window_edge_is_not_mistaken_for_something_else() -> None:
    for shift in range(-8, 9):
        for space in "\x85\xa0\u1680\u2003\u3000":
            length = WINDOW_BYTES + shift
            data = b"x" * length + f"{space} ".encode() + b"x" * 100
            assert _boundary(data, 1, Delimiters(None), cut=True) == length
            assert _boundary(data, length + 1, Delimiters(None), cut=True) == len(data)


def test_the_search_continues_in_the_next_stretch() -> None:
    data = b"x" * 5000 + b" x|x x|x"
    assert _boundary(data, 10, Delimiters("|"), cut=True, reach=10) == 5003
    assert _boundary(data, 10, Delimiters("|"), reach=10) == 5003
    assert _boundary(b"x" * 5000 + b" y" + b"x" * 5000, 10, Delimiters("|"), cut=True, reach=10) == 5000


def test_without_a_boundary_the_chunk_ends_with_the_file() -> None:
    assert _boundary(b"x" * 100, 10, Delimiters("|", ["<s>"]), cut=True, reach=3) == 100
    assert _boundary(b"one two", 10, Delimiters(None), cut=True) == 7


def test_only_a_little_of_a_large_file_is_read() -> None:
    file = CountingFile(b"a document of some length<|endoftext|>\n" * 500_000)
    size = len(file.getvalue())
    finder = _finder(file, size, rules("<|endoftext|>"))
    position, chunks = 0, 0
    while position < size:
        position = finder.next_boundary(position + 2_000_000, FAR)
        chunks += 1
    assert chunks == 10
    assert file.bytes_read <= chunks * 2 * WINDOW_BYTES
