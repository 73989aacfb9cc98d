"""What holds a pipeline up, found from its meters alone: workers that make no progress, and the slow stage."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from .meters import Activity
from .pipeline import Snapshot, WorkerState

_WAITING = {Activity.WAITING_FOR_ITEM: "waiting for an item", Activity.WAITING_FOR_ROOM: "waiting for room"}
_MAX_DESCRIBED = 8  # workers that are described one by one; a stage may have hundreds

#: Share of its time that the workers of the slow stage work, at least. The others wait for it, and so work less.
_BUSY = 0.75

#: Share of its time that the stage before the slow one, or after a slow source, waits for it.
_HALF = 0.5


@dataclass(frozen=True)
class Stall:
    """Workers that make no progress, for at least `seconds`."""

    seconds: float
    workers: Sequence[WorkerState]

    def line(self) -> str:
        """Return a description, such as `no progress for 73 s: counter 2 working (pid 4711, disk-sleep)`."""
        described = [_describe(state) for state in self.workers[:_MAX_DESCRIBED]]
        if (more := len(self.workers) - _MAX_DESCRIBED) > 0:
            described.append(f"and {more} more")
        return f"no progress for {self.seconds:.0f} s: {', '.join(described)}"


def find_stall(snapshot: Snapshot, patience: float) -> Stall | None:
    """Return the workers that have been at one item for `patience` seconds; if all have waited for so long, all.

    Nothing can decide whether such a worker is slow, stopped or stuck forever, but the state of its process gives a
    clue.
    """
    still = [state for state in snapshot.workers if state.seconds >= patience]
    stalled = [state for state in still if state.activity not in _WAITING]
    if len(still) == len(snapshot.workers):
        stalled = stalled or still
    return Stall(min(state.seconds for state in stalled), stalled) if stalled else None


def _describe(state: WorkerState) -> str:
    status = ""
    with suppress(Exception):  # psutil is missing, or the process has just exited
        import psutil  # here, because its import takes longer than many runs that never stall

        status = f", {psutil.Process(state.pid).status()}"
    who = f"{state.stage} {state.worker}" if state.pid != os.getpid() else state.stage
    return f"{who} {_WAITING.get(state.activity, state.activity.name.lower())} (pid {state.pid}{status})"


def find_bottleneck(before: Snapshot, now: Snapshot) -> str | None:
    """Return the stage that others have waited for between two snapshots; None if the pipeline was balanced.

    It is the last stage that works although the stage before waits for room, or has ended; or else the source, if the
    stage after it waits for items.
    """
    names = list(now.stages)
    spent = [
        [after - earlier for after, earlier in zip(now.stages[name].seconds, before.stages[name].seconds, strict=True)]
        for name in names
    ]

    def share(step: int, activity: Activity) -> float:
        return spent[step][activity] / (sum(spent[step]) or 1.0)

    for step in reversed(range(1, len(names))):
        held_up = share(step - 1, Activity.WAITING_FOR_ROOM) >= _HALF or not sum(spent[step - 1])
        if held_up and share(step, Activity.WORKING) >= _BUSY:
            return names[step]
    source_is_slow = share(0, Activity.WORKING) >= _BUSY and share(1, Activity.WAITING_FOR_ITEM) >= _HALF
    return names[0] if source_is_slow else None
