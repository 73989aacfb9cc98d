"""`Coordinator`: runs tasks on an engine until each has succeeded once, whatever becomes of workers and nodes.

`start_engine` starts the engine that the settings name.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import monotonic

from bpeflow.config import EngineSettings
from bpeflow.engines.engine import Call, Engine, Handle, TaskReport
from bpeflow.errors import BpeflowError, TaskLostError

#: Tasks submitted per slot, so that a worker that has finished one need not wait for the coordinator. With more of them
#: the plan would only be computed earlier.
PER_SLOT = 2

#: Seconds after which a wait for tasks is interrupted, to report progress.
_INTERVAL = 0.5

#: A task is a straggler, and named in the log, if it has run this many times longer than the median of the others, and
#: at least this many seconds.
_STRAGGLER, _STRAGGLER_SECONDS = 10, 30.0

log = logging.getLogger(__name__)


@dataclass
class Task:
    """A task in the hands of the coordinator.

    Attributes:
        index: position among the calls.
        call: the call.
        losses: what became of earlier attempts.
        submitted: when the current attempt was submitted, by `monotonic`.
        named: whether the log has named it as a straggler.
    """

    index: int
    call: Call
    losses: list[TaskLostError] = field(default_factory=list)
    submitted: float = 0.0
    named: bool = False


@dataclass
class NodeTally:
    """The work of a node: tasks, and their wall and processor time in seconds."""

    tasks: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0


@dataclass
class Tally:
    """The work of all nodes.

    Attributes:
        tasks: number of tasks that succeeded.
        attempts: number of tasks submitted, including lost ones.
        in_flight: number of tasks submitted that have not ended.
        nodes: the work of each node, by host name.
    """

    tasks: int = 0
    attempts: int = 0
    in_flight: int = 0
    nodes: dict[str, NodeTally] = field(default_factory=lambda: defaultdict(NodeTally))

    def add(self, report: TaskReport) -> None:
        """Add a task that succeeded."""
        node = self.nodes[report.node]
        self.tasks += 1
        node.tasks += 1
        node.seconds += report.seconds
        node.cpu_seconds += report.cpu_seconds
        node.peak_memory = max(node.peak_memory, report.peak_memory)


class Coordinator:
    """Runs tasks on an engine. A task that is lost with its worker or node is repeated; one that fails is not.

    An attempt that was given up may still be running somewhere. Its outcome is never looked at, and tasks are pure, so
    each task counts exactly once.

    Attributes:
        tally: the work so far.
    """

    def __init__(self, engine: Engine, cpus: int, memory: int, retries: int) -> None:
        """Prepare to run tasks.

        Args:
            engine: the engine. The caller stops it.
            cpus: threads of each task.
            memory: bytes of memory of each task.
            retries: how many times a lost task is repeated.
        """
        self.tally = Tally()
        self._engine = engine
        self._cpus = cpus
        self._memory = memory
        self._retries = retries
        self._seconds: list[float] = []

    def run(
        self, calls: Iterable[Call], on_wait: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, TaskReport]]:
        """Run tasks. Yields the index of each and its report, in the order in which they end.

        Args:
            calls: the tasks. Tasks that do not fit the cluster yet are requested later.
            on_wait: called whenever a task has ended, and twice a second.

        Raises:
            TaskLostError: a task was lost more often than `retries` allows. The message names task and nodes.
            EngineError: the cluster is gone.
            BpeflowError: the error of a task.
        """
        coming = (Task(index, call) for index, call in enumerate(calls))
        again: list[Task] = []
        running: dict[Handle, Task] = {}
        while True:
            while len(running) < PER_SLOT * max(self._engine.slots, 1):
                task = again.pop() if again else next(coming, None)
                if task is None:
                    break
                task.submitted = monotonic()
                running[self._engine.submit(task.call, self._cpus, self._memory)] = task
                self.tally.attempts += 1
            self.tally.in_flight = len(running)
            on_wait()
            if not running:
                return
            for handle in self._engine.wait(list(running), _INTERVAL):
                task = running.pop(handle)
                try:
                    outcome = self._engine.result(handle)
                except TaskLostError as error:
                    self._note_loss(task, error)
                    again.append(task)
                    continue
                if isinstance(outcome, BpeflowError):
                    raise outcome
                self.tally.add(outcome)
                self._seconds.append(outcome.seconds)
                yield task.index, outcome
            self._name_stragglers(running.values())

    def _note_loss(self, task: Task, error: TaskLostError) -> None:
        """Log the loss of a task. Raises `TaskLostError` if it was the last attempt."""
        task.losses.append(error)
        if len(task.losses) > self._retries:
            reasons = "; ".join(dict.fromkeys(map(str, task.losses)))
            raise TaskLostError(
                f"{task.call.name} was lost {len(task.losses)} time(s): {reasons}. If memory is short, lower "
                "engine.task_memory or segment_size, or use fewer workers per node; otherwise look after the nodes, "
                "then continue with --resume"
            )
        log.warning("%s was lost and is repeated: %s", task.call.name, error)

    def _name_stragglers(self, running: Iterable[Task]) -> None:
        if not self._seconds:
            return
        usual = sorted(self._seconds)[len(self._seconds) // 2]
        limit = max(_STRAGGLER * usual, _STRAGGLER_SECONDS)
        for task in running:
            seconds = monotonic() - task.submitted
            if seconds > limit and not task.named:
                task.named = True
                log.warning("%s has not ended for %.0f s; others took %.1f s", task.call.name, seconds, usual)


def start_engine(settings: EngineSettings) -> Engine:
    """Start the engine of `engine.kind`, or connect to it. The caller stops it.

    Raises:
        EngineUnavailableError: its library is not installed.
        EngineError: the cluster cannot be reached.
    """
    if settings.kind == "ray":
        from bpeflow.engines.ray import RayEngine

        engine: Engine = RayEngine(settings)
        return engine
    from bpeflow.engines.local import ProcessEngine

    return ProcessEngine(settings)
