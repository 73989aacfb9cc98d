"""Checks after a run: no process, no thread and no file may be left over."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from bpeflow.flow import MAIN, Pipeline

HERE = Path(__file__).parent

#: The name of the variable that marks the processes of a script.
_MARK = "FLOW_TEST_SCRIPT"


def pids(pipeline: Pipeline) -> dict[tuple[str, int], int]:
    """Return the running workers, by stage and worker number."""
    return {(stage, worker): meter.pid for stage, worker, meter in pipeline.snapshot().running() if stage != MAIN}


def servers() -> list[psutil.Process]:
    """Return the fork servers of this process: one for each run."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # killed
            found += [child] if "processes.serve" in " ".join(child.cmdline()) else []
    return found


def leftover_workers() -> list[str]:
    """Return the child processes, except for helpers of multiprocessing, which live as long as this process."""
    left = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            command = " ".join(process.cmdline())
            helper = any(name in command for name in ("resource_tracker", "multiprocessing.forkserver"))
            left += [] if helper else [f"{process.pid} {command}"]
    return left


def leftover_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("flow", "parent watch"))]


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


@contextmanager
def ends_soon(seconds: float = 10.0) -> Iterator[None]:
    """Two seconds are promised; the rest is for a busy machine."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


class Script:
    """A script in a process and a session of its own, and all processes that it has started.

    Args:
        folder: The folder that it runs in.
        arguments: The arguments of the interpreter.

    Attributes:
        process: Its process.
        temporary: Its folder for temporary files.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self._mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=folder,
            env={
                **os.environ,
                _MARK: self._mark,
                "TMPDIR": str(self.temporary),
                "PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), str(HERE)]),
            },
        )

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self.family():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        with self.process:
            self.process.kill()

    def family(self) -> list[psutil.Process]:
        """Return the script's processes, also those that have lost their parent."""
        family = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(_MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    family.append(process)
        return family

    def named_files(self) -> list[str]:
        """Return the files in /dev/shm and in its folder for temporary files that its processes have open or mapped."""
        files = []
        for process in self.family():
            folder = Path(f"/proc/{process.pid}")
            files += [line.split(maxsplit=5)[-1] for line in (folder / "maps").read_text().splitlines()]
            for link in (folder / "fd").iterdir():
                with suppress(FileNotFoundError):
                    files.append(str(link.readlink()))
        return [file for file in files if file.startswith(("/dev/shm/", str(self.temporary)))]

    def read_line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return line

    def end(self, stdin: str = "") -> tuple[str, str]:
        """Wait for its end. Return the rest of its output and its errors, if it has left no process and no file."""
        output, errors = self.process.communicate(stdin, timeout=50)
        assert wait_until(lambda: not self.family()), self.family()
        assert not list(self.temporary.iterdir())
        return output, errors
