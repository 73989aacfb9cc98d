"""Faults of runs: signals, killed workers, resource limits, full disks, changed input, a second run, damaged files."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Literal

import psutil

from soaking.process import Process

Kind = Literal[
    "none", "kill", "terminate", "interrupt", "terminate twice", "interrupt twice", "kill a worker", "kill a helper",
    "file limit", "memory limit", "small disk", "change input", "second run",
]  # fmt: skip
#: The relative frequency of each kind. Small disks are missing since they apply to a whole trial.
_ODDS: dict[Kind, int] = {
    "none": 1, "kill": 8, "terminate": 3, "interrupt": 3, "terminate twice": 2, "interrupt twice": 2,
    "kill a worker": 4, "kill a helper": 2, "file limit": 4, "memory limit": 3, "change input": 3, "second run": 3,
}  # fmt: skip
#: Kinds that do not apply to encoding.
_TRAINING_ONLY = ("change input", "second run")
#: Files of a run folder whose appearance can start the clock.
_AFTER = (
    "unfinished/segments/000000.shard",
    "unfinished/segments/000001.json",
    "unfinished/segments/000002.shard",
    "unfinished/segments/manifest.json",
    "unfinished/counts.npz",
    "unfinished/merges.partial",
    "unfinished/run.json",
    "unfinished/done.json",
)
#: The journal of an encoding, which exists while it is at work.
_JOURNAL = ".*.ckpt.*.part"


@dataclass(frozen=True)
class Trouble:
    """A fault and its timing.

    Attributes:
        kind: the kind of fault.
        after: a file in the folder (a glob) to wait for first, with a short timeout; None to start at once.
        moment: when the fault happens, as a fraction of the time that such a run takes.
        amount: its strength from 0 to 1, such as the share of the memory that is left.
    """

    kind: Kind
    after: str | None
    moment: float
    amount: float


def draw_trouble(choose: Random, encoding: bool = False) -> Trouble:
    """Draw a fault for training or for encoding."""
    odds = {kind: weight for kind, weight in _ODDS.items() if not (encoding and kind in _TRAINING_ONLY)}
    kind = choose.choices(list(odds), list(odds.values()))[0]
    after = choose.choice((None, _JOURNAL) if encoding else (None, None, *_AFTER))
    early = choose.random() < 0.1  # otherwise not while the interpreter is starting
    moment = choose.uniform(0, 0.2) if early or after is not None else choose.uniform(0.2, 1.1)
    return Trouble(kind, after, moment, choose.random())


def limits_of(trouble: Trouble) -> dict[int, int]:
    """Return the resource limits that the process starts with."""
    if trouble.kind == "file limit":
        return {resource.RLIMIT_FSIZE: int(100 * 10_000**trouble.amount)}
    if trouble.kind == "memory limit":
        return {resource.RLIMIT_AS: memory_at_rest() + int(trouble.amount * 600_000_000)}
    return {}


@cache
def memory_at_rest() -> int:
    """Return the address space of a process that has imported everything and done nothing, in bytes."""
    code = (
        "import bpeflow.cli.encode, bpeflow.cli.train, bpeflow.training.train; print(open('/proc/self/status').read())"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout.partition("VmPeak:")[2].split()[0]) << 10


def inject(trouble: Trouble, process: Process, folder: Path, seconds: float) -> None:
    """Wait for the moment of a fault, and if it is a signal, send it. Such a run takes `seconds`."""
    if trouble.kind == "none" or limits_of(trouble):
        return
    after = trouble.after
    if after is not None:
        process.watch(lambda: any(folder.glob(after)), timeout=(0.3 + 0.7 * trouble.amount) * seconds)
    process.watch(lambda: False, timeout=trouble.moment * seconds)
    match trouble.kind:
        case "kill":
            process.send(signal.SIGKILL)
        case "terminate" | "interrupt" | "terminate twice" | "interrupt twice":
            number = signal.SIGTERM if trouble.kind.startswith("terminate") else signal.SIGINT
            process.send(number)
            if trouble.kind.endswith("twice"):
                process.watch(lambda: False, timeout=0.2 * trouble.amount**2)
                process.send(number)
        case "kill a worker" | "kill a helper":
            _kill_one(process, workers=trouble.kind == "kill a worker", amount=trouble.amount)


def _kill_one(process: Process, workers: bool, amount: float) -> None:
    """Kill one of the workers, or the fork server."""
    process.watch(lambda: bool(process.children()), timeout=30)
    candidates = [child for child in process.children() if _is_helper(child) != workers]
    if candidates:
        with suppress(psutil.NoSuchProcess):
            candidates[int(amount * len(candidates))].kill()


def _is_helper(process: psutil.Process) -> bool:
    try:
        command = " ".join(process.cmdline())
        parent = process.parent()
    except psutil.Error:
        return False
    return "processes.serve" in command and (parent is None or "processes.serve" not in " ".join(parent.cmdline()))


# ---- files ----


def change(choose: Random, paths: list[Path]) -> tuple[Path, bytes, int]:
    """Change an input file in one step. Return its path, its old contents and its old modification time."""
    path = choose.choice(paths)
    data, modified = path.read_bytes(), path.stat().st_mtime_ns
    match choose.choice(("truncate", "append", "write", "replace")):
        case "truncate":
            os.truncate(path, choose.randrange(len(data) + 1))
        case "append":
            with path.open("ab", buffering=0) as stream:
                stream.write(b" more words" * choose.randrange(1, 100))
        case "write":
            with path.open("r+b", buffering=0) as stream:
                stream.seek(choose.randrange(len(data) + 1))
                stream.write(b"other")
        case _:
            other = path.with_name(".other")
            other.write_bytes(data[: len(data) // 2] + b" new " + data[len(data) // 2 :])
            other.replace(path)
    return path, data, modified


def restore(path: Path, data: bytes, modified: int) -> None:
    """Restore an input file and its modification time."""
    path.write_bytes(data)
    os.utime(path, ns=(modified, modified))


def damage(choose: Random, folder: Path) -> str | None:
    """Damage a file that resuming depends on, if there is one, and return its name."""
    names = ("segments/*", "merges.partial", "counts.npz", "run.json")
    globs = [*(f"unfinished/{name}" for name in names), "counts.npz", "run.json"]
    found = [path for name in globs for path in sorted(folder.glob(name)) if path.is_file()]
    if not found:
        return None
    path = choose.choice(found)
    data = bytearray(path.read_bytes())
    match choose.choice(("flip", "flip", "flip", "truncate", "delete")):
        case "flip" if data:
            data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
            path.write_bytes(data)
        case "truncate":
            path.write_bytes(data[: choose.randrange(len(data) + 1)])
        case _:
            path.unlink()
    return str(path.relative_to(folder))


class SmallDisk:
    """A separate, small file system in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def resize(self, size: int) -> None:
        """Change its size, in bytes."""
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self._folder)], check=True)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk | None]:
    """Mount a small file system; yield None if mounting is not permitted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True, check=False,
    )  # fmt: skip
    try:
        yield SmallDisk(folder) if mounted.returncode == 0 else None
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=False)
