"""The JSON files of a run, with checksums: ``run.json`` is a `RunReport`, and ``settings.json`` is one at its start.

``merges.partial`` is a `MergeCheckpoint`: the merges learned so far. A run that resumes encodes the pre-tokens with
them, which gives the same result on the same counts as learning without interruption.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from bpeflow import __version__
from bpeflow._util.atomic import read_json, write_json
from bpeflow._util.machine import available_cores
from bpeflow.backends.base import MergeStatistics
from bpeflow.config import Settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.fingerprint import setting_changes
from bpeflow.counting.report import CorpusReport, CountingReport, Thinned
from bpeflow.errors import FormatError, ResumeError
from bpeflow.formats.tokenizer_spec import TokenizerSpec, tokenizer_hash
from bpeflow.run_dir.layout import CHECKPOINT_FILE, REPORT_FILE, SETTINGS_FILE, UNFINISHED
from bpeflow.vocab import Merge

#: The version of the records below; a report of another version is refused.
SCHEMA_VERSION: Literal[2] = 2

#: Seconds between two checkpoints. Longer loses more work with an interrupted run; shorter spends more time writing,
#: a few hundredths of a second each.
INTERVAL = 30.0
CHECKPOINT_VERSION = 3

#: Settings that decide which merges are learned, besides the vocabulary sizes.
_DECIDING = ("special_tokens", "tie_break", "min_frequency", "max_token_length", "thin_rare", "special_tokens_first")

#: The same for the second stage of superwords, besides the tokenizer that the first stage gives.
DECIDING_SUPERWORDS = ("superwords", "superword_pattern", "max_words", "colon_rule")

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Versions:
    """Versions that a run depends on, and the machine it ran on.

    Attributes:
        regex: the version of the `regex` module; None if the run did not need it.
    """

    python: str
    numpy: str
    regex: str | None
    platform: str
    cores: int


@dataclass(frozen=True, kw_only=True)
class TokenReport:
    """A token, as text and exactly."""

    text: str
    bytes: int
    hex: Annotated[str, Field(pattern=r"^([0-9a-f]{2})+$")]


@dataclass(frozen=True, kw_only=True)
class LearningReport:
    """How the merges were learned.

    Attributes:
        replayed: initial merges, taken from the tokenizer that was extended.
        resumed: merges that an interrupted run had learned.
        learned: merges after the initial ones, `resumed` included.
        wanted: merges that would have filled the vocabulary, initial ones included.
        lowest_count: the count of the last merge; None if none was learned.
        fingerprint: the settings that decide which merges are learned.
        thinned: the effect of `thin_rare`; None without it.
    """

    replayed: int
    resumed: int
    learned: int
    wanted: int
    seconds: float
    lowest_count: int | None
    backend: MergeStatistics
    vocab_size: int
    longest_token: TokenReport
    fingerprint: dict[str, Any]
    thinned: Thinned | None = None


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """The report of a training run.

    Attributes:
        settings: the run's settings as JSON values.
        started_in: the folder that its relative paths are relative to; None in reports of earlier versions.
        corpus, counting: None where counts were given from elsewhere and nothing is known of their corpus.
        counts: the counts that were given, if the run did not count itself.
        resumed: the file of finished counts from which the run was resumed.
        learning: None until merges are learned, and with `skip_merge`.
        seconds: wall time of the run.
        finished: when the report was written, in ISO 8601, UTC.
        files: the run's files, relative to its folder.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}  # for the records in it, too

    schema_version: Literal[2] = SCHEMA_VERSION
    bpeflow: str
    command: tuple[str, ...]
    settings: dict[str, Any]
    started_in: str | None = None
    versions: Versions
    corpus: CorpusReport | None = None
    counting: CountingReport | None = None
    counts: str | None = None
    resumed: str | None = None
    learning: LearningReport | None = None
    seconds: float | None = None
    peak_memory_bytes: int | None = None
    finished: str | None = None
    files: tuple[str, ...] = ()

    @property
    def second_stage(self) -> int | None:
        """The rank of the first merge of the second stage; None if the tokenizer has no superwords."""
        return self.learning.replayed if self.learning and self.settings.get("superwords") else None

    def write(self, path: Path) -> None:
        """Write the report with its checksum; atomically. Raises `OSError`."""
        write_json(path, asdict(self), indent=2)


def start_report(settings: Settings) -> RunReport:
    """Return a report with everything that is known before the work: settings and versions."""
    system = os.uname()
    return RunReport(
        bpeflow=__version__,
        command=tuple(sys.argv),
        settings=settings.to_json(),
        started_in=str(Path.cwd()),
        versions=Versions(
            python=".".join(map(str, sys.version_info[:3])),
            numpy=np.__version__,
            regex=getattr(sys.modules.get("regex"), "__version__", None),
            platform=" ".join((system.sysname, system.release, system.machine)),
            cores=available_cores(),
        ),
    )


def read_report(folder: Path, name: str = REPORT_FILE) -> RunReport | None:
    """Read the report of a run folder; None if there is none. Raises `FormatError` if it is damaged."""
    path = folder / name
    if not path.is_file():
        return None
    try:
        values = read_json(path)
    except ValueError as error:
        raise FormatError(f"{path}: damaged, or changed after the run: {error}") from error
    if (version := values.get("schema_version")) != SCHEMA_VERSION:
        raise FormatError(
            f"{path}: report of schema version {version}, this bpeflow reads {SCHEMA_VERSION}: move it away, or train "
            "again in another folder"
        )
    try:
        return _report_adapter().validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise FormatError(f"{path}: not the report of a run: {key}: {first['msg']}") from None


def report_of_tokenizer(tokenizer: Path) -> RunReport | None:
    """Read the report of the run that has made a tokenizer, if any: the run folder, or a file or smaller size in it."""
    folder = tokenizer.resolve()
    try:
        if report := read_report(folder):
            return report
        run = read_report(folder.parent)
    except FormatError:  # a tokenizer is not without use for that
        return None
    return run if run and any(Path(file).parts[0] == folder.name for file in run.files) else None


@cache
def _report_adapter() -> TypeAdapter[RunReport]:
    return TypeAdapter(RunReport)  # slow


def read_record(folder: Path) -> RunReport | None:
    """Read the settings of a folder's unfinished run; None if there is none. Raises `ResumeError` if damaged."""
    try:
        return read_report(folder / UNFINISHED, SETTINGS_FILE)
    except FormatError as error:
        raise ResumeError(f"{error}: delete it, and repeat the settings of the run to resume it") from None


# ---- merges learned so far ----


def learning_fingerprint(settings: Settings, base: TokenizerSpec | None) -> dict[str, Any]:
    """Return what decides which merges are learned from given counts, as JSON values.

    Of the tokenizer to extend, the content matters and not its place.
    """
    init_from = base and f"a tokenizer with {len(base.vocab):,} entries, SHA-256 {tokenizer_hash(base)}"
    deciding = {*_DECIDING, *(DECIDING_SUPERWORDS if settings.superwords else ())}
    sizes = settings.sizes
    return {
        "vocab_size": sizes[0] if len(sizes) == 1 else list(sizes),
        **settings.to_json(deciding),
        "init_from": init_from,
    }


class MergeCheckpoint:
    """The checkpoint file of an unfinished run.

    Attributes:
        merges, merge_counts: the merges of the file with their counts, initial merges included; none without a file.
    """

    def __init__(self, folder: Path, counts: PretokenCounts, fingerprint: dict[str, Any]) -> None:
        """Read the file. A damaged one is ignored with a warning, as learning again costs only time.

        Raises `ResumeError` if its merges were learned from other counts, or with other settings.
        """
        self._path = folder / CHECKPOINT_FILE
        self._counts = counts
        self._settings = fingerprint
        self._counts_digest = ""
        self._next = monotonic() + INTERVAL
        self.merges, self.merge_counts = self._load()

    @property
    def due(self) -> bool:
        """Whether it is time for the next checkpoint."""
        return monotonic() >= self._next

    def save(self, merges: Sequence[Merge], merge_counts: Sequence[int]) -> None:
        """Write the merges so far with their counts, initial merges included. A failure to write is only logged."""
        body = {
            "version": CHECKPOINT_VERSION,
            "settings": self._settings,
            "counts_sha256": self._digest_of_counts(),
            "merges": [[left.hex(), right.hex()] for left, right in merges],
            "merge_counts": merge_counts,
        }
        try:
            write_json(self._path, body, indent=None)
        except OSError as error:  # the run needs no disk space yet, and there may be some when it does
            log.warning(
                "%s cannot be written (%s): if the run is interrupted, learning will start over", self._path, error
            )
        self._next = monotonic() + INTERVAL

    def _load(self) -> tuple[list[Merge], list[int]]:
        try:
            body = read_json(self._path)
            if body["version"] != CHECKPOINT_VERSION:
                raise ValueError
            merges = [(bytes.fromhex(left), bytes.fromhex(right)) for left, right in body["merges"]]
            merge_counts = body["merge_counts"]
        except FileNotFoundError:
            return [], []
        except (ValueError, KeyError, TypeError):
            log.warning("%s is damaged: learning starts over", self._path)
            return [], []
        check_same_settings(body["settings"], self._settings, self._path)
        if body["counts_sha256"] != self._digest_of_counts():
            raise ResumeError(f"{self._path} was learned from other counts: start over with restart=True")
        return merges, merge_counts

    def _digest_of_counts(self) -> str:
        if not self._counts_digest:
            digest = sha256()
            for array in (self._counts.data, self._counts.offsets, self._counts.counts):
                digest.update(array.data)
            self._counts_digest = digest.hexdigest()
            self._counts.unload()
        return self._counts_digest


def check_same_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], where: Path, start_over: str = "restart=True"
) -> None:
    """Raise `ResumeError` if merges were learned with other settings than they are now."""
    if changes := setting_changes(before, now):
        raise ResumeError(
            f"{where} is of a run with other settings: {'; '.join(changes)}. Undo the change to resume it, learn again "
            f"from its counts (bpeflow merge), or start over with {start_over} or in another out_dir"
        )
