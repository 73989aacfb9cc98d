"""What a pipeline is made of, as its user states it: a source, stages, and the bounded queues between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import FlowError

SourceFunction = Callable[[], Iterable[Any]]
StageFunction = Callable[[Iterator[Any]], Iterator[Any]]


@dataclass(frozen=True)
class QueueSpec:
    """A queue between two stages, and how much may lie in it.

    Both bounds hold together; a producer that meets one waits, and that is the back-pressure of a pipeline. Larger
    bounds smooth out uneven items, smaller ones save memory. An item larger than ``max_bytes`` travels alone.

    ``name``: as the monitor shows it, for example ``"chunk_queue"``.
    ``max_items``: items under way (put, and not yet taken by a consumer).
    ``max_bytes``: bytes of pickled items under way.
    ``route``: None lets any worker of the reading stage take any item. Otherwise an item goes to worker
    ``route(item) % workers``, so that one worker sees everything that belongs together; the bounds hold for the
    routed queues together.
    """

    name: str
    max_items: int = 64
    max_bytes: int = 64 << 20
    route: Callable[[Any], int] | None = None

    def __post_init__(self) -> None:
        if self.max_items < 1 or self.max_bytes < 1:
            raise FlowError(f"queue {self.name!r}: max_items and max_bytes must be at least 1")


@dataclass(frozen=True)
class Source:
    """Where items come from: a function without arguments, run in one process of its own, that returns an iterable."""

    name: str
    function: SourceFunction


@dataclass(frozen=True)
class Stage:
    """A step of the pipeline: a generator function over its inputs, run by ``workers`` processes at once.

    The function is called once in each worker. It must take every input it is given; what it yields goes on to the
    next stage, and what it yields after its inputs have ended is its flush::

        def count(chunks):
            counts = Counter()
            for chunk in chunks:
                counts.update(chunk.split())
            yield counts

    ``weigh`` tells how much work an input is (by convention its bytes): rates and progress count in it.
    """

    name: str
    function: StageFunction
    reads: QueueSpec
    workers: int = 1
    weigh: Callable[[Any], int] | None = None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise FlowError(f"stage {self.name!r}: workers must be at least 1, not {self.workers}")


def check_names(source: Source, stages: Sequence[Stage], results: QueueSpec) -> None:
    """Raise FlowError unless every stage and every queue can be told from the others by its name."""
    _check_distinct("stages", [source.name, *(stage.name for stage in stages)])
    _check_distinct("queues", [*(stage.reads.name for stage in stages), results.name])
    if results.route is not None:
        raise FlowError(f"queue {results.name!r}: results have one reader, the caller, so there is nothing to route")


def _check_distinct(kind: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FlowError(f"two {kind} have the same name: {', '.join(twice)}")
