"""Engines for tests: one in the calling process, and faults for any."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bpeflow.engines.engine import Call, Engine, Handle, TaskReport, run_call
from bpeflow.errors import BpeflowError, TaskLostError


class InlineEngine:
    """Runs tasks in the calling process, while it waits for them, the one submitted last first."""

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots
        self.calls: list[Call] = []
        self.most_in_flight = 0
        self._in_flight: set[int] = set()

    def nodes(self, probe: Call) -> Sequence[TaskReport | BpeflowError]:
        return [run_call(probe)]

    def submit(self, call: Call, cpus: int, memory: int) -> Handle:
        self.calls.append(call)
        self._in_flight.add(len(self.calls) - 1)
        self.most_in_flight = max(self.most_in_flight, len(self._in_flight))
        return len(self.calls) - 1

    def wait(self, handles: Collection[Handle], timeout: float) -> Sequence[Handle]:
        return [max(handles)]  # type: ignore[type-var]

    def result(self, handle: Handle) -> TaskReport | BpeflowError:
        self._in_flight.remove(handle)  # type: ignore[arg-type]
        return run_call(self.calls[handle])  # type: ignore[index]

    def stop(self) -> None:
        self._in_flight.clear()


class ChangedEngine:
    """Another engine, with changed calls and outcomes. It leaves tasks running that the other engine does not know."""

    def __init__(
        self,
        engine: Engine,
        call: Callable[[int, Call], Call] = lambda number, call: call,
        outcome: Callable[[int, Any], Any] = lambda number, outcome: outcome,
        twice: bool = False,
    ) -> None:
        self._engine = engine
        self._call = call
        self._outcome = outcome
        self._twice = twice
        self._numbers: dict[Handle, int] = {}
        self.submitted = 0

    @property
    def slots(self) -> int:
        return self._engine.slots

    def nodes(self, probe: Call) -> Sequence[TaskReport | BpeflowError]:
        return [self._outcome(-1, outcome) for outcome in self._engine.nodes(self._call(-1, probe))]

    def submit(self, call: Call, cpus: int, memory: int) -> Handle:
        changed = self._call(self.submitted, call)
        if self._twice:
            self._engine.submit(changed, cpus, memory)
        handle = self._engine.submit(changed, cpus, memory)
        self._numbers[handle] = self.submitted
        self.submitted += 1
        return handle

    def wait(self, handles: Collection[Handle], timeout: float) -> Sequence[Handle]:
        return self._engine.wait(handles, timeout)

    def result(self, handle: Handle) -> TaskReport | BpeflowError:
        outcome = self._outcome(self._numbers[handle], self._engine.result(handle))
        if isinstance(outcome, TaskLostError):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    def stop(self) -> None:
        self._engine.stop()


#: The moments at which a task can die that writes a file: before it does anything, when the file has been written but
#: not synced, when it has been synced but has no name, when it has its name, and when the task has ended.
STEPS = ("begin", "written", "synced", "named", "end")


@dataclass(frozen=True)
class DieAt:
    """A function that kills its process at a step, the first time that it is called."""

    step: str
    mark: Path
    call: Call

    def __call__(self, *arguments: Any) -> Any:
        if self.mark.exists():
            return self.call.function(*arguments)
        self.mark.touch()
        sync, rename = os.fsync, Path.replace
        if self.step == "begin":
            die()
        if self.step == "written":
            os.fsync = die
        if self.step == "synced":
            Path.replace = die  # type: ignore[method-assign]
        if self.step == "named":
            Path.replace = lambda *paths: (rename(*paths), die())  # type: ignore[assignment, func-returns-value, method-assign]
        try:
            return self.call.function(*arguments)
        finally:
            os.fsync, Path.replace = sync, rename  # type: ignore[method-assign]
            die()


def dying(call: Call, step: str, mark: Path) -> Call:
    """Return the call with a function that dies at a step, once."""
    return replace(call, function=DieAt(step, mark, call))


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
