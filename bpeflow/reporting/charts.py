"""The charts: SVG by matplotlib, to be put into a page, whose style sheet gives the colours."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bpeflow._util.library import load_extra
from bpeflow.errors import ConfigError
from bpeflow.reporting.curves import Curve

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
