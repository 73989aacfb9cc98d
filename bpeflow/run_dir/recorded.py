"""The settings of a run, recorded in its folder before it begins to work, so that `resume` needs only the folder."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpeflow._util.atomic import atomic_path, checksummed, verified
from bpeflow.config import Settings, make_settings, replace
from bpeflow.corpus.formats.records import DOCUMENTS
from bpeflow.corpus.formats.stream import STDIN
from bpeflow.errors import ConfigError, ResumeError
from bpeflow.formats.transformers import CHAT_TEMPLATES
from bpeflow.run_dir.layout import COUNTS_FILE, DONE_FILE, REPORT_FILE, SETTINGS_FILE, UNFINISHED
from bpeflow.run_dir.run_report import read_report


@dataclass(frozen=True)
class RecordedRun:
    """The record of a run.

    Attributes:
        settings: its settings as JSON values.
        started_in: the folder that its relative paths are relative to.
        counts: the counts from elsewhere that it learns from, if it does.
    """

    settings: dict[str, Any]
    started_in: str
    counts: str | None = None


def record_run(unfinished: Path, settings: Settings, counts: str | None = None) -> None:
    """Record the settings of a run, durably. Raises `OSError`."""
    values = settings.model_dump(mode="json") | {"resume": False, "restart": False}
    record = RecordedRun(values, str(Path.cwd()), counts)
    with atomic_path(unfinished / SETTINGS_FILE) as temporary:
        temporary.write_text(json.dumps(checksummed(vars(record)), indent=1) + "\n", encoding="utf-8")


def read_record(folder: Path) -> RecordedRun | None:
    """Read the record of a folder's unfinished run; None if there is none. Raises `ResumeError` if it is damaged."""
    path = folder / UNFINISHED / SETTINGS_FILE
    try:
        return RecordedRun(**verified(json.loads(path.read_text(encoding="utf-8"))))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ResumeError(f"{path} is damaged ({error}): repeat the settings of the run to resume it") from None


def make_run_settings(values: Mapping[str, Any], where: str = "", elsewhere: Collection[str] = ()) -> Settings:
    """Validate the settings of a run, as `make_settings` does.

    With `resume` and without a corpus, the run in `out_dir` is resumed with its own settings, and `values` override
    them. A change that the run cannot be resumed with is found later, as in a config.

    Raises:
        ConfigError: a setting is unknown or out of range.
        ResumeError: there is no such run, or its folder alone is not enough to resume it.
        FormatError: the report of a finished run is damaged.
    """
    out_dir = values.get("out_dir")
    if values.get("resume") and not (values.get("input") or values.get("sources")):
        if out_dir is None:
            raise ConfigError("out_dir is missing: which run to resume (--resume --out_dir FOLDER)")
        if isinstance(out_dir, str | Path):
            values = replace(_own_settings(Path(out_dir).expanduser()), values)
    return make_settings(Settings, values, where, elsewhere)


def _own_settings(folder: Path) -> dict[str, Any]:
    record = read_record(folder)
    if record is not None and (unknown := set(record.settings) - set(Settings.model_fields)):
        raise ResumeError(
            f"the run in {folder} was begun by another version of bpeflow, with settings that this one does not have "
            f"({', '.join(sorted(unknown))}): start over with --restart and the settings of the run"
        )
    if record is None:
        unfinished = folder / UNFINISHED
        report = read_report(unfinished, DONE_FILE) or read_report(unfinished) or read_report(folder)
        if report is None:
            raise ResumeError(
                f"{folder} has no run to resume: there is neither {REPORT_FILE} nor {UNFINISHED}/{SETTINGS_FILE}. Give "
                "the settings of a new one, at least input and vocab_size"
            )
        if report.counts is not None and not (folder / COUNTS_FILE).exists():
            raise ResumeError(
                f"the run in {folder} has learned merges from the counts in {report.counts} and is finished: nothing "
                "left to do"
            )
        return {**report.settings, "overwrite": False, "restart": False}
    if record.counts is not None:
        raise ResumeError(
            f"the run in {folder} learns merges from the counts in {record.counts}: resume it with bpeflow "
            f"merge --counts {record.counts} --resume --out_dir {folder}"
        )
    paths = list(_paths(record.settings))
    if {DOCUMENTS, STDIN} & {*paths}:
        raise ResumeError(
            f"the run in {folder} reads standard input or an iterable, which can be read only once: start over with "
            "that input and --restart, or learn from the counts if they are complete (bpeflow merge)"
        )
    if record.started_in != str(Path.cwd()) and any(not _is_absolute(path) for path in paths):
        raise ResumeError(
            f"the run in {folder} was started in {record.started_in}, and has relative paths: resume it there, or "
            "repeat its settings"
        )
    return record.settings


def reads_once(settings: Settings) -> bool:
    """Return whether a run reads input that cannot be read again: standard input, or an iterable."""
    return bool({DOCUMENTS, STDIN} & {*_paths(settings.model_dump(mode="json"))})


def _paths(settings: Mapping[str, Any]) -> Iterable[str]:
    yield from settings["input"]
    for source in settings["sources"]:
        yield from source["paths"]
    template = settings["output"].get("chat_template")
    yield from filter(
        None, (settings["init_from"], settings["scratch_dir"], template not in CHAT_TEMPLATES and template)
    )


def _is_absolute(path: str) -> bool:
    return "://" in path or Path(path).is_absolute()
