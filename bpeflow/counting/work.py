"""`CountWork`: counting a segment and summing partitions as tasks, wherever they run; and who distributes them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from bpeflow._util.atomic import hold_part, is_unlocked
from bpeflow.config import CountSettings
from bpeflow.corpus.reader import check_unchanged
from bpeflow.corpus.sources import CorpusEntry
from bpeflow.corpus.text_rules import TextRules
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.manifest import SegmentCounts, SegmentRecord, write_segment
from bpeflow.counting.merger import CountMerger
from bpeflow.counting.pipelines import PipelineBuilder, PipelineRunner
from bpeflow.counting.report import EngineReport
from bpeflow.counting.segments import FILE_CHANGED_REMEDY, SegmentFolder
from bpeflow.counting.shards import Scratch, Shard, cannot_write

#: The beginning of the names of tasks' scratch folders.
_TASK_SCRATCH = "bpeflow-task-"

#: The remedy if a node of a cluster has another file than the machine that distributes the work.
OTHER_FILE_REMEDY = "every node must see the same files under the same paths, and nothing may change them meanwhile"


#: A function that sums shards of segments in the calling process.
SumHere = Callable[[Sequence[Shard]], list[Shard]]


class Distributor(Protocol):
    """Distributes the work of counting over other processes or machines."""

    @property
    def threads(self) -> int:
        """The number of threads of a task."""
        ...

    @property
    def memory(self) -> MemoryBudget:
        """The shares of a task's memory limit."""
        ...

    def segment_size(self, total: int, wanted: int) -> int:
        """Return the size of a segment of a corpus of `total` bytes, at most `wanted`."""
        ...

    def count(self, segments: SegmentFolder, work: CountWork, runner: PipelineRunner, sum_here: SumHere) -> list[Shard]:
        """Count the segments that are missing, and sum all, with `sum_here` if they are small.

        Returns the sums of all partitions, without statistics. Progress, reports and what was spilled go to `runner`.
        """
        ...

    def report(self) -> EngineReport:
        """Return what the engine has done so far."""
        ...


@dataclass(frozen=True)
class CountWork:
    """The work of counting a corpus, in tasks. Picklable; it knows nothing of who runs them.

    Tasks are idempotent: each attempt writes a file with a name of its own, and only the caller, to whom it returns
    that name, records it. The file of an attempt whose result is not wanted any more is a leftover.

    Attributes:
        folder: the folder of segments, which all tasks share.
        settings: the settings, of which only those of the pipeline matter here.
        rules: how text becomes pre-tokens.
        threads: threads that count in a task.
        memory: the shares of a task's memory limit.
    """

    folder: Path
    settings: CountSettings
    rules: TextRules
    threads: int
    memory: MemoryBudget

    def count_segment(self, number: int, entries: Sequence[CorpusEntry]) -> SegmentCounts:
        """Count a part of the corpus.

        Raises:
            CorpusError: a file is unreadable, not the one that was found, or changed while it was counted.
            Exception: as `CorpusCounter.count`.
        """
        check_unchanged(entries, OTHER_FILE_REMEDY, was_read=False)
        with task_scratch(self.settings.scratch_dir) as scratch:
            return self._count_segment(number, entries, scratch)

    def _count_segment(self, number: int, entries: Sequence[CorpusEntry], scratch: Scratch) -> SegmentCounts:
        builder = PipelineBuilder(
            settings=self.settings,
            rules=self.rules,
            scratch=scratch,
            counters=self.threads,
            mergers=1,
            in_process=True,
            memory=self.memory,
            look=None,
        )
        runner = PipelineRunner(None)
        sums = runner.run(builder.counting(entries), "threads")
        check_unchanged(entries, FILE_CHANGED_REMEDY)
        return write_segment(self.folder / f"{number:06d}-{token_hex(8)}.shard", sums, runner.last_reports)

    def sum_partitions(self, shards: Sequence[Shard]) -> Shard:
        """Sum some partitions of the shards of segments. Returns a shard in a file in the folder."""
        with task_scratch(self.settings.scratch_dir) as scratch:
            sums = list(CountMerger(self.memory, scratch)(shards))
            counts = write_segment(self.folder / f"sum-{token_hex(8)}.shard", sums, ())
        path = self.folder / counts.file
        shard = Shard.in_file(shards[0].partitions, counts.tokens, counts.sizes, path)
        return replace(shard, spilled=counts.spilled)

    def is_intact(self, record: SegmentRecord) -> bool:
        """Return whether the shard of a segment still has the content that was written."""
        return record.counts.is_intact(self.folder)


@contextmanager
def task_scratch(parent: Path | None) -> Iterator[Scratch]:
    """Yield the scratch folder of a task, on its own node, and remove it at the end.

    Also removes the folders that killed tasks left there, of any run. Those of live tasks are locked.

    Args:
        parent: where to make it; by default in the system's temporary folder.
    """
    parent = parent or Path(tempfile.gettempdir())
    for path in parent.glob(f"{_TASK_SCRATCH}*/lock"):
        if is_unlocked(path):
            shutil.rmtree(path.parent, ignore_errors=True)
    try:
        folder = Path(tempfile.mkdtemp(prefix=".bpeflow-", dir=parent))
    except OSError as error:
        raise cannot_write(parent, error) from error
    try:
        with (folder / "lock").open("w") as lock:
            hold_part(lock)
            folder = folder.rename(parent / f"{_TASK_SCRATCH}{token_hex(8)}")  # it has its name when it is locked
            yield Scratch(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
