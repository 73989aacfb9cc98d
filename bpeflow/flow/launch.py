"""Starting worker processes: by which method, with what in them, and safe from Ctrl-C and from the main script.

Notes
-----
**Start methods.** "forkserver" (the default; "spawn" where it does not exist) forks workers from a small clean process
that has imported only what ``preload`` names. "spawn" starts fresh interpreters. "fork" copies this process with all
its memory and with whatever locks its other threads hold at that moment. In every case functions travel by pickle,
so a pipeline that works with one method works with all.

**OpenMP.** GNU's OpenMP keeps its threads from one parallel region to the next, and a forked child has the bookkeeping
but not the threads: it hangs in its first parallel region. So a process that forks workers must not have run such a
region: do not run one while a preloaded module is imported, and avoid the start method "fork". In workers use one
thread each; the workers are the parallelism already.

**The main script.** A process made by forkserver or spawn normally imports the script that was run as ``__main__``,
which is why multiprocessing asks for ``if __name__ == "__main__":`` around whatever starts processes. We need that only
if a stage function (or something in it) is *defined* in that script. Otherwise the script is left out of what workers
are told, and needs no guard; the same goes for ``python -c``, a script on standard input and a notebook.

**Ctrl-C.** A terminal sends SIGINT to the whole foreground group. Workers ignore it as their first act, and so that
there is no moment before that, they and the fork server start with it blocked. (Processes that other code starts
through the same fork server therefore begin with SIGINT blocked, too.) SIGHUP, by which a terminal tells them all that
it is gone, stays blocked in them, and in multiprocessing's tracker of shared memory: the main process ends them.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import pickle
import pickletools
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing import spawn, util
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

from .errors import FlowError
from .spec import QueueSpec, Source, Stage
from .worker import Job, WorkerContext, work

#: Signals by which people, schedulers and terminals end a process.
ENDING_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_PRELOADED = "bpeflow.flow.worker"

# Held while a process is started, which `_main_script_left_out` patches multiprocessing for, and while one is joined
# and closed: whoever starts a process polls all that there are, and two threads that poll one take its exit status
# from each other, or find it half closed. Whoever forks waits for the lock, so that no child inherits the patch, or the
# lock in the hands of a thread that it does not have.
process_table = threading.RLock()


if hasattr(os, "register_at_fork"):
    free = process_table.release
    os.register_at_fork(before=process_table.acquire, after_in_parent=free, after_in_child=free)


def start_context(start_method: str) -> BaseContext:
    """Return the multiprocessing context for a start method."""
    available = multiprocessing.get_all_start_methods()
    if start_method == "forkserver" and start_method not in available:
        start_method = "spawn"
    if start_method not in available:
        raise FlowError(f"start method {start_method!r} is not one of {', '.join(available)}")
    return multiprocessing.get_context(start_method)


def pickle_job(station: Source | Stage, writes: QueueSpec) -> bytes:
    """Pickle what the workers of a stage need of the user's, or raise FlowError naming what cannot be pickled."""
    weigh = station.weigh if isinstance(station, Stage) else None
    _check_pickles(f"stage {station.name!r}: function", station.function)
    _check_pickles(f"stage {station.name!r}: weigh", weigh)
    _check_pickles(f"queue {writes.name!r}: route", writes.route)
    return pickle.dumps(Job(station.function, weigh, writes.route))


def _check_pickles(role: str, function: object) -> None:
    try:
        pickle.dumps(function)
    except Exception as error:
        raise FlowError(f"{role} {function!r} cannot be pickled: define it at module level") from error


def _loads_from_main(job: bytes) -> bool:
    """Return whether loading a pickle looks something up in ``__main__``.

    It is not enough that the name occurs: a file path may say ``__main__.py``. And nothing may be loaded to find out,
    because that runs code of the user. So the opcodes are read (`pickletools`): a global is two strings, module and
    name, followed by STACK_GLOBAL; each of the two is spelt out or fetched from the memo. Between them the pickler
    writes nothing else that pushes something, so the last two things pushed are enough of the stack.
    """
    if b"__main__" not in job:  # nearly always, and reading the opcodes of 100,000 paths takes 0.1 s
        return False
    memo: dict[object, object] = {}  # by number, from 0
    below, top = None, None
    for opcode, argument, _ in pickletools.genops(job):
        match opcode.name:
            case "STACK_GLOBAL" if below == "__main__":
                return True
            case "MEMOIZE":
                memo[len(memo)] = top
            case "BINGET" | "LONG_BINGET":
                below, top = top, memo[argument]
            case "FRAME":
                pass
            case _:
                below, top = top, argument
    return False


class Launcher:
    """Starts the workers of one run.

    The modules in ``preload`` are imported by the fork server, if it has not started yet: there is one for the whole
    process, and it lives as long.
    """

    def __init__(self, context: BaseContext, jobs: Sequence[bytes], preload: Sequence[str]) -> None:
        self._context = context
        forked = context.get_start_method() == "fork"
        if context.get_start_method() == "forkserver":
            context.set_forkserver_preload([_PRELOADED, *preload])
        needs_main = not forked and any(_loads_from_main(job) for job in jobs)
        self._hides_main = not forked and not needs_main
        this_process = multiprocessing.process.current_process()
        if getattr(this_process, "_inheriting", False):
            raise FlowError(
                "a pipeline was started while a worker was importing the main script. Put what starts it under\n"
                '    if __name__ == "__main__":\n'
                "or move the stage functions to a module of their own"
            )
        if this_process.daemon:
            raise FlowError(
                "a pipeline was started in a daemonic process (such as a worker of multiprocessing.Pool, or a stage of "
                "another pipeline), which may not start processes: run it in the main process or in one with "
                "daemon=False, or without processes: run(inline=True)"
            )
        if needs_main and not _main_can_be_imported():
            raise FlowError(
                "a stage function is defined in __main__, which workers cannot import here (an interactive session, "
                'python -c, or standard input): move it to a module, or use start_method="fork"'
            )

    def temporary(self) -> tuple[str, ...]:
        """The folder in which multiprocessing has the fork server's socket: it goes at the end of this process."""
        return (util.get_temp_dir(),) if self._context.get_start_method() == "forkserver" else ()

    def start(self, name: str, post: WorkerContext) -> BaseProcess:
        """Start one worker. Call it with Ctrl-C held back."""
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=work, args=(post,), name=name, daemon=True
        )
        with process_table, _main_script_left_out() if self._hides_main else nullcontext():
            process.start()
        return process


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back while the body runs, and deliver it afterwards. Processes started meanwhile have it blocked.

    So are SIGTERM and SIGHUP, where this process has a handler; processes started meanwhile do not have those blocked.

    Two things are needed. The signal mask is what child processes inherit; but it does not protect this thread,
    because Python runs its handler in the main thread whichever thread the kernel chose. So the handler is exchanged
    too.
    (Outside the main thread there is no handler to run, and none to exchange.)
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    found = {number: signal.getsignal(number) for number in ENDING_SIGNALS if in_main_thread}
    handlers = {number: handler for number, handler in found.items() if callable(handler)}
    held: list[tuple[int, FrameType | None]] = []
    for number in handlers:
        signal.signal(number, lambda number, frame: held.append((number, frame)))
    try:
        with terminal_signals_blocked():
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if held:
            handlers[signal.Signals(held[0][0])](*held[0])


@contextmanager
def terminal_signals_blocked() -> Iterator[None]:
    """Let processes that are started in the body begin with Ctrl-C and the end of the terminal blocked."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _main_script_left_out() -> Iterator[None]:
    """Let processes that this thread starts in the body not be told of the main script, so that they import none.

    What they are told comes from `multiprocessing.spawn.get_preparation_data`, whatever the start method; there is no
    setting for it. Other threads still get all of it, and see ``sys.modules["__main__"]`` as it is: they may be
    starting processes or pickling at this moment. Hold `process_table`.
    """
    prepare = spawn.get_preparation_data
    starter = threading.get_ident()

    def prepare_without_main(name: str) -> dict[str, Any]:
        data: dict[str, Any] = prepare(name)
        if threading.get_ident() == starter:
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    spawn.get_preparation_data = prepare_without_main
    try:
        yield
    finally:
        spawn.get_preparation_data = prepare


def _main_can_be_imported() -> bool:
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:
        return True
    file = getattr(main, "__file__", None)
    return file is not None and Path(file).exists()
