"""The fork server: a small process without threads that forks the workers of a run and reports how they exit.

A process with threads cannot safely fork, and starting an interpreter for each worker takes long. So a run starts one
clean process, which imports what the workers need and forks them. (`multiprocessing` has one as well. But its socket
has a name, in a folder that stays behind if the main process is killed, it imports the main script into every worker,
and it needs a second process that tracks semaphores.)

The server inherits the descriptors of the whole run, and each worker closes those that are not its own. The server and
the workers are a session and a process group of their own. So a Ctrl-C in the terminal, or closing it, concerns only
the main process, at any moment; and the main process can kill all of them at once.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import shutil
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from multiprocessing import spawn
from typing import IO, Any, NoReturn

from . import worker
from .descriptors import Descriptor, anonymous_file, pipe

#: To the main process: the index of a worker, what happened to it, and its process id, an error number or an exit code.
_EVENT = struct.Struct("<qqq")
STARTED, NOT_STARTED, EXITED = range(3)


@dataclass(frozen=True)
class _Setup:
    """Everything that the server needs to know. The numbers are those of descriptors that it inherits.

    Attributes:
        contexts: The pickled context of each worker, and the numbers of its descriptors.
        fork: Whether to fork the workers. Otherwise they are new interpreters.
        preload: Modules that the workers need.
        temporary: Folders to remove if the main process dies.
        inherited: All descriptors.
        events: The pipe to the main process.
        alive: The pipe that reaches its end when the main process has died.
    """

    contexts: Sequence[tuple[bytes, Set[int]]]
    fork: bool
    preload: Sequence[str]
    temporary: Sequence[str]
    inherited: Set[int]
    events: int
    alive: int


def _interpreter(code: str) -> list[str]:
    """Return the command that runs code in an interpreter with this one's options, search path and arguments."""
    command = spawn.get_command_line()
    setup = f"import sys; sys.path[:] = {[*map(str, sys.path)]}; sys.argv[:] = {sys.argv}"
    return [*command[: command.index("-c")], "-c", f"{setup}; {code}"]


# ---- in the main process ----


class _ContextPickler(pickle.Pickler):
    """Notes the numbers of the descriptors in a pickle."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.numbers: set[int] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Descriptor):
            self.numbers.add(value.fileno())
        return NotImplemented

    @classmethod
    def pickle(cls, context: worker.WorkerContext) -> tuple[bytes, set[int]]:
        file = BytesIO()
        pickler = cls(file)
        pickler.dump(context)
        return file.getvalue(), pickler.numbers


class ForkServer:
    """The server of a run, as the main process sees it. Readable when something has happened to a worker.

    Args:
        contexts: The context of each worker.
        fork: Whether to fork the workers. Otherwise they are new interpreters.
        preload: Modules that the workers need.
        temporary: Folders to remove if the main process dies.

    Raises:
        OSError: It could not be started.
    """

    def __init__(
        self, contexts: Sequence[worker.WorkerContext], fork: bool, preload: Sequence[str], temporary: Sequence[str]
    ) -> None:
        self._events, events = pipe()
        alive = contexts[0].alive.fileno()
        pickled = [_ContextPickler.pickle(context) for context in contexts]
        with anonymous_file() as file:
            inherited = {events.fileno(), file.fileno()}.union(*(numbers for _, numbers in pickled))
            pickle.dump(_Setup(pickled, fork, preload, temporary, inherited, events.fileno(), alive), file)
            file.flush()
            self._process = subprocess.Popen(
                _interpreter(f"from bpeflow.flow.forkserver import serve; serve({file.fileno()})"),
                pass_fds=tuple(inherited),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def fileno(self) -> int:
        """Return the number of the descriptor to wait on."""
        return self._events.fileno()

    def next_event(self) -> tuple[int, ...] | None:
        """Wait for an event, and return it as in `_EVENT`; None when the server has exited."""
        event = os.read(self.fileno(), _EVENT.size)
        return _EVENT.unpack(event) if event else None

    def kill(self) -> None:
        """Kill the server and its workers."""
        # Even if it has died, its process id names the group of the workers until it is waited for.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._events.close()


# ---- in the server and its children ----


def _load(number: int) -> Any:
    """Load the pickle in an inherited file."""
    with os.fdopen(number, "rb", closefd=False) as file:
        file.seek(0)
        return pickle.load(file)  # noqa: S301 -- from our own parent


def serve(number: int) -> NoReturn:
    """Run the server, given the descriptor of the file with its setup."""
    setup: _Setup = _load(number)
    for module in setup.preload:
        with suppress(Exception):  # a worker that needs it will report the error
            importlib.import_module(module)
    running = {}
    for index, (context, own) in enumerate(setup.contexts):
        try:
            pid = os.fork()
        except OSError as error:
            _report(setup, index, NOT_STARTED, error.errno or 0)
            break
        if not pid:
            _become_worker(setup, context, own)
        running[pid] = index
        _report(setup, index, STARTED, pid)
    _close(setup.inherited - {setup.events, setup.alive})
    threading.Thread(target=_kill_after_main, args=(setup.alive, running), daemon=True).start()
    while running:
        pid, status = os.wait()
        if (index := running.pop(pid, -1)) >= 0:  # not a child of a preloaded module
            _report(setup, index, EXITED, os.waitstatus_to_exitcode(status))
    if select.select([setup.alive], [], [], 0)[0]:  # the main process has died, and so the workers have ended
        for folder in setup.temporary:
            shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _kill_after_main(alive: int, running: Mapping[int, int]) -> None:
    """Kill the workers when the main process has died. One in native code may be unable to notice that itself."""
    os.read(alive, 1)
    for pid in list(running):
        with suppress(ProcessLookupError):  # it has noticed
            os.kill(pid, signal.SIGKILL)


def _report(setup: _Setup, index: int, kind: int, value: int) -> None:
    with suppress(BrokenPipeError):  # the main process has died
        os.write(setup.events, _EVENT.pack(index, kind, value))


def _become_worker(setup: _Setup, context: bytes, own: Set[int]) -> NoReturn:
    status = 1
    try:
        _close(setup.inherited - own)
        if not setup.fork:
            with anonymous_file() as file:
                file.write(pickle.dumps(context))
                file.flush()
                os.set_inheritable(file.fileno(), True)
                command = _interpreter(f"from bpeflow.flow.forkserver import work; work({file.fileno()})")
                os.execv(command[0], command)  # noqa: S606 -- our own interpreter
        status = worker.main(context)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status)


def work(number: int) -> NoReturn:
    """Run a worker in a new interpreter, given the descriptor of the file with its context."""
    sys.exit(worker.main(_load(number)))


def _close(numbers: Iterable[int]) -> None:
    for number in numbers:
        os.close(number)
