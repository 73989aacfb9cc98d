"""The slow stage of a pipeline: the one behind a queue that is backed up, or a source for which the others wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from .meters import Activity
from .pipeline import MAIN, Snapshot

#: Share of its time that the workers of the slow stage work, at least. The others wait for it, and so work less.
_BUSY = 0.75

#: Share of the bounds of a queue from which on it is backed up, and share of their time that the readers of a slow
#: source wait.
_HALF = 0.5

#: Fewest snapshots for a verdict: one or two happen to look like anything.
_MIN_SNAPSHOTS = 3


class LoadAverage:
    """Averages over snapshots: how full queues are, and what workers do."""

    def __init__(self) -> None:
        self._steps: Sequence[str] = ()
        self._queues: Sequence[str] = ()
        self._snapshots = 0
        self._items: Counter[str] = Counter()
        self._fill: defaultdict[str, float] = defaultdict(float)
        self._activities: Counter[tuple[str, Activity]] = Counter()

    def add(self, snapshot: Snapshot) -> None:
        """Add a snapshot, unless no worker runs."""
        if not snapshot.workers:
            return
        self._steps, self._queues = (*snapshot.stages, MAIN), tuple(snapshot.queues)
        self._snapshots += 1
        for name, depth in snapshot.queues.items():
            self._items[name] += depth.items
            bounds = snapshot.bounds[name]
            self._fill[name] += max(depth.items / bounds.items, depth.bytes / bounds.bytes)
        self._activities.update((state.stage, state.activity) for state in snapshot.workers)

    def bottleneck(self) -> str | None:
        """Return the name of the slow stage; None if the pipeline is balanced, or too little was seen."""
        if self._snapshots < _MIN_SNAPSHOTS:
            return None
        for queue, stage in reversed([*zip(self._queues, self._steps[1:], strict=True)]):
            if self._is_backed_up(queue, stage) and self._share(stage, Activity.WORKING) >= _BUSY:
                return stage
        source, reader = self._steps[:2]
        waits = self._share(reader, Activity.WAITING_FOR_ITEM) >= _HALF
        return source if waits and self._share(source, Activity.WORKING) >= _BUSY else None

    def _is_backed_up(self, queue: str, stage: str) -> bool:
        """Return whether a queue is half full, or has an item for each worker that reads it."""
        workers = self._observations(stage) / self._snapshots
        return bool(self._fill[queue] / self._snapshots >= _HALF or self._items[queue] / self._snapshots >= workers > 0)

    def _share(self, stage: str, activity: Activity) -> float:
        return self._activities[stage, activity] / max(self._observations(stage), 1)

    def _observations(self, stage: str) -> int:
        return sum(count for (name, _), count in self._activities.items() if name == stage)
