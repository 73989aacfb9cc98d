"""`bpeflow merge`: learn merges again from saved counts."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bpeflow.cli.parser import Parser, add_counts_flag
from bpeflow.cli.progress import run_training
from bpeflow.cli.settings import NOT_REPEATED, add_run_flags, settings_of
from bpeflow.config import COUNT_ONLY, Settings, load_values, make_settings, override
from bpeflow.errors import ConfigError
from bpeflow.run_dir.layout import COUNTS_FILE, Phase, phase_of
from bpeflow.run_dir.resume import (
    SavedCounts,
    counts_to_resume,
    folder_of_counts,
    has_tokenizer,
    load_counts,
    recorded_run,
    why_nothing_finished,
)
from bpeflow.training.train import train_from_counts

_DESCRIPTION = """\
Learn merges from counts that a run has saved: another vocabulary size or backend, without counting again. The
settings of that run apply; a config and flags override them. Without --out_dir, a run that has
no tokenizer yet is completed; otherwise the new tokenizer is written beside it, to a folder named after the size that
was asked for, such as runs/mine-16000.

  bpeflow merge --counts runs/mine --vocab_size 16000
  bpeflow merge --counts counts.tsv --vocab_size 1000 --backend python --out_dir runs/small
  bpeflow merge --counts runs/mine --init_from runs/mine --vocab_size 64000     extend what was learned
"""


#: Settings that do not concern learning.
NOT_LEARNING = COUNT_ONLY | {"skip_merge", "engine", "monitor"}


def merge_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("merge", _DESCRIPTION, "--counts PATH [flags]")
    add_counts_flag(parser, required=False)  # not with --resume
    add_run_flags(parser, NOT_LEARNING)
    return parser


def run_merge(options: Namespace) -> None:
    """Learn merges again."""
    flags = settings_of(options)
    counts = options.counts
    if counts is None and flags.get("resume") and flags.get("out_dir"):
        counts = counts_to_resume(flags) or Path(flags["out_dir"])
    if counts is None:
        raise ConfigError("missing: --counts, or --out_dir with --resume")
    merge(counts, options.config, flags, options.quiet)


def merge(source: Path, config: Path | None, overrides: Mapping[str, Any], quiet: bool) -> None:
    """Learn merges from the counts at `source` and write the run folder."""
    saved = read_counts(source)
    settings = settings_for_learning(saved, config, overrides)
    run_training(settings, quiet, lambda observer: train_from_counts(saved, settings, observer))


def read_counts(source: Path) -> SavedCounts:
    """Read counts from a file or a run folder."""
    path = folder_of_counts(source) / COUNTS_FILE if source.is_dir() else source
    if not path.is_file():
        is_begun = source.is_dir() and phase_of(source) > Phase.STARTED
        why = why_nothing_finished(source) if is_begun else "give a run folder with counts, or counts as .npz or .tsv"
        raise ConfigError(f"no counts at {path}: {why}")
    return load_counts(path)


def settings_for_learning(saved: SavedCounts, config: Path | None, overrides: Mapping[str, Any]) -> Settings:
    """Return the settings of the run that counted, overridden by a config and by flags that concern learning."""
    if ignored := [key for key in overrides if key.partition(".")[0] in COUNT_ONLY]:
        raise ConfigError(f"{ignored[0]} {NOT_REPEATED}")
    values: dict[str, Any] = {"input": str(saved.path)}
    folder = saved.place.parent
    if saved.report is not None:
        known = Settings.model_fields.keys() - {"engine"}  # a run of another version may have others
        counted_with = {key: value for key, value in saved.report.settings.items() if key in known}
        values |= counted_with | {"out_dir": str(folder)}
    values |= {"resume": False, "restart": False, "overwrite": False}  # flags of that run, not of this one
    given = load_values(config)
    out_dir = overrides.get("out_dir")
    if out_dir and overrides.get("resume") and (run := recorded_run(Path(out_dir).expanduser())):
        values = run.settings
    if "init_from" in {**given, **overrides}:  # which has a pattern, and at whose size superwords begin
        values = {key: value for key, value in values.items() if key not in ("pattern", "transition_size")}
    values = override(values, {key: value for key, value in given.items() if key not in COUNT_ONLY})
    settings = make_settings(Settings, {**override(values, overrides), "skip_merge": False})
    if out_dir is None and settings.out_dir == saved.path.parent and has_tokenizer(folder):
        return settings.model_copy(update={"out_dir": _beside(folder, settings.sizes[-1])})
    return settings


def _beside(folder: Path, size: int) -> Path:
    """Return the folder for another vocabulary from the counts of a finished run: ``runs/mine-16000``."""
    named = folder.resolve() if folder.name in ("", "..") else folder
    return named.with_name(f"{named.name}-{size}")
