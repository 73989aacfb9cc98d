"""Segments: a large corpus is counted one segment after another, and the counts of each become durable at its end.

A run that was interrupted resumes after the last segment that the manifest lists. Where segments end has no influence
on the counts, as they end only where chunks may end. The last step sums the shards of all segments.
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
from bpeflow._util.text import format_size
from bpeflow.corpus.chunk import CorpusFile
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.reader import check_unchanged
from bpeflow.corpus.sources import CorpusEntry
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.counting.kway import kway_sum
from bpeflow.counting.manifest import FINGERPRINT_FILE, MANIFEST_FILE, Manifest, Position, SegmentRecord, file_digest
from bpeflow.counting.pipeline import PipelineRunner, sum_reports
from bpeflow.counting.shards import Shard
from bpeflow.errors import ScratchError
from bpeflow.flow import WorkerReport

#: Names of the files in the folder, and of the temporary files that a killed run leaves behind.
_OWN_NAMES = re.compile(r"\d{6,}\.shard|manifest\.json|fingerprint\.json|\..*\.part")

#: A function that counts files and streams and returns shards in ascending order of bytes.
CountEntries = Callable[[list[CorpusEntry]], list[Shard]]

#: The remedy for a file that changed while it was counted.
_FILE_CHANGED_REMEDY = (
    "restore the file and its modification time and continue with --resume, or start over with --restart once it is "
    "complete"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SegmentStatistics:
    """Statistics about the segments of a corpus.

    Attributes:
        segments: number of segments.
        resumed: number of these that an earlier run had counted.
        resumed_bytes: bytes of text in the resumed segments.
        recounted: number of segments of an earlier run that were damaged and counted again.
        resumed_seconds: wall time of earlier runs that was spent on finished segments.
        bytes: total size of the segments' files.
    """

    segments: int
    resumed: int
    resumed_bytes: int
    recounted: int
    resumed_seconds: float
    bytes: int


@dataclass(frozen=True)
class SegmentPlan:
    """The rule that divides a corpus into segments.

    Attributes:
        entries: the corpus. A stream is never divided.
        size: approximate bytes in a segment. Streams count by the size of their files.
        find_boundary: returns the first position in a file, at or after a given offset, where it may be divided.
    """

    entries: Sequence[CorpusEntry]
    size: int
    find_boundary: Callable[[CorpusFile, int], int]

    @property
    def end(self) -> Position:
        """Position of the end of the corpus."""
        return Position(len(self.entries), 0)

    def end_after(self, begin: Position) -> Position:
        """Return the end of the segment that begins at `begin`."""
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
        """Return the entries between two positions. A file that is only partly between them is cut."""
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
    """The folder of segments of a training run."""

    def __init__(self, folder: Path, plan: SegmentPlan, fingerprint: Fingerprint, memory: MemoryBudget) -> None:
        """Read the manifest, if there is one.

        Args:
            folder: the folder, which need not exist.
            plan: where segments end.
            fingerprint: everything that the counts depend on.
            memory: the memory limit for summing shards.

        Raises:
            ResumeError: the manifest is damaged, or of other counts.
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
        """Count the segments that are still missing. Returns the shards of all, in ascending order of bytes.

        Segments finished before an error are kept.

        Raises:
            ScratchError: a segment cannot be written.
            CorpusError: a file changed while it was counted.
            Exception: any error of `count_entries`.
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
                text = format_size(sum(segment.statistics.bytes for segment in segments))
                log.warning("%s keeps finished segments, %s of text: continue with --resume", self._folder, text)
            raise
        return [segment.shard(self._folder) for segment in self._manifest.segments]

    def reports(self, runner: PipelineRunner) -> list[WorkerReport]:
        """Return the reports of the workers of this run plus those of the runs that it resumes."""
        return sum_reports(self._earlier.reports, runner.reports)

    def statistics(self) -> SegmentStatistics:
        """Return statistics about the segments."""
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
        """Create the folder. Replaces one without a manifest, which a run leaves behind if killed at its start."""
        try:
            remove_segments(self._folder)
            self._manifest.begin()
        except OSError as error:
            raise _cannot_write(self._folder, error) from error

    def _resume(self, runner: PipelineRunner, count_entries: CountEntries) -> None:
        """Remove files that the manifest does not list, and count damaged segments again."""
        known = {MANIFEST_FILE, FINGERPRINT_FILE, *(segment.name for segment in self._manifest.segments)}
        _remove_unknown(self._folder, known)
        damaged = [n for n, segment in enumerate(self._manifest.segments) if not segment.is_intact(self._folder)]
        intact = [segment for n, segment in enumerate(self._manifest.segments) if n not in damaged]
        runner.done_bytes += sum(segment.weight for segment in intact)
        done = format_size(runner.done_bytes)
        log.info("resuming %d segment(s), %s of input, from %s", len(intact), done, self._folder)
        for number in damaged:
            segment = self._manifest.segments[number]
            log.warning("%s is damaged or missing: counting its part of the corpus again", self._folder / segment.name)
            self._recounted += 1
            self._count(number, segment.begin, segment.end, runner, count_entries)

    def _count(
        self, number: int, begin: Position, end: Position, runner: PipelineRunner, count_entries: CountEntries
    ) -> None:
        """Count a segment, make its shard durable, and then list it in the manifest."""
        started = perf_counter()
        entries = self._plan.entries_of(begin, end)
        shards = count_entries(entries)
        check_unchanged(entries, _FILE_CHANGED_REMEDY)
        segment = self._write(f"{number:06d}.shard", begin, end, shards, sum(entry.weight for entry in entries))
        segments = [*self._manifest.segments[:number], segment, *self._manifest.segments[number + 1 :]]
        seconds = self._manifest.seconds + perf_counter() - started
        manifest = replace(self._manifest, segments=segments, seconds=seconds, reports=self.reports(runner))
        try:
            manifest.save()
        except OSError as error:
            raise _cannot_write(self._folder / MANIFEST_FILE, error) from error
        self._manifest = manifest

    def _write(self, name: str, begin: Position, end: Position, shards: Sequence[Shard], weight: int) -> SegmentRecord:
        path = self._folder / name
        buffer_size = self._memory.buffer_size(len(shards))
        try:
            with atomic_path(path) as temporary, kway_sum(shards, "bytes", buffer_size) as total:
                try:
                    summed = total.write(temporary)
                except ScratchError as error:
                    if isinstance(error.__cause__, OSError) and str(temporary) in str(error):
                        raise error.__cause__ from None
                    raise
                digest = file_digest(temporary)
        except OSError as error:
            raise _cannot_write(path, error) from error
        for shard in shards:
            shard.remove()
        statistics = sum((shard.statistics for shard in shards), start=DocumentStatistics())
        return SegmentRecord(name, begin, end, summed.tokens, summed.size, digest, statistics, weight)


def has_segments(folder: Path) -> bool:
    """Return whether a folder has segments of an unfinished run."""
    return (folder / MANIFEST_FILE).exists()


def remove_segments(folder: Path) -> None:
    """Remove a folder of segments, if it exists, durably.

    The manifest goes first: without it the other files are leftovers.
    """
    if folder.is_dir():
        (folder / MANIFEST_FILE).unlink(missing_ok=True)
        sync_folder(folder)
        _remove_unknown(folder, frozenset())
        with suppress(OSError):  # it also has files of someone else
            folder.rmdir()
        sync_folder(folder.parent)


def _remove_unknown(folder: Path, known: Collection[str]) -> None:
    """Remove the files with names of ours that are not in `known`."""
    for path in folder.iterdir():
        if path.name not in known and _OWN_NAMES.fullmatch(path.name):
            path.unlink()


def _cannot_write(path: Path, error: OSError) -> ScratchError:
    return ScratchError(
        f"cannot write {path}: {error.strerror}. Make room on its disk, then continue with --resume: finished segments "
        "are kept"
    )
