"""The command line: ``python -m bpeflow``."""

from __future__ import annotations

import argparse
import io
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bpeflow.backends.choice import BACKENDS
from bpeflow.config import COUNT_ONLY, Settings, load_settings, make_settings, override, read_yaml, replace
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.table import why_regex
from bpeflow.errors import BackendUnavailable, BpeflowError, ConfigError, CorpusError, FlowError, FormatError
from bpeflow.pretokenize import load_pretokenizer
from bpeflow.report.run import check_counts, read_run
from bpeflow.terminal import PlainObserver, TerminalObserver, print_summary, set_up_logging
from bpeflow.training import COUNTS_FILE, Observer, TrainResult, train, train_from_counts

#: Exit statuses: what the user gave is wrong; the run failed; Ctrl-C (128 + SIGINT, as shells have it).
USAGE, FAILURE, INTERRUPTED = 2, 1, 130

_TRAIN = """\
Train a byte-level BPE tokenizer: count the pre-tokens of a corpus, learn the merges, write vocab.json and merges.txt.

  python -m bpeflow --config configs/quickstart.yaml
  python -m bpeflow --config configs/owt.yaml --backend omp --num_counter 8 --do_monitor
  python -m bpeflow --input corpus/*.txt --vocab_size 32000 --out_dir runs/mine
"""
_TRAIN_END = """\
Other commands; each has a --help of its own:
  python -m bpeflow merge --counts runs/owt    learn merges again from saved counts, without counting
  python -m bpeflow counts SRC DST             turn counts into JSON, TSV or back
  python -m bpeflow backends                   which backends are here, and why others are not

Every setting of a config can be given as --set key=value; configs/owt.yaml explains them all.
"""
_MERGE = """\
Learn merges from counts that a run has saved: another vocabulary size or another backend, without counting again.
The settings are those of the run that counted; a config and the flags go over them.

  python -m bpeflow merge --counts runs/owt --vocab_size 16000 --out_dir runs/owt16k
  python -m bpeflow merge --counts counts.json --vocab_size 1000 --backend python --out_dir runs/small
"""
_COUNTS = """\
Convert pre-token counts between bpeflow's own form (.npz), JSON ({"pre-token": count}) and TSV (pre-token TAB count,
with backslash escapes). The endings of the names say which.

  python -m bpeflow counts runs/owt/counts.npz counts.json
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    argv = [_underscored(argument) for argument in (sys.argv[1:] if arguments is None else arguments)]
    commands = {"merge": _merge_command, "counts": _counts_command, "backends": _backends_command}
    command = commands.get(argv[0]) if argv else None
    try:
        _set_up_process()
        return command(argv[1:]) if command else _train_command(argv)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except (ConfigError, CorpusError, FormatError, BackendUnavailable) as error:
        return _fail(str(error), USAGE)
    except (BpeflowError, FlowError) as error:
        return _fail(str(error), FAILURE)
    except OSError as error:
        return _fail(f"{error.filename or 'input/output'}: {error.strerror or error}", FAILURE)


# ---- commands ----


def _train_command(argv: Sequence[str]) -> int:
    parser = _parser("python -m bpeflow", _TRAIN, _TRAIN_END)
    parser.add_argument("--version", action="version", version=f"bpeflow {version('bpeflow')}")
    _add_settings(parser, _run_flags, _count_flags, _merge_flags)
    if not argv:
        parser.print_help()
        return USAGE
    options = parser.parse_args(argv)
    settings = load_settings(options.config, _overrides(options))
    return _run(settings, options.quiet, lambda observer: train(settings, observer))


def _merge_command(argv: Sequence[str]) -> int:
    parser = _parser("python -m bpeflow merge", _MERGE)
    parser.add_argument(
        "--counts", metavar="PATH", type=Path, required=True, help="a run folder, or counts as .npz, .json or .tsv"
    )
    _add_settings(parser, _run_flags, _merge_flags)
    options = parser.parse_args(argv)
    path: Path = options.counts / COUNTS_FILE if options.counts.is_dir() else options.counts
    if not path.is_file():
        raise ConfigError(f"there are no counts at {path}")
    counts = PretokenCounts.read(path)
    earlier = read_run(path.parent)
    check_counts(earlier, counts, path)
    settings = _merge_again(earlier, path, options)
    carried_over = {key: earlier[key] for key in ("corpus", "counting") if key in earlier} | {"counts": str(path)}
    return _run(settings, options.quiet, lambda observer: train_from_counts(counts, settings, observer, carried_over))


def _merge_again(earlier: Mapping[str, Any], path: Path, options: argparse.Namespace) -> Settings:
    """The settings of the run that counted; over them those of a config and flags that concern merging."""
    overrides = _overrides(options)
    if in_vain := [key for key in overrides if key.partition(".")[0] in COUNT_ONLY]:
        raise ConfigError(f"{in_vain[0]} concerns counting, which merge does not do again")
    values = {"input": str(path), **earlier.get("settings", {}), "out_dir": str(path.parent) if earlier else None}
    config = read_yaml(options.config) if options.config else {}
    values = replace(values, {key: value for key, value in config.items() if key not in COUNT_ONLY})
    return make_settings(Settings, {**override(values, overrides), "skip_merge": False})


def _counts_command(argv: Sequence[str]) -> int:
    parser = _parser("python -m bpeflow counts", _COUNTS)
    parser.add_argument("source", metavar="SRC", type=Path, help="counts to read")
    parser.add_argument("target", metavar="DST", type=Path, help="counts to write")
    options = parser.parse_args(argv)
    counts = PretokenCounts.read(options.source)
    counts.write(options.target)
    print(f"{options.target}: {len(counts):,} distinct pre-tokens, {counts.total:,} in all")  # noqa: T201
    return 0


def _backends_command(argv: Sequence[str]) -> int:
    _parser("python -m bpeflow backends", "Say which merge backends are here, and why others are not.").parse_args(argv)
    table = Table("backend", "here", "what it is, or what is missing", box=None, header_style="bold")
    for backend in BACKENDS:
        reason = backend.unavailable()
        table.add_row(backend.name, "no" if reason else "yes", escape(reason or backend.describe()))
    Console().print(table)
    best = next(backend.name for backend in BACKENDS if backend.unavailable() is None)
    print(f"backend: auto takes {best}")  # noqa: T201
    reason = why_regex(load_pretokenizer("gpt2"))
    print("counting: " + (f"by the regex module, for {reason}" if reason else "native"))  # noqa: T201
    return 0


def _run(settings: Settings, quiet: bool, work: Callable[[Observer], TrainResult]) -> int:
    if settings.out_dir is None:
        raise ConfigError("say where to write the results: --out_dir FOLDER, or out_dir in the config")
    console = Console(stderr=True, quiet=quiet)
    set_up_logging(console, quiet)
    with ExitStack() as stack:
        terminal = console.is_terminal and not quiet
        observer = stack.enter_context(TerminalObserver(console)) if terminal else PlainObserver(console)
        result = work(observer)
    print_summary(Console(quiet=quiet, highlight=False, emoji=False, soft_wrap=True), result, str(settings.out_dir))
    return 0


# ---- flags ----


def _parser(prog: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=epilog,
        usage=f"{prog} [options]",
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=100),
        allow_abbrev=False,
    )


def _add_settings(parser: argparse.ArgumentParser, *groups: Callable[[argparse.ArgumentParser], None]) -> None:
    for add_group in groups:
        add_group(parser)


def _run_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the run")
    group.add_argument("--config", metavar="FILE", type=Path, help="settings in YAML; the flags here go over them")
    _setting(group, "--out_dir", metavar="FOLDER", help="the run folder, where everything is written")
    group.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="assignments", type=_assignment,
        help="any setting, such as tie_break=huggingface or monitor.interval=2; may be repeated",
    )  # fmt: skip
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")


def _count_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("counting")
    _setting(group, "--input", metavar="PATH", nargs="+", help="files, folders and globs to train on")
    _setting(group, "--num_counter", "-c", metavar="N", type=int, help="counter processes (default: one per core)")
    _setting(group, "--num_merger", "-m", metavar="N", type=int, help="merger processes (default: 1)")
    _setting(group, "--chunk_size", metavar="SIZE", help="text that a counter takes at a time, such as 8mb")
    _setting(group, "--memory_limit", metavar="SIZE",
             help="memory for counts, such as 4gb; more go to disk (default: half of what is available)")  # fmt: skip
    _setting(group, "--do_monitor", dest="monitor.enabled", action="store_const", const=True,
             help="print queue depths and rates every 10 s, and write monitor.jsonl")  # fmt: skip
    _setting(group, "--skip_merge", action="store_const", const=True, help="stop after the counts")


def _merge_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("merging")
    _setting(group, "--vocab_size", metavar="N", type=int, help="entries of the vocabulary: bytes, specials, merges")
    _setting(group, "--backend", metavar="NAME", help="auto, omp, c or python (default: auto, the best that is here)")


def _setting(group: Any, *names: str, dest: str | None = None, **options: Any) -> None:
    """Add a flag that, when given, overrides the setting of its name."""
    key = dest or names[0].removeprefix("--")
    group.add_argument(*names, dest=f"setting {key}", default=argparse.SUPPRESS, **options)


def _overrides(options: argparse.Namespace) -> dict[str, Any]:
    flags = {key.removeprefix("setting "): value for key, value in vars(options).items() if key.startswith("setting ")}
    return {**dict(options.assignments), **flags}


def _assignment(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"need KEY=VALUE, found {text!r}")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise argparse.ArgumentTypeError(f"{key}: {' '.join(str(error).split())}") from error


def _underscored(argument: str) -> str:
    """Take ``--vocab-size`` for ``--vocab_size``: both spellings are common, one is documented."""
    name, equals, value = argument.partition("=")
    return name.replace("-", "_").replace("__", "--", 1) + equals + value if name.startswith("--") else argument


# ---- endings ----


def _set_up_process() -> None:
    """End cleanly on SIGTERM; and print what an old terminal cannot show as escapes instead of failing over it."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end_on_sigterm)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _fail(message: str, status: int) -> int:
    print(f"bpeflow: {message}", file=sys.stderr)  # noqa: T201
    return status


def _end_on_sigterm(number: int, frame: object) -> NoReturn:  # noqa: ARG001
    """End as after Ctrl-C, so that processes are joined and temporary files removed."""
    raise SystemExit(128 + number)
