"""Start worker processes: start methods, the main script, and signals.

**Start methods.** `forkserver` (the default; `spawn` where it does not exist) forks workers from a small clean process
that has imported only the modules named in `preload`. `spawn` starts fresh interpreters. `fork` copies this process
with all its memory and with any locks that its other threads hold at that moment. Functions travel by pickle with every
method, so a pipeline that works with one method works with all.

**OpenMP.** GNU's OpenMP keeps its threads from one parallel region to the next. A forked child inherits the bookkeeping
but not the threads, so it hangs in its first parallel region. A process that forks workers must therefore not have run
such a region: do not run one while a preloaded module is imported, and avoid the start method `fork`. In workers use
one thread each, because the workers already are the parallelism.

**The main script.** A process started by `forkserver` or `spawn` normally imports the script that was run as
`__main__`, which is why multiprocessing asks for `if __name__ == "__main__":` around code that starts processes. We
need that import only if a stage function (or something in it) is *defined* in that script. Otherwise the script is
left out of the data that multiprocessing sends to workers, and it needs no guard. The same holds for `python -c`, a
script on standard input, and a notebook.

**Signals.** A terminal sends SIGINT to its whole foreground group. Workers ignore it as their first act. To leave no
gap before that, they and the fork server start with SIGINT blocked. (Processes that other code starts through the same
fork server therefore also start with SIGINT blocked.) SIGHUP, which a terminal sends to all of them when it closes,
stays blocked in workers and in multiprocessing's resource tracker: the main process ends them.
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
from .worker import Job, WorkerContext, run_worker

#: The signals by which users, schedulers and terminals end a process.
ENDING_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_PRELOADED = "bpeflow.flow.worker"

#: Held while a process is started, because `_main_script_hidden` patches multiprocessing for that, and while a process
#: is joined and closed. Starting a process polls all existing ones, and two threads that poll the same process take its
#: exit status from each other, or find it half closed. A fork also waits for this lock, so that no child inherits the
#: patch, or the lock held by a thread that the child does not have.
process_table_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    release = process_table_lock.release
    os.register_at_fork(before=process_table_lock.acquire, after_in_parent=release, after_in_child=release)


def start_context(start_method: str) -> BaseContext:
    """Return the multiprocessing context for a start method."""
    available = multiprocessing.get_all_start_methods()
    if start_method == "forkserver" and start_method not in available:
        start_method = "spawn"
    if start_method not in available:
        raise FlowError(f"start method {start_method!r} is not one of {', '.join(available)}")
    return multiprocessing.get_context(start_method)


def pickle_job(step: Source | Stage, output: QueueSpec) -> bytes:
    """Pickle the user's functions for the workers of a stage, or raise FlowError naming the one that cannot be."""
    weigh = step.weigh if isinstance(step, Stage) else None
    _check_picklable(f"stage {step.name!r}: function", step.function)
    _check_picklable(f"stage {step.name!r}: weigh", weigh)
    _check_picklable(f"queue {output.name!r}: route", output.route)
    return pickle.dumps(Job(step.function, weigh, output.route))


def _check_picklable(role: str, function: object) -> None:
    try:
        pickle.dumps(function)
    except Exception as error:
        raise FlowError(f"{role} {function!r} cannot be pickled: define it at module level") from error


def _refers_to_main(job: bytes) -> bool:
    """Return whether loading a pickle looks up a name in `__main__`.

    It is not enough that the string occurs: a file path may contain `__main__.py`. And the pickle cannot be loaded to
    find out, because that runs the user's code. So the opcodes are read (`pickletools`). A global is two strings,
    module and name, followed by STACK_GLOBAL; each of the two is spelt out or fetched from the memo. The pickler pushes
    nothing else between them, so it is enough to track the top two entries of the stack.
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

    The fork server imports the modules in `preload`, unless it is already running: a process has one fork server, which
    lives as long as the process.
    """

    def __init__(self, context: BaseContext, jobs: Sequence[bytes], preload: Sequence[str]) -> None:
        self._context = context
        uses_fork = context.get_start_method() == "fork"
        if context.get_start_method() == "forkserver":
            context.set_forkserver_preload([_PRELOADED, *preload])
        needs_main = not uses_fork and any(_refers_to_main(job) for job in jobs)
        self._hide_main = not uses_fork and not needs_main
        this_process = multiprocessing.process.current_process()
        if getattr(this_process, "_inheriting", False):
            raise FlowError(
                "a pipeline was started while a worker was importing the main script. Put the code that starts it "
                'under\n    if __name__ == "__main__":\n'
                "or move the stage functions to a separate module"
            )
        if this_process.daemon:
            raise FlowError(
                "a pipeline was started in a daemonic process (such as a worker of multiprocessing.Pool, or a stage of "
                "another pipeline), which may not start processes: run it in the main process or in a process with "
                "daemon=False, or without processes: run(inline=True)"
            )
        if needs_main and not _main_can_be_imported():
            raise FlowError(
                "a stage function is defined in __main__, which workers cannot import here (an interactive session, "
                'python -c, or standard input): move it to a module, or use start_method="fork"'
            )

    def temporary_folders(self) -> tuple[str, ...]:
        """Return the folder that holds the fork server's socket. multiprocessing removes it when this process exits."""
        return (util.get_temp_dir(),) if self._context.get_start_method() == "forkserver" else ()

    def start(self, name: str, worker_context: WorkerContext) -> BaseProcess:
        """Start one worker. Call it with signals deferred."""
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=run_worker, args=(worker_context,), name=name, daemon=True
        )
        with process_table_lock, _main_script_hidden() if self._hide_main else nullcontext():
            process.start()
        return process


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer Ctrl-C until the body has run. Processes started in the body start with it blocked.

    SIGTERM and SIGHUP are deferred too, if this process has a handler for them. Processes started in the body start
    with SIGHUP blocked, but not SIGTERM.

    This takes two steps. Child processes inherit the signal mask, but the mask does not protect this thread, because
    Python runs handlers in the main thread, whichever thread the kernel chose. So the handlers are replaced as well.
    (Outside the main thread there is no handler to run, and none to replace.)
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    found = {number: signal.getsignal(number) for number in ENDING_SIGNALS if in_main_thread}
    handlers = {number: handler for number, handler in found.items() if callable(handler)}
    deferred: list[tuple[int, FrameType | None]] = []
    for number in handlers:
        signal.signal(number, lambda number, frame: deferred.append((number, frame)))
    try:
        with terminal_signals_blocked():
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if deferred:
            handlers[signal.Signals(deferred[0][0])](*deferred[0])


@contextmanager
def terminal_signals_blocked() -> Iterator[None]:
    """Block SIGINT and SIGHUP while the body runs, so that processes started in it inherit the mask."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _main_script_hidden() -> Iterator[None]:
    """Hide the main script from processes that this thread starts in the body, so that they do not import it.

    The data sent to a new process comes from `multiprocessing.spawn.get_preparation_data`, whatever the start method,
    and no setting controls it. Other threads still get all the data, and `sys.modules["__main__"]` stays as it is,
    because they may be starting processes or pickling at the same time. The caller must hold `process_table_lock`.
    """
    original = spawn.get_preparation_data
    starting_thread = threading.get_ident()

    def prepare_without_main(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        if threading.get_ident() == starting_thread:
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    spawn.get_preparation_data = prepare_without_main
    try:
        yield
    finally:
        spawn.get_preparation_data = original


def _main_can_be_imported() -> bool:
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:
        return True
    file = getattr(main, "__file__", None)
    return file is not None and Path(file).exists()
