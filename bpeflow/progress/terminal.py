"""Progress on a terminal and in Jupyter: one live view."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import IO, cast

from rich.console import Console, ConsoleRenderable
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType

from bpeflow._util.streams import LenientStream
from bpeflow.flow import MonitorSample
from bpeflow.progress.observer import Observer
from bpeflow.progress.plain import PlainObserver
from bpeflow.progress.view import Merge, View

#: Seconds between two samples of the monitor where they are redrawn in place.
TABLE_INTERVAL = 2.0

#: How often the view is redrawn. More often looks no better, and takes more of a slow connection.
_PER_SECOND = 5


def library_console() -> Console:
    """Return a console on standard error as it is now, or in the notebook; it never fails."""
    notebook = Console()
    if notebook.is_jupyter and find_spec("ipywidgets"):  # which rich needs there
        return notebook
    return Console(file=cast("IO[str]", LenientStream(sys.stderr)), force_jupyter=False)


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
