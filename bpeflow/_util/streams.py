"""Text streams that may lose their reader: progress is dropped then, and output that was asked for is an error."""

from __future__ import annotations

from typing import IO, Any

from bpeflow.errors import OutputError


class LenientStream:
    """Passes text on until a write fails, as in a closed pipe or on a full disk, and then drops it.

    For progress and messages, which must never end a run.

    Args:
        stream: the stream; None, as `sys.stderr` is where standard error was closed, for none.
    """

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream
        self._broken = False

    def write(self, text: str) -> int:
        """Write text, unless a write has failed."""
        if not self._broken:
            try:
                if self._stream is None:
                    raise OSError("it is closed")
                self._stream.write(text)
            except UnicodeError:  # characters that a terminal cannot show
                pass
            except (OSError, ValueError) as error:  # ValueError: it was closed meanwhile
                self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, unless a write has failed."""
        if not self._broken and self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._fail(error)

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return not self._broken and self._stream is not None and self._stream.isatty()

    def _fail(self, error: Exception) -> None:  # noqa: ARG002 -- for the class below
        self._broken = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class OutputStream(LenientStream):
    """Standard output. The first write that fails raises `OutputError`, and nothing after it is written."""

    def _fail(self, error: Exception) -> None:
        self._broken = True
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise OutputError(f"cannot write to standard output: {reason}") from error
