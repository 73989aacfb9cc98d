"""`RunDir`: where a run writes, alone, until all that it writes takes its place."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter

from bpeflow._util.atomic import atomic_path, make_folder, remove_parts
from bpeflow.counting.shards import Scratch, remove_left_behind
from bpeflow.errors import ConfigError, FormatError, ResumeError
from bpeflow.flow import MonitorSample, peak_memory
from bpeflow.formats import registry as formats
from bpeflow.formats.spec import TokenizerSpec
from bpeflow.progress import Observer
from bpeflow.run_dir.layout import (
    COUNTS_FILE,
    DONE_FILE,
    MONITOR_FILE,
    REPORT_FILE,
    SEGMENTS,
    UNFINISHED,
    VOCAB_FILES,
    WORKING_FILES,
)
from bpeflow.run_dir.lock import RunLock
from bpeflow.run_dir.publish import publish, remove_files, remove_useless
from bpeflow.run_dir.report import RunReport
from bpeflow.run_dir.state import Phase, inspect

log = logging.getLogger(__name__)


class RunDir:
    """The run folder, or nothing at all where there is none.

    As a context manager it has the lock of the folder, removes what a run that died there has left behind, and takes
    back an empty folder. What an earlier run has finished there stays as it is until `finish` (see `publishing`).

    Attributes:
        path: the folder, or None.
        unfinished: the folder in it where the run writes, or None.
    """

    def __init__(self, path: Path | None, scratch: Scratch | None = None) -> None:
        """Make the folder and see that it can be written to; `scratch` is where this run spills.

        Raises `ConfigError`; before any work is done.
        """
        self.path = path
        self.unfinished = path and path / UNFINISHED
        self._scratch = scratch
        self._lock: RunLock | None = None
        self._locked = ExitStack()
        self._written: list[str] = []
        self._made = path is not None and not path.exists()
        if path is None:
            return
        try:
            make_folder(path)
        except OSError as error:
            raise ConfigError(f"cannot make the run folder {path}: {error.strerror}") from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise ConfigError(f"cannot write to the run folder {path}: no permission")
        self._lock = RunLock(path)

    def __enter__(self) -> RunDir:
        """Take the lock. Raises `FolderInUseError` if another run has it."""
        if self._lock is not None and self.unfinished is not None:
            with ExitStack() as locked:
                lock = locked.enter_context(self._lock)
                remove_left_behind(lock.left_behind.get("scratch"))
                remove_parts(self.unfinished, (*WORKING_FILES, f"{SEGMENTS}/*"))
                if self.path is not None and not _awaits_publishing(self.path):
                    remove_useless(self.path)
                lock.sign(scratch=os.fspath(self._scratch.folder) if self._scratch else None)
                self._locked = locked.pop_all()
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        with self._locked, suppress(OSError, MemoryError, ResumeError):  # why it has failed matters more
            if failed and self.path is not None:
                (publish if _awaits_publishing(self.path) else remove_useless)(self.path)
        if failed and self._made and self.path is not None:
            with suppress(OSError):  # it is not empty
                self.path.rmdir()

    def begin(self, stale: Sequence[str] = VOCAB_FILES) -> None:
        """Make the folder to write in, without the files of these names, or globs, of an unfinished run."""
        if self.unfinished is not None:
            make_folder(self.unfinished)
            remove_files(self.unfinished, stale)

    def write(self, name: str, dump: Callable[[Path], object]) -> None:
        """Let `dump` write a file."""
        if self.unfinished is not None:
            with atomic_path(self.unfinished / name) as temporary:
                dump(temporary)
            self._written.append(name)

    def write_report(self, report: RunReport, started: float, name: str = REPORT_FILE) -> RunReport:
        """Bring a report up to date, write it, and return it. `started` is by `perf_counter`."""
        if self.path is None or self.unfinished is None:
            return report
        counted_in = self.unfinished if (self.unfinished / COUNTS_FILE).exists() else self.path
        present = [name for name in (COUNTS_FILE, MONITOR_FILE) if (counted_in / name).exists()]
        report = report.model_copy(
            update={
                "seconds": perf_counter() - started,
                "peak_memory_bytes": peak_memory(),
                "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "files": tuple(dict.fromkeys([*present, *self._written])),
            }
        )
        report.write(self.unfinished / name)
        return report

    def finish(self, report: RunReport, started: float) -> RunReport:
        """Write the final report, publish everything that was written, and return the report."""
        report = self.write_report(report, started, DONE_FILE)
        if self.path is not None:
            publish(self.path)
        return report

    def write_tokenizer(self, spec: TokenizerSpec, subfolder: str, others: Sequence[str]) -> None:
        """Write a tokenizer in our own form, and in other formats; warn of one that cannot hold it."""
        if self.unfinished is None:
            return
        folder = self.unfinished / subfolder
        paths = formats.save(spec, folder, "gpt2")
        for name in others:
            paths += _save_if_it_fits(spec, folder, name)
        self._written += [os.fspath(path.relative_to(self.unfinished)) for path in paths]

    @contextmanager
    def monitor(
        self, enabled: bool, observer: Observer, append: bool
    ) -> Iterator[Callable[[MonitorSample], None] | None]:
        """Yield what to do with a sample: tell the observer, and write it to ``monitor.jsonl``."""
        if not enabled:
            yield None
        elif self.unfinished is None:
            yield observer.monitored
        else:
            path = self.unfinished / MONITOR_FILE
            with closing(_SampleFile(path, append)) as file:

                def record(sample: MonitorSample) -> None:
                    observer.monitored(sample)
                    file.append(sample)

                yield record
            self._written.append(MONITOR_FILE)


class _SampleFile:
    """``monitor.jsonl``: whole lines. A full disk ends the file, with a warning, and not the run."""

    def __init__(self, path: Path, append: bool) -> None:
        self._path = path
        self._file = path.open("ab" if append else "wb", buffering=0)  # a buffer would fail again when it is closed
        self._ended = False

    def append(self, sample: MonitorSample) -> None:
        if self._ended:
            return
        line = (json.dumps(sample.to_dict()) + "\n").encode()
        size = self._file.tell()
        try:
            if self._file.write(line) < len(line):
                self._file.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._ended = True
            log.warning("%s has no more samples from here on: %s", self._path, error.strerror)

    def close(self) -> None:
        with suppress(OSError):  # nor does a disk that fails end the run
            os.fsync(self._file.fileno())
        self._file.close()


def _save_if_it_fits(spec: TokenizerSpec, folder: Path, name: str) -> list[Path]:
    """Write another format, or say why it cannot hold the tokenizer: what hours have taught is not lost for that."""
    try:
        return formats.save(spec, folder, name)
    except FormatError as error:
        log.warning("output.formats: %s is not written: %s", name, error)
        return []


def _awaits_publishing(folder: Path) -> bool:
    state = inspect(folder)
    return state.phase is Phase.DONE and state.in_progress
