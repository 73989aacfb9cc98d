"""`Engine`: what the coordinator needs of a cluster, and what travels between the two.

A task is a `Call`. Workers run it with `run_call`, whose outcome is a value in any case: a `TaskReport`, or an error of
the task, such as an input that is not UTF-8. Tasks are pure: to run one twice, or to ignore its outcome, does no harm.
Data travels in files on storage that all nodes share, never in arguments and outcomes, which are small.
"""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from time import perf_counter, process_time
from typing import Any, Protocol

from bpeflow._util.machine import explain, is_memory_error
from bpeflow.errors import BpeflowError, EngineError, OutOfMemoryError
from bpeflow.flow import peak_memory

#: A submitted task, as the engine knows it.
Handle = Hashable


@dataclass(frozen=True)
class Call:
    """A task: a function and its arguments, all of them picklable.

    Attributes:
        name: the name in logs and dashboards, such as ``count 12``.
        function: a function of a module, or an instance with `__call__`.
        arguments: its positional arguments.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class TaskReport:
    """The outcome of a task that has succeeded.

    Attributes:
        value: the result of the function.
        node: host name of the node.
        process: id of the process there.
        seconds: wall time.
        cpu_seconds: processor time, of all threads.
        peak_memory: the most memory that the process has taken so far, in bytes.
    """

    value: Any
    node: str
    process: int
    seconds: float
    cpu_seconds: float
    peak_memory: int


class Engine(Protocol):
    """Runs tasks. An engine never retries a task: that is up to the coordinator."""

    @property
    def slots(self) -> int:
        """The number of tasks that run at the same time, at least 1; it may change while nodes come and go."""
        ...

    def nodes(self, probe: Call) -> Sequence[TaskReport | BpeflowError]:
        """Run `probe` once on each node, and return the outcomes.

        Raises:
            EngineError: the cluster has no node, or one does not answer.
        """
        ...

    def submit(self, call: Call, cpus: int, memory: int) -> Handle:
        """Start a task as soon as there is room for it. Does not wait.

        Args:
            call: the task.
            cpus: threads that it uses.
            memory: bytes that it uses, at most, besides those of an idle worker.

        Raises:
            EngineError: the cluster is gone, or no node will ever have that much room.
        """
        ...

    def wait(self, handles: Collection[Handle], timeout: float) -> Sequence[Handle]:
        """Wait until at least one of these tasks has ended or been lost, and return those that have.

        Returns an empty sequence after `timeout` seconds. Ctrl-C interrupts it.
        """
        ...

    def result(self, handle: Handle) -> TaskReport | BpeflowError:
        """Return the outcome of a task that `wait` has returned. The engine then forgets the task.

        Raises:
            TaskLostError: the worker or its node died, or was killed because memory ran out.
            EngineError: the cluster is gone.
        """
        ...

    def stop(self) -> None:
        """Cancel all tasks and release everything, also after errors and interruptions. May be called twice."""
        ...


@cache
def host_name() -> str:
    """Return the name of this node in reports and messages."""
    return socket.gethostname()


def run_call(call: Call) -> TaskReport | BpeflowError:
    """Run a task in the calling process. Engines call this in their workers.

    An error is returned, not raised, and names the node. It keeps its type if it is one of bpeflow's.
    """
    began, cpu = perf_counter(), process_time()
    try:
        value = call.function(*call.arguments)
    except BpeflowError as error:
        return type(error)(f"on node {host_name()}: {error}")
    except Exception as error:
        where = f"on node {host_name()}, {call.name}"
        if is_memory_error(error):
            return OutOfMemoryError(f"{where}: {explain(error)}; give tasks more memory, or use smaller segments")
        if isinstance(error, OSError):
            return EngineError(f"{where}: {error.filename or 'input/output'}: {error.strerror or error}")
        place = traceback.extract_tb(error.__traceback__)[-1]
        return EngineError(f"{where}: {error!r}, raised in {place.filename}, line {place.lineno} (please report this)")
    return TaskReport(value, host_name(), os.getpid(), perf_counter() - began, process_time() - cpu, peak_memory())
