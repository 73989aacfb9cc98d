"""The charts of the page: drawn by matplotlib, each with what it says; a sentence if it has no data."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from bpeflow._util.extras import load_extra
from bpeflow.errors import ConfigError
from bpeflow.look.run_data import Curve, RunData, enough_size, fit_heaps, merge_count_curve, token_lengths
from bpeflow.vocab import Vocab

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inches of 72 points. A chart that fills a phone's screen is about its own size, so its text can be read there.
_WIDTH, _HEIGHT = 5.0, 3.0

_STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": "#e1e4e8",
    "legend.frameon": False,
    "svg.fonttype": "none",  # text takes less room than its outlines
    "svg.hashsalt": "bpeflow",  # the same file each time
}

#: Token lengths in bytes up to which there is a chart; longer tokens are few.
_MOST_BYTES = 24


class Charts:
    """Draws charts, as the addresses of images that hold all their data.

    Raises `ConfigError` if matplotlib is not installed.
    """

    def __init__(self) -> None:
        self._matplotlib = load_extra("matplotlib", "report", "charts", ConfigError)
        self._figure = load_extra("matplotlib.figure", "report", "charts", ConfigError).Figure
        self._ticker = load_extra("matplotlib.ticker", "report", "charts", ConfigError)

    def lines(
        self,
        curves: Mapping[str, Curve],
        x: str,
        y: str,
        *,
        log: str = "",
        steps: bool = False,
        fit: Curve | None = None,
        top: float | None = None,
    ) -> str:
        """Return a chart of curves.

        Args:
            curves: by name. If there are several, a legend has their names.
            x: the label of the horizontal axis.
            y: the label of the vertical axis.
            log: which axes are logarithmic: ``""``, ``"x"`` or ``"xy"``.
            steps: whether to draw steps rather than lines between points.
            fit: a fitted curve, drawn dotted.
            top: the upper end of the vertical axis.
        """

        def draw(axes: Axes) -> None:
            for name, (xs, ys) in curves.items():
                axes.plot(xs, ys, label=name, drawstyle="steps-mid" if steps else "default")
            if fit is not None:
                axes.plot(*fit, color="C0", linestyle=":", linewidth=1.0)
            axes.set_xlabel(x)
            axes.set_ylabel(y)
            for direction in log:
                getattr(axes, f"set_{direction}scale")("log")
            if not log.endswith("y"):
                axes.set_ylim(bottom=0, top=top)
            for axis, direction in ((axes.xaxis, "x"), (axes.yaxis, "y")):
                if direction in log:
                    axis.set_minor_formatter(self._ticker.NullFormatter())
                if max(axis.get_view_interval()) >= 1000:
                    axis.set_major_formatter(self._ticker.EngFormatter(sep=""))  # 32k, 1.5M
            if len(curves) > 1:
                axes.legend()

        return self._image(draw)

    def timeline(self, spans: Sequence[tuple[str, float, float]]) -> str:
        """Return a chart of activities: name, begin and end in seconds, from the top down."""

        def draw(axes: Axes) -> None:
            starts, names = [begin for _, begin, _ in spans], [name for name, _, _ in spans]
            axes.barh(names, [end - begin for _, begin, end in spans], left=starts, height=0.6)
            axes.invert_yaxis()
            axes.grid(axis="y", visible=False)
            axes.set_xlabel("seconds")
            axes.set_xlim(left=0)

        return self._image(draw, height=0.8 + 0.25 * len(spans))

    def _image(self, draw: Callable[[Axes], None], height: float = _HEIGHT) -> str:
        """Return a chart, in the same style whatever the user's is."""
        with self._matplotlib.rc_context():
            self._matplotlib.rcdefaults()
            self._matplotlib.rcParams.update(_STYLE)
            figure = self._figure(figsize=(_WIDTH, height), layout="constrained")
            draw(figure.add_subplot())
            written = io.BytesIO()
            figure.savefig(written, format="svg", metadata={"Date": None})
        return f"data:image/svg+xml;base64,{b64encode(written.getvalue()).decode()}"


def chart_figures(run: RunData, charts: Charts) -> Iterator[str]:
    """Yield the figures of a run."""
    if spans := list(_spans(run)):
        what = "Wall time, with the time that a stage waited for others."
        yield _figure("Time of the stages", charts.timeline(spans), what)
    yield from _monitored(run, charts)
    yield _growth(run, charts)
    if run.tokenizer is not None:
        yield _merge_counts(run.tokenizer.vocab, charts)
        yield _token_lengths(run.tokenizer.vocab, charts)
        yield _bytes_per_token(run, charts)


def _figure(title: str, chart: str, *sentences: str) -> str:
    image = f'<img alt="{escape(title)}" src="{chart}">' if chart else ""
    caption = escape(" ".join(sentences))
    return f"<figure><h3>{escape(title)}</h3>{image}<figcaption>{caption}</figcaption></figure>\n"


def _spans(run: RunData) -> Iterator[tuple[str, float, float]]:
    counting, learning = run.report.counting, run.report.learning
    end = counting.seconds if counting else 0.0
    for name, stage in counting.stages.items() if counting else ():
        yield (name, end - stage.seconds, end) if name == "reducer" else (name, 0.0, min(stage.seconds, end))
    if learning:
        yield "learning", end, end + learning.seconds


def _monitored(run: RunData, charts: Charts) -> Iterator[str]:
    samples = [sample for sample in run.monitored if "counter" in sample["stages"]]
    if len(samples) < 2:
        why = "There are fewer than two samples: a run with --do_monitor takes one every monitor.interval seconds."
        yield _figure("Throughput and queues", "", why)
        return
    times = [sample["elapsed"] for sample in samples]
    rates = [sample["stages"]["counter"]["weight_per_second"] / 1e6 for sample in samples]
    chart = charts.lines({"counter": (times, rates)}, "seconds", "MB/s")
    yield _figure("Throughput", chart, "Text counted per second, between two samples.")
    depths: dict[str, Curve] = {}
    for queue in run.monitored[0]["queues"]:
        with_queue = [sample for sample in run.monitored if queue in sample["queues"]]
        fills = [100 * _fill(sample, queue) for sample in with_queue]
        depths[queue] = ([sample["elapsed"] for sample in with_queue], fills)
    yield _figure(
        "Queues",
        charts.lines(depths, "seconds", "% full", top=105),
        "By items or bytes, whichever is closer to its bound. The stage after a full queue is the slow one.",
    )


def _fill(sample: Mapping[str, Any], queue: str) -> float:
    depth, bound = sample["queues"][queue], sample["bounds"][queue]
    return max(float(depth[unit] / max(bound[unit], 1)) for unit in ("items", "bytes"))


def _growth(run: RunData, charts: Charts) -> str:
    title = "Growth of distinct pre-tokens"
    if run.growth is None:
        return _figure(title, "", "The counts are not in the run folder.")
    sentences, dotted = ["Computed from the counts, for the corpus in random order."], None
    if fit := fit_heaps(run.growth):
        end = run.growth[0][-1]
        dotted = [end / 100, 4 * end], [fit.distinct(end / 100), fit.distinct(4 * end)]
        sentences += [
            "Dotted: Heaps' law, fitted, up to four times the corpus.",
            f"n pre-tokens have about {fit.factor:.3g} × n^{fit.exponent:.3f} distinct ones, so twice the corpus would "
            f"have {2**fit.exponent:.2f} times as many.",
        ]
    chart = charts.lines({"": run.growth}, "pre-tokens", "distinct pre-tokens", log="xy", fit=dotted)
    return _figure(title, chart, *sentences)


def _merge_counts(vocab: Vocab, charts: Charts) -> str:
    curve = merge_count_curve(vocab.merge_counts or ())
    if len(curve[0]) < 2:
        return _figure("Merge counts", "", "The counts of the merges were not kept with the tokenizer.")
    chart = charts.lines({"": curve}, "rank of the merge", "count", log="xy")
    last = f"{curve[1][-1]:,.0f} times for the last merge."
    return _figure("Merge counts", chart, "How often each pair occurred when it was merged.", last)


def _token_lengths(vocab: Vocab, charts: Charts) -> str:
    numbers = token_lengths(vocab)
    drawn = [float(number) for number in numbers[:_MOST_BYTES]]
    chart = charts.lines({"": ([*map(float, range(1, len(drawn) + 1))], drawn)}, "bytes", "tokens", steps=True)
    longer = sum(numbers[_MOST_BYTES:])
    sentences = [f"{longer:,} tokens are longer, up to {len(numbers):,} bytes."] if longer else []
    return _figure("Lengths of tokens", chart, *sentences)


def _bytes_per_token(run: RunData, charts: Charts) -> str:
    title, curve = "Bytes per token by size of the vocabulary", run.bytes_per_token
    if curve is None:
        return _figure(title, "", run.sample.description)
    enough = enough_size(curve)
    sentence = (
        f"From about {enough[0]:,} entries on ({enough[1]:.2f} bytes per token), doubling the vocabulary saves less "
        "than 5 % of the tokens."
        if enough
        else "Doubling the vocabulary saves more than 5 % of the tokens at every size."
    )
    chart = charts.lines({"": curve}, "entries of the vocabulary", "bytes per token", log="x")
    return _figure(title, chart, f"Measured on {run.sample.description}.", sentence)
