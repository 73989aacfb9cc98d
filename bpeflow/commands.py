"""What the commands of the command line do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bpeflow import formats, training
from bpeflow.backends.choice import BACKENDS
from bpeflow.config import COUNT_ONLY, Settings, load_settings, make_settings, override, replace
from bpeflow.cores import available_cores
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.table import chosen_instructions, why_regex
from bpeflow.errors import ConfigError
from bpeflow.init_from import read_initial_merges
from bpeflow.observer import Observer
from bpeflow.pretokenize import load_pretokenizer
from bpeflow.publishing import COUNTS_FILE
from bpeflow.report.run import check_counts, describe_run, read_run, write_run
from bpeflow.resume import folder_of_counts
from bpeflow.terminal import observing, print_summary, set_up_logging, summary_console, table_console
from bpeflow.training import TrainResult
from bpeflow.yaml_values import read_yaml


def train(config: Path | None, overrides: Mapping[str, Any], quiet: bool) -> int:
    """Count, learn and write."""
    settings = load_settings(config, overrides)
    return _run(settings, quiet, lambda observer: training.train(settings, observer))


def merge(source: Path, config: Path | None, overrides: Mapping[str, Any], quiet: bool) -> int:
    """Learn again from counts that are there."""
    counts, path, earlier = _read_counts(source)
    settings = _merge_again(earlier, path, source, config, overrides)
    carried_over: dict[str, Any] = {key: earlier[key] for key in ("corpus", "counting") if key in earlier}
    carried_over["counts"] = str(source / COUNTS_FILE if source.is_dir() else source)  # where they are in the end
    return _run(
        settings,
        quiet,
        lambda observer: training.train_from_counts(counts, settings, observer, carried_over, path.parent),
    )


def compare_backends(
    source: Path,
    config: Path | None,
    overrides: Mapping[str, Any],
    backends: Sequence[str],
    threads: Sequence[int],
    rounds: int,
    json_path: Path | None,
    quiet: bool,
) -> int:
    """Let backends learn the same merges in turn, see that they do, and print what each takes."""
    here = [backend.name for backend in BACKENDS if backend.unavailable() is None]
    from bpeflow.compare import compare, contenders, make_table

    entrants = contenders(backends or here, threads or [available_cores()])
    counts, path, earlier = _read_counts(source)
    settings = _merge_again(earlier, path, source, config, overrides)
    initial_merges = read_initial_merges(settings, earlier.get("corpus", {}).get("pattern"))
    progress = Console(stderr=True, quiet=quiet, highlight=False)
    largest = settings.model_copy(update={"vocab_size": settings.sizes[-1]})
    learned = compare(
        counts, largest, entrants, rounds, initial_merges,
        heard=lambda contender: progress.print(f"{contender}: {contender.seconds[-1]:.3f} s"),
    )  # fmt: skip
    if json_path is not None:
        measured = {"counts": str(path), "distinct_pretokens": len(counts), "merges": len(learned)}
        contestants = {"contenders": [contender.to_dict() for contender in entrants]}
        write_run(json_path, {**describe_run(settings), **measured, **contestants})
    table_console().print(make_table(counts, learned, entrants))
    return 0


def _read_counts(source: Path) -> tuple[PretokenCounts, Path, dict[str, Any]]:
    """Read counts, from a file or a run folder, and the report beside them, which must be of them."""
    path = folder_of_counts(source) / COUNTS_FILE if source.is_dir() else source
    if not path.is_file():
        raise ConfigError(f"there are no counts at {path}")
    counts = PretokenCounts.read(path)
    earlier = read_run(path.parent)
    check_counts(earlier, counts, path)
    return counts, path, earlier


def _merge_again(
    earlier: Mapping[str, Any], path: Path, source: Path, config: Path | None, overrides: Mapping[str, Any]
) -> Settings:
    """The settings of the run that counted; over them those of a config and flags that concern merging."""
    if in_vain := [key for key in overrides if key.partition(".")[0] in COUNT_ONLY]:
        raise ConfigError(f"{in_vain[0]} concerns counting, which merge does not do again")
    run_folder = source if source.is_dir() else path.parent
    values = {"input": str(path), **earlier.get("settings", {}), "out_dir": str(run_folder) if earlier else None}
    values |= {"resume": False, "restart": False}  # which were of that run
    given = read_yaml(config) if config else {}
    values = replace(values, {key: value for key, value in given.items() if key not in COUNT_ONLY})
    return make_settings(Settings, {**override(values, overrides), "skip_merge": False})


def convert_counts(source: Path, target: Path) -> int:
    """Turn counts from one form into another."""
    counts = PretokenCounts.read(source)
    counts.write(target)
    print(f"{target}: {len(counts):,} distinct pre-tokens, {counts.total:,} in all")  # noqa: T201
    return 0


def convert_tokenizer(source: Path, target: Path, name: str) -> int:
    """Write a tokenizer in another format."""
    set_up_logging(Console(stderr=True), quiet=False)
    saved = formats.load(source)
    for path in formats.save(saved, target, name):
        print(path)  # noqa: T201
    return 0


def list_backends() -> int:
    """Say what is here."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("backend", "here", "what it is, or what is missing", box=None, header_style="bold")
    for backend in BACKENDS:
        reason = backend.unavailable()
        table.add_row(backend.name, "no" if reason else "yes", escape(reason or backend.describe()))
    Console().print(table)
    best = next(backend.name for backend in BACKENDS if backend.unavailable() is None)
    print(f"backend: auto takes {best}")  # noqa: T201
    reason = why_regex(load_pretokenizer("gpt2"))
    print("counting: " + (f"by the regex module, for {reason}" if reason else f"native, {chosen_instructions()}"))  # noqa: T201
    return 0


def _run(settings: Settings, quiet: bool, work: Callable[[Observer], TrainResult]) -> int:
    if settings.out_dir is None:
        raise ConfigError("say where to write the results: --out_dir FOLDER, or out_dir in the config")
    with observing(quiet) as observer:
        result = work(observer)
    print_summary(summary_console(quiet), result, str(settings.out_dir))
    return 0
