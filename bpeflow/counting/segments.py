"""Segments: a large corpus is counted in stretches, the counts of each of which are durable when it is done.

A run that is killed, or loses its power or its disk, goes on after the last segment that the manifest tells of. What is
counted does not depend on where segments end: they end where chunks may. The last step merges all segments' runs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from bpeflow._util.atomic import atomic_path, sync_folder
from bpeflow.corpus.chunk import CorpusFile
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.reader import check_unchanged
from bpeflow.corpus.sources import CorpusEntry
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.counting.kway import kway_sum
from bpeflow.counting.manifest import FINGERPRINT_FILE, MANIFEST_FILE, Manifest, Position, SegmentRecord, file_digest
from bpeflow.counting.pipeline import PipelineRunner, added_up
from bpeflow.counting.shards import Shard
from bpeflow.errors import ScratchError
from bpeflow.flow import WorkerReport

#: What we write there, and what is left of it when we are killed meanwhile.
_OURS = re.compile(r"\d{6,}\.shard|manifest\.json|fingerprint\.json|\..*\.part")

#: Counts files and streams and returns runs, in order of bytes.
CountEntries = Callable[[list[CorpusEntry]], list[Shard]]

#: What to do about a file that was changed.
_PUT_BACK = (
    "put back what it was, its time of change too, and go on with --resume; or begin again with --restart when it is "
    "complete"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SegmentStatistics:
    """How a corpus was divided, and what was there already.

    Attributes:
        segments: how many there were.
        resumed: how many of them an earlier run had counted.
        resumed_bytes: text in those.
        recounted: segments of an earlier run that were damaged.
        resumed_seconds: wall time of the earlier runs, as far as it went into segments.
        bytes: of counts in the segments' files.
    """

    segments: int
    resumed: int
    resumed_bytes: int
    recounted: int
    resumed_seconds: float
    bytes: int


@dataclass(frozen=True)
class SegmentPlan:
    """Where segments end.

    Attributes:
        entries: the corpus. What is read as a stream is never divided.
        size: bytes in a segment, about; of streams, as they are in their files.
        find_boundary: where a file may be divided, at a byte or soon after it.
    """

    entries: Sequence[CorpusEntry]
    size: int
    find_boundary: Callable[[CorpusFile, int], int]

    @property
    def end(self) -> Position:
        """The end of the corpus."""
        return Position(len(self.entries), 0)

    def end_after(self, begin: Position) -> Position:
        """Where the segment ends that begins there."""
        left = self.size
        for number in range(begin.entry, len(self.entries)):
            entry, offset = self.entries[number], begin.offset if number == begin.entry else 0
            if left <= 0:
                return Position(number, 0)
            if isinstance(entry, CorpusFile) and entry.size - offset > left:
                end = self.find_boundary(entry, offset + left)
                return Position(number, end) if end < entry.size else Position(number + 1, 0)
            left -= entry.weight - offset
        return self.end

    def entries_of(self, begin: Position, end: Position) -> list[CorpusEntry]:
        """The entries, or parts of files, from one place to another."""
        parts: list[CorpusEntry] = []
        for number in range(begin.entry, min(end.entry + 1, len(self.entries))):
            entry = self.entries[number]
            first = begin.offset if number == begin.entry else 0
            if not isinstance(entry, CorpusFile):
                parts += [entry] if number < end.entry else []
                continue
            last = end.offset if number == end.entry else entry.size
            if first < last:
                parts.append(entry if (first, last) == (0, entry.size) else replace(entry, begin=first, end=last))
        return parts


class SegmentFolder:
    """The segments of a run: counts those that are missing."""

    def __init__(self, folder: Path, plan: SegmentPlan, fingerprint: Fingerprint, memory: MemoryBudget) -> None:
        """Read the manifest, if there is one. Raises `ResumeError` if it is of something else, or damaged.

        `memory` is what merging may take.
        """
        self._folder = folder
        self._plan = plan
        self._memory = memory
        found = Manifest.load(folder, fingerprint)
        self._manifest = found or Manifest(folder, fingerprint)
        self._is_new = found is None
        self._earlier = replace(self._manifest, segments=[*self._manifest.segments])
        self._recounted = 0

    def count(self, runner: PipelineRunner, count_entries: CountEntries) -> list[Shard]:
        """Count all segments that are not there yet, and return the runs of all, in order of bytes.

        Raises what `count_entries` does; `ScratchError` for a segment that cannot be written; `CorpusError` for a file
        that was changed while it was counted. What was done until then stays.
        """
        try:
            if self._is_new:
                self._start()
            else:
                self._resume(runner, count_entries)
            runner.report_progress()
            while (begin := self._manifest.end) < self._plan.end:
                number = len(self._manifest.segments)
                self._count(number, begin, self._plan.end_after(begin), runner, count_entries)
        except BaseException:
            if segments := self._manifest.segments:
                text = sum(segment.statistics.bytes for segment in segments)
                log.warning("%s keeps what is counted, %d bytes of text: go on with --resume", self._folder, text)
            raise
        return [segment.run(self._folder) for segment in self._manifest.segments]

    def reports(self, runner: PipelineRunner) -> list[WorkerReport]:
        """What the workers of this run and of those that it goes on with did and took."""
        return added_up(self._earlier.reports, runner.reports)

    def statistics(self) -> SegmentStatistics:
        """How the corpus was divided, and what was there already."""
        segments, earlier = self._manifest.segments, self._earlier.segments
        return SegmentStatistics(
            segments=len(segments),
            bytes=sum(segment.size for segment in segments),
            resumed=len(earlier) - self._recounted,
            resumed_bytes=sum(old.statistics.bytes for old in earlier if old in segments),
            resumed_seconds=self._earlier.seconds,
            recounted=self._recounted,
        )

    def _start(self) -> None:
        """Make the folder, in the place of one that is of no use: its run was killed before its first manifest."""
        try:
            remove_segments(self._folder)
            self._manifest.begin()
        except OSError as error:
            raise _cannot_write(self._folder, error) from error

    def _resume(self, runner: PipelineRunner, count_entries: CountEntries) -> None:
        """Remove what the manifest does not tell of, and count again what is not as it was written."""
        known = {MANIFEST_FILE, FINGERPRINT_FILE, *(segment.name for segment in self._manifest.segments)}
        _remove_unknown(self._folder, known)
        damaged = [n for n, segment in enumerate(self._manifest.segments) if not segment.is_whole(self._folder)]
        whole = [segment for n, segment in enumerate(self._manifest.segments) if n not in damaged]
        runner.done_bytes += sum(segment.weight for segment in whole)
        log.info("going on with %d segment(s), %d bytes of input, in %s", len(whole), runner.done_bytes, self._folder)
        for number in damaged:
            segment = self._manifest.segments[number]
            log.warning("%s is damaged or gone: its part of the corpus is counted again", self._folder / segment.name)
            self._recounted += 1
            self._count(number, segment.begin, segment.end, runner, count_entries)

    def _count(
        self, number: int, begin: Position, end: Position, runner: PipelineRunner, count_entries: CountEntries
    ) -> None:
        """Count a segment, and make it durable, before the manifest tells of it."""
        started = perf_counter()
        entries = self._plan.entries_of(begin, end)
        runs = count_entries(entries)
        check_unchanged(entries, _PUT_BACK)
        segment = self._write(f"{number:06d}.shard", begin, end, runs, sum(entry.weight for entry in entries))
        segments = [*self._manifest.segments[:number], segment, *self._manifest.segments[number + 1 :]]
        seconds = self._manifest.seconds + perf_counter() - started
        manifest = replace(self._manifest, segments=segments, seconds=seconds, reports=self.reports(runner))
        try:
            manifest.save()
        except OSError as error:
            raise _cannot_write(self._folder / MANIFEST_FILE, error) from error
        self._manifest = manifest

    def _write(self, name: str, begin: Position, end: Position, runs: Sequence[Shard], weight: int) -> SegmentRecord:
        path = self._folder / name
        buffer_size = self._memory.buffer_size(len(runs))
        try:
            with atomic_path(path) as temporary, kway_sum(runs, "bytes", buffer_size) as merge:
                try:
                    run = merge.write(temporary)
                except ScratchError as error:
                    if isinstance(error.__cause__, OSError) and str(temporary) in str(error):
                        raise error.__cause__ from None
                    raise
                digest = file_digest(temporary)
        except OSError as error:
            raise _cannot_write(path, error) from error
        for counted in runs:
            counted.remove()
        statistics = sum((counted.statistics for counted in runs), start=DocumentStatistics())
        return SegmentRecord(name, begin, end, run.tokens, run.size, digest, statistics, weight)


def has_segments(folder: Path) -> bool:
    """Return whether a folder has segments of an unfinished run."""
    return (folder / MANIFEST_FILE).exists()


def remove_segments(folder: Path) -> None:
    """Remove a folder of segments, if there is one, durably; the manifest first, without which the rest is worthless."""
    if folder.is_dir():
        (folder / MANIFEST_FILE).unlink(missing_ok=True)
        sync_folder(folder)
        _remove_unknown(folder, frozenset())
        with suppress(OSError):  # something else is in it
            folder.rmdir()
        sync_folder(folder.parent)


def _remove_unknown(folder: Path, known: Collection[str]) -> None:
    """Remove files that have the names of ours and are not among the known ones."""
    for path in folder.iterdir():
        if path.name not in known and _OURS.fullmatch(path.name):
            path.unlink()


def _cannot_write(path: Path, error: OSError) -> ScratchError:
    return ScratchError(
        f"cannot write {path}: {error.strerror}. Make room on its disk, then go on with --resume: what is counted stays"
    )
