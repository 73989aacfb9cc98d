"""`RunDir`: the folder of a run, locked while the run is at work, and everything that is written into it."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter

from bpeflow._util.atomic import atomic_path, make_folder, remove_parts
from bpeflow.config import OutputSettings, Settings
from bpeflow.counting.shards import Scratch, remove_left_behind
from bpeflow.errors import ConfigError, FormatError, ResumeError
from bpeflow.flow import MonitorSample, peak_memory
from bpeflow.formats import any_format as formats
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.formats.transformers import TransformersOptions
from bpeflow.progress import Observer
from bpeflow.run_dir.layout import (
    COUNTS_FILE,
    DONE_FILE,
    MONITOR_FILE,
    REPORT_FILE,
    SETTINGS_FILE,
    UNFINISHED,
    VOCAB_FILES,
    Phase,
    inspect,
)
from bpeflow.run_dir.lock import RunLock
from bpeflow.run_dir.publish import publish, remove_files, remove_useless
from bpeflow.run_dir.recorded import reads_once, record_run
from bpeflow.run_dir.run_report import RunReport

log = logging.getLogger(__name__)


class RunDir:
    """A run folder. Without a path every method does nothing, for runs that write nothing.

    As a context manager it holds the folder's lock, removes what a dead run left behind, and removes the folder again
    if it was new and the run failed. Files of an earlier finished run stay untouched until `finish` (see `publish`).

    Attributes:
        path: the folder, or None.
        unfinished: its subfolder in which the run writes, or None.
    """

    def __init__(self, path: Path | None, scratch: Scratch | None = None) -> None:
        """Make the folder and check that it can be written to.

        Args:
            path: the folder, or None.
            scratch: where this run spills; noted in the lock file, so that the next run can clean up after this one.

        Raises:
            ConfigError: the folder cannot be made or written to.
        """
        self.path = path
        self.unfinished = path and path / UNFINISHED
        self._scratch = scratch
        self._lock: RunLock | None = None
        self._locked = ExitStack()
        self._written: list[str] = []
        self._resumable = True
        self._began = False
        self._earlier_record: bytes | None = None
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
        """Lock the folder and clean it up. Raises `FolderInUseError` if another run is at work there."""
        if self._lock is not None and self.unfinished is not None:
            with ExitStack() as locked:
                lock = locked.enter_context(self._lock)
                remove_left_behind(lock.left_behind.get("scratch"))
                remove_parts(self.unfinished)
                if self.path is not None and not _awaits_publishing(self.path):
                    remove_useless(self.path)
                lock.sign(scratch=os.fspath(self._scratch.folder) if self._scratch else None)
                self._locked = locked.pop_all()
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        with self._locked, suppress(OSError, MemoryError, ResumeError):  # the original failure matters more
            if failed and self.path is not None:
                if _awaits_publishing(self.path):
                    publish(self.path)
                else:
                    if issubclass(failed, ResumeError):
                        self._restore_record()
                    interrupted = issubclass(failed, KeyboardInterrupt) and self._resumable
                    remove_useless(self.path, failed=self._began and not interrupted)
        if failed and self._made and self.path is not None:
            with suppress(OSError):  # not empty
                self.path.rmdir()

    def begin(self, settings: Settings, counts: str | None = None, stale: Sequence[str] = VOCAB_FILES) -> None:
        """Begin to work in ``unfinished/``.

        Args:
            settings: the settings of the run, which are recorded for `resume`.
            counts: the counts from elsewhere that the run learns from, if it does.
            stale: globs of the files to remove first.
        """
        if self.unfinished is not None:
            make_folder(self.unfinished)
            remove_files(self.unfinished, stale)
            record = self.unfinished / SETTINGS_FILE
            self._earlier_record = record.read_bytes() if record.exists() else None
            record_run(self.unfinished, settings, counts)
            self._resumable = not reads_once(settings)
            self._began = True

    def _restore_record(self) -> None:
        """Forget the settings of this run, which the unfinished run cannot be resumed with."""
        if self.unfinished is not None and self._earlier_record is not None:
            with atomic_path(self.unfinished / SETTINGS_FILE) as temporary:
                temporary.write_bytes(self._earlier_record)

    def write(self, name: str, dump: Callable[[Path], object]) -> None:
        """Write a file atomically: `dump` gets the path to write to."""
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
        report = replace(
            report,
            seconds=perf_counter() - started,
            peak_memory_bytes=peak_memory(),
            finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            files=tuple(dict.fromkeys([*present, *self._written])),
        )
        report.write(self.unfinished / name)
        return report

    def finish(self, report: RunReport, started: float) -> RunReport:
        """Write the final report, publish everything that was written, and return the report."""
        report = self.write_report(report, started, DONE_FILE)
        if self.path is not None:
            publish(self.path)
        return report

    def write_tokenizer(self, spec: TokenizerSpec, subfolder: str, output: OutputSettings) -> None:
        """Write a tokenizer in bpeflow's format and in others; warn about a format that cannot represent it."""
        if self.unfinished is None:
            return
        folder = self.unfinished / subfolder
        paths = formats.write(spec, folder, "gpt2")
        for name in output.formats:
            paths += _save_if_it_fits(spec, folder, name, TransformersOptions.of(output))
        self._written += [os.fspath(path.relative_to(self.unfinished)) for path in paths]

    @contextmanager
    def monitor(
        self, enabled: bool, observer: Observer, append: bool
    ) -> Iterator[Callable[[MonitorSample], None] | None]:
        """Yield a callback that passes monitor samples to the observer and appends them to ``monitor.jsonl``."""
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
    """``monitor.jsonl``, in whole lines. If the disk is full, the file ends with a warning and the run goes ahead."""

    def __init__(self, path: Path, append: bool) -> None:
        self._path = path
        self._file = path.open("ab" if append else "wb", buffering=0)  # a buffer would fail again on close
        self._ended = False

    def append(self, sample: MonitorSample) -> None:
        if self._ended:
            return
        line = (json.dumps(asdict(sample)) + "\n").encode()
        size = self._file.tell()
        try:
            if self._file.write(line) < len(line):
                self._file.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._ended = True
            log.warning("%s: no more samples are written: %s", self._path, error.strerror)

    def close(self) -> None:
        with suppress(OSError):  # a failing disk does not end the run here either
            os.fsync(self._file.fileno())
        self._file.close()


def _save_if_it_fits(spec: TokenizerSpec, folder: Path, name: str, options: TransformersOptions) -> list[Path]:
    """Write another format, or warn that it cannot represent the tokenizer: hours of work are not lost for that."""
    try:
        return formats.write(spec, folder, name, options)
    except (FormatError, ConfigError) as error:
        log.warning("output.formats: %s was not written: %s", name, error)
        return []


def _awaits_publishing(folder: Path) -> bool:
    state = inspect(folder)
    return state.phase is Phase.DONE and state.in_progress
