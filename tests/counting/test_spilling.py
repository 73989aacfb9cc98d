"""Spilling: the counts do not depend on the memory limit, and no file is left however a run ends."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest
from crash_run import Fault

import bpeflow
from bpeflow.cli.main import main
from bpeflow.config import CountSettings, make_settings
from bpeflow.counting.count import CorpusCounter, CorpusCounts
from bpeflow.counting.shards import Scratch, new_scratch, removed_at_end
from bpeflow.errors import InvalidUtf8Error, ScratchError, WorkerDiedError
from bpeflow.pretokenize.native import INSTRUCTIONS_VARIABLE

#: Number of distinct words in the corpus, far more than tables hold under the smallest memory limit.
DISTINCT = 400_000


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write about 6 MB of words, most of which occur once and a few very often."""
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    words = [f"w{choose.randrange(10**9)}x" for _ in range(DISTINCT)]
    words += choose.choices(["the", "of", "naïve", "日本語", *words[:1000]], k=DISTINCT)
    choose.shuffle(words)
    path = Path(mkdtemp(dir=tmp_path_factory.getbasetemp())) / "text"
    lines = (" ".join(words[start : start + 50]) for start in range(0, len(words), 50))
    path.write_text("<|endoftext|>".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def scratch_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def count(corpus: Path, scratch_dir: Path, **options: object) -> CorpusCounts:
    values = {
        "input": str(corpus),
        "scratch_dir": scratch_dir,
        "memory_limit": "16mb",
        "executor": "processes",
        **options,
    }
    return CorpusCounter(make_settings(CountSettings, values)).count()


@pytest.fixture(scope="module")
def ample(corpus: Path) -> bpeflow.PretokenCounts:
    return bpeflow.count(corpus, special_tokens=["<|endoftext|>"], memory_limit="8gb", executor="threads")


@pytest.mark.slow
@pytest.mark.parametrize(("num_counter", "num_merger"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_counts_do_not_depend_on_memory(
    corpus: Path, ample: bpeflow.PretokenCounts, scratch_dir: Path, num_counter: int, num_merger: int
) -> None:
    counted = count(corpus, scratch_dir, num_counter=num_counter, num_merger=num_merger)
    assert counted.counts == ample
    assert counted.counting.spilled.shards > 2 * num_merger
    assert counted.counting.spilled.bytes > DISTINCT * 12
    assert counted.counting.memory_limit == 16_000_000
    assert not list(scratch_dir.iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("scanner")
def test_every_scanner_in_process_gives_identical_files(
    corpus: Path, ample: bpeflow.PretokenCounts, scratch_dir: Path, tmp_path: Path
) -> None:
    counted = count(corpus, scratch_dir, executor="threads")
    assert counted.counting.in_process
    assert counted.counting.spilled.shards > 2
    for counts, name in ((counted.counts, "small.npz"), (ample, "ample.npz")):
        counts.save(tmp_path / name)
    assert (tmp_path / "small.npz").read_bytes() == (tmp_path / "ample.npz").read_bytes()
    assert not list(scratch_dir.iterdir())


@pytest.mark.slow
def test_nothing_is_spilled_with_ample_memory(corpus: Path, scratch_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scratch, "new_path", None)
    counted = count(corpus, scratch_dir, executor="threads", memory_limit="8gb")
    assert counted.counting.spilled.shards == counted.counting.spilled.bytes == 0


@pytest.mark.slow
def test_a_run_spills_to_its_run_folder_by_default(corpus: Path, tmp_path: Path) -> None:
    """The report has the amount spilled, and no spilled file is left in the run folder."""
    values = {"input": str(corpus), "out_dir": str(tmp_path / "run"), "skip_merge": True, "memory_limit": "16mb"}
    seen: set[str] = set()
    with watching(tmp_path / "run", seen.update):
        result = bpeflow.train({**values, "executor": "processes", "num_counter": 2})
    counting = result.report.counting
    assert counting.memory_limit == 16_000_000
    assert counting.spilled.shards > 2
    assert any(name.startswith(".scratch-") for name in seen)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"counts.npz", "run.json"}


class watching:
    """Passes the names of the files in a folder to a callback, every 10 ms while the block runs."""

    def __init__(self, folder: Path, callback: Callable[[set[str]], object]) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(folder, callback))

    def _watch(self, folder: Path, callback: Callable[[set[str]], object]) -> None:
        while not self._done.wait(0.01):
            callback({path.name for path in folder.iterdir()} if folder.exists() else set())

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["processes", "threads"])
def test_no_file_is_left_after_a_failure(corpus: Path, scratch_dir: Path, tmp_path: Path, executor: object) -> None:
    bad = tmp_path / "text"
    bad.write_bytes(corpus.read_bytes() + b"\xff")
    seen: set[str] = set()
    with watching(scratch_dir, seen.update), pytest.raises(InvalidUtf8Error):
        count(bad, scratch_dir, executor=executor, num_counter=1)
    assert seen
    assert not list(scratch_dir.iterdir())


@pytest.mark.slow
def test_no_file_is_left_after_a_worker_is_killed(
    corpus: Path, scratch_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter is killed when it is about to spill for the second time."""
    fault = Fault("bpeflow.counting.shards:Scratch.new_path", "kill", 2)
    for name, value in fault.environment(tmp_path / "killed").items():
        monkeypatch.setenv(name, value)
    seen: set[str] = set()
    with watching(scratch_dir, seen.update), pytest.raises(WorkerDiedError, match=r"counter.*SIGKILL"):
        count(corpus, scratch_dir, num_counter=2)
    assert seen
    assert not list(scratch_dir.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_no_file_is_left_after_an_interruption(corpus: Path, scratch_dir: Path, tmp_path: Path, signum: int) -> None:
    flags = ["--vocab_size", "300", "--memory_limit", "16mb", "--set", f"scratch_dir={scratch_dir}"]
    command = [sys.executable, "-m", "bpeflow", "--input", str(corpus), "--out_dir", str(tmp_path / "run"), *flags]
    slow = {**os.environ, INSTRUCTIONS_VARIABLE: "regex"}
    process = subprocess.Popen(command, env=slow, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not any(scratch_dir.glob("*/*.shard")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signum)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signum, err
    assert b"Traceback" not in err
    assert not list(scratch_dir.iterdir())
    assert [path.name for path in (tmp_path / "run").rglob("*")] == ["unfinished", "settings.json"]


@pytest.mark.slow
def test_the_summary_has_the_amount_spilled(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--vocab_size", "260", "--memory_limit", "16mb", "--out_dir", str(tmp_path / "run")]
    assert main(["--input", str(corpus), *flags]) == 0
    assert "MB of counts were spilled to disk: memory_limit is 16.0 MB" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["processes", "threads"])
def test_a_full_disk_is_an_error_with_the_remedy(corpus: Path, scratch_dir: Path, executor: str) -> None:
    """A limit of 100 kB per file simulates a full disk, which raises the same kind of error."""
    flags = ["--vocab_size", "300", "--memory_limit", "16mb", "--out_dir", str(scratch_dir / "run")]
    settings = ["--set", f"executor={executor}", "--set", f"scratch_dir={scratch_dir}"]
    done = subprocess.run(
        [sys.executable, "-m", "bpeflow", "--input", str(corpus), *flags, *settings],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )
    assert done.returncode == 1
    assert f"cannot write counts to {scratch_dir}/.scratch-" in done.stderr
    assert "File too large" in done.stderr
    assert "scratch_dir" in done.stderr
    assert "memory_limit" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(scratch_dir.iterdir())


def test_a_scratch_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "not" / "there")
    with pytest.raises(ScratchError, match=f"cannot write counts to {scratch.folder}: No such file"):
        scratch.new_path("counter")


def test_the_folder_is_created_on_first_use_and_removed_at_the_end(tmp_path: Path) -> None:
    scratch = new_scratch(tmp_path)
    with pytest.raises(ZeroDivisionError), removed_at_end(scratch):
        assert not list(tmp_path.iterdir())
        paths = {scratch.new_path("counter") for _ in range(100)}
        assert len(paths) == 100
        assert {path.parent for path in paths} == {scratch.folder}
        scratch.new_path("counter").touch()
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_the_default_is_the_systems_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scratch = new_scratch(None)
    with removed_at_end(scratch):
        assert scratch.new_path("counter").parent.parent == tmp_path
    assert not list(tmp_path.iterdir())
