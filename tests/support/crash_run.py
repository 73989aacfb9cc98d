"""Runs of the real program with an injected fault, and the invariants that must hold after each.

A run has a folder for temporary files of its own and a mark in its environment, which all its processes inherit; so
whatever it leaves can be distinguished from the work of others on the same machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from uuid import uuid4

import psutil
from forked_program import INJECTED, ForkedProgram

#: The promised two seconds, and the slack that a loaded machine needs.
SOON = 10.0

#: Long enough to be sure that a run hangs.
HUNG = 60.0


@dataclass(frozen=True)
class Fault:
    """An action at a certain call of a function, by the first process that reaches it; see `injected/sitecustomize`."""

    where: str
    action: str
    call: int = 1
    file: Path | None = None

    def environment(self, done: Path) -> dict[str, str]:
        """Return the variables for the processes of a program; `done` is created when it happens."""
        fault = {**vars(self), "file": self.file and str(self.file), "mark": str(done)}
        path = os.pathsep.join(filter(None, [str(INJECTED), os.environ.get("PYTHONPATH")]))
        return {"PYTHONPATH": path, "CRASH": json.dumps(fault)}


def wait_for(done: Path, process: subprocess.Popen[str] | ForkedProgram) -> int:
    """Wait until a fault has happened. Return the process that reached it."""
    deadline = time.monotonic() + HUNG
    while not (done.exists() and done.read_text(encoding="ascii")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "the fault was not come to"
        time.sleep(0.002)
    return int(done.read_text(encoding="ascii").split()[1])


@dataclass
class Run:
    """A run of the program.

    Attributes:
        seconds: from the fault, or the signal, to the end of the main process.
    """

    arguments: Sequence[str | Path]
    folder: Path
    fault: Fault | None = None
    temporary: Path = field(default_factory=lambda: Path(mkdtemp(prefix="crash-")))
    mark: str = field(default_factory=lambda: uuid4().hex)
    status: int | None = None
    err: str = ""
    seconds: float = 0.0

    def start(self) -> Run:
        self.temporary.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(self.temporary), "CRASH_RUN": self.mark}
        if self.fault is not None:
            environment |= self.fault.environment(self._done)
        self.process = ForkedProgram([*map(str, self.arguments)], environment)
        return self

    def wait_for_fault(self) -> int:
        """Return the process that reached it."""
        return wait_for(self._done, self.process)

    def signal(self, *numbers: int, pause: float = 0.0) -> None:
        """Send signals as a terminal does it, to the whole process group, one after another."""
        began = time.monotonic()
        for number in numbers:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            time.sleep(pause)
        self._signalled = began

    _signalled: float | None = None

    def end(self) -> Run:
        """Wait for the end; and see that it left no process."""
        try:
            _, self.err = self.process.communicate(timeout=HUNG)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        ended = time.monotonic()
        self.status = self.process.returncode
        if self._signalled is not None:
            self.seconds = ended - self._signalled
        elif self.fault is not None:
            assert self._done.exists(), f"the fault was not come to: {self.status} {self.err}"
            self.seconds = ended - float(self._done.read_text(encoding="ascii").split()[0])
        assert self.seconds < SOON, self.err
        assert soon_empty(lambda: processes(self.mark)), self.err
        print(f"{self.seconds:.3f} s to status {self.status}: {self.err}")  # noqa: T201
        return self

    def kill(self) -> None:
        """Kill the main process, and nothing else."""
        self._signalled = time.monotonic()
        self.process.kill()

    def assert_clean(self) -> None:
        """Nothing is left in the folder for temporary files."""
        assert soon_empty(lambda: {path.name for path in self.temporary.rglob("*")}), self.err
        self.temporary.rmdir()

    @property
    def _done(self) -> Path:
        return self.folder / f"done-{self.mark}"


Train = Callable[..., Run]


def arguments(corpus: Path, out: Path, *flags: str, segment_size: str = "1gb", vocab_size: int = 400) -> list[str]:
    """A training with worker processes, however small the corpus is."""
    settings = [f"segment_size={segment_size}", "chunk_size=20kb", "executor=processes", "overwrite=true"]
    words = ["--input", str(corpus), "--out_dir", str(out), "--vocab_size", str(vocab_size), "-c", "2", "-m", "2"]
    return [*words, "--memory_limit", "16mb", *(word for text in settings for word in ("--set", text)), *flags]


def soon_empty(look: Callable[[], set[str]], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while found := look():
        if time.monotonic() > deadline:
            print("left over:", found)  # noqa: T201
            return False
        time.sleep(0.01)
    return True


def processes(mark: str) -> set[str]:
    """Return the processes that have the mark of a run in their environment."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get("CRASH_RUN") == mark:
                found.add(f"{process.pid} {' '.join(process.cmdline())}")
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files, hidden ones included."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def finished_files(folder: Path) -> dict[str, bytes]:
    """Return all files except those of an unfinished run."""
    return {name: content for name, content in contents(folder).items() if not name.startswith("unfinished/")}


def unfinished_files(folder: Path) -> set[str]:
    """Return the files of an unfinished run, except for its segments and settings."""
    names = (path.relative_to(folder / "unfinished").as_posix() for path in folder.glob("unfinished/**/*.*"))
    return {name for name in names if not name.startswith(("segments/", "settings.json"))}


def tokenizer(folder: Path) -> dict[str, bytes]:
    """Return the result of a run."""
    return {name: (folder / name).read_bytes() for name in ("counts.npz", "vocab.json", "merges.txt", "bpeflow.json")}
