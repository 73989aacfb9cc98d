"""Progress for callers of the library."""

from __future__ import annotations

import builtins
import io
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broken_streams import KINDS, broken_stream
from rich.console import Console
from screen import terminal

import bpeflow
from bpeflow import Observer
from bpeflow.dataset.decode import decode_file
from bpeflow.dataset.evaluate import evaluate
from bpeflow.errors import ConfigError
from bpeflow.flow import MonitorSample
from bpeflow.progress import terminal as terminal_module

TEXT = ["low low low", "lower"]


def small_tokenizer() -> bpeflow.Tokenizer:
    return bpeflow.Tokenizer.train(iter(TEXT), 258)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus"
    path.write_text("low<|endoftext|>lower", encoding="utf-8")
    small_tokenizer().encode_file(path, tmp_path / "ids")
    return path


def all_calls(corpus: Path) -> dict[str, Callable[..., Any]]:
    """The calls that show progress, with the activity that they show."""
    tokenizer = small_tokenizer()
    folder = corpus.parent
    return {
        "train": lambda **how: bpeflow.train({"input": corpus, "vocab_size": 258}, **how).merges,
        "train_bpe": lambda **how: bpeflow.train_bpe(corpus, 258, [], **how),
        "Tokenizer.train": lambda **how: bpeflow.Tokenizer.train(corpus, 258, **how).encode("low"),
        "count": lambda **how: list(bpeflow.count(corpus, **how)),
        "learn_merges": lambda **how: bpeflow.learn_merges({"low": 5}, 258, **how).pairs,
        "encode_file": lambda **how: tokenizer.encode_file(corpus, folder / "out", overwrite=True, **how).tokens,
        "evaluate": lambda **how: [row.tokens for row in evaluate({"a": tokenizer}, [str(corpus)], **how)],
    }


CALLS = ("train", "train_bpe", "Tokenizer.train", "count", "learn_merges", "encode_file", "evaluate")
ACTIVITY = {"learn_merges": "learning", "encode_file": "encoding"}


@pytest.mark.parametrize("name", CALLS)
def test_progress_is_lines_where_there_is_no_terminal(
    corpus: Path, name: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    call = all_calls(corpus)[name]
    expected = call()
    assert capsys.readouterr() == ("", "")
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    assert call(progress=True) == expected
    out, err = capsys.readouterr()
    assert re.search(rf"^{ACTIVITY.get(name, 'counting')}: .* of ", err, re.MULTILINE)
    assert out == ""
    assert (root.level, root.handlers) == before


@pytest.mark.parametrize("name", CALLS)
def test_progress_and_an_observer_are_refused(corpus: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="progress and observer: give one of the two"):
        all_calls(corpus)[name](progress=True, observer=Observer())


class Recorder(Observer):
    def __init__(self) -> None:
        self.seen: set[str] = set()

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        self.seen.add("counting")

    def learning(self, learned: int, wanted: int) -> None:
        self.seen.add("learning")

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        self.seen.add("encoding")

    def decoding(self, decoded_bytes: int, total_bytes: int | None) -> None:
        self.seen.add("decoding")


@pytest.mark.parametrize("name", CALLS)
def test_an_observer_of_the_caller_is_called(corpus: Path, name: str) -> None:
    observer = Recorder()
    all_calls(corpus)[name](observer=observer)
    assert ACTIVITY.get(name, "counting") in observer.seen


def test_decoding_calls_an_observer(corpus: Path) -> None:
    observer, folder = Recorder(), corpus.parent
    decode_file(small_tokenizer(), folder / "ids", folder / "text", observer=observer)
    assert observer.seen == {"decoding"}


def test_an_observer_sees_the_pipeline_and_the_newest_merges(corpus: Path) -> None:
    class Events(Observer):
        def working(self, sample: MonitorSample) -> None:
            samples.append(sample)

        def merged(self, merges: int, left: bytes, right: bytes, count: int) -> None:
            newest.append((merges, left, right, count))

    samples: list[MonitorSample] = []
    newest: list[tuple[int, bytes, bytes, int]] = []
    bpeflow.train({"input": corpus, "vocab_size": 259}, Events())
    assert newest == [(2, b"l", b"ow", 2)]
    assert [*samples[-1].stages] == ["chunk reader", "counter", "merger"]
    assert samples[-1].stages["counter"].gauge == 2, "low and lower"
    assert samples[-1].processes == ()


def test_a_terminal_gets_bars(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(80, monkeypatch) as screen:
        bpeflow.train_bpe(corpus, 258, [], progress=True)
    assert any("counting ━" in line and "100%" in line for line in screen.lines)
    assert any("learning ━" in line and "100%" in line for line in screen.lines)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_the_terminal_is_restored_when_the_call_ends_early(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def documents() -> Iterator[str]:
        yield "low"
        raise error

    with terminal(80, monkeypatch) as screen, pytest.raises(error):
        bpeflow.count(documents(), progress=True)
    assert screen.raw.count("\x1b[?25l") == screen.raw.count("\x1b[?25h") == 1, "the cursor is shown again"


def test_what_the_caller_prints_to_a_pipe_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def documents() -> Iterator[str]:
        sys.stdout.write("from the caller\n")
        yield "low"

    piped = io.StringIO()
    with terminal(80, monkeypatch) as screen:
        monkeypatch.setattr("sys.stdout", piped)
        bpeflow.count(documents(), progress=True)
    assert piped.getvalue() == "from the caller\n"
    assert "caller" not in screen.raw


@pytest.mark.parametrize("kind", [*KINDS, "closed"])
def test_progress_never_ends_a_call(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with broken_stream("full" if kind == "closed" else kind) as stream:
        monkeypatch.setattr("sys.stderr", None if kind == "closed" else stream)
        _, merges = bpeflow.train_bpe(iter(TEXT), 258, ["<s>"], progress=True)
    assert merges == [(b"o", b"w")]


def test_a_notebook_without_widgets_gets_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class ZMQInteractiveShell:  # the name by which rich recognises a notebook
        pass

    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as Jupyter's kernel does
    monkeypatch.setattr(terminal_module, "find_spec", lambda name: None)
    assert Console().is_jupyter
    bpeflow.learn_merges({"low": 5}, 258, [], progress=True)
    assert capsys.readouterr() == ("", "learning: 2 of 2 merges\n")


def test_the_observer_of_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[2] / "docs" / "report.md"
    [script] = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(script, {})
    assert re.fullmatch(
        r"(\d+\.\d busy counters, \d distinct pre-tokens\n)+merge 1: b'o' \+ b'w', 4 times\n", capsys.readouterr().out
    )
