"""An early warning of a merge step that this machine cannot do, while the corpus is still being counted."""

from __future__ import annotations

import logging

from bpeflow._util.text import format_size
from bpeflow.backends.native import BYTES_PER_POSITION, MAX_POSITIONS
from bpeflow.config import Settings
from bpeflow.counting.budget import available_memory
from bpeflow.counting.growth import GrowthForecast

#: Bytes of counts per distinct pre-token, besides its own.
_COUNT = 16

log = logging.getLogger(__name__)


class MergeStepWarning:
    """Warns once, when a forecast says that the merge step will not fit.

    Attributes:
        memory: bytes of memory that learning may take.
        positions: the most positions of a task.
    """

    def __init__(self, settings: Settings, memory: int | None = None, positions: int = MAX_POSITIONS) -> None:
        self.memory = available_memory() if memory is None else memory
        self.positions = positions
        self._thinned = settings.thin_rare is not None
        self._warned = settings.skip_merge

    def __call__(self, forecast: GrowthForecast) -> None:
        """Look at a forecast."""
        needed = memory_needed(forecast)
        problems = []
        if needed > self.memory:
            problems.append(f"about {format_size(needed)} of memory, and {format_size(self.memory)} are available")
        if forecast.learned > self.positions:
            problems.append(f"more than the {self.positions:,} positions that native backends have")
        if self._warned or not problems:
            return
        self._warned = True
        thinned = f", {_about(forecast.learned)} after thin_rare" if self._thinned else ""
        log.warning(
            "judging by %s of %s, the corpus has about %s distinct pre-tokens with %s positions (their bytes)%s: "
            "learning merges from them takes %s. %s, also after counting (bpeflow merge, or --resume); or take a "
            "sample of the corpus (max_bytes of a source)",
            format_size(forecast.done),
            format_size(forecast.total),
            _about(forecast.distinct),
            _about(forecast.positions),
            thinned,
            " and ".join(problems),
            "Use thin_rare with a smaller keep" if self._thinned else "Use --thin_rare below=5,keep=0.1",
        )


def memory_needed(forecast: GrowthForecast) -> int:
    """Return the approximate bytes of memory that learning takes: the counts, and the tables of a native backend."""
    return _COUNT * forecast.distinct + forecast.positions + BYTES_PER_POSITION * forecast.learned


def _about(number: int) -> str:
    """Return a large number, such as ``4.3 billion``."""
    for scale, name in ((10**9, "billion"), (10**6, "million")):
        if number >= scale:
            return f"{number / scale:,.1f} {name}"
    return f"{number:,}"
