"""Draw a chart of the documentation: `python tools/make_speed_chart.py speed.csv speed.svg`, with paths in docs/images.

The figures are medians of `tools/bench.py train`, as docs/measurements.md has them. Needs matplotlib.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

GREY = "#808080"  # legible on light and on dark pages


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    with source.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[::-1]
    tools, times = [row["tool"] for row in rows], [float(row["times"]) for row in rows]
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "bpeflow"})
    figure = Figure(figsize=(7, 0.42 * len(rows) + 0.2), layout="constrained")
    axes = figure.add_subplot()
    bars = axes.barh(tools, times, color=["#4051b5" if tool == "bpeflow" else "#9fa8da" for tool in tools])
    axes.bar_label(bars, [f"× {time:g}" for time in times], padding=4, color=GREY)
    axes.set_xlim(0, max(times) * 1.12)
    axes.xaxis.set_visible(False)
    axes.tick_params(left=False, labelcolor=GREY)
    axes.spines[:].set_visible(False)
    figure.savefig(target, transparent=True, metadata={"Date": None})


if __name__ == "__main__":
    main()
