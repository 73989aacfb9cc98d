"""Faults for the real program, which does not know about them.

Python imports this module at the start of every process that has its folder on PYTHONPATH: the main process, the fork
server and through it the workers. The environment variable CRASH names a function, ``module:qualified.name``; what to
do before one of its calls, or instead of it; which call of a process that is; and a file that says when it was done,
and by which process. It is done once, by the first process that comes to it.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path


class Unpicklable:
    """An item that cannot be pickled, or a list or generator with one."""

    def __iter__(self):
        yield self

    def __reduce__(self):
        raise TypeError("cannot pickle the injected item")


def allow_no_more_memory(more=0):
    """Let every allocation fail that needs more pages than these."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def take_all_memory():
    allow_no_more_memory(50_000_000)
    taken = []
    while True:
        taken.append(bytes(10_000_000))


def run_into_the_limit():
    """Call the function itself, in a process that cannot grow any more."""
    allow_no_more_memory()


def wait():
    """Wait for signals, or until the file is removed that says that it waits."""
    deadline = time.monotonic() + 60
    while Path(fault["mark"]).exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def crash():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def fail():
    raise RuntimeError("the injected defect")


def fill(path):
    """Fill the disk that the file is on; without a file, let no file of this process grow."""
    if path is None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        return
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def have_no_more_processes():
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def have_no_more_threads():
    raise RuntimeError("can't start new thread")


def shorten(path):
    os.truncate(path, path.stat().st_size // 3)


def replace(path):
    """Replace a file by one of other content, as editors and downloads do."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes().swapcase())
    other.replace(path)


ACTIONS = {
    "raise": fail,
    "exit": lambda: os._exit(7),
    "exit0": lambda: os._exit(0),
    "segfault": crash,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "memory": take_all_memory,
    "native memory": run_into_the_limit,
    "unpicklable": Unpicklable,
    "wait": wait,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "fill": lambda: fill(fault["file"]),
    "truncate": lambda: shorten(fault["file"]),
    "remove": lambda: fault["file"].unlink(),
    "replace": lambda: replace(fault["file"]),
    "no process": have_no_more_processes,
    "no thread": have_no_more_threads,
}


def faulty(function):
    calls = 0

    def call(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == fault["call"] and is_first():
            found = ACTIONS[fault["action"]]()
            if found is not None:
                return found
        return function(*arguments, **options)

    return call


def is_first():
    try:
        with open(fault["mark"], "x", encoding="ascii") as file:  # noqa: PTH123
            file.write(f"{time.monotonic()} {os.getpid()}")
    except FileExistsError:
        return False
    return True


class Saboteur:
    """Replaces the function when its module is imported."""

    def __init__(self):
        self.module, _, name = fault["where"].partition(":")
        *self.path, self.name = name.split(".")

    def find_spec(self, name: str, path=None, target=None) -> "ModuleSpec | None":
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_exchange(module):
            execute(module)
            self.exchange(module)

        spec.loader.exec_module = execute_and_exchange
        return spec

    def exchange(self, module):
        owner = module
        for part in self.path:
            owner = getattr(owner, part)
        setattr(owner, self.name, faulty(getattr(owner, self.name)))


if "CRASH" in os.environ:
    fault = json.loads(os.environ["CRASH"])
    fault["file"] = fault["file"] and Path(fault["file"])
    saboteur = Saboteur()
    if saboteur.module in sys.modules:  # in a process that was forked with everything imported
        saboteur.exchange(sys.modules[saboteur.module])
    else:
        sys.meta_path.insert(0, saboteur)
