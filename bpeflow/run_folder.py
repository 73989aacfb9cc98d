"""`RunFolder`: where a run writes, alone, and what it removes of earlier runs."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from bpeflow import formats
from bpeflow.atomic import atomic_path, make_folder, remove_parts, sync_file, sync_folder
from bpeflow.counting.scratch import Scratch, remove_left_behind
from bpeflow.errors import ConfigError, FormatError
from bpeflow.flow import Sample
from bpeflow.formats.saved import SavedTokenizer
from bpeflow.lock import RunLock
from bpeflow.observer import Observer
from bpeflow.partial_merges import PARTIAL_FILE
from bpeflow.report import run

COUNTS_FILE = "counts.npz"
MONITOR_FILE = "monitor.jsonl"
_TOKENIZER_FILES = tuple(name for known in formats.FORMATS for name in known.files)
VOCAB_FILES = (*_TOKENIZER_FILES, *(f"vocab_*/{name}" for name in _TOKENIZER_FILES))
#: All that a run leaves; the report first.
RUN_FILES = (run.RUN_FILE, COUNTS_FILE, MONITOR_FILE, *VOCAB_FILES)

log = logging.getLogger(__name__)


class RunFolder:
    """The run folder, or nothing at all where there is none.

    As a context manager it has the lock of the folder, removes what a run that died there has left behind, and takes
    back an empty folder.

    Attributes:
        path: the folder, or None.
        has_report: whether this run has written a report there.
    """

    def __init__(self, path: Path | None, scratch: Scratch | None = None) -> None:
        """Make the folder and see that it can be written to; `scratch` is where this run spills.

        Raises `ConfigError`; before any work is done.
        """
        self.path = path
        self.has_report = False
        self._scratch = scratch
        self._lock: RunLock | None = None
        self._locked = ExitStack()
        self._written: list[Path] = []
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

    def __enter__(self) -> RunFolder:
        """Take the lock. Raises `FolderInUse` if another run has it."""
        if self._lock is not None and self.path is not None:
            with ExitStack() as locked:
                lock = locked.enter_context(self._lock)
                remove_left_behind(lock.left_behind.get("scratch"))
                remove_parts(self.path, (*RUN_FILES, PARTIAL_FILE))
                lock.sign(scratch=os.fspath(self._scratch.folder) if self._scratch else None)
                self._locked = locked.pop_all()
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self._locked.close()
        if failed and self._made and self.path is not None:
            with suppress(OSError):  # it is not empty
                self.path.rmdir()

    def _remove_earlier(self, patterns: Sequence[str]) -> None:
        """Remove what an earlier run left, its report first: old and new files must not look like those of one run.

        It does not come back after a power cut.
        """
        if self.path is None:
            return
        earlier = [path for pattern in patterns for path in sorted(self.path.glob(pattern))]
        for path in earlier:
            if path not in self._written:
                path.unlink(missing_ok=True)
        folders = {path.parent for path in earlier}
        for folder in folders - {self.path}:
            with suppress(OSError):  # something else is in it
                folder.rmdir()
        for folder in {*folders, self.path} if folders else ():
            sync_folder(folder)

    def write_first(self, name: str, dump: Callable[[Path], object]) -> None:
        """Let `dump` write the first file of this run. What an earlier one left goes when it is on the disk."""
        if self.path is not None:
            with atomic_path(self.path / name) as temporary:
                dump(temporary)
                sync_file(temporary)
                self._remove_earlier(RUN_FILES)
            self._written.append(self.path / name)

    def remove_earlier_vocab(self) -> None:
        """Remove the vocabularies of an earlier run."""
        self._remove_earlier(VOCAB_FILES)

    def write_report(self, report: dict[str, Any], started: float) -> None:
        """Bring the report up to date and write it."""
        if self.path is not None:
            known = [self.path / name for name in (COUNTS_FILE, MONITOR_FILE)]
            files = [*(path for path in known if path.exists()), *self._written]
            report |= run.describe_end(perf_counter() - started, dict.fromkeys(files), self.path)
            run.write_run(self.path / run.RUN_FILE, report)
            self.has_report = True

    def write_tokenizer(self, saved: SavedTokenizer, subfolder: str, others: Sequence[str]) -> None:
        """Write a tokenizer in our own form, and in other formats; warn of one that cannot hold it."""
        if self.path is None:
            return
        self._written += formats.save(saved, self.path / subfolder, "gpt2")
        for name in others:
            self._written += _save_if_it_fits(saved, self.path / subfolder, name)

    @contextmanager
    def monitor(self, enabled: bool, observer: Observer, append: bool) -> Iterator[Callable[[Sample], None] | None]:
        """Yield what to do with a sample: tell the observer, and write it to ``monitor.jsonl``."""
        if not enabled:
            yield None
        elif self.path is None:
            yield observer.monitored
        else:
            path = self.path / MONITOR_FILE
            with closing(_SampleFile(path, append)) as file:

                def record(sample: Sample) -> None:
                    observer.monitored(sample)
                    file.append(sample)

                yield record
            self._written.append(path)


class _SampleFile:
    """``monitor.jsonl``: whole lines. A full disk ends the file, with a warning, and not the run."""

    def __init__(self, path: Path, append: bool) -> None:
        self._path = path
        self._file = path.open("ab" if append else "wb", buffering=0)  # a buffer would fail again when it is closed
        self._ended = False

    def append(self, sample: Sample) -> None:
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
        self._file.close()


def _save_if_it_fits(saved: SavedTokenizer, folder: Path, name: str) -> list[Path]:
    """Write another format, or say why it cannot hold the tokenizer: what hours have taught is not lost for that."""
    try:
        return formats.save(saved, folder, name)
    except FormatError as error:
        log.warning("output.formats: %s is not written: %s", name, error)
        return []
