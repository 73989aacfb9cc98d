"""Progress on a terminal and in Jupyter: one live view.

It has a bar for each activity, and below it what is happening: the stages of the pipeline, or the newest merges.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import zip_longest
from typing import IO, cast

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TaskProgressColumn, TextColumn
from rich.table import Column, Table
from rich.text import Text

from bpeflow._util.streams import LenientStream
from bpeflow._util.text import format_size, show_token
from bpeflow.flow import MAIN, MonitorSample
from bpeflow.progress.observer import ActivityObserver, Observer, PlainObserver, bottleneck_line, describe_amount

#: Seconds between two samples of the monitor where they are redrawn in place.
TABLE_INTERVAL = 2.0

#: How often the view is redrawn. More often looks no better, and takes more of a slow connection.
_PER_SECOND = 5

#: Seconds over which rates are averaged, and the number of samples in that time. Shorter: unreadable figures; longer:
#: outdated figures.
_WINDOW, _SAMPLES = 5.0, 10

#: Number of the newest merges that are shown.
_NEWEST_MERGES = 6

#: The columns of the table of stages, and those that need the monitor.
_COLUMNS, _MEASURED = ("stage", "queue", "rate", "busy"), ("cores", "memory")


def library_console() -> Console:
    """Return a console on standard error as it is now, or in the notebook; it never fails."""
    notebook = Console()
    if notebook.is_jupyter and find_spec("ipywidgets"):  # which rich needs there
        return notebook
    # Jupyter's kernel sets FORCE_COLOR for itself, but what it shows does not follow a terminal's cursor.
    terminal = False if notebook.is_jupyter else None
    return Console(file=cast("IO[str]", LenientStream(sys.stderr)), force_jupyter=False, force_terminal=terminal)


@contextmanager
def drawing(console: Console) -> Iterator[Observer]:
    """Yield an observer that shows progress on a console: a live view on a terminal, lines elsewhere."""
    if not (console.is_terminal or console.is_jupyter):
        yield PlainObserver(console.file)
        return
    with TerminalObserver(console) as observer:
        yield observer


class TerminalObserver(Progress, ActivityObserver):
    """Shows progress as a live view, above which messages scroll. A context manager."""

    sample_interval = TABLE_INTERVAL

    def __init__(self, console: Console) -> None:
        self._activities: dict[str, TaskID] = {}
        self._samples: deque[MonitorSample] = deque(maxlen=_SAMPLES)
        self._measured: MonitorSample | None = None
        self._merges: deque[tuple[int, bytes, bytes, int]] = deque(maxlen=_NEWEST_MERGES)
        super().__init__(
            TextColumn("{task.description:>8}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            _Amount(table_column=Column(no_wrap=True)),
            console=console,
            expand=True,
            refresh_per_second=_PER_SECOND,
            speed_estimate_period=_WINDOW,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),  # else it would end up on standard error
        )

    def advance_to(self, name: str, done: int, total: int | None) -> None:
        if name not in self._activities:  # what a resumed run had done before does not count for the rate
            self._activities[name] = self.add_task(name, total=total, completed=done)
        self.update(self._activities[name], completed=done, total=total)

    def learning(self, learned: int, wanted: int) -> None:
        self._end_pipeline()
        super().learning(learned, wanted)

    def monitored(self, sample: MonitorSample) -> None:
        self.working(sample)

    def working(self, sample: MonitorSample) -> None:
        if self._samples and [*self._samples[-1].stages] != [*sample.stages]:  # another pipeline: that of the last sum
            self._samples.clear()
        self._samples.append(sample)
        if sample.processes:
            self._measured = sample

    def merged(self, merges: int, left: bytes, right: bytes, count: int) -> None:
        self._merges.append((merges, left, right, count))

    def _end_pipeline(self) -> None:
        self._samples.clear()
        self._measured = None

    def stop(self) -> None:
        """Leave only the bars: a summary has the rest."""
        self._end_pipeline()
        self._merges.clear()
        self.refresh()
        super().stop()

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield what is shown, the bars first."""
        yield from super().get_renderables()
        samples, merges = list(self._samples), list(self._merges)
        if samples:
            yield _stages(samples, self._measured)
            counters = samples[-1].stages.get("counter")
            if counters is not None and counters.gauge:
                yield Text(f"at least {counters.gauge:,} distinct pre-tokens so far", no_wrap=True)
            if (bottleneck := _usual_bottleneck(samples)) is not None:
                yield Text(bottleneck_line(bottleneck), "yellow", no_wrap=True)
        if merges:
            yield Text("newest merges", "bold")
            table = Table.grid(padding=(0, 2, 0, 0))
            for justify in ("right", "right", "left"):
                table.add_column(justify=justify, no_wrap=True)
            room = max(self.console.width // 2 - 20, 3)
            for rank, left, right, count in reversed(merges):
                pair = f"{show_token(left, room)} + {show_token(right, room)}"
                table.add_row(f"  {rank:,}", f"{count:,} ×", Text(pair))
            yield table


class _Amount(ProgressColumn):
    """How much is done, of how much, how fast, and the time left."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed or 0.0
        return Text("  ".join(filter(None, describe_amount(task.description, task.completed, task.total, speed))))


def _usual_bottleneck(samples: Sequence[MonitorSample]) -> MonitorSample | None:
    """Return the last sample with the stage that was the slow one most of the time; None if no stage was."""
    stage, times = Counter(sample.bottleneck for sample in samples).most_common(1)[0]
    if stage is None or 2 * times <= len(samples):
        return None
    return next(sample for sample in reversed(samples) if sample.bottleneck == stage)


def _stages(samples: Sequence[MonitorSample], measured: MonitorSample | None) -> Table:
    """Return a row for each stage, with the items in the queue that it reads and how full that is."""
    first, last = samples[0], samples[-1]
    seconds = last.elapsed - first.elapsed
    names = (*_COLUMNS, *_MEASURED) if measured else _COLUMNS
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="left" if name == "stage" else "right", no_wrap=True)
    for stage, queue in zip_longest((*last.stages, MAIN), (None, *last.queues)):
        row = {"stage": stage}
        if queue is not None:
            depth, bound = last.queues[queue], last.bounds[queue]
            row["queue"] = f"{depth.items:,} ({max(depth.items / bound.items, depth.bytes / bound.bytes):.0%})"
        if stage != MAIN:
            rate, before = last.stages[stage], first.stages[stage]
            weight, items = rate.weight_per_second, rate.items_per_second
            if seconds > 0:
                weight = (rate.weight_done - before.weight_done) / seconds
                items = (rate.items - before.items) / seconds
            row["rate"] = f"{format_size(weight)}/s" if rate.weight_done else f"{items:,.0f} items/s"
            busy = sum(sample.stages[stage].workers_busy for sample in samples) / len(samples)
            row["busy"] = f"{busy:.1f} of {rate.workers_alive}"
        used = [process for process in measured.processes if process.stage == stage] if measured else []
        if used:
            row["cores"] = f"{sum(process.cpu_percent for process in used) / 100:.1f}"
        if memory := sum(process.rss_bytes for process in used):  # threads share that of the main process
            row["memory"] = format_size(memory)
        table.add_row(*(row.get(name, "") for name in names))
    return table
