"""Segments: a large corpus is counted in parts, and the counts of each become durable at its end.

A run that was interrupted resumes with the segments that it finished, whoever counted them and in whichever order.
Where segments end has no influence on the counts, as they end only where chunks may end. The last step sums the shards
of all segments, a partition at a time; that of a single segment is its own sum. The files in the folder:

    segments/
      manifest.json   everything that the counts depend on (`Fingerprint`), written once and first
      000000.shard    the counts of a segment (`Shard`)
      000000.json     its record (`SegmentRecord`): which part of the corpus it covers, the shard's name and checksum

The order of writing makes the folder durable: a shard's content is synced before the file gets its name, and the file
has its name before a record mentions it. So every shard that is mentioned exists. Any other file in the folder is a
leftover and is removed. Segments may be finished in any order. Manifest and records have checksums of their own.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import chain
from operator import attrgetter
from pathlib import Path
from time import perf_counter

from bpeflow._util.atomic import atomic_path, read_json, sync_folder, write_json
from bpeflow._util.text import format_count, format_size
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.plan import Position, SegmentPart, SegmentPlan
from bpeflow.corpus.sources import check_unchanged
from bpeflow.counting.fingerprint import MANIFEST_FILE, Fingerprint, has_manifest, remove_unknown, write_manifest
from bpeflow.counting.pipelines import PipelineRunner
from bpeflow.counting.report import SegmentStatistics, Stages, combine_stages
from bpeflow.counting.shards import PARTITIONS, Shard, Spilled, explain_write_error

_RECORD = re.compile(r"\d{6,}\.json").fullmatch

_begin = attrgetter("begin")

_READ_SIZE = 1 << 20

#: The remedy if a segment cannot be written.
_RESUME = "Make room on its disk, then resume: finished segments are kept"

#: The remedy for a file that changed while it was counted.
FILE_CHANGED_REMEDY = (
    "restore the file and its modification time and continue with resume=True, or start over with restart=True once it "
    "is complete"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SegmentRecord:
    """A finished segment: its counts, in a file, and how they were counted.

    Attributes:
        number: its number, in the order in which segments were begun.
        begin: position in the corpus where the segment begins.
        end: position where it ends.
        weight: the segment's part of the corpus, in bytes by the sizes of files.
        file: name of the shard's file.
        tokens: as in `Shard`.
        sizes: as in `Shard`.
        shard_sha256: SHA-256 of the file.
        statistics: statistics of the segment's documents.
        spilled: amount of data spilled to count it.
        stages: the work of each stage of the pipeline.
        seconds: wall time of the run between the segment finished before and this one.
    """

    number: int
    begin: Position
    end: Position
    weight: int
    file: str
    tokens: tuple[int, ...]
    sizes: tuple[int, ...]
    shard_sha256: str
    statistics: DocumentStatistics
    spilled: Spilled
    stages: Stages
    seconds: float = 0

    @property
    def name(self) -> str:
        """Name of the record's file."""
        return f"{self.number:06d}.json"

    @property
    def size(self) -> int:
        """Size of the shard's file."""
        return sum(self.sizes)

    def save(self, folder: Path) -> None:
        """Write the record. The shard must have its name already. Raises `OSError`."""
        write_json(folder / self.name, asdict(self))

    @classmethod
    def load(cls, path: Path) -> SegmentRecord | None:
        """Read a record. Returns None if it is damaged. Raises `OSError`."""
        from pydantic import TypeAdapter

        try:
            return TypeAdapter(SegmentRecord).validate_python(read_json(path))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def shard(self, folder: Path) -> Shard:
        """Return the counts, which are in a file in `folder`."""
        shard = Shard.in_file(range(PARTITIONS), self.tokens, self.sizes, folder / self.file)
        return replace(shard, statistics=self.statistics, spilled=self.spilled)

    def is_intact(self, folder: Path) -> bool:
        """Return whether the shard's file still exists with the content that was written."""
        path = folder / self.file
        try:
            if path.stat().st_size != self.size:
                return False
            with path.open("rb", buffering=0) as file:
                digest = sha256()
                while data := file.read(_READ_SIZE):
                    digest.update(data)
                return digest.hexdigest() == self.shard_sha256
        except OSError:
            return False


class SegmentFolder:
    """The folder of segments of a training run.

    Attributes:
        path: the folder, which need not exist before `count`.
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

    def _open(self) -> None:
        """Create the folder, or resume with the segments of an earlier run that are intact."""
        with explain_write_error(self.path, _RESUME):
            if self._is_new:
                if self.path.is_dir() and remove_unknown(self.path, frozenset()):  # a run was killed at its start
                    sync_folder(self.path)  # records must not come back beside the new manifest
                write_manifest(self.path, self._fingerprint)
            else:
                self._resume()
        self._since = perf_counter()

    def _resume(self) -> None:
        """Read the records, remove the records of damaged segments, and then all files that no record mentions."""
        found = {path: SegmentRecord.load(path) for path in sorted(self.path.glob("*.json")) if _RECORD(path.name)}
        readable = [record for record in found.values() if record is not None]
        self._resumed = [record for record in readable if record.is_intact(self.path)]
        self._records = [*self._resumed]
        self._recounted = len(found) - len(self._resumed)
        known = {MANIFEST_FILE, *(name for record in self._records for name in (record.name, record.file))}
        for path, record in found.items():
            if path.name not in known:
                log.warning(
                    "%s is damaged or missing: counting its part of the corpus again",
                    path if record is None else self.path / record.file,
                )
        remove_unknown(self.path, known)
        done = format_size(sum(record.weight for record in self._records))
        if self._records:
            log.info("resuming %s, %s of input, from %s", format_count(len(self._records), "segment"), done, self.path)

    def _missing(self) -> Iterator[SegmentPart]:
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

    def _add(self, record: SegmentRecord) -> None:
        """Record a finished segment, whose shard is in the folder."""
        now = perf_counter()
        record, self._since = replace(record, seconds=now - self._since), now
        with explain_write_error(self.path / record.name, _RESUME):
            record.save(self.path)
        self._records.append(record)

    def count(
        self,
        runner: PipelineRunner,
        count: Callable[[Iterator[SegmentPart], Path, PipelineRunner], Iterator[SegmentRecord]] | None = None,
    ) -> list[Shard]:
        """Count the segments that are missing, and record each. Returns the shards of all segments.

        Args:
            runner: runs pipelines.
            count: counts parts of the corpus to a folder, as `count_parts` does; None for that.

        Raises:
            ScratchError: a segment cannot be written.
            Exception: any error of `count`.
        """
        self._open()
        runner.done_bytes += sum(record.weight for record in self._resumed)
        runner.report_progress()
        for record in (count or count_parts)(self._missing(), self.path, runner):
            self._add(record)
        runner.stages = combine_stages(record.stages for record in self._records[len(self._resumed) :])
        return [record.shard(self.path.absolute()) for record in sorted(self._records, key=_begin)]

    @contextmanager
    def kept_on_failure(self) -> Iterator[None]:
        """Warn that finished segments are kept if the block fails."""
        try:
            yield
        except BaseException:
            if self._records:
                text = format_size(sum(record.statistics.bytes for record in self._records))
                log.warning("%s keeps finished segments, %s of text, for resume=True", self.path, text)
            raise

    def stages(self, runner: PipelineRunner) -> Stages:
        """Return the work of this run and of the runs that it resumes."""
        return combine_stages([*(record.stages for record in self._resumed), runner.stages])

    def statistics(self) -> SegmentStatistics:
        """Return statistics about the segments."""
        return SegmentStatistics(
            segments=len(self._records),
            bytes=sum(record.size for record in self._records),
            resumed=len(self._resumed),
            resumed_bytes=sum(record.statistics.bytes for record in self._resumed),
            resumed_seconds=sum(record.seconds for record in self._resumed),
            recounted=self._recounted,
        )


def count_parts(parts: Iterable[SegmentPart], folder: Path, runner: PipelineRunner) -> Iterator[SegmentRecord]:
    """Count parts of the corpus one after another. Raises as `count_segment`."""
    for part in parts:
        yield count_segment(folder / f"{part.number:06d}.shard", part, runner)
        runner.build.scratch.clear()


def count_segment(path: Path, part: SegmentPart, runner: PipelineRunner) -> SegmentRecord:
    """Count a part of the corpus by running its pipeline, and write the counts to a file.

    Raises:
        ScratchError: the segment cannot be written.
        CorpusError: a file changed while it was counted.
        Exception: any error of the pipeline.
    """
    pipeline = runner.build.counting(part.entries)
    sums = runner.run(pipeline)
    check_unchanged(part.entries, FILE_CHANGED_REMEDY)
    shard, digest = write_segment(path, sums)
    return SegmentRecord(
        number=part.number,
        begin=part.begin,
        end=part.end,
        weight=part.weight,
        file=path.name,
        tokens=shard.tokens,
        sizes=shard.sizes,
        shard_sha256=digest,
        statistics=shard.statistics,
        spilled=shard.spilled,
        stages=pipeline.reports,
    )


def write_segment(path: Path, sums: Iterable[Shard]) -> tuple[Shard, str]:
    """Write the sums of consecutive partitions as one durable shard. Returns the shard and its file's SHA-256.

    Raises `ScratchError` if it cannot be written or the sums cannot be read.
    """
    ordered = sorted(sums, key=attrgetter("partitions.start"))
    digest = sha256()
    with explain_write_error(path, _RESUME), atomic_path(path) as temporary, temporary.open("wb") as file:
        for data in chain.from_iterable(shard.blocks() for shard in ordered):
            digest.update(data)
            file.write(data)
    shard = Shard.in_file(
        range(ordered[0].partitions.start, ordered[-1].partitions.stop),
        chain.from_iterable(shard.tokens for shard in ordered),
        chain.from_iterable(shard.sizes for shard in ordered),
        path,
    )
    statistics = sum((shard.statistics for shard in ordered), start=DocumentStatistics())
    spilled = sum((shard.spilled for shard in ordered), start=Spilled())
    return replace(shard, statistics=statistics, spilled=spilled), digest.hexdigest()
