"""Stalls: stages that make no progress, found in a `Snapshot`, and everything that can be observed about them.

A worker *hangs* if it has done the same thing for a long time and no other stage is the reason. Either it works on one
item; or it waits for an item although its queue holds some, or for the end of a stage that has ended; or it waits for
room although all readers of its queue are waiting for items. A worker that only waits for a slow stage before or after
it does not hang: the slow stage is reported. Nothing can decide whether a hanging worker is slow, stopped or stuck
forever, but the state of its process gives a clue.
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

_ACTIVITY_TEXTS = {
    Activity.STARTING: "starting",
    Activity.WORKING: "working on one item",
    Activity.WAITING_FOR_ITEM: "waiting for an item",
    Activity.WAITING_FOR_ROOM: "waiting for room in its output queue",
    Activity.HANDING_ON: "flushing its last items",
}

_log = logging.getLogger(__name__)
_MAX_DESCRIBED = 8  # workers that are described one by one; a stage may have hundreds

#: Seconds over which CPU use is measured. The system counts in hundredths of a second, so less is imprecise; more
#: delays the message.
_CPU_SAMPLE_SECONDS = 0.2


@dataclass(frozen=True)
class Stall:
    """A stage that makes no progress.

    Attributes:
        stage: Name of the stage.
        seconds: Time since the longest-hanging worker last changed its activity.
        queues: The queues before and after the stage.
        hanging: The workers that hang.
        workers: All workers of the stage.
    """

    stage: str
    seconds: float
    queues: Mapping[str, QueueDepth]
    hanging: Sequence[WorkerState]
    workers: Sequence[WorkerState]

    def line(self) -> str:
        """Return a short summary, such as `counter: no progress for 12 s (1 of 4 workers)`."""
        return f"{self.stage}: no progress for {self.seconds:.0f} s ({len(self.hanging)} of {_workers(self.workers)})"

    def describe(self) -> str:
        """Return a full description. Observes the hanging processes for a fraction of a second."""
        process_states = _process_states([state.pid for state in self.hanging[:_MAX_DESCRIBED]])
        hanging = [_describe(state, process_states.get(state.pid, "")) for state in self.hanging[:_MAX_DESCRIBED]]
        if more := self.hanging[_MAX_DESCRIBED:]:
            hanging.append(f"and {len(more)} more")
        others = [state.activity for state in self.workers if state not in self.hanging]
        counted = [
            f"{others.count(activity)} {_ACTIVITY_TEXTS[activity]}" for activity in Activity if activity in others
        ]
        queues = [f"{name} holds {_number(depth.items, 'item')}" for name, depth in self.queues.items()]
        return (
            f"stage {self.stage!r} makes no progress: {len(self.hanging)} of {_workers(self.workers)} for "
            f"{self.seconds:.0f} s. {'; '.join(hanging)}. "
            + (f"Its other workers: {', '.join(counted)}. " if counted else "")
            + f"{', '.join(queues)}"
        )


class StallLog:
    """Logs a stage that makes no progress, again each time the stall has doubled in length, and its end."""

    def __init__(self) -> None:
        self._logged_seconds: dict[str, float] = {}

    def update(self, stalls: Sequence[Stall]) -> None:
        """Log the changes since the last update. `stalls` are all current ones, maybe none."""
        for stall in stalls:
            if stall.seconds >= 2 * self._logged_seconds.get(stall.stage, 0.0):
                self._logged_seconds[stall.stage] = stall.seconds
                _log.warning("%s", stall.describe())
        for stage in self._logged_seconds.keys() - {stall.stage for stall in stalls}:
            del self._logged_seconds[stage]
            _log.warning("stage %r makes progress again", stage)


def find_stalls(snapshot: Snapshot, patience: float) -> list[Stall]:
    """Return, in pipeline order, the stages with workers that hang, doing the same thing for `patience` seconds."""
    names = [*snapshot.stages, MAIN]
    workers = {name: [state for state in snapshot.workers if state.stage == name] for name in names}
    queues = list(snapshot.queues.items())
    stalls = []
    for index, name in enumerate(names):
        inputs, outputs = queues[max(index - 1, 0) : index], queues[index : index + 1]
        upstream = workers[names[index - 1]] if index else []
        downstream = workers[names[index + 1]] if outputs else []
        hanging = [
            state
            for state in workers[name]
            if state.seconds >= patience and _hangs(state, workers[name], inputs, upstream, downstream)
        ]
        if hanging:
            seconds = max(state.seconds for state in hanging)
            stalls.append(Stall(name, seconds, dict(inputs + outputs), hanging, workers[name]))
    return stalls


def _hangs(
    state: WorkerState,
    stage: Sequence[WorkerState],
    inputs: Sequence[tuple[str, QueueDepth]],
    upstream: Sequence[WorkerState],
    downstream: Sequence[WorkerState],
) -> bool:
    match state.activity:
        case Activity.WAITING_FOR_ITEM:
            # If items are routed, those in the queue may be for another worker of this stage: hence `_all_wait`.
            has_items = any(depth.items for _, depth in inputs)
            return (has_items or not upstream) and _all_wait(stage)
        case Activity.WAITING_FOR_ROOM | Activity.HANDING_ON:
            return _all_wait(downstream)
        case _:
            return True


def _all_wait(workers: Iterable[WorkerState]) -> bool:
    return all(state.activity == Activity.WAITING_FOR_ITEM for state in workers)


def _describe(state: WorkerState, process_state: str) -> str:
    who = f"worker {state.worker}" if state.pid != os.getpid() else "the main process"
    return f"{who} (pid {state.pid}): {_ACTIVITY_TEXTS[state.activity]} for {state.seconds:.0f} s{process_state}"


def _process_states(pids: Sequence[int]) -> dict[int, str]:
    """Return the status and the current CPU use of processes, as the system reports them."""
    import psutil  # here, because its import takes longer than many runs that never stall

    processes: dict[int, psutil.Process] = {}
    for pid in pids:
        with suppress(psutil.Error):
            processes[pid] = psutil.Process(pid)
            processes[pid].cpu_percent()
    time.sleep(_CPU_SAMPLE_SECONDS)
    states = {}
    for pid, process in processes.items():
        with suppress(psutil.Error):  # it has exited since
            states[pid] = f", {process.status()}, {process.cpu_percent():.0f} % CPU"
    return states


def _workers(workers: Sequence[WorkerState]) -> str:
    return _number(len(workers), "worker")


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
