"""Resuming: find what an earlier run left in the run folder, and continue, finish, replace or refuse it.

Finished results are described and refused, unless they may be replaced (`overwrite`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bpeflow._util.text import format_count, one_line
from bpeflow.config import Settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.errors import AlreadyExistsError, FormatError, ResumeError
from bpeflow.formats import any_format as formats
from bpeflow.formats import gpt2
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.run_dir.checkpoint import check_same_settings
from bpeflow.run_dir.layout import (
    CHECKPOINT_FILE,
    COUNTS_FILE,
    REPORT_FILE,
    SEGMENTS,
    UNFINISHED,
    VOCAB_FILES,
    Phase,
    RunState,
    inspect,
)
from bpeflow.run_dir.publish import publish, remove_unfinished
from bpeflow.run_dir.run_dir import RunDir
from bpeflow.run_dir.run_report import RunReport, check_counts, read_report

#: Settings that a description mentions if they differ from the default.
_TELLING = ("special_tokens", "tie_break", "min_frequency", "max_token_length", "init_from")

#: The most characters of a setting that a description shows.
_MAX_SHOWN = 60

log = logging.getLogger(__name__)

#: Where a run's counts come from: it counts itself, it continues with those of the interrupted run in its folder, it
#: learns from those of the finished run in its folder, or they are given from elsewhere.
CountsOrigin = Literal["own", "interrupted", "finished", "elsewhere"]


@dataclass(frozen=True)
class FinishedCounts:
    """The counts of an earlier run in the folder, with its report.

    Attributes:
        folder: the run folder.
        counts: the counts.
        report: the report of the run that made them.
        in_progress: whether that run is unfinished.
    """

    folder: Path
    counts: PretokenCounts
    report: RunReport
    in_progress: bool

    def nothing_left(self, settings: Settings, learning: Mapping[str, Any]) -> bool:
        """Return whether that run has done all that `settings` ask for.

        Args:
            settings: the settings.
            learning: their `learning_fingerprint`.

        Raises:
            ResumeError: it learned merges with other settings.
        """
        if self.in_progress:
            return False
        if settings.skip_merge:
            return True
        if self.report.learning is None or inspect(self.folder).phase is Phase.LEARNING:
            return False
        check_same_settings(self.report.learning.fingerprint, learning, self.folder / REPORT_FILE, "--overwrite")
        try:
            self.tokenizer()
        except (FormatError, OSError) as error:
            log.warning("the vocabulary in %s is damaged or missing and will be learned again: %s", self.folder, error)
            return False
        return all((self.folder / name).exists() for name in self.report.files)

    def tokenizer(self) -> TokenizerSpec | None:
        """Read the tokenizer; None if none was learned."""
        return gpt2.load(self.folder) if self.report.learning is not None else None


def settle_interrupted(folder: Path, settings: Settings, origin: CountsOrigin = "own") -> None:
    """Make way for a new run: keep an interrupted run to resume, or refuse to lose it, or remove it with `restart`.

    A run that was interrupted while its results were published is finished first. What a finished run has left is kept
    until the new one is complete, and only with `overwrite` may there be any. An interrupted run has that permission.

    Raises:
        ResumeError: the folder has an interrupted run, and the settings neither resume nor discard it; or this run,
            whose counts come from elsewhere, cannot resume it.
        AlreadyExistsError: the folder has a finished run or a tokenizer, and it is neither resumed nor replaced.
    """
    finish_publishing(folder, settings.restart)
    state, unfinished = inspect(folder), folder / UNFINISHED
    own_counts = state.counts == unfinished
    at_stake: list[str] = []
    if origin != "interrupted":
        at_stake += [f"{SEGMENTS}/"] * (state.phase is Phase.COUNTING) + [COUNTS_FILE] * _are_costly(unfinished)
    at_stake += [CHECKPOINT_FILE] * (unfinished / CHECKPOINT_FILE).exists()
    can_resume = origin in ("own", "interrupted") or not (own_counts or state.phase is Phase.COUNTING)
    if settings.resume and can_resume:
        return
    if at_stake and not settings.restart:
        raise ResumeError(
            f"{folder} has an unfinished run ({' and '.join(at_stake)}): resume it (--resume), discard it and start "
            "over (--restart), or use another out_dir"
        )
    if origin != "interrupted" and not settings.overwrite:
        refuse_to_replace(folder, counts_stay=origin == "finished")
    if at_stake:
        log.warning("%s: discarding the unfinished run", folder)
    if origin == "interrupted":
        (unfinished / CHECKPOINT_FILE).unlink(missing_ok=True)
    else:
        remove_unfinished(folder)


def finish_publishing(folder: Path, restart: bool = False) -> None:
    """Publish the results of a run that was interrupted while doing so; with `restart` discard them if damaged."""
    state = inspect(folder)
    if not (state.phase is Phase.DONE and state.in_progress):
        return
    log.info("%s: publishing the results of a run that was interrupted while doing so", folder)
    try:
        publish(folder)
    except ResumeError:
        if not restart:
            raise
        remove_unfinished(folder)


def folder_of_counts(run_dir: Path) -> Path:
    """Return the folder of the latest counts: ``unfinished/`` if learning failed there, else the run folder.

    Takes the folder's lock if results are to be published first. Raises as `RunDir` and `publish` do.
    """
    state = inspect(run_dir)
    if state.phase is Phase.DONE and state.in_progress:
        with RunDir(run_dir):
            finish_publishing(run_dir)
        state = inspect(run_dir)
    return state.counts or run_dir


def find_counts(settings: Settings, fingerprint: Fingerprint) -> FinishedCounts | None:
    """Return the counts of an earlier run in `out_dir`; None if the corpus is to be counted (on), or without `resume`.

    Raises:
        ResumeError: the counts are of another corpus, of other settings, or damaged.
        AlreadyExistsError: the folder has another finished run or a tokenizer, which this run would replace.
    """
    folder = settings.out_dir
    if not settings.resume or folder is None:
        return None
    state = inspect(folder)
    if state.phase is Phase.COUNTING:
        return None
    found, may_replace = None, settings.overwrite or _continues(state, settings)
    if not (state.phase is Phase.STARTED and may_replace):
        found = _read_counts(folder, UNFINISHED, fingerprint) or _read_counts(folder, "", fingerprint)
    if found is None:
        if not may_replace:
            refuse_to_replace(folder)
        log.info("%s has no run to resume: starting from the beginning", folder)
    elif not (may_replace or found.report.learning or settings.skip_merge):
        refuse_to_replace(folder, counts_stay=True)
    return found


def find_learned(
    settings: Settings,
    learning: Mapping[str, Any],
    origin: CountsOrigin,
    counts: PretokenCounts,
    counted: RunReport | None,
) -> FinishedCounts | None:
    """With `resume`, return the finished run in `out_dir` if it has learned from these counts what `settings` ask for.

    Args:
        settings: the settings.
        learning: their `learning_fingerprint`.
        origin: where the counts come from.
        counts: the counts.
        counted: the report of the run that made them, if it is known.

    Raises:
        ResumeError: that run learned merges with other settings.
        AlreadyExistsError: the folder has another finished run or a tokenizer, which this run would replace.
        FormatError: the report of the finished run is damaged.
    """
    folder = settings.out_dir
    if not settings.resume or folder is None or _continues(inspect(folder), settings):
        return None
    report = read_report(folder)
    same_counts = report and counted and (report.corpus, report.counting) == (counted.corpus, counted.counting)
    if report and report.learning and same_counts:
        found = FinishedCounts(folder, counts, report, in_progress=False)
        return found if found.nothing_left(settings, learning) else None
    if not settings.overwrite:
        refuse_to_replace(folder, counts_stay=origin == "finished")
    return None


def _continues(state: RunState, settings: Settings) -> bool:
    """Return whether an unfinished run is continued, which may replace a finished one since it began.

    If it has done nothing yet, its permission to replace must be in these settings, which may be those of another run.
    """
    return state.in_progress and (state.phase is not Phase.STARTED or settings.overwrite)


def _read_counts(folder: Path, subfolder: str, fingerprint: Fingerprint) -> FinishedCounts | None:
    start_over = "--restart" if subfolder else "--overwrite"
    path = folder / subfolder / COUNTS_FILE
    try:
        report = read_report(folder / subfolder)
        if report is None or report.counting is None or not path.exists():
            return None
        if changes := fingerprint.differences_from_summary(report.counting.fingerprint):
            raise ResumeError(
                f"the run in {folder} counted something else: {'; '.join(changes)}. Undo the change to resume it, or "
                f"start over with {start_over} or in another out_dir"
            )
        counts = PretokenCounts.load(path)
        check_counts(report, counts, path)
    except FormatError as error:
        raise ResumeError(f"{error}. To count again, use {start_over}") from error
    log.info("the corpus is already counted: resuming from %s", path)
    return FinishedCounts(folder, counts, report, in_progress=subfolder == UNFINISHED)


def _are_costly(folder: Path) -> bool:
    """Return whether a folder has counts that took long to make, of a run that was still to learn merges."""
    try:
        report = read_report(folder)
    except FormatError:
        return False
    if report is None or report.counting is None or report.counting.segments is None:
        return False
    return report.learns_later and (folder / COUNTS_FILE).exists()


def refuse_to_replace(folder: Path, *, counts_stay: bool = False) -> None:
    """Raise `AlreadyExistsError` if a folder has a finished run or a tokenizer.

    Args:
        folder: the run folder.
        counts_stay: whether the new run learns from the finished counts in the folder, so that only a tokenizer would
            be replaced.
    """
    if has_tokenizer(folder) or (not counts_stay and _has_counts_or_report(folder)):
        raise AlreadyExistsError(
            f"{folder} holds {_describe(folder)}: use another out_dir, or overwrite=True (--overwrite) to replace it"
        )


def has_tokenizer(folder: Path) -> bool:
    """Return whether a folder has a tokenizer in any known format."""
    return any(next(folder.glob(pattern), None) for pattern in VOCAB_FILES) or formats.has_tokenizer(folder)


def _has_counts_or_report(folder: Path) -> bool:
    return any((folder / name).exists() for name in (REPORT_FILE, COUNTS_FILE))


def _describe(folder: Path) -> str:
    try:
        report = read_report(folder)
    except FormatError:
        return f"a finished run ({REPORT_FILE} is damaged)"
    if report is not None and report.learning is not None:
        size = f"{report.learning.vocab_size:,} entries"
        return f"a finished tokenizer ({', '.join([size, *_details(report, 'trained')])})"
    if has_tokenizer(folder):
        return formats.describe(folder)
    if report is not None and report.corpus is not None:
        size = format_count(report.corpus.distinct_pretokens, "distinct pre-token")
        return f"finished counts ({', '.join([size, *_details(report, 'counted')])})"
    return f"counts ({COUNTS_FILE})"


def _details(report: RunReport, verb: str) -> Iterator[str]:
    settings = report.settings
    yield _shortened(str(settings["pattern"]))
    for name in _TELLING:
        default, value = Settings.model_fields[name].default, settings.get(name)
        if value is not None and value != (list(default) if isinstance(default, tuple) else default):
            yield _shortened(f"{name} {value}")
    paths = [*settings["input"], *(path for source in settings["sources"] for path in source["paths"])]
    corpus = f" from {_shortened_path(' '.join(paths))}" if paths else ""
    yield f"{verb} {(report.finished or '')[:10]}{corpus}"


def _shortened(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def _shortened_path(text: str) -> str:
    text = one_line(text)  # paths differ at their ends
    return text if len(text) <= _MAX_SHOWN else "…" + text[-_MAX_SHOWN:]
