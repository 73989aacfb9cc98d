"""The charts of the page: their curves, drawn by matplotlib, each with what it says; a sentence if it has no data."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.machine import load_extra
from bpeflow.look.usage import Prefix
from bpeflow.vocab import Vocab

#: Inches of 72 points. A chart that fills a phone's screen is about its own size, so its text can be read there.
_SIZE = 5.0, 3.0

_STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": "#e1e4e8",
    "legend.frameon": False,
    "svg.fonttype": "path",  # outlines: another font, wider than the one measured here, would be clipped
    "svg.hashsalt": "bpeflow",  # the same file each time
}

#: Points of a curve. A line through more looks the same.
_POINTS = 120

#: Token lengths in bytes up to which there is a chart; longer tokens are few.
_MOST_BYTES = 24

Curve = tuple[Sequence[float], Sequence[float]]


def line_chart(
    curves: Mapping[str, Curve], x: str, y: str, *, log: str = "", steps: bool = False, top: float | None = None
) -> str:
    """Return a chart of curves as the address of an image that holds all its data.

    The style does not depend on the user's. Raises `MissingLibraryError`.

    Args:
        curves: by name. If there are several, a legend has their names.
        x: the label of the horizontal axis.
        y: the label of the vertical axis.
        log: which axes are logarithmic: ``""``, ``"x"`` or ``"xy"``.
        steps: whether to draw steps rather than lines between points.
        top: the upper end of the vertical axis.
    """
    matplotlib, figures, ticker = (
        load_extra(name, "report", "charts") for name in ("matplotlib", "matplotlib.figure", "matplotlib.ticker")
    )
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        drawn = figures.Figure(figsize=_SIZE, layout="constrained")
        axes = drawn.add_subplot()
        for name, (xs, ys) in curves.items():
            axes.plot(xs, ys, label=name, drawstyle="steps-mid" if steps else "default")
        axes.set(xlabel=x, ylabel=y, **{f"{direction}scale": "log" for direction in log})
        if "y" not in log:
            axes.set_ylim(bottom=0, top=top)
        for axis, direction in ((axes.xaxis, "x"), (axes.yaxis, "y")):
            low, high = axis.get_view_interval()
            if direction in log:
                axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
                axis.set_minor_formatter(ticker.NullFormatter())
            if direction in log or high >= 1000:
                axis.set_major_formatter(ticker.EngFormatter(sep=""))  # 32k, 1.5M
        if len(curves) > 1:
            axes.legend()
        written = io.BytesIO()
        drawn.savefig(written, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{b64encode(written.getvalue()).decode()}"


def figure(title: str, caption: str, chart: str = "") -> str:
    """Return a chart, if there is one, with what it says."""
    image = f'<img alt="{escape(title)}" src="{chart}">' if chart else ""
    return f"<figure><h3>{escape(title)}</h3>{image}<figcaption>{escape(caption)}</figcaption></figure>\n"


# ---- figures ----


def draw_monitored(monitored: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield figures of the samples of the monitor."""
    samples = [sample for sample in monitored if "counter" in sample["stages"]]
    if len(samples) < 2:
        why = "There are fewer than two samples: a run with the monitor takes one every monitor.interval seconds."
        yield figure("Throughput and queues", why)
        return
    times = [sample["elapsed"] for sample in samples]
    rates = [sample["stages"]["counter"]["weight_per_second"] / 1e6 for sample in samples]
    chart = line_chart({"counter": (times, rates)}, "seconds", "MB/s")
    yield figure("Throughput", "Text counted per second, between two samples.", chart)
    depths: dict[str, Curve] = {}
    for queue in monitored[0]["queues"]:
        with_queue = [sample for sample in monitored if queue in sample["queues"] and queue in sample["bounds"]]
        fills = [100 * _fill(sample, queue) for sample in with_queue]
        depths[queue] = ([sample["elapsed"] for sample in with_queue], fills)
    what = "By items or bytes, whichever is closer to its bound. The stage after a full queue is the slow one."
    yield figure("Queues", what, line_chart(depths, "seconds", "% full", top=105))


def _fill(sample: Mapping[str, Any], queue: str) -> float:
    depth, bound = sample["queues"][queue], sample["bounds"][queue]
    return max(float(depth[unit] / max(bound[unit], 1)) for unit in ("items", "bytes"))


def draw_growth(growth: Curve | None) -> str:
    """Return the figure of the growth of distinct pre-tokens."""
    title = "Growth of distinct pre-tokens"
    if growth is None:
        return figure(title, "The counts are not in the run folder, or are of fragments.")
    chart = line_chart({"": growth}, "pre-tokens", "distinct pre-tokens", log="xy")
    return figure(title, "Computed from the counts, for the corpus in random order.", chart)


def draw_merge_counts(vocab: Vocab, second_stage: int | None = None) -> str:
    """Return the figure of the counts of merges, where a second stage of superwords may begin at a rank."""
    counts = vocab.merge_counts or ()
    first = len(counts) if second_stage is None else second_stage
    stages = {
        "words": merge_count_curve(counts[:first]),
        "superwords": merge_count_curve([None] * first + [*counts[first:]]),
    }
    curves = {name: curve for name, curve in stages.items() if len(curve[0]) > 1}
    if not curves:
        return figure("Merge counts", "The counts of the merges were not kept with the tokenizer.")
    chart = line_chart(curves, "rank of the merge", "count", log="xy")
    last = [*curves.values()][-1][1][-1]
    caption = f"How often each pair occurred when it was merged. {last:,.0f} times for the last merge."
    if second_stage is not None:
        caption += f" The second stage, of superwords, begins after {second_stage:,} merges."
    return figure("Merge counts", caption, chart)


def draw_token_lengths(vocab: Vocab) -> str:
    """Return the figure of the lengths of tokens."""
    numbers = token_lengths(vocab)
    drawn = numbers[:_MOST_BYTES]
    chart = line_chart({"": (range(1, len(drawn) + 1), drawn)}, "bytes", "tokens", steps=True)
    longer = sum(numbers[_MOST_BYTES:])
    caption = f"{longer:,} tokens are longer, up to {len(numbers):,} bytes." if longer else ""
    return figure("Lengths of tokens", caption, chart)


def draw_bytes_per_token(found: Sequence[Prefix], sample: str) -> str:
    """Return the figure of bytes per token by size of the vocabulary, given its prefixes and what the sample is."""
    title = "Bytes per token by size of the vocabulary"
    if not found:
        return figure(title, sample)
    curve: Curve = [prefix.entries for prefix in found], [prefix.bytes_per_token for prefix in found]
    caption = f"Measured on {sample}."
    if enough := enough_size(curve):
        caption += (
            f" From about {enough[0]:,} entries on ({enough[1]:.2f} bytes per token), doubling the vocabulary saves "
            "less than 5 % of the tokens."
        )
    elif curve[0][-1] >= 2 * curve[0][0]:
        caption += " Doubling the vocabulary saves more than 5 % of the tokens at every size."
    chart = line_chart({"": curve}, "entries of the vocabulary", "bytes per token", log="x")
    return figure(title, caption, chart)


# ---- curves ----


def expected_growth(counts: NDArray[np.int64]) -> Curve:
    """Return numbers of pre-tokens, and how many distinct ones that many of a corpus in random order would have.

    Of pre-tokens with c occurrences, a share p of the corpus has 1 - (1 - p)^c: the rarefaction curve of ecology.
    """
    times, words = np.unique(counts, return_counts=True)
    total = int(np.sum(times * words))
    sizes = spread(1, total)
    distinct = [float(np.sum(words * -np.expm1(times * np.log1p(-size / total)))) for size in sizes[:-1]]
    return sizes, [*distinct, float(len(counts))]


def merge_count_curve(counts: Sequence[int | None]) -> Curve:
    """Return some ranks, from 1, at equal distances on a logarithmic axis, and the counts of the merges.

    Merges whose count is unknown, or 0, are left out.
    """
    known = [rank for rank, count in enumerate(counts, 1) if count]
    ranks = [rank for rank in spread(known[0], known[-1]) if counts[rank - 1]] if known else []
    return ranks, [counts[rank - 1] or 0 for rank in ranks]


def enough_size(curve: Curve) -> tuple[int, float] | None:
    """Return the size from which doubling the vocabulary saves less than 5 % of the tokens, and its bytes per token.

    None if it saves more even at the last doubling.
    """
    sizes, ratios = np.array(curve[0]), np.array(curve[1])
    halves = sizes[sizes >= 2 * sizes[0]] / 2
    for half in halves.tolist():
        here, doubled = np.interp([half, 2 * half], sizes, ratios)
        if 1 - here / doubled < 0.05:
            return round(half), float(here)
    return None


def token_lengths(vocab: Vocab) -> list[int]:
    """Return how many tokens have 1 byte, 2 bytes, and so on; special tokens are left out."""
    numbers: list[int] = np.bincount(vocab.own_tokens.lengths, minlength=2)[1:].tolist()
    return numbers


def spread(first: int, last: int) -> list[int]:
    """Return integers from `first` to `last` at about equal ratios."""
    if last < first:
        return []
    return sorted({round(value) for value in np.geomspace(first, last, _POINTS).tolist()})
