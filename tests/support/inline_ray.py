"""Ray for tests: its tasks run in the calling process; and tasks that die at a step."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bpeflow.counting.cluster import Cluster

RayError = type("RayError", (Exception,), {})


@dataclass(eq=False)
class InlineRay:
    """Stands in for the module `ray`. Runs a task when it is waited for, the last submitted first, in another folder.

    Attributes:
        slots: the number of cores.
        repeated: the numbers of tasks that run twice, as those whose result is lost with their node.
        lost: the numbers of tasks that are lost more often than they are repeated.
        before: called with the number of a task before it runs.
        names: the names of the tasks submitted.
        most_in_flight: the most tasks that were submitted and had not ended.
    """

    slots: int = 2
    repeated: Collection[int] = ()
    lost: Collection[int] = ()
    before: Callable[[int], object] = lambda number: None
    names: list[str] = field(default_factory=list)
    most_in_flight: int = 0
    memory: int = 10**12

    def __post_init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=RayError, RayTaskError=type("RayTaskError", (RayError,), {}))
        self._calls: dict[int, bytes] = {}

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Have bpeflow import this as Ray."""
        patch.setitem(sys.modules, "ray", self)
        patch.setattr(Cluster, "_answers", lambda cluster: True)

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(gcs_address="head:1")

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": float(self.slots), "memory": float(self.memory)}}]

    def remote(self, **_options: object) -> Callable[[Any], Any]:
        def task(function: Any, name: str) -> SimpleNamespace:
            return SimpleNamespace(remote=lambda *arguments: self._submit(name, (function, arguments)))

        return lambda function: SimpleNamespace(options=lambda name: task(function, name))

    def _submit(self, name: str, call: tuple[Any, ...]) -> int:
        self.names.append(name.removeprefix("bpeflow "))
        self._calls[len(self.names) - 1] = pickle.dumps(call)
        self.most_in_flight = max(self.most_in_flight, len(self._calls))
        return len(self.names) - 1

    def wait(self, references: Sequence[int], **_options: object) -> tuple[list[int], list[int]]:
        return ([max(references)] if references else []), []

    def get(self, number: int) -> Any:
        function, arguments = pickle.loads(self._calls.pop(number))
        here = Path.cwd()
        os.chdir("/")  # as a worker that was started elsewhere
        try:
            for _ in range(2 if number in self.repeated else 1):
                self.before(number)
                outcome = function(*arguments)
        finally:
            os.chdir(here)
        if number in self.lost:
            raise RayError("The worker died unexpectedly.\nMore about it.")
        return outcome

    def cancel(self, number: int, force: bool) -> None:
        del self._calls[number]


#: The moments at which a task can die that writes a file: before it does anything, when the file has been written but
#: not synced, when it has been synced but has no name, when it has its name, and when the task has ended.
STEPS = ("begin", "written", "synced", "named", "end")


def run_and_die(step: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, and kill this process at a step."""
    sync, rename = os.fsync, Path.replace
    if step == "begin":
        die()
    if step == "written":
        os.fsync = die
    if step == "synced":
        Path.replace = die  # type: ignore[method-assign]
    if step == "named":
        Path.replace = lambda *paths: (rename(*paths), die())  # type: ignore[assignment, func-returns-value, method-assign]
    try:
        return function(*arguments)
    finally:
        os.fsync, Path.replace = sync, rename  # type: ignore[method-assign]
        die()


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
