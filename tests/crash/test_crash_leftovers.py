"""Runs with worker processes that end at a random moment leave nothing of them: no process, no file, no traceback.

Nothing that they share has a name, so nothing can be left, whoever is killed: `multiprocessing` would leave folders
(``pymp-…``), semaphores and shared memory in /dev/shm, and messages of its resource tracker.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from crash_run import Run, arguments
from distinct_words import distinct_words
from small_tokenizer import save_tokenizer

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")

WORK: dict[str, Callable[[Path, Path], list[str]]] = {
    "training": lambda corpus, folder: arguments(corpus, folder / "run", "--restart"),
    "counting": lambda corpus, folder: arguments(
        corpus, folder / "run", "--restart", "--skip_merge", segment_size="1mb"
    ),
    "encoding": lambda corpus, folder: [
        *("encode", "--tokenizer", str(save_tokenizer(folder / "tokenizer", r"\w+|\W(?!\b)|\W")), "--overwrite"),
        *("--input", str(corpus), "--out", str(folder / "c.bin"), "--threads", "2", "--chunk_size", "100kb"),
    ],
}


def processes(run: Run) -> list[psutil.Process]:
    """Return the processes of a run, the main one first; none if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return [main := psutil.Process(run.process.pid), *main.children(recursive=True)]
    return []


def strike(run: Run, kind: str, choose: random.Random) -> None:
    """Do to a run what its kind says, unless it has ended. A worker may also be the server that forks them."""
    if kind == "a worker":
        with suppress(IndexError, psutil.NoSuchProcess):
            choose.choice(processes(run)[1:] or processes(run)).kill()
    elif kind == "main":
        run.kill()
    else:
        run.signal(signal.SIGINT if kind == "Ctrl-C" else signal.SIGTERM)


def shared_memory(run: Run) -> set[str]:
    """Return what the processes of a run have mapped of /dev/shm."""
    found: set[str] = set()
    for process in processes(run):
        with suppress(OSError):  # it has ended
            found |= {*re.findall(r"/dev/shm/\S+", Path(f"/proc/{process.pid}/maps").read_text())}
    return found


@pytest.mark.timeout(0)
@pytest.mark.parametrize("work", WORK)
def test_nothing_of_multiprocessing_is_left(work: str, tmp_path: Path) -> None:
    """At 8 moments each; BPEFLOW_KILLS overrides the number."""
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose, had_workers = random.Random(seed), 0
    corpus, documents = tmp_path / "corpus", 130 if work == "encoding" else 50  # encoding needs more than SMALL_INPUT
    texts = (distinct_words(number, 5000) for number in range(documents))
    corpus.write_text("<|endoftext|>".join(texts), encoding="utf-8")
    command = WORK[work](corpus, tmp_path)
    for _ in range(2):  # the first is slower
        started = time.monotonic()
        assert Run(command, tmp_path).start().end().status == 0
        seconds = time.monotonic() - started
    for number in range(int(os.environ.get("BPEFLOW_KILLS", "8"))):
        kind = ("main", "a worker", "Ctrl-C", "SIGTERM")[number % 4]
        run = Run(command, tmp_path).start()
        time.sleep(seconds * choose.uniform(0.05, 1))
        had_workers += len(processes(run)) > 1
        assert not shared_memory(run)
        strike(run, kind, choose)
        run.end()
        assert run.status in (0, 1, -signal.SIGKILL, 130, 143), (kind, run.err)
        assert not re.search("Traceback|resource_tracker|Exception ignored", run.err), (kind, run.err)
        run.assert_clean()
    print(f"{had_workers} had workers")  # noqa: T201
    assert had_workers
