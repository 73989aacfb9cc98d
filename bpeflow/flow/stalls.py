"""Stalls: stages that make no progress, found in a `Snapshot`, with what there is to see of them.

A worker *hangs* if it does the same thing for a long time, and if that is not for want of something from another stage:
it works on one item; it waits for an item that lies there, or for the end of a stage that has ended; it waits for room
that all its readers wait to make. A worker that waits behind a slow stage, or before one, does not hang: that one is
named. Whether what hangs is slow, stopped or stuck for ever nobody can know; the state of its process tells more.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .meters import Activity, QueueDepth
from .pipeline import MAIN, Snapshot, WorkerState

_WORDS = {
    Activity.STARTING: "starting",
    Activity.WORKING: "at work on one item",
    Activity.WAITING_FOR_ITEM: "waiting for an item",
    Activity.WAITING_FOR_ROOM: "waiting for room in its queue",
    Activity.HANDING_ON: "handing on its last items",
}

_log = logging.getLogger(__name__)
_SHOWN = 8  # workers that are described one by one; a stage may have hundreds
_LOOK_SECONDS = 0.2  # for how long processor time is watched: the system counts it in hundredths of a second


@dataclass(frozen=True)
class Stall:
    """A stage without progress: the queues before and behind it, and all its workers, of which some hang."""

    stage: str
    seconds: float
    queues: Mapping[str, QueueDepth]
    hanging: Sequence[WorkerState]
    workers: Sequence[WorkerState]

    def line(self) -> str:
        """Return it in a few words, such as ``counter: no progress for 12 s (1 of 4 workers)``."""
        return f"{self.stage}: no progress for {self.seconds:.0f} s ({len(self.hanging)} of {_workers(self.workers)})"

    def describe(self) -> str:
        """Return all there is to see of it; looks at the processes that hang, for a fraction of a second."""
        looks = _look_at([state.pid for state in self.hanging[:_SHOWN]])
        hanging = [_describe(state, looks.get(state.pid, "")) for state in self.hanging[:_SHOWN]]
        if more := self.hanging[_SHOWN:]:
            hanging.append(f"and {len(more)} more")
        others = [state.activity for state in self.workers if state not in self.hanging]
        resting = [f"{others.count(activity)} {_WORDS[activity]}" for activity in Activity if activity in others]
        queues = [f"{name} holds {_number(depth.items, 'item')}" for name, depth in self.queues.items()]
        return (
            f"stage {self.stage!r} makes no progress: {len(self.hanging)} of {_workers(self.workers)} for "
            f"{self.seconds:.0f} s. {'; '.join(hanging)}. "
            + (f"Its other workers: {', '.join(resting)}. " if resting else "")
            + f"{', '.join(queues)}"
        )


class StallLog:
    """Says in the log when a stage makes no progress, again whenever that has lasted twice as long, and its end."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def hear(self, stalls: Sequence[Stall]) -> None:
        """Take what a look at the pipeline has found, if only that nothing stalls any more."""
        for stall in stalls:
            if stall.seconds >= 2 * self._said.get(stall.stage, 0.0):
                self._said[stall.stage] = stall.seconds
                _log.warning("%s", stall.describe())
        for stage in self._said.keys() - {stall.stage for stall in stalls}:
            del self._said[stage]
            _log.warning("stage %r makes progress again", stage)


def find_stalls(snapshot: Snapshot, patience: float) -> list[Stall]:
    """Return the stages of which workers have done the same thing for ``patience`` seconds and hang, in their order."""
    names = [*snapshot.stages, MAIN]
    crews = {name: [state for state in snapshot.workers if state.stage == name] for name in names}
    queues = list(snapshot.queues.items())
    stalls = []
    for place, name in enumerate(names):
        before, behind = queues[max(place - 1, 0) : place], queues[place : place + 1]
        above = crews[names[place - 1]] if place else []
        below = crews[names[place + 1]] if behind else []
        hanging = [
            state
            for state in crews[name]
            if state.seconds >= patience and _hangs(state, crews[name], before, above, below)
        ]
        if hanging:
            seconds = max(state.seconds for state in hanging)
            stalls.append(Stall(name, seconds, dict(before + behind), hanging, crews[name]))
    return stalls


def _hangs(
    state: WorkerState,
    crew: Sequence[WorkerState],
    before: Sequence[tuple[str, QueueDepth]],
    above: Sequence[WorkerState],
    below: Sequence[WorkerState],
) -> bool:
    match state.activity:
        case Activity.WAITING_FOR_ITEM:
            # What lies there may be for another worker of this stage, if its items are routed.
            has_items = any(depth.items for _, depth in before)
            return (has_items or not above) and _all_wait(crew)
        case Activity.WAITING_FOR_ROOM | Activity.HANDING_ON:
            return _all_wait(below)
        case _:
            return True


def _all_wait(crew: Iterable[WorkerState]) -> bool:
    return all(state.activity == Activity.WAITING_FOR_ITEM for state in crew)


def _describe(state: WorkerState, look: str) -> str:
    who = f"worker {state.worker}" if state.pid != os.getpid() else "the main process"
    return f"{who} (pid {state.pid}): {_WORDS[state.activity]} for {state.seconds:.0f} s{look}"


def _look_at(pids: Sequence[int]) -> dict[int, str]:
    """What the system says of processes: their states, and how much processor time they take just now."""
    import psutil  # here, for its import takes longer than much of what never stalls

    processes: dict[int, psutil.Process] = {}
    for pid in pids:
        with suppress(psutil.Error):
            processes[pid] = psutil.Process(pid)
            processes[pid].cpu_percent()
    time.sleep(_LOOK_SECONDS)
    looks = {}
    for pid, process in processes.items():
        with suppress(psutil.Error):  # it has just gone
            looks[pid] = f", {process.status()}, {process.cpu_percent():.0f} % CPU"
    return looks


def _workers(workers: Sequence[WorkerState]) -> str:
    return _number(len(workers), "worker")


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
