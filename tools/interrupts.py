"""Interrupt calls of the library at random moments. Each must end at once, as interrupted, and leave nothing behind.

    python tools/interrupts.py --rounds 2000
    python tools/interrupts.py --rounds 500 --cold count encode

A round starts a timer and a call. At a random moment of the call the timer's signal raises `KeyboardInterrupt`, as
Ctrl-C does. The call must end with it within seconds, without threads, processes, open files or temporary files that
outlive it. With `--cold` each round is a process that has not called the library before, so that imports are
interrupted, too. Exit status 1: a call ended otherwise.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType

import bpeflow
from bpeflow.flow import Monitor, MonitorSample, Pipeline, QueueSpec, Source, Stage

#: Seconds after which a call hangs.
HANG = 30

#: How a call should end.
RIGHT = ("interrupted", "ended before")

#: Can happen for microseconds of each call: Python discards exceptions in finalizers, of which native memory has one.
RARE = "swallowed in"

#: Text that takes some milliseconds to count, to learn from and to encode.
WORDS = 40_000


def numbers() -> Iterator[int]:
    yield from range(200)


def pass_on(items: Iterator[int]) -> Iterator[int]:
    yield from items


def run_pipeline(folder: Path) -> None:
    """Run a pipeline in threads, with its monitor."""
    del folder
    stages = [
        Stage("one", pass_on, QueueSpec("in", max_items=2), 2),
        Stage("two", pass_on, QueueSpec("on", max_items=1)),
    ]
    pipeline = Pipeline(Source("source", numbers), stages)
    with Monitor(pipeline, 0.001, MonitorSample.line, processes=False):
        assert len(list(pipeline.run("threads"))) == 200


def count(folder: Path) -> None:
    bpeflow.count(folder / "corpus.txt", num_counter=2)


@cache
def load(folder: Path) -> bpeflow.Tokenizer:
    return bpeflow.Tokenizer.load(folder / "tokenizer")


def encode(folder: Path) -> None:
    load(folder).encode_file(folder / "corpus.txt", folder / "out" / "train.bin", index=True, num_threads=2)


def encode_batch(folder: Path) -> None:
    texts = (folder / "corpus.txt").read_text(encoding="utf-8").split("\n")
    load(folder).encode_batch(texts, num_threads=2)


def train(folder: Path) -> None:
    bpeflow.train_bpe(folder / "corpus.txt", 400, num_counter=2, out_dir=folder / "out", overwrite=True)


def train_in_processes(folder: Path) -> None:
    bpeflow.train_bpe(folder / "corpus.txt", 300, num_counter=2, executor="processes", out_dir=folder / "out")


SUBJECTS: dict[str, Callable[[Path], None]] = {
    "pipeline": run_pipeline,
    "count": count,
    "encode": encode,
    "encode_batch": encode_batch,
    "train": train,
    "processes": train_in_processes,
}


class Interruption:
    """The interruption of a round: whether it came, and which code swallowed it (finalizers can)."""

    def __init__(self) -> None:
        self.came = False
        self.swallowed_in: list[str] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.came = True
        raise KeyboardInterrupt

    def note(self, ignored: sys.UnraisableHookArgs) -> None:
        code = getattr(ignored.object, "__qualname__", type(ignored.object).__name__)
        self.swallowed_in.append(code)


def interrupt(subject: Callable[[Path], None], folder: Path, moment: float) -> str:
    """Run a round, and return how it ended."""
    interruption = Interruption()
    signal.signal(signal.SIGALRM, interruption)
    sys.unraisablehook = interruption.note
    faulthandler.dump_traceback_later(HANG, exit=True)
    outcome = "ended before"
    try:
        signal.setitimer(signal.ITIMER_REAL, moment)
        try:
            subject(folder)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)  # another thread may have received it a moment ago
        if interruption.came:
            outcome = f"swallowed in {', '.join(interruption.swallowed_in) or '?'}"
    except KeyboardInterrupt:
        outcome = "interrupted"
    except BaseException as error:  # extension modules in Rust have exceptions of their own
        outcome = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    faulthandler.cancel_dump_traceback_later()
    return outcome


def left_behind(folder: Path) -> str:
    """Return what a call left: threads, child processes and files. Threads may end a moment later."""
    deadline = time.monotonic() + HANG
    while left := [thread.name for thread in threading.enumerate() if thread.name.startswith("flow")]:
        if time.monotonic() > deadline:
            return f"threads {left}"
        time.sleep(0.001)
    files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.name.startswith(".")]
    if left := [name for name in files if not name.endswith(".lock")] + [
        path.name for path in (folder / "tmp").iterdir()
    ]:
        return f"files {left}"
    return ""


def open_descriptors() -> Counter[str]:
    """Return what the open descriptors refer to. The one that lists them is gone when its name is read."""
    found: Counter[str] = Counter()
    for path in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            found[str(path.readlink()).partition(":[")[0]] += 1
    return found


def rounds(name: str, folder: Path, times: int, choose: random.Random) -> Iterator[str]:
    """Yield the outcome of each round, all in this process."""
    subject = SUBJECTS[name]
    lasted = [lasts(subject, folder) for _ in range(20)]
    descriptors = open_descriptors()
    for _ in range(times):
        shutil.rmtree(folder / "out", ignore_errors=True)
        outcome = interrupt(subject, folder, choose.uniform(1e-5, sorted(lasted)[10]))
        yield outcome
        if left := left_behind(folder):
            yield f"{outcome}, and left {left}"
    deadline = time.monotonic() + HANG
    while (gc.collect(), left_open := open_descriptors() - descriptors)[1] and time.monotonic() < deadline:
        time.sleep(0.01)  # the last threads are about to end
    yield from (f"left {number} open: {name}" for name, number in left_open.items())


def cold_rounds(name: str, folder: Path, times: int, choose: random.Random) -> Iterator[str]:
    """Yield the outcome of each round, in a process of its own, forked from this one."""
    lasted = 0.0
    for number in range(times + 1):
        shutil.rmtree(folder / "out", ignore_errors=True)
        reader, writer = os.pipe()
        moment = choose.uniform(1e-5, lasted)
        if os.fork() == 0:
            try:
                result = interrupt(SUBJECTS[name], folder, moment) if number else str(lasts(SUBJECTS[name], folder))
                left = left_behind(folder) if number else ""
                os.write(writer, (f"{result}, and left {left}" if left else result).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as stream:
            result = stream.read() or "hung or died"
        os.wait()
        if number:
            yield result
        else:
            lasted = float(result)


def lasts(subject: Callable[[Path], None], folder: Path) -> float:
    """Return the seconds that a call takes."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    start = time.perf_counter()
    subject(folder)
    return time.perf_counter() - start


def prepare(folder: Path, choose: random.Random) -> None:
    """Write a corpus and a tokenizer, in another process: this one has not called the library yet."""
    (folder / "tmp").mkdir()
    words = ["".join(choose.choices("etaoinshr", k=choose.randint(1, 8))) for _ in range(WORDS // 8)]
    text = "\n".join(" ".join(choose.choices(words, k=20)) for _ in range(WORDS // 20))
    (folder / "corpus.txt").write_text(text, encoding="utf-8")
    if os.fork() == 0:
        bpeflow.train({"input": str(folder / "corpus.txt"), "vocab_size": 300, "out_dir": str(folder / "tokenizer")})
        os._exit(0)
    assert os.wait()[1] == 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "subjects", metavar="SUBJECT", nargs="*", choices=[*SUBJECTS, []], help=f"of {[*SUBJECTS]} (all)"
    )
    parser.add_argument("--rounds", metavar="N", type=int, default=1000, help="interruptions of each subject (1000)")
    parser.add_argument("--seed", metavar="N", type=int, help="random seed (default: a new one, which is printed)")
    parser.add_argument("--cold", action="store_true", help="a new process for each round")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    choose = random.Random(seed)
    failed = False
    with tempfile.TemporaryDirectory(prefix="interrupts-") as name:
        folder = Path(name)
        prepare(folder, choose)
        tempfile.tempdir = os.environ["TMPDIR"] = str(folder / "tmp")
        for subject in options.subjects or SUBJECTS:
            outcomes = Counter((cold_rounds if options.cold else rounds)(subject, folder, options.rounds, choose))
            print(
                f"{subject}: " + "; ".join(f"{times} {outcome}" for outcome, times in outcomes.most_common()),
                flush=True,
            )
            bad = Counter({outcome: times for outcome, times in outcomes.items() if outcome not in RIGHT})
            rare = sum(times for outcome, times in bad.items() if outcome.startswith(RARE))
            failed |= bad.total() > rare or rare > options.rounds / 20
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
