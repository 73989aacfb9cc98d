"""The cut of superwords: counting a large corpus for the second stage in little memory.

Two passes over the corpus. The first one counts the pairs of adjacent first-stage tokens in the chunks of the second
pattern, by cell. The second one counts the fragments that are left where chunks are cut at rare pairs
(`bpeflow.counting.units`, with the proof in ``ext/count/units.hpp``). If all merges asked for have at least the count
of the rarest pair that was not cut, the run has proved that they are the merges of whole chunks. Otherwise it cuts
again, at rarer pairs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from bpeflow._util.text import format_size
from bpeflow.config import MergeSettings, Settings
from bpeflow.counting.count import CorpusCounter, CorpusCounts
from bpeflow.counting.count_files import Cut
from bpeflow.counting.report import CutReport
from bpeflow.counting.units import Units, frequent_cells
from bpeflow.errors import ConfigError
from bpeflow.formats.tokenizer_spec import TokenizerSpec, tokenizer_hash

#: Frequent pairs for each merge to learn. At the start, 1.4 to 1.9 pairs for each merge had at least the count of the
#: last merge (English and multilingual text and code, 32 MB to 1 GB, 8,000 to 49,000 merges). With fewer, counting may
#: have to be repeated. With more, there are more fragments.
PAIRS_PER_MERGE = 3

#: Factor of the number of frequent pairs when the cut is repeated.
_MORE = 4

#: Bytes of text from which on it is cut. Counting less whole takes less time than a pass over the corpus, and about
#: 100 MB of memory.
CUT_FROM = 30_000_000

log = logging.getLogger(__name__)


def choose_cut(
    base: TokenizerSpec,
    settings: Settings,
    corpus: CorpusCounter,
    text_bytes: int | None,
    documents: Iterable[Any] | None,
) -> CutCounting | None:
    """Return how the second stage cuts its chunks; None if it counts whole ones. `text_bytes` is None if unknown."""
    if reason := _why_whole(settings, corpus, text_bytes, documents):
        log.info("superwords: chunks are counted whole, with the same result: %s", reason)
        return None
    log.info("superwords: chunks are cut at pairs of tokens too rare to be merged, with the same result in less memory")
    return CutCounting(base, settings)


def _why_whole(
    settings: Settings, corpus: CorpusCounter, text_bytes: int | None, documents: Iterable[Any] | None
) -> str | None:
    if isinstance(documents, Iterator):
        return "the documents can be read only once"
    if (text_bytes or 0) < CUT_FROM:
        return f"less than {format_size(CUT_FROM)} of text"
    if settings.thin_rare is not None:
        return "thin_rare selects among whole chunks"
    if corpus.rules.scanner != "native":
        return "chunks are cut by the native scanner"
    return None


def settings_for_cut(cut: Cut, settings: MergeSettings, base: TokenizerSpec | None) -> MergeSettings:
    """Return the settings of learning from pre-tokens that were cut. Raises `ConfigError` if that is not possible."""
    if base is None or tokenizer_hash(base) != cut.base:
        raise ConfigError(
            "these counts are of pre-tokens that were cut for superwords, after another first stage: learn superwords "
            "from them with that first stage (init_from), or train from the corpus"
        )
    if settings.thin_rare is not None:
        raise ConfigError("thin_rare: these counts are of pre-tokens that were cut, so the rare ones are gone already")
    return settings.model_copy(update={"min_frequency": max(settings.min_frequency, cut.lowest_count)})


class CutCounting:
    """Counts a corpus for the second stage, again with a lower count if there were too few merges."""

    def __init__(self, base: TokenizerSpec, settings: Settings) -> None:
        self._base = base
        self._most = PAIRS_PER_MERGE * max(settings.sizes[-1] - len(base.vocab), 1)
        self._min_frequency = settings.min_frequency
        self._too_high: list[int] = []

    def count(self, corpus: CorpusCounter, *arguments: Any) -> CorpusCounts:
        """Count fragments, with the arguments of `CorpusCounter.count`."""
        cells = corpus.with_units(Units(self._base)).count(*arguments, may_be_empty=True)
        if not len(cells.counts):  # no chunk of two tokens
            return corpus.count(*arguments)
        frequent, lowest = frequent_cells(cells.counts, self._most, self._min_frequency)
        report = CutReport(
            cells=len(cells.counts),
            frequent_cells=len(frequent),
            lowest_count=lowest,
            too_high=tuple(self._too_high),
        )
        earlier = cells.counting
        del cells  # much memory
        log.info("superwords: cutting the corpus at pairs of tokens that occur less than %s times", f"{lowest:,}")
        counted = corpus.with_units(Units(self._base, frequent)).count(*arguments, may_be_empty=True)
        counting = replace(
            counted.counting,
            seconds=earlier.seconds + counted.counting.seconds,
            spilled=earlier.spilled + counted.counting.spilled,
            fingerprint=corpus.fingerprint.summary(),
            cut=report,
        )
        counts = counted.counts.with_cut(Cut(tokenizer_hash(self._base), lowest))
        return replace(counted, counts=counts, counting=counting)

    def lower(self, cut: Cut) -> None:
        """Cut at rarer pairs the next time: with this cut, there were too few merges."""
        log.warning("superwords: too few merges occur %s times: counting again", f"{cut.lowest_count:,}")
        self._too_high.append(cut.lowest_count)
        self._most *= _MORE
