"""`Manifest`: the finished segments of a run, and what they were counted from.

    segments/
      fingerprint.json   everything the counts depend on (`Fingerprint`), written once and first
      manifest.json      the segments in order, with their checksums, and a checksum of its own
      000000.shard       the counts of the first segment, in ascending order of bytes (`Shard`)

The order of writing makes the folder durable: a shard's content is synced before the file gets its name, and the file
has its name before the manifest lists it. So every listed file exists. Any other file in the folder is a leftover and
is removed. The checksums tell whether a file still has the content that was written.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from bpeflow._util.atomic import atomic_path, make_folder
from bpeflow._util.checksummed import checksummed, verified
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.counting.shards import Shard
from bpeflow.errors import ResumeError
from bpeflow.flow import WorkerReport

MANIFEST_FILE = "manifest.json"
FINGERPRINT_FILE = "fingerprint.json"

#: The version of the folder's content, including the format of shards.
VERSION = 1
_READ_SIZE = 1 << 20


@dataclass(frozen=True, order=True)
class Position:
    """A position in a corpus: the index of an entry (a file or stream), and a byte offset in it."""

    entry: int = 0
    offset: int = 0


@dataclass(frozen=True)
class SegmentRecord:
    """The manifest's entry for a segment.

    Attributes:
        name: name of the shard's file.
        begin: position in the corpus where the segment begins.
        end: position where it ends, and the next segment begins.
        tokens: as in `Shard`.
        size: as in `Shard`.
        sha256: SHA-256 of the file.
        statistics: statistics of the segment's documents.
        weight: the segment's part of the corpus, in bytes by the sizes of files.
    """

    name: str
    begin: Position
    end: Position
    tokens: int
    size: int
    sha256: str
    statistics: DocumentStatistics
    weight: int

    def shard(self, folder: Path) -> Shard:
        """Return the segment's counts, which are in a file in `folder`."""
        path = folder / self.name
        return Shard(0, self.tokens, self.size, path=path, statistics=self.statistics, durable=True)

    def is_intact(self, folder: Path) -> bool:
        """Return whether the file still exists with the content that was written."""
        path = folder / self.name
        try:
            return path.stat().st_size == self.size and file_digest(path) == self.sha256
        except OSError:
            return False

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SegmentRecord:
        """Build from the result of `asdict`, read back from JSON."""
        begin, end = Position(**values.pop("begin")), Position(**values.pop("end"))
        return cls(begin=begin, end=end, statistics=_statistics(values.pop("statistics")), **values)


@dataclass
class Manifest:
    """The manifest, rewritten after every segment.

    Attributes:
        folder: folder of the segments.
        fingerprint: everything that the counts depend on.
        segments: the finished segments, in the order of the corpus and without gaps.
        seconds: wall time spent on counting them.
        reports: work and resource use of each worker.
    """

    folder: Path
    fingerprint: Fingerprint
    segments: list[SegmentRecord] = field(default_factory=list)
    seconds: float = 0.0
    reports: list[WorkerReport] = field(default_factory=list)

    @property
    def end(self) -> Position:
        """Position where the next segment begins."""
        return self.segments[-1].end if self.segments else Position()

    def begin(self) -> None:
        """Create the folder and a manifest without segments. Raises `OSError`."""
        make_folder(self.folder)
        with atomic_path(self.folder / FINGERPRINT_FILE) as temporary:
            temporary.write_text(self.fingerprint.to_json(), encoding="utf-8")
        self.save()

    def save(self) -> None:
        """Write the manifest. The files that it lists must have their names already. Raises `OSError`."""
        body = {
            "version": VERSION,
            "fingerprint_sha256": self.fingerprint.digest,
            "segments": [asdict(segment) for segment in self.segments],
            "seconds": self.seconds,
            "reports": [asdict(report) for report in self.reports],
        }
        with atomic_path(self.folder / MANIFEST_FILE) as temporary:
            temporary.write_text(json.dumps(checksummed(body), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, fingerprint: Fingerprint) -> Manifest | None:
        """Read the manifest in a folder. Returns None if there is none.

        Raises `ResumeError` if it is damaged, or has another fingerprint.
        """
        path = folder / MANIFEST_FILE
        try:
            body = verified(json.loads(path.read_text(encoding="utf-8")))
            version = body["version"]
            if version != VERSION:
                raise ValueError(f"it has version {version}, this bpeflow reads {VERSION}")
            if body["fingerprint_sha256"] != fingerprint.digest:
                raise _changed_error(folder, fingerprint)
            return cls(
                folder,
                fingerprint,
                [SegmentRecord.from_dict(values) for values in body["segments"]],
                body["seconds"],
                [WorkerReport(**values) for values in body["reports"]],
            )
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ResumeError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ResumeError(
                f"{path} is damaged, or not a manifest of bpeflow ({error}): its segments cannot be resumed. Start "
                "over with --restart or in another out_dir"
            ) from None


def _statistics(values: dict[str, Any]) -> DocumentStatistics:
    return DocumentStatistics(**{**values, "sources": tuple(map(_statistics, values["sources"]))})


def _changed_error(folder: Path, now: Fingerprint) -> ResumeError:
    try:
        earlier = Fingerprint.from_json((folder / FINGERPRINT_FILE).read_text(encoding="utf-8"))
        changes = now.differences(earlier)
    except (OSError, ValueError, KeyError, TypeError):
        changes = []
    return ResumeError(
        f"the unfinished run in {folder.parent} counts something else: "
        + ("; ".join(changes) or f"(what changed is unknown, as {FINGERPRINT_FILE} is missing or damaged)")
        + ". Undo the change to resume it, or start over with --restart or in another out_dir"
    )


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file. Raises `OSError`."""
    digest = sha256()
    with path.open("rb", buffering=0) as file:
        while data := file.read(_READ_SIZE):
            digest.update(data)
    return digest.hexdigest()
