"""Streams are divided into the same chunks as files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rules import plain_file, rules

from bpeflow.corpus.documents import StreamChunk
from bpeflow.corpus.files import InputFile, open_blocks
from bpeflow.corpus.split import cut_text, line_rules, plan_chunks
from bpeflow.errors import CorpusError

PARTS = ["a", "b", " ", "\n", "<|e|>", "||", "|", "é", "字", "1", "a b " * 20, "x" * 70]


def stream_chunks(path: Path, *options: object) -> list[StreamChunk]:
    with open_blocks(InputFile(str(path), None)) as blocks:
        return list(cut_text(blocks, *options))  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    text=st.lists(st.sampled_from(PARTS), max_size=40).map("".join),
    chunk_size=st.integers(1, 60),
    separator=st.sampled_from(["||", "\n", "<|e|>", None]),
    whole=st.booleans(),
    window=st.sampled_from([16, 64 << 10]),
)
def test_a_stream_has_the_same_chunks_as_the_file(
    tmp_path: Path, text: str, chunk_size: int, separator: str | None, whole: bool, window: int
) -> None:
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8", newline="")
    size = path.stat().st_size
    text_rules = rules(separator, ["<|e|>"], cut=not whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bpeflow.corpus.split.WINDOW_BYTES", window)
        patch.setattr("bpeflow.corpus.files._BLOCK_BYTES", 7)
        planned = list(plan_chunks(plain_file(path, size), chunk_size, text_rules))
        cut = stream_chunks(path, chunk_size, text_rules)
    assert [(c.path, c.offset, c.length, c.ends_file) for c in cut] == [
        (c.path, c.offset, c.length, c.ends_file) for c in planned
    ]
    assert b"".join(chunk.data for chunk in cut) == path.read_bytes()
    assert sum(chunk.weight for chunk in cut) == size


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text("ab\n", max_size=80), chunk_size=st.integers(1, 30))
def test_lines_stay_whole_and_keep_their_numbers(tmp_path: Path, text: str, chunk_size: int) -> None:
    path = tmp_path / "file"
    path.write_text(text, newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bpeflow.corpus.files._BLOCK_BYTES", 5)
        chunks = stream_chunks(path, chunk_size, line_rules(rules()), 0, "jsonl")
    assert b"".join(chunk.data for chunk in chunks).decode() == text
    assert all(chunk.data.endswith(b"\n") for chunk in chunks[:-1])
    assert [chunk.line for chunk in chunks] == [1 + text[: chunk.offset].count("\n") for chunk in chunks]
    assert sum(chunk.weight for chunk in chunks) == len(text)


def test_text_that_cannot_be_divided_within_the_limit_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a|" + b"x" * 5_000_000)
    with pytest.raises(CorpusError, match=r"file: .* from byte \d+ on cannot be divided"):
        stream_chunks(tmp_path / "file", 1000, replace(rules("|"), longest=1_000_000))
    file = plain_file(tmp_path / "file", 5_000_002)
    with pytest.raises(CorpusError, match=r"file: .* from byte [\d,]+ on cannot be divided"):
        list(plan_chunks(file, 1000, replace(rules("|"), longest=1_000_000)))
    with pytest.raises(
        CorpusError, match=r"file: more than 1\.0 MB from byte [\d,]+ on cannot be divided, neither by lines"
    ):
        stream_chunks(tmp_path / "file", 1000, replace(line_rules(rules()), longest=1_000_000), 0, "jsonl")
