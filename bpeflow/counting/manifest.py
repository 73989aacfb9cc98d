"""The manifest of a folder of segments: which ones are there, whole and durable, and what they were counted from.

    segments/
      fingerprint.json   what the counts depend on (`Fingerprint`); written once, before all else
      manifest.json      the segments in order, with checksums; and a checksum of its own
      000000.run         the counts of the first segment, in order of bytes (`counting.run`)

The order of writing makes it safe: a run has its content on the disk before it has its name, and its name before the
manifest tells of it. So whatever the manifest tells of is there; anything else in the folder is of no use, and goes.
Whether it still is what was written, the checksums tell.
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

#: The version of what is in the folder, the runs' form included.
VERSION = 1
_READ_AT_A_TIME = 1 << 20


@dataclass(frozen=True, order=True)
class Position:
    """A place in a corpus: one of its entries (files and streams), by its number, and a byte in it."""

    entry: int = 0
    offset: int = 0


@dataclass(frozen=True)
class SegmentRecord:
    """What the manifest tells of a segment.

    Attributes:
        name: of its file.
        begin, end: the part of the corpus that it is the counts of; the next segment begins at `end`.
        tokens, size: as in `Shard`.
        sha256: of the file's content.
        statistics: of its documents.
        weight: how much of the corpus it is, by the sizes of files.
    """

    name: str
    begin: Position
    end: Position
    tokens: int
    size: int
    sha256: str
    statistics: DocumentStatistics
    weight: int

    def run(self, folder: Path) -> Shard:
        """The counts, in their file."""
        path = folder / self.name
        return Shard(0, self.tokens, self.size, path=path, statistics=self.statistics, durable=True)

    def is_whole(self, folder: Path) -> bool:
        """Whether the file is there as it was written."""
        path = folder / self.name
        try:
            return path.stat().st_size == self.size and file_digest(path) == self.sha256
        except OSError:
            return False

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SegmentRecord:
        """Build from what `asdict` and JSON have made of one."""
        begin, end = Position(**values.pop("begin")), Position(**values.pop("end"))
        return cls(begin=begin, end=end, statistics=_statistics(values.pop("statistics")), **values)


@dataclass
class Manifest:
    """The manifest, which is written anew whenever it changes.

    Attributes:
        folder: of the segments.
        segments: in the order of the corpus, without gaps.
        seconds: wall time that counting them took.
        reports: what the workers did and took.
    """

    folder: Path
    fingerprint: Fingerprint
    segments: list[SegmentRecord] = field(default_factory=list)
    seconds: float = 0.0
    reports: list[WorkerReport] = field(default_factory=list)

    @property
    def end(self) -> Position:
        """Where the next segment begins."""
        return self.segments[-1].end if self.segments else Position()

    def begin(self) -> None:
        """Make the folder, with no segment in it. Raises `OSError`."""
        make_folder(self.folder)
        with atomic_path(self.folder / FINGERPRINT_FILE) as temporary:
            temporary.write_text(self.fingerprint.to_json(), encoding="utf-8")
        self.save()

    def save(self) -> None:
        """Write the manifest; the files that it tells of have their names already. Raises `OSError`."""
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
        """Read the manifest in a folder; None where there is none.

        Raises `ResumeError` if it is of other counts than `fingerprint` asks for, or damaged.
        """
        path = folder / MANIFEST_FILE
        try:
            body = verified(json.loads(path.read_text(encoding="utf-8")))
            version = body["version"]
            if version != VERSION:
                raise ValueError(f"it has version {version}, this bpeflow reads {VERSION}")
            if body["fingerprint_sha256"] != fingerprint.digest:
                raise _changed(folder, fingerprint)
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
                f"{path} is damaged, or not ours ({error}): the segments there cannot be gone on with. Begin again "
                "with --restart, or in another out_dir"
            ) from None


def _statistics(values: dict[str, Any]) -> DocumentStatistics:
    return DocumentStatistics(**{**values, "sources": tuple(map(_statistics, values["sources"]))})


def _changed(folder: Path, now: Fingerprint) -> ResumeError:
    try:
        earlier = Fingerprint.from_json((folder / FINGERPRINT_FILE).read_text(encoding="utf-8"))
        changes = now.differences(earlier)
    except (OSError, ValueError, KeyError, TypeError):
        changes = []
    return ResumeError(
        f"the unfinished run in {folder.parent} counts something else: "
        + ("; ".join(changes) or f"(what, {FINGERPRINT_FILE} there does not tell)")
        + ". Put that back to go on with it, or begin again with --restart or in another out_dir"
    )


def file_digest(path: Path) -> str:
    """The SHA-256 of a file. Raises `OSError`."""
    digest = sha256()
    with path.open("rb", buffering=0) as file:
        while data := file.read(_READ_AT_A_TIME):
            digest.update(data)
    return digest.hexdigest()
