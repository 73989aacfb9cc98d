"""Standard input is a corpus: compressed, partly read, slow, or closed."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import termios
import threading
import time
import zlib
from fcntl import ioctl
from pathlib import Path

import pytest
from corpus_forms import jsonl_bytes, text_bytes
from counted import assert_same, count

import bpeflow
from bpeflow.counting.count import CorpusCounts
from bpeflow.errors import ConfigError, CorpusError


@pytest.mark.parametrize(("compressed", "input_format"), [(False, "text"), (True, "text"), (True, "jsonl")])
def test_standard_input_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, documents: list[str], expected: CorpusCounts,
    compressed: bool, input_format: str,
) -> None:  # fmt: skip
    data = text_bytes(documents) if input_format == "text" else jsonl_bytes(documents)
    (tmp_path / "stdin").write_bytes(gzip.compress(data) if compressed else data)
    with (tmp_path / "stdin").open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert_same(count("-", input_format=input_format, num_counter=2, chunk_size=3000), expected)


@pytest.mark.slow
def test_ctrl_c_ends_a_run_that_waits_for_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bpeflow", "--input", "-", "--vocab_size", "300", "--out_dir", "run", "-c", "2"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None and run.stderr is not None
        run.stdin.write("some text")
        run.stdin.flush()
        while ioctl(run.stdin, termios.FIONREAD, bytes(4)) != bytes(4):  # until the run has taken all text
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 130
    left = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert left == [Path("run/unfinished/settings.json")]  # which the next run in the folder replaces


@pytest.mark.slow
@pytest.mark.parametrize("compressed", [False, True])
def test_a_failure_is_reported_at_once_while_standard_input_makes_its_reader_wait(
    tmp_path: Path, compressed: bool
) -> None:
    bpeflow.Tokenizer.train(iter(["some text"]), 260).save(tmp_path / "tokenizer")
    train = ["--input", "-", "--vocab_size", "300", "--out_dir", "run", "-c", "2", "--chunk_size", "100KB"]
    encode = ["encode", "--tokenizer", "tokenizer", "--input", "-", "--out", "ids.npy", "--chunk_size", "100KB"]
    data = b"some text\n" * 9_900 + b"\xff\n" + b"some text\n" * 19_900  # one chunk, and enough to find its end
    packer = zlib.compressobj(wbits=31)
    data = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH) if compressed else data
    for arguments in (train, [*encode, "--threads", "2"]):
        command = [sys.executable, "-m", "bpeflow", *arguments]
        with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            assert run.stdin is not None and run.stderr is not None
            run.stdin.buffer.write(data)
            run.stdin.flush()
            assert run.wait(60) == 2
            assert "not UTF-8" in run.stderr.read()
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer"}


def test_standard_input_that_was_partly_read_before_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.write(write, b"a line\nsome text, and then nothing for a while")
    with os.fdopen(read) as pipe, os.fdopen(write, "wb") as other:
        assert pipe.buffer.readline() == b"a line\n"
        threading.Timer(0.5, other.close).start()
        monkeypatch.setattr(sys, "stdin", pipe)
        counted = count("-")
    assert counted.counts == bpeflow.count(iter(["some text, and then nothing for a while"]))


def test_closed_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(CorpusError, match=r"standard input \(-\) is closed: pipe text into it"):
        count("-")


@pytest.mark.parametrize("options", [{"max_bytes": 10}, {"format": "parquet"}])
def test_standard_input_can_be_neither_sampled_nor_parquet(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="standard input"):
        count({"name": "in", "path": "-", **options})
