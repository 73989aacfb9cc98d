"""The charts of the page, each with what it says; a sentence in place of one that has no data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from bpeflow.reporting.charts import Charts
from bpeflow.reporting.curves import Curve, enough_size, fit_heaps, merge_count_curve, token_lengths
from bpeflow.reporting.data import RunData

#: Token lengths in bytes up to which there is a chart; longer tokens are few.
_MOST_BYTES = 24


def chart_figures(runs: Sequence[RunData], charts: Charts) -> Iterator[str]:
    """Yield the figures of one run, or of several in the same charts."""
    yield from _timelines(runs, charts)
    yield from _monitored(runs, charts)
    yield _growth(runs, charts)
    yield from _learned(runs, charts)


def _figure(title: str, chart: str, *sentences: str) -> str:
    caption = " ".join(map(escape, filter(None, sentences)))
    return f"<figure><h3>{escape(title)}</h3>{chart}<figcaption>{caption}</figcaption></figure>\n"


def _of(run: RunData, runs: Sequence[RunData]) -> str:
    return f" of {run.name}" if len(runs) > 1 else ""


def _prefix(run: RunData, runs: Sequence[RunData]) -> str:
    return f"{run.name}: " if len(runs) > 1 else ""


# ---- time ----


def _timelines(runs: Sequence[RunData], charts: Charts) -> Iterator[str]:
    for run in runs:
        spans = list(_spans(run))
        if spans:
            title = f"Time of the stages{_of(run, runs)}"
            yield _figure(title, charts.timeline(spans), "Wall time, with the time that a stage waited for others.")


def _spans(run: RunData) -> Iterator[tuple[str, float, float]]:
    counting, learning = run.report.counting, run.report.learning
    end = counting.seconds if counting else 0.0
    for name, stage in counting.stages.items() if counting else ():
        yield (name, end - stage.seconds, end) if name == "reducer" else (name, 0.0, min(stage.seconds, end))
    if learning:
        yield "learning", end, end + learning.seconds


def _monitored(runs: Sequence[RunData], charts: Charts) -> Iterator[str]:
    rates: dict[str, Curve] = {}
    for run in runs:
        points = [
            (sample["elapsed"], sample["stages"]["counter"]["weight_per_second"] / 1e6)
            for sample in run.monitored
            if "counter" in sample["stages"]
        ]
        if len(points) > 1:
            rates[run.name] = ([x for x, _ in points], [y for _, y in points])
    if not rates:
        why = "There are fewer than two samples: a run with --do_monitor takes one every monitor.interval seconds."
        yield _figure("Throughput and queues", "", why)
        return
    chart = charts.lines(rates, "seconds", "MB/s", several=len(runs) > 1)
    yield _figure("Throughput", chart, "Text counted per second, between two samples.")
    for run in runs:
        if run.name not in rates:
            continue
        depths: dict[str, Curve] = {}
        for queue in run.monitored[0]["queues"]:
            points = [
                (sample["elapsed"], 100 * _fill(sample, queue)) for sample in run.monitored if queue in sample["queues"]
            ]
            depths[queue] = ([x for x, _ in points], [y for _, y in points])
        yield _figure(
            f"Queues{_of(run, runs)}",
            charts.lines(depths, "seconds", "% full", top=105),
            "By items or bytes, whichever is closer to its bound. The stage after a full queue is the slow one.",
        )


def _fill(sample: Mapping[str, Any], queue: str) -> float:
    depth, bound = sample["queues"][queue], sample["bounds"][queue]
    return max(float(depth[unit] / max(bound[unit], 1)) for unit in ("items", "bytes"))


# ---- counting ----


def _growth(runs: Sequence[RunData], charts: Charts) -> str:
    title = "Growth of distinct pre-tokens"
    curves = {run.name: run.growth for run in runs if run.growth is not None}
    if not curves:
        return _figure(title, "", "The counts are not in the run folder.")
    fits: dict[str, Curve] = {}
    sentences = []
    for run in runs:
        if run.growth is not None and (fit := fit_heaps(run.growth)):
            end = run.growth[0][-1]
            fits[run.name] = ([end / 100, 4 * end], [fit.distinct(end / 100), fit.distinct(4 * end)])
            sentences.append(
                f"{_prefix(run, runs)}n pre-tokens have about {fit.factor:.3g} × n^{fit.exponent:.3f} distinct ones, "
                f"so twice the corpus would have {2**fit.exponent:.2f} times as many."
            )
    recorded = any(run.report.counting and len(run.report.counting.growth) > 2 for run in runs)
    how = "As counted, segment by segment;" if recorded else "Computed from the counts, for the corpus in random order;"
    chart = charts.lines(curves, "pre-tokens", "distinct pre-tokens", log="xy", fits=fits)
    return _figure(title, chart, how, "dotted: Heaps' law, fitted, up to four times the corpus.", *sentences)


# ---- learning ----


def _learned(runs: Sequence[RunData], charts: Charts) -> Iterator[str]:
    learned = [run for run in runs if run.tokenizer is not None]
    if not learned:
        return
    yield _merge_counts(learned, charts)
    yield _token_lengths(learned, charts)
    yield _bytes_per_token(learned, charts)


def _merge_counts(runs: Sequence[RunData], charts: Charts) -> str:
    curves = {run.name: merge_count_curve(run.merge_counts) for run in runs}
    curves = {name: curve for name, curve in curves.items() if len(curve[0]) > 1}
    if not curves:
        return _figure("Merge counts", "", "The counts of the merges were not kept with the tokenizer.")
    lasts = [
        f"{_prefix(run, runs)}{curves[run.name][1][-1]:,.0f} times when the last merge was made."
        for run in runs
        if run.name in curves
    ]
    chart = charts.lines(curves, "rank of the merge", "count", log="xy")
    return _figure("Merge counts", chart, "How often each pair occurred when it was merged:", *lasts)


def _token_lengths(runs: Sequence[RunData], charts: Charts) -> str:
    curves: dict[str, Curve] = {}
    longer = []
    for run in runs:
        assert run.tokenizer is not None  # noqa: S101 -- for the type checker
        numbers = token_lengths(run.tokenizer.vocab)
        shown = numbers[:_MOST_BYTES]
        curves[run.name] = ([float(length) for length in range(1, len(shown) + 1)], [float(n) for n in shown])
        if more := sum(numbers[_MOST_BYTES:]):
            longer.append(f"{_prefix(run, runs)}{more:,} tokens are longer, up to {len(numbers):,} bytes.")
    chart = charts.lines(curves, "bytes", "tokens", steps=True)
    return _figure("Lengths of tokens", chart, *longer)


def _bytes_per_token(runs: Sequence[RunData], charts: Charts) -> str:
    title = "Bytes per token by size of the vocabulary"
    curves = {run.name: run.bytes_per_token for run in runs if run.bytes_per_token is not None}
    if not curves:
        return _figure(title, "", runs[0].sample.description)
    sentences = []
    for run in runs:
        if run.name in curves:
            enough = enough_size(curves[run.name])
            sentences.append(
                f"{_prefix(run, runs)}From about {enough[0]:,} entries on ({enough[1]:.2f} bytes per token), doubling "
                "the vocabulary saves less than 5 % of the tokens."
                if enough
                else f"{_prefix(run, runs)}Doubling the vocabulary saves more than 5 % of the tokens at every size."
            )
    chart = charts.lines(curves, "entries of the vocabulary", "bytes per token", log="x")
    return _figure(title, chart, f"Measured on {runs[0].sample.description}.", *sentences)
