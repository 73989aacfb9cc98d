"""Streams that may lose their reader."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TextIO

import pytest
from broken_streams import broken_stream

from bpeflow._util.streams import LenientStream, OutputStream
from bpeflow.errors import OutputError


@pytest.fixture
def full() -> Iterator[TextIO]:
    with broken_stream("full") as stream:
        yield stream


def test_text_is_passed_on() -> None:
    inner = io.StringIO()
    stream = LenientStream(inner)
    assert stream.write("text") == 4
    stream.flush()
    assert (inner.getvalue(), stream.isatty(), stream.getvalue()) == ("text", False, "text")


def test_progress_is_dropped_once_a_write_fails(full: TextIO) -> None:
    stream = LenientStream(full)
    for _ in range(3):
        stream.write("text")
        stream.flush()
    assert not stream.isatty()


def test_a_closed_stream_and_none_drop_everything() -> None:
    closed = io.StringIO()
    closed.close()
    for inner in (closed, None):
        stream = LenientStream(inner)
        stream.write("text")
        stream.flush()
        assert not stream.isatty()


def test_characters_that_a_terminal_cannot_show_are_left_out() -> None:
    inner = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    stream = LenientStream(inner)
    stream.write("━")
    stream.write("text")
    inner.flush()
    assert inner.buffer.getvalue() == b"text"  # type: ignore[attr-defined]


def test_output_that_cannot_be_written_is_named_once(full: TextIO) -> None:
    stream = OutputStream(full)
    stream.write("text")
    with pytest.raises(OutputError, match="cannot write to standard output: No space left on device"):
        stream.flush()
    stream.write("more")
    stream.flush()


def test_output_that_was_closed_is_named() -> None:
    with pytest.raises(OutputError, match="it is closed"):
        OutputStream(None).write("text")
