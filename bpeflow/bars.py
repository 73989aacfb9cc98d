"""Progress bars, for runs on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from bpeflow.flow import Sample
from bpeflow.observer import Observer
from bpeflow.terminal import format_size


class TerminalObserver(Observer):
    """Draws progress bars. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description:>8}"),
            BarColumn(),
            TaskProgressColumn(),
            _AmountColumn(),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._tasks: dict[str, object] = {}

    def __enter__(self) -> TerminalObserver:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        self._update("counting", counted_bytes, total_bytes)

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        self._update("encoding", encoded_bytes, total_bytes)

    def decoding(self, decoded_bytes: int, total_bytes: int | None) -> None:
        self._update("decoding", decoded_bytes, total_bytes)

    def merging(self, learned: int, wanted: int) -> None:
        self._update("merging", learned, wanted)

    def monitored(self, sample: Sample) -> None:
        self._progress.console.print(sample.line(), markup=False, highlight=False, soft_wrap=True)

    def _update(self, what: str, done: int, total: int | None) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total, completed=done)
        self._progress.update(self._tasks[what], completed=done)  # type: ignore[arg-type]


class _AmountColumn(ProgressColumn):
    """Merges for merging, megabytes and their rate for all else."""

    _merges = MofNCompleteColumn()

    def render(self, task: Task) -> Text:
        if task.description == "merging":
            return self._merges.render(task)
        rate = f"  {format_size(task.speed)}/s" if task.speed else ""
        of_all = "" if task.total is None else f" of {format_size(task.total)}"
        return Text(f"{format_size(task.completed)}{of_all}{rate}")
