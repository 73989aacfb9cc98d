"""The charts of the page: SVG by matplotlib in its colours, each with what it says; a sentence if it has no data."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from bpeflow._util.extras import load_extra
from bpeflow.errors import ConfigError
from bpeflow.reporting.data import Curve, RunData, enough_size, fit_heaps, merge_count_curve, token_lengths

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inches of 72 points. A chart that fills a phone's screen is about its own size, so its text can be read there.
_WIDTH, _HEIGHT = 5.0, 3.0

#: Number of distinct colours in the style sheet (`--series-0` and so on). With more runs they repeat.
COLOURS = 6

#: Colours that matplotlib draws with, and the variables of the style sheet that replace them.
_INK, _GRID = "#010203", "#010204"
_SERIES = [f"#0102{16 + number:02x}" for number in range(COLOURS)]
_VARIABLES = {_INK: "--ink", _GRID: "--grid"} | {colour: f"--series-{i}" for i, colour in enumerate(_SERIES)}

_DASHES = ("-", "--", "-.", ":")

_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": _INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",  # text stays text: it can be selected, takes less room, and has the font of the page
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}

#: Token lengths in bytes up to which there is a chart; longer tokens are few.
_MOST_BYTES = 24


class Charts:
    """Draws charts.

    Raises `ConfigError` if matplotlib is not installed.
    """

    def __init__(self) -> None:
        self._matplotlib = load_extra("matplotlib", "report", "charts", ConfigError)
        self._figure = load_extra("matplotlib.figure", "report", "charts", ConfigError).Figure
        self._ticker = load_extra("matplotlib.ticker", "report", "charts", ConfigError)
        self._number = 0

    def lines(
        self,
        curves: Mapping[str, Curve],
        x: str,
        y: str,
        *,
        log: str = "",
        steps: bool = False,
        fits: Mapping[str, Curve] | None = None,
        top: float | None = None,
        several: bool = False,
    ) -> str:
        """Return a chart of curves.

        Args:
            curves: by name. They have the colours of the runs in this order.
            x: the label of the horizontal axis.
            y: the label of the vertical axis.
            log: which axes are logarithmic: ``""``, ``"x"`` or ``"xy"``.
            steps: whether to draw steps rather than lines between points.
            fits: fitted curves, drawn dotted in the colours of the curves of the same name.
            top: the upper end of the vertical axis.
            several: whether there are several runs, so that a single curve needs its name.
        """

        def draw(axes: Axes) -> None:
            for number, (name, (xs, ys)) in enumerate(curves.items()):
                colour = _SERIES[number % COLOURS]
                dashes = _DASHES[number // COLOURS % len(_DASHES)]
                [line] = axes.plot(xs, ys, color=colour, linestyle=dashes, label=name)
                if steps:
                    line.set_drawstyle("steps-mid")
                if fits and name in fits:
                    axes.plot(*fits[name], color=colour, linestyle=":", linewidth=1.0)
            axes.set_xlabel(x)
            axes.set_ylabel(y)
            for direction in log:
                getattr(axes, f"set_{direction}scale")("log")
            if not log.endswith("y"):
                axes.set_ylim(bottom=0, top=top)
            self._label_axes(axes, log)
            if several or len(curves) > 1:
                axes.legend()

        return self._svg(draw)

    def timeline(self, spans: Sequence[tuple[str, float, float]]) -> str:
        """Return a chart of activities: name, begin and end in seconds, from the top down."""

        def draw(axes: Axes) -> None:
            names = [name for name, _, _ in spans]
            axes.barh(
                range(len(spans)),
                [end - begin for _, begin, end in spans],
                left=[begin for _, begin, _ in spans],
                height=0.6,
                color=[_SERIES[name == "learning"] for name in names],
            )
            axes.set_yticks(range(len(spans)), names)
            axes.invert_yaxis()
            axes.grid(axis="y", visible=False)
            axes.set_xlabel("seconds")
            axes.set_xlim(left=0)

        return self._svg(draw, left=1.0, height=0.8 + 0.25 * len(spans))

    def _label_axes(self, axes: Axes, log: str) -> None:
        for axis, name in ((axes.xaxis, "x"), (axes.yaxis, "y")):
            if name in log:
                axis.set_minor_formatter(self._ticker.NullFormatter())
            if max(axis.get_view_interval()) >= 1000:
                axis.set_major_formatter(self._ticker.EngFormatter(sep=""))  # 32k, 1.5M

    def _svg(self, draw: Callable[[Axes], None], left: float = 0.65, height: float = _HEIGHT) -> str:
        """Return a chart, with `left` inches for the labels of the vertical axis."""
        self._number += 1
        with self._style():
            figure = self._figure(figsize=(_WIDTH, height))
            # Fixed margins: to find the best ones takes matplotlib as long as the drawing.
            figure.subplots_adjust(left=left / _WIDTH, right=0.98, bottom=0.52 / height, top=1 - 0.12 / height)
            draw(figure.add_subplot())
            written = io.StringIO()
            figure.savefig(written, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        return _for_page(written.getvalue())

    @contextmanager
    def _style(self) -> Iterator[None]:
        """Draw in our own style, whatever that of the user is, and leave theirs as it was."""
        with self._matplotlib.rc_context():
            self._matplotlib.rcdefaults()
            # The salt makes the ids of parts those of this chart only, and the same each time.
            style: dict[str, Any] = {**_STYLE, "svg.hashsalt": f"chart {self._number}"}
            self._matplotlib.rcParams.update(style)
            yield


def _for_page(svg: str) -> str:
    """Return the SVG element alone, in the colours and the font of the page, and without what a page has no use for."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[\w.]+_\d+"', "", svg)  # of groups: each chart has the same, and nothing refers to them
    svg = re.sub(
        r"font(?:-family)?: (?:(\d+px) )?[^;\"]*", lambda match: f"font-size: {match[1]}" if match[1] else "", svg
    )
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img">', svg, count=1)
    svg = re.sub(r">\s+<", "><", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg


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
    how = "Computed from the counts, for the corpus in random order;"
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
        f"{_prefix(run, runs)}{curves[run.name][1][-1]:,.0f} times for the last merge."
        for run in runs
        if run.name in curves
    ]
    chart = charts.lines(curves, "rank of the merge", "count", log="xy")
    return _figure("Merge counts", chart, "How often each pair occurred when it was merged.", *lasts)


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
