"""`bpeflow compare`: compare the merge backends on saved counts."""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from time import perf_counter
from typing import Any

from rich.console import Console

from bpeflow._util.machine import available_cores
from bpeflow._util.text import format_count, format_size
from bpeflow.backends import BACKENDS, choose_backend
from bpeflow.backends.base import MergeStatistics
from bpeflow.cli.merge import NOT_LEARNING, read_counts, settings_for_learning
from bpeflow.cli.parser import Parser, add_counts_flag, add_json_flag, number
from bpeflow.cli.progress import set_up_logging
from bpeflow.cli.settings import add_run_flags, settings_of
from bpeflow.config import MergeSettings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import BackendsDifferError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.look.render import output_console, print_json, print_table
from bpeflow.run_dir.run_files import start_report
from bpeflow.training.learn import LearnedMerges, learn_with_settings
from bpeflow.training.task import resolve_initial

log = logging.getLogger(__name__)

_DESCRIPTION = """\
Learn the same merges with several backends in turn, and check that the results are equal. A table shows for each the
seconds for set-up, the selection of pairs, the update of pre-tokens, and the rest (loading counts, returning merges);
how many occurrences of pairs were visited, and how many of them merged; how many entries of the heap were stale; the
number of pairs; and the memory of its tables. Settings are as for merge.

  bpeflow compare --counts runs/mine --backends c omp --threads 1 2 4 --rounds 5
"""

#: The table's columns; "tables" is the memory of the backend's own.
_HEADINGS = (
    "backend", "threads", "total", "ratio", "set-up", "selection", "update", "rest", "visited", "merged", "stale pops",
    "pairs", "tables",
)  # fmt: skip

#: Fields of the statistics that are times.
TIMES = ("setup_seconds", "selection_seconds", "update_seconds")


@dataclass
class Contender:
    """A backend with a number of threads, and its rounds: the seconds of each, and what the backend reports of it."""

    backend: str
    threads: int | None
    rounds: list[tuple[float, MergeStatistics]] = field(default_factory=list)

    def __str__(self) -> str:
        return self.backend if self.threads is None else f"{self.backend} with {format_count(self.threads, 'thread')}"

    def to_dict(self) -> dict[str, Any]:
        """Return the seconds of all rounds, and what the backend reports of the round in the middle."""
        in_order = sorted(self.rounds, key=lambda measured: measured[0])
        seconds, statistics = in_order[len(in_order) // 2]
        all_seconds = [measured[0] for measured in self.rounds]
        return {"backend": self.backend, "seconds": all_seconds, "median_seconds": seconds, **asdict(statistics)}


def compare_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("compare", _DESCRIPTION, "--counts PATH [flags]")
    add_counts_flag(parser)
    parser.add_argument("--backends", metavar="NAME", nargs="+", help="e.g. python c omp (default: all)")
    parser.add_argument(
        "--threads", metavar="N", nargs="+", type=number, help="for omp, e.g. 1 2 4 (default: one per core)"
    )
    parser.add_argument("--rounds", metavar="N", type=number, default=1, help="repetitions; medians are shown")
    add_json_flag(parser)
    add_run_flags(parser, NOT_LEARNING | {"backend", "threads", "out_dir", "resume", "restart", "overwrite"})
    return parser


def run_compare(options: Namespace) -> None:
    """Compare backends."""
    available = [backend.name for backend in BACKENDS if backend.unavailable() is None]
    entrants = contenders(options.backends or available, options.threads or [available_cores()])
    saved = read_counts(options.counts)
    counts, settings = saved.counts, settings_for_learning(saved, options.config, settings_of(options))
    settings, base = resolve_initial(settings)
    set_up_logging(options.quiet)
    if any(contender.backend == "python" for contender in entrants) and not options.backends:
        log.info("the python backend takes part, and may take minutes: --backends names others")
    learned = compare(counts, settings.for_learning(), entrants, options.rounds, base)
    if options.json:
        figures = {
            **{name: value for name, value in asdict(start_report(settings)).items() if value is not None},
            "counts": str(saved.path),
            "distinct_pretokens": len(counts),
            "merges": len(learned),
            "contenders": [contender.to_dict() for contender in entrants],
        }
        print_json(figures)
    else:
        print_comparison(output_console(), counts, learned, entrants)


def print_comparison(
    console: Console, counts: PretokenCounts, learned: LearnedMerges, entrants: Sequence[Contender]
) -> None:
    """Print what was measured: medians, the fastest first."""
    rounds = format_count(len(entrants[0].rounds), "round")
    learned_from = f"{len(counts):,} distinct pre-tokens, {len(learned):,} merges"
    console.print(f"{learned_from}, equal everywhere; medians of {rounds}, in seconds", highlight=False)
    measured = sorted((contender.to_dict() for contender in entrants), key=lambda row: float(row["median_seconds"]))
    fastest = measured[0]["median_seconds"]
    rows = [
        [
            row["backend"],
            str(row["threads"]),
            f"{row['median_seconds']:.3f}",
            f"{row['median_seconds'] / fastest:.2f}",
            *(f"{row[name]:.3f}" for name in TIMES),
            f"{row['median_seconds'] - sum(row[name] for name in TIMES):.3f}",
            *(f"{row[name]:,}" for name in ("occurrences_visited", "occurrences_merged", "stale_pops", "pairs")),
            format_size(row["memory_bytes"]) if row["memory_bytes"] else "unknown",
        ]
        for row in measured
    ]
    print_table(console, _HEADINGS, rows)


def contenders(backends: Sequence[str], threads: Sequence[int]) -> list[Contender]:
    """Combine each backend with each number of threads; once only for a backend that uses a single thread."""
    return [
        Contender(name, count)
        for name in dict.fromkeys(choose_backend(name).name for name in backends)
        for count in (dict.fromkeys(threads) if choose_backend(name).multithreaded else (None,))
    ]


def compare(
    counts: PretokenCounts,
    settings: MergeSettings,
    entrants: Sequence[Contender],
    rounds: int,
    base: TokenizerSpec | None = None,
) -> LearnedMerges:
    """Let every contender, of which there is at least one, learn `rounds` times, in turn, and return the merges.

    Each round starts with the next contender, so that none always runs on a machine warmed up by the same other one.
    Raises `BackendsDifferError` at the first difference.
    """
    reference: tuple[Contender, LearnedMerges] | None = None
    for turn in range(rounds * len(entrants)):
        contender = entrants[(turn + turn // len(entrants)) % len(entrants)]
        own = settings.model_copy(update={"backend": contender.backend, "threads": contender.threads})
        started = perf_counter()
        learned = learn_with_settings(counts, own, base=base)
        contender.rounds.append((perf_counter() - started, learned.statistics))
        reference = reference or (contender, learned)
        _check_equal(*reference, contender, learned)
        log.info("%s: %.3f s", contender, contender.rounds[-1][0])
    return learned


def _check_equal(one: Contender, expected: LearnedMerges, other: Contender, found: LearnedMerges) -> None:
    merges = (zip(learned.pairs, learned.counts, strict=True) for learned in (expected, found))
    for rank, (ours, theirs) in enumerate(zip_longest(*merges, fillvalue="no more merges")):
        if ours != theirs:
            raise BackendsDifferError(f"merge {rank} differs: {one}: {ours}, {other}: {theirs}; please report this")
