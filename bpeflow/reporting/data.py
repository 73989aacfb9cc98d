"""`RunData`: what the page shows of a run, read from its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bpeflow.corpus.excerpts import SAMPLE_BYTES, TextSample, sample_corpus
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError, FormatError
from bpeflow.reporting.curves import Curve, bytes_per_token_curve, expected_growth, recorded_growth
from bpeflow.run_dir.layout import COUNTS_FILE, MONITOR_FILE, REPORT_FILE
from bpeflow.run_dir.run_report import RunReport, read_report
from bpeflow.tokenizer.tokenizer import BaseTokenizer

#: Samples of the monitor that are drawn. More look the same.
_DRAWN_SAMPLES = 200


class Encoded(NamedTuple):
    """A sample of a source, as its tokenizer encodes it."""

    source: str
    bytes: int
    tokens: int


@dataclass(frozen=True)
class RunData:
    """A run.

    Attributes:
        name: its name on the page.
        report: what ``run.json`` holds.
        tokenizer: the tokenizer; None if the run only counted.
        merge_counts: the count of each merge when it was learned; None where it is unknown.
        monitored: the samples of the monitor, or some of them if there are many; empty without a monitor.
        sample: a sample of text to measure on and to show.
        growth: the growth of distinct pre-tokens with the corpus; None if it is unknown.
    """

    name: str
    report: RunReport
    tokenizer: BaseTokenizer | None
    merge_counts: Sequence[int | None] = ()
    monitored: Sequence[Mapping[str, Any]] = ()
    sample: TextSample = field(default_factory=lambda: TextSample({}, ""))
    growth: Curve | None = None

    @cached_property
    def encoded(self) -> list[Encoded]:
        """The sample of each source, encoded."""
        return [
            Encoded(source, sum(len(text.encode()) for text in texts), len(self._ids[source]))
            for source, texts in self.sample.texts.items()
            if source in self._ids
        ]

    @cached_property
    def bytes_per_token(self) -> Curve | None:
        """Bytes per token of the sample by size of the vocabulary; None without a tokenizer or a sample."""
        if self.tokenizer is None or not self.encoded:
            return None
        ids = np.concatenate([*self._ids.values()])
        return bytes_per_token_curve(self.tokenizer.vocab, ids, sum(part.bytes for part in self.encoded))

    @cached_property
    def _ids(self) -> dict[str, NDArray[np.int64]]:
        tokenizer = self.tokenizer
        if tokenizer is None:
            return {}
        return {
            source: np.array([i for text in texts for i in tokenizer.encode(text, allowed_special=())], np.int64)
            for source, texts in self.sample.texts.items()
        }


def load_runs(folders: Mapping[str, Path], sample: Sequence[str] = ()) -> list[RunData]:
    """Read run folders, given by the runs' names on the page.

    Args:
        folders: the folders of finished runs.
        sample: inputs to take the sample of text from; by default it is from the runs' own corpora. It is the same for
            all runs.

    Raises:
        ConfigError: a folder has no finished run, or `sample` has no text.
        FormatError: a file in a folder is damaged.
    """
    reports: dict[str, RunReport] = {}
    for name, folder in folders.items():
        report = read_report(folder)
        if report is None:
            raise ConfigError(f"{folder} has no finished run: there is no {REPORT_FILE}")
        reports[name] = report
    taken = _take_sample(reports, sample)
    runs = []
    for name, folder in folders.items():
        tokenizer = BaseTokenizer.load(folder) if reports[name].learning is not None else None
        monitored = _read_samples(folder / MONITOR_FILE)
        growth = _growth(reports[name], folder / COUNTS_FILE)
        counts = (tokenizer and tokenizer.vocab.merge_counts) or ()
        runs.append(RunData(name, reports[name], tokenizer, counts, monitored, taken, growth))
    return runs


def _take_sample(reports: Mapping[str, RunReport], sample: Sequence[str]) -> TextSample:
    """Take one sample for all runs: of the inputs given, or of the corpus of each run, if they differ."""
    settings = {name: report.settings for name, report in reports.items()}
    if sample:
        first = next(iter(settings.values()))
        given = sample_corpus(first | {"input": list(sample), "sources": []})
        if not given.texts:
            raise ConfigError(f"--sample {' '.join(sample)}: {given.description}")
        return replace(given, description=" ".join(sample))
    corpora = {
        (str(values.get("input")), str(values.get("sources"))): name for name, values in [*settings.items()][::-1]
    }
    names = [name for name in settings if name in corpora.values()]
    samples = {name: sample_corpus(settings[name], SAMPLE_BYTES // len(names)) for name in names}
    if len(names) == 1:
        return samples[names[0]]
    texts = {f"{name}: {source}": texts for name in names for source, texts in samples[name].texts.items()}
    return TextSample(texts, f"a sample of the corpora of {', '.join(names)}, which they were trained on")


def _growth(report: RunReport, path: Path) -> Curve | None:
    """Return the growth that a run in segments has recorded, else that which the counts let expect."""
    if report.counting is not None and len(report.counting.growth) > 2:
        return recorded_growth(report.counting.growth)
    return expected_growth(PretokenCounts.read(path).counts) if path.is_file() else None


def _read_samples(path: Path) -> list[dict[str, Any]]:
    """Read the samples of the monitor. The times of a run that was resumed follow those of the run before."""
    if not path.is_file():
        return []
    try:
        samples = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise FormatError(f"{path}: not samples of the monitor: {error}") from error
    earlier = last = 0.0
    for sample in samples:
        if sample["elapsed"] + earlier < last:
            earlier = last
        sample["elapsed"] += earlier
        last = sample["elapsed"]
    return samples[:: max(-(-len(samples) // _DRAWN_SAMPLES), 1)]
