"""Whether learning will fit into memory: an estimate, and an early warning while the corpus is still being counted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bpeflow._util.machine import available_memory
from bpeflow._util.text import format_size

if TYPE_CHECKING:
    from bpeflow.config import Settings
    from bpeflow.counting.growth import GrowthForecast

#: Bytes per position of everything whose size is found out only while learning: occurrence lists, pairs, and what the
#: merge with the most occurrences takes. Measured at 32,000 tokens: 5.4 for multilingual text (33 million positions),
#: 6.2 for English (7 million), 6.3 for code (5 million).
_GROWING = 6

#: The most tokens whose ids take 2 bytes (``ext/learn/ids.h``).
_NARROW_IDS = 2**16 - 1

log = logging.getLogger(__name__)


def memory_needed(words: int, positions: int, vocab_size: int) -> int:
    """Estimate the peak memory of learning with a native backend, in bytes, the counts included.

    It was 0.8 to 1.0 of the memory allocated for 32,000 to 100,000 tokens. What depends on the vocabulary alone is left
    out: about 20 MB for 100,000 tokens.

    Args:
        words: number of distinct pre-tokens.
        positions: total bytes of the distinct pre-tokens.
        vocab_size: number of tokens to learn, which decides how many bytes an id takes.

    >>> memory_needed(1_435_704, 32_979_193, 32_000) // 10**6
    322
    """
    counts = positions + 16 * words
    ids = (positions + words) * (2 if vocab_size <= _NARROW_IDS else 4)
    return counts + ids + _GROWING * positions


class MergeStepWarning:
    """Warns once, when a forecast says that learning the merges will take more memory than is available."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._available = available_memory()
        self._done = settings.skip_merge

    def __call__(self, forecast: GrowthForecast) -> None:
        """Look at a forecast."""
        needed = learning_memory(forecast, self._settings)
        if self._done or needed <= self._available:
            return
        self._done = True
        thinned = self._settings.thin_rare is not None
        log.warning(
            "judging by %s of %s, the corpus has about %s distinct pre-tokens of %s in total%s: learning merges takes "
            "about %s of memory, and %s are available. Use %s, also after counting (bpeflow merge, or --resume); or "
            "take a sample of the corpus (max_bytes of a source)",
            format_size(forecast.done),
            format_size(forecast.total),
            _about(forecast.distinct),
            format_size(forecast.positions),
            f", {format_size(forecast.learned)} after thin_rare" if thinned else "",
            format_size(needed),
            format_size(self._available),
            "thin_rare with a smaller keep" if thinned else "--thin_rare below=5,keep=0.1",
        )


def learning_memory(forecast: GrowthForecast, settings: Settings) -> int:
    """Return the approximate memory of learning in bytes, the counts included: with `thin_rare` exact and thinned."""
    size = settings.sizes[-1] if settings.sizes else 0
    if settings.thin_rare is None:
        return memory_needed(forecast.distinct, forecast.positions, size)
    kept = round(forecast.distinct * forecast.learned / forecast.positions)
    return 16 * forecast.distinct + forecast.positions + memory_needed(kept, forecast.learned, size)


def _about(number: int) -> str:
    """Return a large number, such as ``4.3 billion``."""
    for scale, name in ((10**9, "billion"), (10**6, "million")):
        if number >= scale:
            return f"{number / scale:,.1f} {name}"
    return f"{number:,}"
