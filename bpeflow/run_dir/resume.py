"""Resuming: find what an earlier run left in the run folder, and continue, finish, replace or refuse it (`Phase`)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

from bpeflow.config import Settings, make_settings, override
from bpeflow.corpus.files import STDIN
from bpeflow.corpus.sources import DOCUMENTS
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.fingerprint import Fingerprint, has_segments
from bpeflow.errors import AlreadyExistsError, ConfigError, FormatError, ResumeError
from bpeflow.formats import any_format as formats
from bpeflow.formats import gpt2
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.run_dir.layout import (
    CHECKPOINT_FILE,
    COUNTS_FILE,
    DONE_FILE,
    FIRST_STAGE,
    REPORT_FILE,
    SEGMENTS,
    SETTINGS_FILE,
    UNFINISHED,
    VOCAB_FILES,
    Phase,
    has_counts,
    has_first_stage,
    phase_of,
    same_folder,
    start_over,
)
from bpeflow.run_dir.run_dir import RunDir, publish_results, remove_unfinished
from bpeflow.run_dir.run_files import (
    RunReport,
    check_same_settings,
    read_record,
    read_report,
)

#: What a finished run has besides a tokenizer.
_RESULTS = (COUNTS_FILE, REPORT_FILE, f"{FIRST_STAGE}/{REPORT_FILE}")

log = logging.getLogger(__name__)


# ---- the settings of a run ----


def make_run_settings(values: Mapping[str, Any]) -> Settings:
    """Validate the settings of a run, as `make_settings` does.

    With `resume` and without a corpus, the run in `out_dir` is resumed with its own settings, and `values` override
    them. A change that the run cannot be resumed with is found later, as in a config. Raises `ResumeError` if there is
    no such run, or its folder alone is not enough to resume it.
    """
    if (folder := _folder_to_resume(values)) is not None:
        values = override(_own_settings(folder), values)
    return make_settings(Settings, values)


def counts_to_resume(values: Mapping[str, Any]) -> Path | None:
    """Return the counts that the run to resume learns from; None if it has its own, or has settings here."""
    folder = _folder_to_resume(values)
    run = recorded_run(folder) if folder is not None else None
    return None if run is None or run.counts is None else Path(run.counts)


def _folder_to_resume(values: Mapping[str, Any]) -> Path | None:
    """Return the folder of the run to resume with its own settings; None if the corpus is given."""
    if not values.get("resume") or values.get("input") or values.get("sources"):
        return None
    if (out_dir := values.get("out_dir")) is None:
        raise ConfigError("resume: give out_dir, the folder of the run")
    return Path(out_dir).expanduser() if isinstance(out_dir, str | Path) else None


def recorded_run(folder: Path) -> RunReport | None:
    """Return the first report of the unfinished run in a folder, or else what its latest report says, if any."""
    if begun := read_record(folder):
        return begun
    unfinished = folder / UNFINISHED
    report = read_report(unfinished, DONE_FILE) or read_report(unfinished) or read_report(folder)
    if report is None:
        return None
    settings = report.settings | {"resume": False, "overwrite": False, "restart": False}
    counts = None if (folder / COUNTS_FILE).exists() else report.counts
    return replace(report, settings=settings, started_in=str(Path.cwd()), counts=counts)


def _own_settings(folder: Path) -> dict[str, Any]:
    record = recorded_run(folder)
    if record is None:
        raise ResumeError(
            f"{folder} has no run to resume: there is neither {REPORT_FILE} nor {UNFINISHED}/{SETTINGS_FILE}. Give "
            "the settings of a new one, at least its input and vocab_size"
        )
    if unknown := record.settings.keys() - Settings.model_fields:
        raise ResumeError(
            f"the run in {folder} was begun by another version of bpeflow, with settings that this one does not have "
            f"({', '.join(sorted(unknown))}): start over with restart=True and the settings of the run"
        )
    if record.counts is not None:
        raise ResumeError(
            f"the run in {folder} learns merges from the counts in {record.counts}: resume it with bpeflow "
            f"merge --counts {record.counts} --resume --out_dir {folder}"
        )
    paths = {*_paths(record)}
    if {DOCUMENTS, STDIN} & paths:
        raise ResumeError(
            f"the run in {folder} reads standard input or an iterable, which can be read only once: start over with "
            "that input and restart=True, or learn from the counts if they are complete (bpeflow merge)"
        )
    relative = any(not ("://" in path or Path(path).is_absolute()) for path in paths)
    if record.started_in != str(Path.cwd()) and relative:
        raise ResumeError(
            f"the run in {folder} was started in {record.started_in}, and has relative paths: resume it there, or "
            "repeat its settings"
        )
    return record.settings


def _paths(record: RunReport) -> Iterator[str]:
    """Yield the paths in a run's settings that it reads or spills to."""
    settings = record.settings
    yield from settings["input"]
    for source in settings["sources"]:
        yield from source["paths"]
    yield from filter(None, (settings["init_from"], settings["scratch_dir"]))


def how_to_continue(folder: Path) -> str:
    """Say how to continue a run that has just failed or been interrupted, for the command line."""
    phase, is_finished = phase_of(folder), (folder / REPORT_FILE).exists()
    if phase == Phase.NONE and is_finished:
        return f"{folder} has a finished run, which is as it was"
    if phase <= Phase.STARTED:
        return (
            f"{folder}: nothing of this run is kept, so it must start from the beginning"
            f"{', and the finished run there is as it was' if is_finished else ''}; counts are saved when they are "
            "complete, or after each segment (segment_size)"
        )
    try:
        record = read_record(folder)
    except ResumeError:
        record = None
    if record is not None and {DOCUMENTS, STDIN} & {*_paths(record)}:
        return f"if the counts are complete, continue with: bpeflow merge --counts {quote(os.fspath(folder))}"
    flags = f"--resume --out_dir {quote(os.fspath(folder))}"
    return f"to continue: bpeflow {flags}"


def why_nothing_finished(folder: Path) -> str:
    """Say why there is no finished run in a folder, and how to continue an unfinished one."""
    if not folder.is_dir():
        return "a file, not a run folder" if folder.exists() else "no such folder"
    if phase_of(folder) > Phase.STARTED:
        return f"the run is unfinished; {how_to_continue(folder)}"
    is_inside = (folder.parent / REPORT_FILE).is_file()  # a smaller vocabulary, or the first stage
    return f"not a run folder: it has no {REPORT_FILE}" + (f"; the run is {folder.parent}" if is_inside else "")


# ---- making way for a new run ----


def make_way(folder: Path, settings: Settings, *, counts: bool = True, counts_in: Path | None = None) -> None:
    """Make way for a new run: keep an interrupted run to resume, or refuse to lose it, or remove it with `restart`.

    A run that was interrupted while its results were published is finished first. What a finished run has left is kept
    until the new one is complete, and only with `overwrite` may there be any. An interrupted run has that permission.

    A run that does not count the corpus itself (`counts`) is given counts, which may be in a folder (`counts_in`);
    those of the interrupted run are published with the results. Raises `ResumeError` or `AlreadyExistsError`.
    """
    finish_publishing(folder, settings.restart)
    unfinished = folder / UNFINISHED
    takes_counts = same_folder(counts_in, unfinished)
    counted = [] if takes_counts else [*_counted(unfinished)]
    if settings.resume and (counts or not counted):
        return
    at_stake = counted + [CHECKPOINT_FILE] * (unfinished / CHECKPOINT_FILE).exists()
    if at_stake and not settings.restart:
        raise ResumeError(
            f"{folder} has an unfinished run ({' and '.join(at_stake)}): resume it (resume=True), discard it and start "
            "over (restart=True), or use another out_dir"
        )
    if not (takes_counts or settings.overwrite):
        refuse_to_replace(folder, counts_stay=same_folder(counts_in, folder))
    if at_stake:
        log.warning("%s: discarding the unfinished run", folder)
    if takes_counts:
        (unfinished / CHECKPOINT_FILE).unlink(missing_ok=True)
    else:
        remove_unfinished(folder)


def _counted(unfinished: Path) -> Iterator[str]:
    """Yield the names of what an unfinished run has saved before learning."""
    if has_first_stage(unfinished):
        yield f"{FIRST_STAGE}/"
    if has_segments(unfinished / SEGMENTS):
        yield f"{SEGMENTS}/"
    if has_counts(unfinished):
        yield COUNTS_FILE


def finish_publishing(folder: Path, restart: bool = False) -> None:
    """Publish the results of a run that was interrupted while doing so; with `restart` discard them if damaged."""
    if phase_of(folder) is not Phase.DONE:
        return
    log.info("%s: publishing the results of a run that was interrupted while doing so", folder)
    try:
        publish_results(folder)
    except ResumeError:
        if not restart:
            raise
        remove_unfinished(folder)


def refuse_to_replace(folder: Path, *, counts_stay: bool = False) -> None:
    """Raise `AlreadyExistsError` if a folder has a finished run or a tokenizer.

    With `counts_stay` the new run learns from the finished counts there, so that only a tokenizer would be replaced.
    """
    if has_tokenizer(folder):
        held = formats.describe(folder)
    elif found := [] if counts_stay else [name for name in _RESULTS if (folder / name).exists()]:
        held = f"a finished run ({' and '.join(found)})"
    else:
        return
    raise AlreadyExistsError(f"{folder} holds {held}: use another out_dir, or overwrite=True to replace it")


def has_tokenizer(folder: Path) -> bool:
    """Return whether a folder has a file of a tokenizer, which a run would replace."""
    return any(next(folder.glob(pattern), None) for pattern in VOCAB_FILES)


# ---- the results of earlier runs ----


@dataclass(frozen=True)
class SavedCounts:
    """Counts in a file, usually of an earlier run.

    Attributes:
        counts: the counts.
        path: the file.
        report: the report of the run that made them; None if it is unknown.
    """

    counts: PretokenCounts
    path: Path
    report: RunReport | None

    @property
    def finished(self) -> bool:
        """Whether that run is finished."""
        return self.path.parent.name != UNFINISHED

    @property
    def place(self) -> Path:
        """Where the file is, or will be when the run is finished."""
        return self.path if self.finished else self.path.parents[1] / self.path.name


def load_counts(path: Path) -> SavedCounts:
    """Read counts. Raises `FormatError` if they are damaged, or the report in their folder describes other counts."""
    counts, report = PretokenCounts.read(path), read_report(path.parent)
    if path.suffix == ".npz":
        counts.kept_in(path)
    corpus = report and report.corpus
    if report and (not corpus or (corpus.pretokens, corpus.distinct_pretokens) != (counts.total, len(counts))):
        raise FormatError(
            f"{path.parent / REPORT_FILE} describes other counts than {path}. Move the counts to a folder of their "
            "own, and give special_tokens and every setting that differs from its default"
        )
    return SavedCounts(counts, path, report)


def folder_of_counts(run_dir: Path) -> Path:
    """Return the folder of the latest counts: ``unfinished/`` if learning failed there, else the run folder.

    Takes the folder's lock if results are to be published first. Raises as `RunDir` and `publish_results` do.
    """
    if phase_of(run_dir) is Phase.DONE:
        with RunDir(run_dir):
            finish_publishing(run_dir)
    return run_dir / UNFINISHED if has_counts(run_dir / UNFINISHED) else run_dir


def find_counts(settings: Settings, fingerprint: Fingerprint, two_stages: bool = False) -> SavedCounts | None:
    """Return the counts of an earlier run in `out_dir`; None if the corpus is to be counted (on), or without `resume`.

    Raises `ResumeError` if the counts are of another corpus, of other settings, or damaged, and `AlreadyExistsError`.
    """
    folder = settings.out_dir
    if not settings.resume or folder is None:
        return None
    if has_first_stage(folder / UNFINISHED) and not two_stages:
        raise ResumeError(
            f"the run in {folder} has learned the first stage of superwords: undo the change to resume it, or start "
            "over with restart=True or in another out_dir"
        )
    phase = phase_of(folder)
    if phase in (Phase.FIRST_STAGE, Phase.COUNTING):
        return None
    found, may_replace = None, settings.overwrite or phase > Phase.STARTED
    if not (phase is Phase.STARTED and may_replace):
        found = _read_counts(folder / UNFINISHED, fingerprint) or _read_counts(folder, fingerprint)
    if found is None:
        if not may_replace:
            refuse_to_replace(folder)
        log.info("%s has no run to resume: starting from the beginning", folder)
    elif not (may_replace or (found.report and found.report.learning) or settings.skip_merge):
        refuse_to_replace(folder, counts_stay=True)
    return found


def _read_counts(folder: Path, fingerprint: Fingerprint) -> SavedCounts | None:
    path = folder / COUNTS_FILE
    try:
        report = read_report(folder)
        if report is None or report.counting is None or not path.exists():
            return None
        if changes := fingerprint.differences_from_summary(report.counting.fingerprint):
            raise ResumeError(
                f"the run in {folder} counted something else ({'; '.join(changes)}). Undo the change to resume it, or "
                f"start over with {start_over(folder)} or in another out_dir"
            )
        return load_counts(path)
    except FormatError as error:
        raise ResumeError(f"{error}. To count again, use {start_over(folder)}") from error


def find_learned(settings: Settings, learning: Mapping[str, Any], saved: SavedCounts) -> RunReport | None:
    """With `resume`, return the report of a finished run in `out_dir` that has learned what `settings` ask for.

    `learning` is their `learning_fingerprint`. Raises `ResumeError` if that run learned merges with other settings, and
    `AlreadyExistsError`.
    """
    folder = settings.out_dir
    if not settings.resume or folder is None:
        return None
    phase = phase_of(folder)
    if phase > Phase.STARTED or (phase is Phase.STARTED and settings.overwrite):
        return None
    report, counted = read_report(folder), saved.report
    same = report and counted and (report.corpus, report.counting) == (counted.corpus, counted.counting)
    if report and report.learning and same:
        return report if nothing_left(settings, learning, report) else None
    if not settings.overwrite:
        refuse_to_replace(folder, counts_stay=same_folder(saved.path.parent, folder))
    return None


def nothing_left(settings: Settings, learning: Mapping[str, Any], report: RunReport) -> bool:
    """Return whether the finished run in `out_dir` has done all that `settings` ask for.

    `learning` is their `learning_fingerprint`. Raises `ResumeError` if it learned merges with other settings.
    """
    folder = settings.out_dir
    if settings.skip_merge:
        return True
    if folder is None or report.learning is None or phase_of(folder) is Phase.LEARNING:
        return False
    check_same_settings(report.learning.fingerprint, learning, folder / REPORT_FILE, start_over(folder))
    try:
        learned_tokenizer(folder, report)
    except (FormatError, OSError) as error:
        log.warning("the vocabulary in %s is damaged or missing and will be learned again: %s", folder, error)
        return False
    return all((folder / name).exists() for name in report.files)


def learned_tokenizer(folder: Path, report: RunReport) -> TokenizerSpec | None:
    """Read the tokenizer of a finished run; None if none was learned."""
    return gpt2.load(folder) if report.learning is not None else None
