"""`RunDir`: the folder of a run, locked while the run is at work, and everything that is written into it.

A run works in ``unfinished/`` and leaves the files of an earlier one alone. Writing its report there as ``done.json``
is the point of no return: until then nothing has happened to the earlier files, and from then on they are replaced, by
this run or, if it is killed on the way, by the next run in the folder (`publish_results`).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter

from bpeflow._util.atomic import atomic_path, make_folder, publish, remove_parts, sync_folder
from bpeflow.config import OutputSettings, Settings
from bpeflow.counting.fingerprint import has_segments, remove_segments
from bpeflow.counting.shards import Scratch, remove_left_behind
from bpeflow.errors import ConfigError, FormatError, ResumeError
from bpeflow.flow import MonitorSample, peak_memory
from bpeflow.formats import any_format as formats
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.progress import Observer
from bpeflow.run_dir.layout import (
    CHECKPOINT_FILE,
    COUNTED_FILES,
    COUNTS_FILE,
    DONE_FILE,
    FIRST_STAGE,
    LOCK_FILE,
    MONITOR_FILE,
    REPORT_FILE,
    RUN_FILES,
    SEGMENTS,
    SETTINGS_FILE,
    UNFINISHED,
    VOCAB_FILES,
    Phase,
    phase_of,
    same_folder,
)
from bpeflow.run_dir.lock import RunLock
from bpeflow.run_dir.run_files import RunReport, read_report, start_report

log = logging.getLogger(__name__)


class RunDir:
    """A run folder. Without a path every method does nothing, for runs that write nothing.

    As a context manager it holds the folder's lock, removes what a dead run left behind, and removes the folder again
    if it was new and the run failed. Files of an earlier finished run stay untouched until `finish`.

    Attributes:
        path: the folder, or None.
        unfinished: its subfolder in which the run writes, or None.
    """

    def __init__(self, path: Path | None, scratch: Scratch | None = None) -> None:
        """Make the folder; raises `ConfigError` if it cannot be made.

        `scratch` is where this run spills; noted in the lock file, so that the next run can clean up after this one.
        """
        self.path = path
        self.unfinished = path and path / UNFINISHED
        self._scratch = scratch
        self._lock: RunLock | None = None
        self._locked = ExitStack()
        self._began = False
        self._counts_stay = True  # those of an earlier run in the folder, from which this run learns
        self._earlier_record: bytes | None = None
        self._made = path is not None and not path.exists()
        if path is None:
            return
        try:
            make_folder(path)
        except OSError as error:
            raise ConfigError(f"cannot make the run folder {path}: {error.strerror}") from error

    def __enter__(self) -> RunDir:
        """Lock the folder and clean it up. Raises `FolderInUseError` if another run is at work there."""
        if self.path is not None:
            with ExitStack() as locked:
                lock = locked.enter_context(RunLock(self.path))
                remove_left_behind(lock.left_behind.get("scratch"))
                first_stage = self.path / UNFINISHED / FIRST_STAGE
                if (first_stage / LOCK_FILE).exists():  # its run was killed
                    with RunLock(first_stage) as killed:
                        remove_left_behind(killed.left_behind.get("scratch"))
                remove_parts(self.path / UNFINISHED)
                remove_useless(self.path)
                self._lock = lock
                lock.sign(scratch=os.fspath(self._scratch.folder) if self._scratch else None)
                self._locked = locked.pop_all()
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        with self._locked, suppress(OSError, MemoryError, ResumeError):  # the original failure matters more
            in_place = self._lock is not None and self._lock.in_place()
            if failed and in_place and self.path is not None and self.unfinished is not None:
                if issubclass(failed, ResumeError) and self._earlier_record is not None:
                    with atomic_path(self.unfinished / SETTINGS_FILE) as temporary:  # these settings do not resume it
                        temporary.write_bytes(self._earlier_record)
                remove_useless(self.path, failed=self._began and not issubclass(failed, KeyboardInterrupt))
                if phase_of(self.path) is Phase.DONE:
                    publish_results(self.path)
        if failed and self._made and self.path is not None:
            with suppress(OSError):  # not empty
                self.path.rmdir()

    def begin(self, settings: Settings, counts: str | None = None, stale: Sequence[str] = VOCAB_FILES) -> None:
        """Begin to work in ``unfinished/``: remove what matches the globs in `stale`, and record the settings.

        `counts` are those from elsewhere that the run learns from, if it does.
        """
        if self.path is not None and self.unfinished is not None:
            make_folder(self.unfinished)
            _remove(self.unfinished, stale)
            record = self.unfinished / SETTINGS_FILE
            self._earlier_record = record.read_bytes() if record.exists() else None
            report = start_report(settings)
            again = report.settings | {"resume": False, "restart": False}  # for a run that resumes this one
            replace(report, settings=again, counts=counts).write(record)
            self._began = True
            self._counts_stay = counts is None or same_folder(Path(counts).parent, self.path)

    def write(self, name: str, dump: Callable[[Path], object]) -> None:
        """Write a file atomically: `dump` gets the path to write to."""
        if self.unfinished is not None:
            self._check_in_place()
            with atomic_path(self.unfinished / name) as temporary:
                dump(temporary)

    def _check_in_place(self) -> None:
        """Raise `ConfigError` if the folder is another one by now, which would get a part of the results."""
        if self._lock is not None and not self._lock.in_place():
            raise ConfigError(
                f"the run folder {self.path} was renamed, removed or replaced during the run: if it still exists, give "
                "it its name again and resume the run (resume=True)"
            )

    def write_report(self, report: RunReport, started: float, name: str = REPORT_FILE) -> RunReport:
        """Bring a report up to date, write it, and return it. `started` is by `perf_counter`."""
        if self.path is None or self.unfinished is None:
            return report
        self._check_in_place()
        files = [os.fspath(file) for file in _results(self.unfinished)]
        if self._counts_stay and COUNTS_FILE not in files:  # where they are, with all that belongs to them
            files = [os.fspath(path.relative_to(self.path)) for path in _found(self.path, COUNTED_FILES)] + files
        report = replace(
            report,
            seconds=perf_counter() - started,
            peak_memory_bytes=peak_memory(),
            finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            files=tuple(files),
        )
        report.write(self.unfinished / name)
        return report

    def finish(self, report: RunReport, started: float) -> RunReport:
        """Write the final report, publish everything that was written, and return the report."""
        report = self.write_report(report, started, DONE_FILE)
        if self.path is not None:
            publish_results(self.path, report)
        return report

    def write_tokenizer(self, spec: TokenizerSpec, subfolder: str, output: OutputSettings) -> None:
        """Write a tokenizer in bpeflow's and the chosen formats; warn about a format that cannot represent it."""
        if self.unfinished is None:
            return
        self._check_in_place()
        folder = self.unfinished / subfolder
        formats.write(spec, folder, "gpt2")
        for name in output.formats:
            try:
                formats.write(spec, folder, name, output)
            except (FormatError, ConfigError) as error:  # noqa: PERF203 -- hours of work are not lost for that
                log.warning("output.formats: %s was not written: %s", name, error)

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
            with closing(_SampleFile(self.unfinished / MONITOR_FILE, append, observer)) as file:
                yield file


class _SampleFile:
    """``monitor.jsonl``, in whole lines. If the disk is full, the file ends with a warning and the run goes ahead."""

    def __init__(self, path: Path, append: bool, observer: Observer) -> None:
        self._path = path
        self._observer = observer
        self._file = path.open("ab" if append else "wb", buffering=0)  # a buffer would fail again on close
        self._ended = False

    def __call__(self, sample: MonitorSample) -> None:
        self._observer.monitored(sample)
        if self._ended:
            return
        line = (json.dumps(asdict(sample)) + "\n").encode()
        size, written = self._file.tell(), 0
        with suppress(OSError):
            written = self._file.write(line)
        if written < len(line):
            self._ended = True
            self._file.truncate(size)
            log.warning("%s: no more samples are written: the disk is full or fails", self._path)

    def close(self) -> None:
        with suppress(OSError):  # a failing disk does not end the run here either
            os.fsync(self._file.fileno())
        self._file.close()


# ---- results, and what a run leaves behind ----


def publish_results(folder: Path, report: RunReport | None = None) -> None:
    """Replace an earlier run's files by the files of a finished run. The caller holds the folder's lock.

    The earlier report is removed first and the new one is moved last, so a folder with a report has the files of one
    run only. May be interrupted at any step and called again: a file that the report lists but ``unfinished/`` lacks
    has already been moved, or is to be kept (the counts that vocabularies were learned from, in the same folder).

    The report is read from the folder by default. Raises `ResumeError` if it is damaged, and `OSError`.
    """
    unfinished = folder / UNFINISHED
    try:
        report = report or read_report(unfinished, DONE_FILE)
    except FormatError as error:
        raise ResumeError(f"{unfinished / DONE_FILE} is damaged: start over with restart=True") from error
    new = _results(unfinished)
    kept = {*map(Path, report.files if report else ())} - {*new}
    stale = [path for path in _found(folder, RUN_FILES) if path.relative_to(folder) not in kept]
    _empty(unfinished, DONE_FILE, *map(os.fspath, new))
    for name in new:
        make_folder((folder / name).parent)
    moves = {folder / name: unfinished / name for name in new}
    publish({**moves, folder / REPORT_FILE: unfinished / DONE_FILE}, stale)
    _remove_empty_folders(folder)
    remove_unfinished(folder)


def remove_unfinished(folder: Path) -> None:
    """Remove everything that a run left in ``unfinished/``, durably."""
    unfinished = folder / UNFINISHED
    if unfinished.is_dir():
        _empty(unfinished)
        with suppress(OSError):  # not empty
            unfinished.rmdir()
        sync_folder(folder)


def remove_useless(folder: Path, *, failed: bool = False) -> None:
    """Remove the parts of a run that cannot be resumed, such as a partial set of vocabularies.

    If nothing but the settings of a run would be left, they are kept, unless it has `failed`.
    """
    unfinished = folder / UNFINISHED
    with suppress(OSError):  # empty: try this first, as it needs no memory
        unfinished.rmdir()
    if phase_of(folder) is Phase.DONE:  # everything is useful
        return
    _remove(unfinished, VOCAB_FILES)
    if not has_segments(unfinished / SEGMENTS):
        remove_segments(unfinished / SEGMENTS)
    phase = phase_of(folder)
    if phase is Phase.NONE or (failed and phase is Phase.STARTED):
        remove_unfinished(folder)
    elif phase is Phase.STARTED:
        _empty(unfinished, SETTINGS_FILE)


def _empty(unfinished: Path, *kept: str) -> None:
    """Remove everything but the files named, durably.

    What says how far a run has come goes before what it has, so a process killed here leaves nothing to resume by half.
    """
    _remove(unfinished, (DONE_FILE,), kept)
    remove_segments(unfinished / SEGMENTS)
    remove_parts(unfinished)
    remove_unfinished(unfinished / FIRST_STAGE)
    _remove(unfinished, (CHECKPOINT_FILE, *RUN_FILES, SETTINGS_FILE), kept)
    _remove_empty_folders(unfinished)


def _results(unfinished: Path) -> list[Path]:
    """Return the files to publish, but for the report, relative to the folder."""
    paths = [path.relative_to(unfinished) for path in _found(unfinished, RUN_FILES)]
    return [path for path in paths if path != Path(REPORT_FILE)]


def _found(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def _remove(folder: Path, patterns: Sequence[str], kept: Sequence[str] = ()) -> None:
    """Remove the files that match these globs, but for those in `kept`, durably."""
    paths = [path for path in _found(folder, patterns) if os.fspath(path.relative_to(folder)) not in kept]
    for path in paths:
        path.unlink(missing_ok=True)
    for parent in {path.parent for path in paths}:
        sync_folder(parent)


def _remove_empty_folders(folder: Path) -> None:
    for subfolder in _found(folder, ("vocab_*", FIRST_STAGE)):
        with suppress(OSError):  # not empty, or a file
            subfolder.rmdir()
