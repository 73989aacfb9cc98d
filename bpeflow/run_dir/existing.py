"""Results that a folder already has: found, described, and replaced only with `overwrite`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bpeflow._util.text import format_count, one_line
from bpeflow.config import Settings
from bpeflow.errors import AlreadyExistsError, FormatError
from bpeflow.formats import any_format as formats
from bpeflow.run_dir.layout import COUNTS_FILE, REPORT_FILE, VOCAB_FILES
from bpeflow.run_dir.report import RunReport, read_report

#: Settings that a description mentions if they differ from the default.
_TELLING = ("special_tokens", "tie_break", "min_frequency", "max_token_length", "init_from")

#: The most characters of a setting that a description shows.
_MAX_SHOWN = 60


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
    if any(next(folder.glob(pattern), None) for pattern in VOCAB_FILES):
        return True
    try:
        formats.find_format(folder)
    except FormatError:
        return False
    return True


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
