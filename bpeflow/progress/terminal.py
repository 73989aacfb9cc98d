"""Progress on a terminal and in Jupyter: one live view.

It has a bar for each activity, and below it what is happening, as wide as the terminal.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import zip_longest
from typing import IO, NamedTuple, cast

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.control import Control
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import ControlType
from rich.text import Text

from bpeflow._util.streams import LenientStream
from bpeflow._util.text import format_size, show_token
from bpeflow.flow import MAIN, MonitorSample
from bpeflow.progress.observer import Observer
from bpeflow.progress.plain import PlainObserver, bottleneck_line, time_left

#: Seconds between two samples of the monitor where they are redrawn in place.
TABLE_INTERVAL = 2.0

#: How often the view is redrawn. More often looks no better, and takes more of a slow connection.
_PER_SECOND = 5

#: Seconds over which rates are averaged. Shorter: unreadable figures; longer: outdated figures.
_WINDOW = 5.0

#: Number of the newest merges that are shown.
_NEWEST_MERGES = 6

#: The widest view. On a wider terminal lines would be harder to follow, and wrap when it is made narrower.
_WIDEST = 120

#: Columns of a bar.
_LEAST_BAR, _WIDEST_BAR = 4, 40

#: Columns of the table of stages, and those by importance: the last ones are left out where they do not fit.
_ORDER = ("stage", "queue", "items", "bytes", "rate", "busy", "cores", "memory")
_IMPORTANCE = ("stage", "rate", "busy", "items", "cores", "memory", "bytes", "queue")

_GAP = "  "


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


class TerminalObserver(Observer):
    """Draws a live view, above which messages scroll. A context manager."""

    sample_interval = TABLE_INTERVAL

    def __init__(self, console: Console) -> None:
        self._view = View()
        self._live = _Live(self._view, console)

    def __enter__(self) -> TerminalObserver:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._view.end()
        if self._live.console.is_jupyter:  # where `stop` does not draw once more
            self._live.refresh()
        self._live.stop()

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        self._view.update("counting", counted_bytes, total_bytes)

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        self._view.update("encoding", encoded_bytes, total_bytes)

    def decoding(self, decoded_bytes: int, total_bytes: int | None) -> None:
        self._view.update("decoding", decoded_bytes, total_bytes)

    def learning(self, learned: int, wanted: int) -> None:
        self._view.end_pipeline()
        self._view.update("learning", learned, wanted)

    def merged(self, merges: int, left: bytes, right: bytes, count: int) -> None:
        self._view.add_merge(Merge(merges, left, right, count))

    def working(self, sample: MonitorSample) -> None:
        self._view.add_sample(sample)

    def monitored(self, sample: MonitorSample) -> None:
        self._view.add_sample(sample)
        if sample.stall is not None:
            self._live.console.print(sample.stall.line(), markup=False, highlight=False)


class _Live(Live):
    """A live display that finds its first line again after the terminal was made narrower.

    Terminals then wrap the lines that are too long, so the view takes more lines than were written.
    """

    def __init__(self, view: View, console: Console) -> None:
        self._view = view
        super().__init__(
            view,
            console=console,
            refresh_per_second=_PER_SECOND,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),  # else it would end up on standard error
        )

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return the messages to print and the view after them, with the movements of the cursor before them."""
        processed = super().process_renderables(renderables)
        columns = self.console.width
        wrapped = sum((width - 1) // columns for width in self._view.widths if width)
        if wrapped and len(processed) > len(renderables) + 1:  # the first one moves to what was the first line
            up_and_clear = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2))
            processed.insert(1, Control(*up_and_clear * wrapped))
        return processed


class Merge(NamedTuple):
    """A learned merge: its rank, from 1, and how often the pair occurred."""

    rank: int
    left: bytes
    right: bytes
    times: int


@dataclass
class Activity:
    """An activity with a bar.

    Attributes:
        name: such as ``"counting"``.
        total: the amount of work; None if it is unknown.
        marks: times, with the amount done by then: the first one, and those of the last seconds.
    """

    name: str
    total: int | None
    marks: deque[tuple[float, int]] = field(default_factory=deque)

    def update(self, done: int, total: int | None) -> None:
        """Note the amount done by now."""
        now = time.monotonic()
        self.total = total
        self.marks.append((now, done))
        while len(self.marks) > 3 and now - self.marks[2][0] > _WINDOW:
            del self.marks[1]

    @property
    def done(self) -> int:
        """The amount done."""
        return self.marks[-1][1]

    @property
    def finished(self) -> bool:
        """Whether all is done."""
        return self.total is not None and self.done >= self.total

    def line(self, console: Console, options: ConsoleOptions, width: int) -> Text:
        """Return the bar with its figures, as many as fit."""
        line = Text(f"{self.name:>8} ", no_wrap=True)
        figures = list(self._figures(width))
        if self.total is not None:
            share = min(self.done / self.total, 1.0) if self.total else 1.0
            figures.insert(0, f"{share:4.0%}")
            room = width - line.cell_len - sum(len(figure) + len(_GAP) for figure in figures)
            bar = ProgressBar(total=1.0, completed=share, width=min(max(room, _LEAST_BAR), _WIDEST_BAR))
            for segment in console.render(bar, options):
                line.append(segment.text.rstrip("\n"), segment.style)
        line.append(_GAP.join(["", *figures])[0 if self.total is not None else len(_GAP) :])
        line.truncate(width)
        return line

    def _figures(self, width: int) -> Iterator[str]:
        # While it works, by the last seconds; in the end, all in all.
        since, before = self.marks[0] if self.finished or len(self.marks) < 3 else self.marks[1]
        elapsed, new = self.marks[-1][0] - since, self.done - before
        merges = self.name == "learning"
        of_all = self.total is not None and (merges or width >= 78)
        yield " of ".join(
            _amount(number, merges) for number in (self.done, self.total)[: 1 + of_all] if number is not None
        )
        if elapsed > 0.05 and new > 0:
            if not merges:
                yield f"{format_size(new / elapsed)}/s"
            if self.total is not None and (left := time_left(elapsed, new, self.total - self.done)):
                yield left


class View:
    """What is shown, as a renderable that is rendered again and again.

    Attributes:
        widths: the columns that each line took when it was last rendered.
    """

    def __init__(self) -> None:
        self.widths: list[int] = []
        self._activities: dict[str, Activity] = {}
        self._samples: deque[MonitorSample] = deque()
        self._measured: MonitorSample | None = None
        self._merges: deque[Merge] = deque(maxlen=_NEWEST_MERGES)

    def update(self, name: str, done: int, total: int | None) -> None:
        """Note how far an activity is."""
        if name not in self._activities:
            self._activities[name] = Activity(name, total)
        self._activities[name].update(done, total)

    def add_sample(self, sample: MonitorSample) -> None:
        """Note the state of the pipeline."""
        samples = self._samples
        if samples and [*samples[-1].stages] != [*sample.stages]:  # another pipeline, such as that of the last sum
            samples.clear()
        samples.append(sample)
        while len(samples) > 2 and sample.elapsed - samples[1].elapsed > _WINDOW:
            samples.popleft()
        if sample.processes:
            self._measured = sample

    def add_merge(self, merge: Merge) -> None:
        """Note the newest merge."""
        self._merges.append(merge)

    def end_pipeline(self) -> None:
        """Show the pipeline no more."""
        self._samples.clear()
        self._measured = None

    def end(self) -> None:
        """Leave only the bars: a summary has the rest."""
        self.end_pipeline()
        self._merges.clear()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, at most as many as the terminal has."""
        width = min(options.max_width - 1, _WIDEST)  # a character in the last column wraps on some terminals
        lines = [activity.line(console, options, width) for activity in list(self._activities.values())]
        lines += self._pipeline_lines(width)
        lines += self._merge_lines(width)
        lines = lines[: max(console.height - 2, 1)]
        self.widths = [line.cell_len for line in lines]
        yield from lines

    # ---- the pipeline ----

    def _pipeline_lines(self, width: int) -> Iterator[Text]:
        samples = list(self._samples)
        if not samples:
            return
        yield from _table(list(_rows(samples, self._measured)), width)
        last = samples[-1]
        counters = last.stages.get("counter")
        if counters is not None and counters.gauge:
            yield _cut(Text(f"at least {counters.gauge:,} distinct pre-tokens so far"), width)
        bottleneck = _usual_bottleneck(samples)
        if bottleneck is not None:
            yield _cut(Text(bottleneck_line(bottleneck), "yellow"), width)

    def _merge_lines(self, width: int) -> Iterator[Text]:
        merges = list(self._merges)
        if not merges:
            return
        ranks = max(len(f"{merge.rank:,}") for merge in merges)
        counts = max(len(f"{merge.times:,}") for merge in merges)
        room = max((width - ranks - counts - 13) // 2, 3)
        yield Text("newest merges", "bold")
        for merge in reversed(merges):
            pair = f"{show_token(merge.left, room)} + {show_token(merge.right, room)}"
            yield _cut(Text(f"{merge.rank:>{ranks + 2},}{_GAP}{merge.times:>{counts},} ×{_GAP}{pair}"), width)


def _amount(number: int, merges: bool) -> str:
    return f"{number:,}" if merges else format_size(number)


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line


def _usual_bottleneck(samples: Sequence[MonitorSample]) -> MonitorSample | None:
    """Return the last sample with the stage that was the slow one most of the time; None if no stage was."""
    stage, times = Counter(sample.bottleneck for sample in samples).most_common(1)[0]
    if stage is None or 2 * times <= len(samples):
        return None
    return next(sample for sample in reversed(samples) if sample.bottleneck == stage)


def _rows(samples: Sequence[MonitorSample], measured: MonitorSample | None) -> Iterator[Mapping[str, str]]:
    """Yield a row of the table for each stage, with the queue that it reads."""
    first, last = samples[0], samples[-1]
    seconds = last.elapsed - first.elapsed
    for stage, queue in zip_longest((*last.stages, MAIN), (None, *last.queues)):
        row = dict.fromkeys(_ORDER, "") | {"stage": stage}
        if queue is not None:
            depth, bounds = last.queues[queue], last.bounds[queue]
            row["queue"] = queue
            row["items"] = f"{depth.items:,}/{bounds.items:,}"
            row["bytes"] = f"{format_size(depth.bytes)}/{format_size(bounds.bytes)}"
        if stage != MAIN:
            rate, before = last.stages[stage], first.stages[stage]
            weight, items = rate.weight_per_second, rate.items_per_second
            if seconds > 0:
                weight = (rate.weight_done - before.weight_done) / seconds
                items = (rate.items - before.items) / seconds
            row["rate"] = f"{format_size(weight)}/s" if rate.weight_done else f"{items:,.0f} items/s"
            busy = [sample.stages[stage].workers_busy for sample in samples]
            row["busy"] = f"{sum(busy) / len(busy):.1f} of {rate.workers_alive}"
        if measured is not None:
            used = [process for process in measured.processes if process.stage == stage]
            if used:
                row["cores"] = f"{sum(process.cpu_percent for process in used) / 100:.1f}"
            if memory := sum(process.rss_bytes for process in used):  # threads share that of the main process
                row["memory"] = format_size(memory)
        yield row


def _table(rows: Sequence[Mapping[str, str]], width: int) -> Iterator[Text]:
    """Yield the lines of a table, with as many columns as fit."""
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in _ORDER}
    filled = [name for name in _IMPORTANCE if any(row[name] for row in rows)]
    shown: list[str] = []
    for name in filled:
        if _width(widths[other] for other in (*shown, name)) > width:
            break
        shown.append(name)
    names = [name for name in _ORDER if name in shown]

    def line(cells: Mapping[str, str]) -> str:
        aligned = (
            cells[name].ljust(widths[name]) if name in ("stage", "queue") else cells[name].rjust(widths[name])
            for name in names
        )
        return _GAP.join(aligned).rstrip()

    yield Text(line({name: name for name in names}), "bold", no_wrap=True)
    for row in rows:
        yield Text(line(row), no_wrap=True)


def _width(widths: Iterable[int]) -> int:
    listed = list(widths)
    return sum(listed) + len(_GAP) * (len(listed) - 1)
