"""Segments: a large corpus is counted in parts, and the counts of each become durable at its end.

A run that was interrupted resumes with the segments that it finished, whoever counted them and in whichever order.
Where segments end has no influence on the counts, as they end only where chunks may end. The last step sums the shards
of all segments, a partition at a time.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from socket import gethostname
from time import perf_counter

from bpeflow._util.atomic import sync_folder
from bpeflow._util.text import format_size
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.sources import CorpusEntry, check_unchanged
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.counting.manifest import (
    MANIFEST_FILE,
    Position,
    SegmentCounts,
    SegmentRecord,
    cannot_write_segment,
    has_manifest,
    write_manifest,
    write_segment,
)
from bpeflow.counting.pipelines import PipelineRunner, sum_reports
from bpeflow.counting.plan import SegmentPart, SegmentPlan
from bpeflow.counting.shards import Scratch, Shard
from bpeflow.flow import WorkerReport

#: Names of the files in the folder, and of the temporary files that a killed run leaves behind.
_OWN_NAMES = re.compile(r"(\d{6,}|sum)(-[0-9a-f]+)?\.shard|\d{6,}\.json|(manifest|fingerprint)\.json|\..*\.part")
_RECORD = re.compile(r"\d{6,}\.json").fullmatch

_begin = attrgetter("begin")

#: A function that counts files and streams and returns the sums of all partitions.
CountEntries = Callable[[list[CorpusEntry]], list[Shard]]

#: The remedy for a file that changed while it was counted.
FILE_CHANGED_REMEDY = (
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


class SegmentFolder:
    """The folder of segments of a training run.

    Use it in this order: `open`, `missing` and `add` for each segment that is missing, and then the results.

    Attributes:
        path: the folder, which need not exist before `open`.
    """

    def __init__(self, folder: Path, plan: SegmentPlan, fingerprint: Fingerprint) -> None:
        """Read the manifest, if there is one.

        Args:
            folder: the folder.
            plan: where segments end.
            fingerprint: everything that the counts depend on.

        Raises:
            ResumeError: the manifest is damaged, or of other counts.
        """
        self.path = folder
        self._plan = plan
        self._fingerprint = fingerprint
        self._is_new = not has_manifest(folder, fingerprint)
        self._records: list[SegmentRecord] = []
        self._resumed: list[SegmentRecord] = []
        self._recounted = 0
        self._since = perf_counter()

    def open(self) -> None:
        """Create the folder, or resume with the segments of an earlier run that are intact.

        Raises:
            ScratchError: the folder cannot be written to.
        """
        try:
            if self._is_new:
                if self.path.is_dir() and _remove_unknown(self.path, frozenset()):  # a run was killed at its start
                    sync_folder(self.path)  # records must not come back beside the new manifest
                write_manifest(self.path, self._fingerprint)
            else:
                self._resume()
        except OSError as error:
            raise cannot_write_segment(self.path, error) from error
        self._since = perf_counter()

    def _resume(self) -> None:
        """Read the records, remove those of damaged segments, and then all files that no record mentions."""
        found = {path: SegmentRecord.load(path) for path in sorted(self.path.glob("*.json")) if _RECORD(path.name)}
        readable = [record for record in found.values() if record is not None]
        self._resumed = [record for record in readable if record.counts.is_intact(self.path)]
        self._records = [*self._resumed]
        self._recounted = len(found) - len(self._resumed)
        known = {MANIFEST_FILE, *(name for record in self._records for name in (record.file, record.counts.file))}
        for path, record in found.items():
            if path.name not in known:
                log.warning(
                    "%s is damaged or missing: counting its part of the corpus again",
                    path if record is None else self.path / record.counts.file,
                )
        _remove_unknown(self.path, known)
        done = format_size(self.resumed_weight)
        log.info("resuming %d segment(s), %s of input, from %s", len(self._records), done, self.path)

    @property
    def entries(self) -> Sequence[CorpusEntry]:
        """The corpus."""
        return self._plan.entries

    @property
    def counted(self) -> list[SegmentRecord]:
        """The records of the segments that were counted since `open`."""
        return self._records[len(self._resumed) :]

    @property
    def resumed_weight(self) -> int:
        """Bytes of input files that the segments of earlier runs cover."""
        return sum(record.weight for record in self._resumed)

    def missing(self) -> Iterator[SegmentPart]:
        """Yield the parts of the corpus that are still to be counted, one after another."""
        used = {record.number for record in self._records}
        numbers = (number for number in itertools.count() if number not in used)
        position = Position()
        for record in [*sorted(self._records, key=_begin), None]:
            limit = record.begin if record else self._plan.end
            while position < limit:
                end = min(self._plan.end_after(position), limit)
                yield SegmentPart(next(numbers), position, end, self._plan.entries_of(position, end))
                position = end
            position = record.end if record else limit

    def add(self, part: SegmentPart, counts: SegmentCounts, node: str, process: int = 0) -> None:
        """Record a finished segment, whose shard is in the folder. Raises `ScratchError` if that is not possible."""
        now = perf_counter()
        seconds, self._since = now - self._since, now
        record = SegmentRecord(part.number, part.begin, part.end, part.weight, counts, seconds, node, process)
        try:
            record.save(self.path)
        except OSError as error:
            raise cannot_write_segment(self.path / record.file, error) from error
        self._records.append(record)

    def count(self, runner: PipelineRunner, count_entries: CountEntries, scratch: Scratch) -> None:
        """Count the segments that are missing, one after another.

        Args:
            runner: runs the pipelines.
            count_entries: counts a part of the corpus.
            scratch: where that spills.

        Raises:
            ScratchError: a segment cannot be written.
            CorpusError: a file changed while it was counted.
            Exception: any error of `count_entries`.
        """
        with self.kept_on_failure():
            self.open()
            runner.done_bytes += self.resumed_weight
            runner.report_progress()
            for part in self.missing():
                self._count(part, runner, count_entries)
                scratch.clear()

    def _count(self, part: SegmentPart, runner: PipelineRunner, count_entries: CountEntries) -> None:
        sums = count_entries(part.entries)
        check_unchanged(part.entries, FILE_CHANGED_REMEDY)
        counts = write_segment(self.path / f"{part.number:06d}.shard", sums, runner.last_reports)
        self.add(part, counts, gethostname())

    @contextmanager
    def kept_on_failure(self) -> Iterator[None]:
        """Warn that finished segments are kept if the block fails."""
        try:
            yield
        except BaseException:
            if self._records:
                text = format_size(sum(record.counts.statistics.bytes for record in self._records))
                log.warning("%s keeps finished segments, %s of text: continue with --resume", self.path, text)
            raise

    def shards(self, folder: Path | None = None) -> list[Shard]:
        """Return the shards of all segments, without statistics. `folder` is another path of the folder."""
        return [record.counts.shard(folder or self.path) for record in self._records]

    def documents(self) -> DocumentStatistics:
        """Return the statistics of all documents."""
        statistics = (record.counts.statistics for record in sorted(self._records, key=_begin))
        return sum(statistics, start=DocumentStatistics())

    def reports(self, runner: PipelineRunner) -> list[WorkerReport]:
        """Return the reports of the workers of this run plus those of the runs that it resumes."""
        return sum_reports(worker_reports(self._resumed), runner.reports)

    def statistics(self) -> SegmentStatistics:
        """Return statistics about the segments."""
        return SegmentStatistics(
            segments=len(self._records),
            bytes=sum(record.counts.size for record in self._records),
            resumed=len(self._resumed),
            resumed_bytes=sum(record.counts.statistics.bytes for record in self._resumed),
            resumed_seconds=sum(record.seconds for record in self._resumed),
            recounted=self._recounted,
        )


def worker_reports(records: Iterable[SegmentRecord]) -> list[WorkerReport]:
    """Add up the reports of each worker. The workers of all processes are numbered consecutively."""
    numbers: dict[tuple[str, str, int, int], int] = {}
    stages: Counter[str] = Counter()
    reports = []
    for record in records:
        for report in record.counts.reports:
            worker = (report.stage, record.node, record.process, report.worker)
            if worker not in numbers:
                numbers[worker] = stages[report.stage]
                stages[report.stage] += 1
            reports.append(replace(report, worker=numbers[worker]))
    return sum_reports([], reports)


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


def _remove_unknown(folder: Path, known: Collection[str]) -> bool:
    """Remove the files with names of ours that are not in `known`. Returns whether there were any."""
    unknown = [path for path in folder.iterdir() if path.name not in known and _OWN_NAMES.fullmatch(path.name)]
    for path in unknown:
        path.unlink()
    return bool(unknown)
