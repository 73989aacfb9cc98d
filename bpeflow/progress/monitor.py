"""What the queue monitor sees, as a table that fits the terminal."""

from __future__ import annotations

from itertools import zip_longest

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from bpeflow._util.text import format_size
from bpeflow.flow import MAIN, MonitorSample
from bpeflow.progress.plain import bottleneck_line

#: Columns of the table by importance. The last ones are left out where they do not fit.
_IMPORTANCE = ("stage", "rate", "cores", "items", "memory", "bytes", "queue")
_ORDER = ("stage", "queue", "items", "bytes", "rate", "cores", "memory")


class MonitorTable:
    """A sample as a table: each stage with the queue that it reads, its rate, and its use of cores and memory."""

    def __init__(self, sample: MonitorSample) -> None:
        self._sample = sample

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, with as many columns as fit."""
        rows = self._rows()
        widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in _ORDER}
        shown: list[str] = []
        for name in _IMPORTANCE:
            if sum(widths[other] + 2 for other in (*shown, name)) - 2 > options.max_width:
                break
            shown.append(name)
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        names = [name for name in _ORDER if name in shown]
        for name in names:
            table.add_column(name, justify="left" if name in ("stage", "queue") else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(row[name] for name in names))
        yield table
        yield Text(bottleneck_line(self._sample))

    def _rows(self) -> list[dict[str, str]]:
        sample = self._sample
        queues = [None, *sample.queues]
        rows = []
        for stage, queue in zip_longest((*sample.stages, MAIN), queues):
            row = dict.fromkeys(_ORDER, "") | {"stage": stage}
            if queue is not None:
                depth, bounds = sample.queues[queue], sample.bounds[queue]
                row["queue"] = queue
                row["items"] = f"{depth.items:,}/{bounds.items:,}"
                row["bytes"] = f"{format_size(depth.bytes)}/{format_size(bounds.bytes)}"
            processes = [process for process in sample.processes if process.stage == stage]
            workers = 1 if stage == MAIN else sample.stages[stage].workers_alive
            if processes:
                cores = sum(process.cpu_percent for process in processes) / 100
                row["cores"] = f"{cores:.1f} of {workers}"
            if memory := sum(process.rss_bytes for process in processes):  # threads share that of the main process
                row["memory"] = format_size(memory)
            if stage != MAIN:
                rate = sample.stages[stage]
                by_size = bool(rate.weight_done)
                row["rate"] = (
                    f"{format_size(rate.weight_per_second)}/s" if by_size else f"{rate.items_per_second:,.0f} items/s"
                )
            rows.append(row)
        return rows
