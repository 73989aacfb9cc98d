"""Benchmark bpeflow against its peers, in one session and on the same input.

    python tools/bench.py count --input FILE... --rounds 5 --json count.json
    python tools/bench.py merge --input FILE... --vocab_size 32000
    python tools/bench.py train --input FILE... --vocab_size 32000
    python tools/bench.py encode --input FILE... --tokenizer FOLDER --work first
    python tools/bench.py patterns --input FILE... --processes 1
    python tools/bench.py all --input FILE... --rounds 3 > tables.md

Each measurement times a fresh process from start to end. The contenders take turns, and the table shows medians.
The extra `bench` installs the peers (pip install 'bpeflow[bench]'). Missing peers are skipped.
Exit status 1: a contender failed, or the results differ.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import count, encode, merge, ours, patterns, tables, train
from benchmarks.compare import Comparison, compare_all
from benchmarks.contender import Contender, Job, Subject
from benchmarks.machine import describe_machine, read_input
from benchmarks.process import Measurement, measure
from benchmarks.report import has_failed, make_report, print_report
from benchmarks.rounds import Result, run_rounds

SUBJECTS = (count.SUBJECT, merge.SUBJECT, train.SUBJECT, encode.SUBJECT, patterns.SUBJECT)


def main(arguments: list[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def run_one(options: argparse.Namespace) -> int:
    """Run the benchmark of one subject and print its report."""
    contenders, skipped = choose(options.subject, options.only, options.pattern, has_text=bool(options.input))
    if not contenders:
        print("\n".join(f"{name}: {reason}" for name, reason in skipped.items()), file=sys.stderr)
        return 1
    report = measure_subject(options, contenders, skipped)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    show(report)
    return int(has_failed(report))


def run_all(options: argparse.Namespace) -> int:
    """Run the benchmarks of `tables.TABLES` with each input separately, and print their medians as Markdown."""
    parser, failed = make_parser(), False
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        tokenizer = options.tokenizer or _train_tokenizer(options.input[0], Path(folder), options.timeout)
        common = [
            "--rounds",
            str(options.rounds),
            "--processes",
            str(options.processes),
            "--timeout",
            str(options.timeout),
        ]
        print(tables.heading(describe_machine(), options.input, options.rounds, options.processes), flush=True)
        for table in tables.TABLES:
            reports = []
            for path in options.input:
                words = [*table.arguments, *(["--tokenizer", str(tokenizer)] if table.arguments[0] == "encode" else [])]
                one = parser.parse_args([*words, "--input", str(path), *common])
                reports.append(measure_subject(one, *choose(one.subject, one.only, one.pattern)))
            print(tables.render(table, reports), flush=True)
            failed = failed or any(map(has_failed, reports))
    return int(failed)


def measure_subject(
    options: argparse.Namespace, contenders: list[Contender], skipped: dict[str, str]
) -> dict[str, Any]:
    """Measure the contenders in rounds, and compare their merges. Return the report."""
    subject: Subject = replace(options.subject, step=options.work) if options.subject.works else options.subject
    machine = describe_machine()
    inputs = [read_input(path) for path in options.input or [_counts_file(options.counts)]]
    job = Job(
        inputs=tuple(options.input),
        pattern=options.pattern,
        processes=options.processes,
        out_dir=Path("OUT"),
        vocab_size=options.vocab_size,
        counts=options.counts or Path("COUNTS"),
        work=options.work,
        tokenizer=options.tokenizer,
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        ready = job if options.counts else prepare(subject, job, Path(folder), options.timeout)
        results = run_rounds(contenders, ready, options.rounds, options.timeout, show_progress)
    comparisons = [] if options.skip_compare else compare_merges(results, job, options.timeout)
    return make_report(subject, job, options.rounds, machine, inputs, results, skipped, comparisons)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(metavar="SUBJECT", required=True)
    for subject in SUBJECTS:
        command = commands.add_parser(subject.name, help=subject.description, description=subject.description)
        command.set_defaults(
            run=run_one, subject=subject, counts=None, vocab_size=0, skip_compare=False, work="", tokenizer=Path()
        )
        names = ", ".join(contender.name for contender in subject.contenders)
        source = command.add_mutually_exclusive_group(required=True)
        source.add_argument("--input", metavar="FILE", nargs="+", type=_file, default=[], help="text files")
        if subject.make_counts:
            source.add_argument("--counts", metavar="PATH", type=_counts,
                                help="a run folder or a counts file, instead of text; skips the peers")  # fmt: skip
        if subject.learns:
            command.add_argument("--vocab_size", metavar="N", type=_vocab_size, default=32000,
                                 help="vocabulary size (32000)")  # fmt: skip
        if subject.works:
            works = "; ".join(f"{work}: {note}" for work, note in subject.works.items())
            command.add_argument("--work", choices=subject.works, default=next(iter(subject.works)), help=works)
            command.add_argument("--tokenizer", metavar="FOLDER", type=_tokenizer, required=True,
                                 help="a folder with vocab.json and merges.txt, such as a run folder")  # fmt: skip
        if any(contender.twin for contender in subject.contenders):
            command.add_argument("--skip_compare", action="store_true",
                                 help="skip the untimed runs that compare the peers' merges with ours")  # fmt: skip
        _add_common(command, rounds=5)
        command.add_argument("--only", metavar="NAMES", help=f"comma-separated contenders to measure, out of: {names}")
        command.add_argument("--pattern", default="gpt2", help="a named pattern or a regular expression (gpt2)")
        command.add_argument("--json", metavar="OUT.json", type=_writable, help="file for all measurements")
    description = "the tables of docs/measurements.md, a column for each input, as Markdown"
    command = commands.add_parser("all", help=description, description=description)
    command.set_defaults(run=run_all)
    command.add_argument("--input", metavar="FILE", nargs="+", type=_file, required=True,
                         help="text files; those under 300 MB measure how programs start")  # fmt: skip
    command.add_argument("--tokenizer", metavar="FOLDER", type=_tokenizer,
                         help="to encode with: a folder with vocab.json and merges.txt, such as a run folder (default: "
                              "32,000 entries learned from the first input)")  # fmt: skip
    _add_common(command, rounds=3)
    return parser


def _add_common(command: argparse.ArgumentParser, rounds: int) -> None:
    command.add_argument("--rounds", metavar="N", type=_positive, default=rounds,
                         help=f"measurements per contender ({rounds})")  # fmt: skip
    command.add_argument("--processes", metavar="N", type=_positive, default=os.cpu_count() or 1,
                         help="processes or threads per contender (one per core)")  # fmt: skip
    command.add_argument("--timeout", metavar="SECONDS", type=float, default=600.0, help="limit per process (600)")


def choose(
    subject: Subject, only: str | None, pattern: str, *, has_text: bool = True
) -> tuple[list[Contender], dict[str, str]]:
    """Return the contenders that take part, and the requested ones that cannot, each with the reason."""
    known = {contender.name: contender for contender in subject.contenders}
    default = [contender.name for contender in subject.contenders if not contender.on_request]
    names = [name.strip() for name in only.split(",")] if only else default
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"bench.py: unknown contender {unknown[0]!r}; choose from {', '.join(known)}")
    reasons = {name: known[name].unavailable(pattern, has_text=has_text) for name in names}
    skipped = {name: reason for name, reason in reasons.items() if reason}
    return [known[name] for name in reasons if name not in skipped], skipped


def prepare(subject: Subject, job: Job, folder: Path, timeout: float) -> Job:
    """Create the counts that a subject starts from. This is not measured."""
    if subject.make_counts is None:
        return job
    print("counting", file=sys.stderr, flush=True)
    measurement = measure([sys.executable, *subject.make_counts(replace(job, out_dir=folder))], timeout)
    if measurement.error is not None:
        raise SystemExit(f"bench.py: counting the input failed: {measurement.error}")
    return replace(job, counts=folder)


def _train_tokenizer(path: Path, folder: Path, timeout: float) -> Path:
    job = Job(inputs=(path,), pattern="gpt2", processes=os.cpu_count() or 1, out_dir=folder, vocab_size=32_000)
    if error := measure([sys.executable, *ours.train_arguments(job)], timeout).error:
        raise SystemExit(f"bench.py: training a tokenizer on {path} failed: {error}")
    return folder


def compare_merges(results: Sequence[Result], job: Job, timeout: float) -> list[Comparison]:
    """Compare the merges of the contenders that did not fail."""
    contenders = [result.contender for result in results if result.error is None]
    return compare_all(contenders, job, timeout, lambda name: print(f"merges: {name}", file=sys.stderr, flush=True))


def show_progress(number: int, contender: Contender, measurement: Measurement) -> None:
    outcome = measurement.error or f"{measurement.seconds:.2f} s"
    print(f"round {number + 1}: {contender.name}: {outcome}", file=sys.stderr, flush=True)


def show(report: dict[str, Any]) -> None:
    from rich.console import Console  # late, since this process must stay small while it measures

    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=True)
    print_report(console, report)


def _file(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"file not found: {text}")
    return Path(text)


def _counts(text: str) -> Path:
    if not _counts_file(Path(text)).is_file():
        raise argparse.ArgumentTypeError(f"no counts found at {text}")
    return Path(text)


def _counts_file(path: Path) -> Path:
    return path / "counts.npz" if path.is_dir() else path


def _tokenizer(text: str) -> Path:
    for name in ("vocab.json", "merges.txt"):
        if not (Path(text) / name).is_file():
            raise argparse.ArgumentTypeError(f"{name} not found in {text}")
    return Path(text)


def _vocab_size(text: str) -> int:
    if not text.isdecimal() or int(text) < 258:
        raise argparse.ArgumentTypeError(f"must be an integer from 258 up (256 bytes, the separator, a merge): {text}")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer from 1 up: {text}")
    return int(text)


def _writable(text: str) -> Path:
    """Check the folder now. Otherwise writing would fail only after the last round."""
    if not Path(text).parent.is_dir():
        raise argparse.ArgumentTypeError(f"folder not found: {Path(text).parent}")
    return Path(text)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
