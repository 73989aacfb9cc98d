"""The fork server: a small process without threads that forks the workers, and tells how they exit.

A process with threads cannot safely fork, and starting an interpreter for each worker takes long. So the main process
starts one clean process, once, which imports what the workers need and forks them. (`multiprocessing` has one as well.
But its socket has a name, in a folder that stays behind if the main process is killed, it imports the main script into
every worker, and it needs a second process that tracks semaphores.)

The two talk over socket pairs, which have no names: one for the server, and one for each run of a pipeline. Its end is
the end of the run: the server kills the run's workers, whatever they do, and waits for them. So a run leaves no
process if the main process is killed, and the main process leaves none if the server is (`processes`).

The server and the workers are a session of their own. So a Ctrl-C in the terminal, or closing it, concerns only the
main process, at any moment.
"""

from __future__ import annotations

import atexit
import importlib
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import spawn
from typing import NoReturn

from . import worker
from .descriptors import close_in_child, load, receive, send

#: To the main process: a process id and its exit code, or one of these.
_REPLY = struct.Struct("<qq")
_STARTED, _NOT_STARTED, _ENDED = 1000, 1001, 1002  # with a process id, with an error number, with nothing

#: From the main process: a new run, a worker to fork, a worker to start as a new interpreter, the end of the run.
_RUN, _FORK, _SPAWN, _END = b"r", b"f", b"s", b"e"


@dataclass(frozen=True)
class _RunSetup:
    """What the server is told of a run.

    Attributes:
        path: `sys.path` of the main process.
        preload: Modules that the workers need.
        temporary: Folders to remove if the main process dies.
    """

    path: Sequence[str]
    preload: Sequence[str]
    temporary: Sequence[str]


def _interpreter(code: str) -> list[str]:
    """Return the command that runs code in an interpreter with this one's options and search path."""
    command = spawn.get_command_line()
    return [*command[: command.index("-c")], "-c", f"import sys; sys.path[:] = {[*map(str, sys.path)]}; {code}"]


# ---- in the main process ----


class ServerDiedError(Exception):
    """The fork server has died."""


class RunConnection:
    """The main process's connection to the server, for one run of a pipeline. Readable when a worker has exited.

    Attributes:
        early_exits: Process ids and exit codes of workers that exited while others were started.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.early_exits: list[tuple[int, int]] = []
        close_in_child(connection)

    def fileno(self) -> int:
        """Return the number of the descriptor, to wait on."""
        return self._connection.fileno()

    def start(self, context: worker.WorkerContext, fork: bool) -> int:
        """Start a worker and return its process id.

        Raises:
            OSError: It could not be started.
            ServerDiedError: The server has died.
        """
        try:
            send(self._connection, _FORK if fork else _SPAWN, context)
        except BrokenPipeError as error:
            raise ServerDiedError from error
        while True:
            number, status = self.receive()
            if status == _STARTED:
                return number
            if status == _NOT_STARTED:
                raise OSError(number, os.strerror(number))
            self.early_exits.append((number, status))

    def end(self, seconds: float) -> bool:
        """Have the server kill all workers. Return whether none is left: False if the server is dead or stuck."""
        try:
            self._connection.settimeout(seconds)
            self._connection.sendall(_END)
            while self.receive()[1] != _ENDED:
                pass
        except (OSError, ServerDiedError):
            return False
        finally:
            self._connection.close()
        return True

    def receive(self) -> tuple[int, int]:
        """Wait until a worker has exited. Return its process id and exit code.

        Raises `ServerDiedError` if the server has died.
        """
        reply = b""
        while len(reply) < _REPLY.size:
            try:
                block = self._connection.recv(_REPLY.size - len(reply))
            except ConnectionResetError:
                block = b""
            if not block:
                raise ServerDiedError
            reply += block
        number, status = _REPLY.unpack(reply)
        return number, status


class _ForkServer:
    """The server as the main process sees it. It is started with the first run and ends with this process."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair()
        close_in_child(self)
        with theirs:
            self._process = subprocess.Popen(
                _interpreter(f"from bpeflow.flow.forkserver import serve; serve({theirs.fileno()})"),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self.stop)

    def open_run(self, preload: Sequence[str], temporary: Sequence[str]) -> RunConnection:
        """Open a run. Raises `BrokenPipeError` if the server has died."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._connection, [_RUN], [theirs.fileno()])
        send(ours, _RUN, _RunSetup(list(sys.path), preload, temporary))
        return RunConnection(ours)

    def stop(self) -> None:
        """End the server, and all workers with it."""
        atexit.unregister(self.stop)
        self._connection.close()
        self._process.wait()

    def close(self) -> None:
        """Leave the server to its parent: called in a forked child of that."""
        global _server
        _server = None
        atexit.unregister(self.stop)
        self._connection.close()
        self._process.returncode = 0


_server: _ForkServer | None = None
_server_lock = threading.Lock()


def open_run(preload: Sequence[str], temporary: Sequence[str]) -> RunConnection:
    """Open a run. Starts the server if there is none, or if it has been killed."""
    global _server
    with _server_lock:
        if _server is not None:
            try:
                return _server.open_run(preload, temporary)
            except BrokenPipeError:
                _server.stop()
        _server = _ForkServer()
        return _server.open_run(preload, temporary)


# ---- in the server ----


@dataclass(eq=False)
class _Run:
    """A run as the server sees it."""

    connection: socket.socket
    temporary: Sequence[str] = ()
    workers: set[int] = field(default_factory=set)
    ending: bool = False
    main_died: bool = False

    def reply(self, number: int, status: int) -> None:
        with suppress(OSError):  # the main process has died
            self.connection.sendall(_REPLY.pack(number, status))


def serve(number: int) -> NoReturn:
    """Run the server, given the descriptor of its connection to the main process."""
    server = _Server(socket.socket(fileno=number))
    server.run()
    os._exit(0)


class _Server:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._runs: list[_Run] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection, selectors.EVENT_READ, self._open_run)
        self._exits, wake_up = os.pipe()
        os.set_blocking(wake_up, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_up, warn_on_full_buffer=False)
        self._selector.register(self._exits, selectors.EVENT_READ, self._reap)

    def run(self) -> None:
        while self._connection.fileno() >= 0 or self._runs:
            for key, _ in self._selector.select():
                key.data()

    def _open_run(self) -> None:
        kind, numbers = receive(self._connection)
        if kind:
            run = _Run(socket.socket(fileno=numbers[0]))
            self._runs.append(run)
            self._selector.register(run.connection, selectors.EVENT_READ, partial(self._serve, run))
            return
        self._selector.unregister(self._connection)
        self._connection.close()
        for run in list(self._runs):
            self._end(run, main_died=True)

    def _serve(self, run: _Run) -> None:
        if run.ending:  # since `select` returned
            return
        kind, numbers = receive(run.connection)
        if kind == _RUN:
            setup: _RunSetup = load(numbers)
            run.temporary = setup.temporary
            sys.path[:] = setup.path
            for module in setup.preload:
                with suppress(Exception):  # a worker that needs it will report the error
                    importlib.import_module(module)
        elif kind in (_FORK, _SPAWN):
            self._start(run, numbers, fork=kind == _FORK)
        else:
            self._end(run, main_died=not kind)

    def _start(self, run: _Run, numbers: list[int], fork: bool) -> None:
        sys.stdout.flush()
        try:
            pid = os.fork()
        except OSError as error:
            run.reply(error.errno or 0, _NOT_STARTED)
        else:
            if not pid:
                self._work(numbers, fork)
            run.workers.add(pid)
            run.reply(pid, _STARTED)
        for number in numbers:
            os.close(number)

    def _work(self, numbers: list[int], fork: bool) -> NoReturn:
        """Become a worker."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if not fork:
                for number in numbers:
                    os.set_inheritable(number, True)
                command = _interpreter(f"from bpeflow.flow import worker; sys.exit(worker.main({numbers}))")
                os.execv(command[0], command)  # noqa: S606 -- our own interpreter
            self._selector.close()
            os.close(self._exits)
            self._connection.close()
            for run in self._runs:
                run.connection.close()
            status = worker.main(numbers)
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(status)

    def _reap(self) -> None:
        os.read(self._exits, 1 << 12)
        with suppress(ChildProcessError):  # there are none any more
            while (exited := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = exited
                for run in list(self._runs):
                    if pid in run.workers:
                        run.workers.remove(pid)
                        run.reply(pid, os.waitstatus_to_exitcode(status))
                        self._close_if_ended(run)

    def _end(self, run: _Run, main_died: bool) -> None:
        run.ending, run.main_died = True, main_died
        self._selector.unregister(run.connection)
        for pid in run.workers:
            os.kill(pid, signal.SIGKILL)
        self._close_if_ended(run)

    def _close_if_ended(self, run: _Run) -> None:
        if not run.ending or run.workers:
            return
        run.reply(0, _ENDED)
        run.connection.close()
        self._runs.remove(run)
        for folder in run.temporary if run.main_died else ():
            shutil.rmtree(folder, ignore_errors=True)
