"""The files in a folder of segments: the manifest, and the record of each segment.

    segments/
      manifest.json   everything that the counts depend on (`Fingerprint`), written once and first
      000000.shard    the counts of a segment (`Shard`)
      000000.json     its record (`SegmentRecord`): which part of the corpus it covers, the shard's name and checksum

The order of writing makes the folder durable: a shard's content is synced before the file gets its name, and the file
has its name before a record mentions it. So every shard that is mentioned exists. Any other file in the folder is a
leftover and is removed. Segments may be finished in any order. Manifest and records have checksums of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import chain
from operator import attrgetter
from pathlib import Path

from bpeflow._util.atomic import atomic_path, read_json, write_json
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.counting.shards import PARTITIONS, Shard, Spilled
from bpeflow.errors import ResumeError, ScratchError
from bpeflow.flow import WorkerReport

MANIFEST_FILE = "manifest.json"

#: The version of the folder's content, including the format of shards.
VERSION = 3
_READ_SIZE = 1 << 20


@dataclass(frozen=True, order=True)
class Position:
    """A position in a corpus: the index of an entry (a file or stream), and a byte offset in it."""

    entry: int = 0
    offset: int = 0


@dataclass(frozen=True)
class SegmentCounts:
    """The counts of a segment, in a file, and how they were counted.

    Attributes:
        file: name of the shard's file.
        tokens: as in `Shard`.
        sizes: as in `Shard`.
        sha256: SHA-256 of the file.
        statistics: statistics of the segment's documents.
        spilled: amount of data spilled to count it.
        reports: work and resource use of each worker.
    """

    file: str
    tokens: tuple[int, ...]
    sizes: tuple[int, ...]
    sha256: str
    statistics: DocumentStatistics
    spilled: Spilled
    reports: tuple[WorkerReport, ...]

    def shard(self, folder: Path, partitions: range = range(PARTITIONS)) -> Shard:
        """Return the counts, which are in a file in `folder`, without statistics."""
        return replace(Shard.in_file(partitions, self.tokens, self.sizes, folder / self.file), spilled=Spilled())

    @property
    def size(self) -> int:
        """Size of the file."""
        return sum(self.sizes)

    def is_intact(self, folder: Path) -> bool:
        """Return whether the file still exists with the content that was written."""
        path = folder / self.file
        try:
            if path.stat().st_size != self.size:
                return False
            with path.open("rb", buffering=0) as file:
                digest = sha256()
                while data := file.read(_READ_SIZE):
                    digest.update(data)
                return digest.hexdigest() == self.sha256
        except OSError:
            return False


@dataclass(frozen=True)
class SegmentRecord:
    """The record of a finished segment.

    Attributes:
        number: its number, in the order in which segments were begun.
        begin: position in the corpus where the segment begins.
        end: position where it ends.
        weight: the segment's part of the corpus, in bytes by the sizes of files.
        counts: its counts.
        seconds: wall time of the run between the segment finished before and this one.
        node: host name of the machine that counted it.
        process: id of the process, if it was a task; 0 if it was the pipeline of the main process.
    """

    number: int
    begin: Position
    end: Position
    weight: int
    counts: SegmentCounts
    seconds: float
    node: str
    process: int = 0

    @property
    def file(self) -> str:
        """Name of the record's file."""
        return f"{self.number:06d}.json"

    def save(self, folder: Path) -> None:
        """Write the record. The shard must have its name already. Raises `OSError`."""
        write_json(folder / self.file, asdict(self))

    @classmethod
    def load(cls, path: Path) -> SegmentRecord | None:
        """Read a record. Returns None if it is damaged. Raises `OSError`."""
        from pydantic import TypeAdapter

        try:
            return TypeAdapter(SegmentRecord).validate_python(read_json(path))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def write_manifest(folder: Path, fingerprint: Fingerprint) -> None:
    """Create the folder and the manifest. Raises `OSError`."""
    write_json(folder / MANIFEST_FILE, {"version": VERSION, **asdict(fingerprint)})


def has_manifest(folder: Path, fingerprint: Fingerprint) -> bool:
    """Return whether the folder has a manifest.

    Raises `ResumeError` if that is damaged, or has another fingerprint.
    """
    path = folder / MANIFEST_FILE
    try:
        values = read_json(path)
        if (version := values["version"]) != VERSION:
            raise ValueError(f"it has version {version}, this bpeflow reads {VERSION}")
        changes = fingerprint.differences(Fingerprint(values["settings"], values["inputs"]))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ResumeError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResumeError(
            f"{path} is damaged, or not a manifest of bpeflow ({error}): its segments cannot be resumed. Start over "
            "with --restart or in another out_dir"
        ) from None
    if changes:
        raise ResumeError(
            f"the unfinished run in {folder.parent} counts something else: {'; '.join(changes)}. Undo the change to "
            "resume it, or start over with --restart or in another out_dir"
        )
    return True


def write_segment(path: Path, sums: Iterable[Shard], reports: Sequence[WorkerReport]) -> SegmentCounts:
    """Write the sums of all partitions as the durable shard of a segment.

    Raises `ScratchError` if it cannot be written or the sums cannot be read.
    """
    ordered = sorted(sums, key=attrgetter("partitions.start"))
    digest = sha256()
    try:
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            for data in chain.from_iterable(shard.blocks() for shard in ordered):
                digest.update(data)
                file.write(data)
    except OSError as error:
        raise cannot_write_segment(path, error) from error
    return SegmentCounts(
        file=path.name,
        tokens=tuple(chain.from_iterable(shard.tokens for shard in ordered)),
        sizes=tuple(chain.from_iterable(shard.sizes for shard in ordered)),
        sha256=digest.hexdigest(),
        statistics=sum((shard.statistics for shard in ordered), start=DocumentStatistics()),
        spilled=sum((shard.spilled for shard in ordered), start=Spilled()),
        reports=tuple(reports),
    )


def cannot_write_segment(path: Path, error: OSError) -> ScratchError:
    """Return the error for a file of a segment that cannot be written, with the remedy."""
    return ScratchError(
        f"cannot write {path}: {error.strerror}. Make room on its disk, then continue with --resume: finished segments "
        "are kept"
    )
