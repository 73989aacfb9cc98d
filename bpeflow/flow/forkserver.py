"""The fork server: a small process without threads that forks the workers of a run and reports how they exit.

A process with threads cannot safely fork, and starting an interpreter for each worker takes long. So a run starts one
clean process, which imports what the workers need and forks them. (That of `multiprocessing` has a socket with a name,
which stays behind if the main process is killed, imports the main script into every worker, and needs a second process
that tracks semaphores.)

The server and the workers inherit the descriptors of the whole run. They are a session and a process group of their
own: a Ctrl-C in the terminal, or closing it, concerns only the main process, which can kill all of them at once.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import shutil
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from mmap import mmap
from multiprocessing import spawn
from typing import NoReturn

from .descriptors import Credits, Descriptor, anonymous_file, open_here, write_all
from .errors import pack_failure
from .meters import Meters
from .pipes import Channel
from .stage import outputs

#: To the main process, for each worker that has ended: its index, process id and exit code. If it could not be started:
#: its index, 0 and an error number.
EVENT = struct.Struct("<qqq")


@dataclass
class Plan:
    """Everything that the server and the workers of a run need to know, and what they share with the main process."""

    names: list[str]  # of the steps: the source and the stages
    jobs: list[bytes]  # of each step, the pickled source or stage, and the `route` of the queue that it writes to
    channels: list[Channel]  # the queue that each step writes to
    meters: Meters
    preload: Sequence[str]
    temporary: Sequence[str | os.PathLike[str]]
    events: Descriptor  # the pipe to the main process
    alive: Descriptor  # a pipe that reaches its end when the main process has died
    failure: Descriptor = field(default_factory=anonymous_file)  # for the first failure
    failure_lock: Credits = field(default_factory=partial(Credits, 1))  # taken by the worker that reports it


def server_command(file: int) -> list[str]:
    """Return the command that runs `serve` in an interpreter with this one's options, path and arguments."""
    command = spawn.get_command_line()
    setup = f"import sys; sys.path[:] = {[*map(str, sys.path)]}; sys.argv[:] = {sys.argv}"
    serve = f"from bpeflow.flow import forkserver; forkserver.serve({file})"
    return [*command[: command.index("-c")], "-c", f"{setup}; {serve}"]


def serve(file: int) -> NoReturn:
    """Run the server, given the file with its plan."""
    plan: Plan = pickle.loads(mmap(file, 0))  # noqa: S301 -- from our own parent

    def report(index: int, pid: int, status: int) -> None:
        with suppress(BrokenPipeError):  # the main process has died
            os.write(plan.events.fileno(), EVENT.pack(index, pid, status))

    for module in plan.preload:
        with suppress(Exception):  # a worker that needs it will report the error
            importlib.import_module(module)
    inherited = {*open_here}
    open_here.clear()  # the workers do not close them
    running: dict[int, int] = {}
    for index in range(len(plan.meters.workers)):
        try:
            pid = os.fork()
        except OSError as error:
            report(index, 0, error.errno or 0)
            break
        if not pid:
            open_here.update(inherited)
            _work(plan, index)
        running[pid] = index
    for descriptor in inherited - {plan.events, plan.alive}:
        descriptor.close()

    def kill_workers() -> None:  # one in native code may be unable to notice by itself that the main process has died
        for pid in list(running):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    _after_main(plan.alive, kill_workers)
    while running:
        pid, status = os.wait()
        if (index := running.pop(pid, -1)) >= 0:  # not a child of a preloaded module
            report(index, pid, os.waitstatus_to_exitcode(status))
    if select.select([plan.alive], [], [], 0)[0]:  # the main process has died, and so the workers have ended
        for folder in plan.temporary:
            shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _after_main(alive: Descriptor, action: Callable[[], object]) -> None:
    """Start a thread that does something when the main process has died."""

    def wait() -> None:
        os.read(alive.fileno(), 1)
        action()

    threading.Thread(target=wait, name="parent watch", daemon=True).start()


def _work(plan: Plan, index: int) -> NoReturn:
    """Run the worker with this index in this process, and exit."""
    step, number = plan.meters.workers[index]
    meter = plan.meters.steps[step][number]
    meter.begin()
    for descriptor in open_here:
        os.set_inheritable(descriptor.fileno(), False)  # by processes that the stage function starts
    plan.events.close()
    for other, channel in enumerate(plan.channels):
        if other != step:
            channel.close_writers()
    status = 1
    try:
        _after_main(plan.alive, partial(os._exit, 1))
        stage, route = pickle.loads(plan.jobs[step])  # noqa: S301 -- from our own parent
        take = partial(plan.channels[step - 1].get, number, meter)  # which a source does not call
        for packed, consumer in outputs(stage, route, meter, take):
            plan.channels[step].put(packed, consumer, meter)
        meter.end(time.process_time())
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # of any kind: it goes to the caller
        plan.failure_lock.take()
        try:
            write_all(plan.failure, pack_failure(plan.names[step], number, error))
        except OSError:  # a file size limit
            traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status)
