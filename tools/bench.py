"""Measure bpeflow beside its peers, in the same run, on the same input.

    python tools/bench.py count --input FILE... --rounds 5 --json count.json

Every measurement is a fresh process, timed from its start to its end; the contenders alternate; medians are shown.
The peers are in the extra `bench` (pip install 'bpeflow[bench]'); those that are not installed are left out.
Exit status 1: a contender failed, or results differ.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks import count
from benchmarks.contender import Contender, Job, Subject
from benchmarks.machine import describe_machine, read_input
from benchmarks.process import Measurement
from benchmarks.report import make_report, print_report
from benchmarks.rounds import run_rounds

SUBJECTS = (count.SUBJECT,)


def main(arguments: list[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    subject: Subject = options.subject
    contenders, skipped = choose(subject, options.only, options.pattern)
    if not contenders:
        print("\n".join(f"{name}: {reason}" for name, reason in skipped.items()), file=sys.stderr)
        return 1
    machine = describe_machine()
    inputs = [read_input(path) for path in options.input]
    job = Job(tuple(options.input), options.pattern, options.processes, Path("OUT"))
    results = run_rounds(contenders, job, options.rounds, options.timeout, show_progress)
    report = make_report(subject, job, options.rounds, machine, inputs, results, skipped)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    show(report)
    return int(any(result.error for result in results) or report["disagreement"] is not None)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(metavar="SUBJECT", required=True)
    for subject in SUBJECTS:
        command = commands.add_parser(subject.name, help=subject.description, description=subject.description)
        command.set_defaults(subject=subject)
        names = ", ".join(contender.name for contender in subject.contenders)
        command.add_argument("--input", metavar="FILE", nargs="+", type=_file, required=True, help="text, as files")
        command.add_argument("--rounds", metavar="N", type=_positive, default=5, help="measurements of each (5)")
        command.add_argument("--only", metavar="NAMES", help=f"with commas between them, of: {names}")
        command.add_argument("--pattern", default="gpt2", help="a named pattern or a regular expression (gpt2)")
        command.add_argument("--processes", metavar="N", type=_positive, default=os.cpu_count() or 1,
                             help="processes or threads of each contender (one per core)")  # fmt: skip
        command.add_argument("--timeout", metavar="SECONDS", type=float, default=600.0, help="of one process (600)")
        command.add_argument("--json", metavar="OUT.json", type=_writable, help="where to write all that was measured")
    return parser


def choose(subject: Subject, only: str | None, pattern: str) -> tuple[list[Contender], dict[str, str]]:
    """Return the contenders that take part, and for each other one that was asked for the reason why it does not."""
    known = {contender.name: contender for contender in subject.contenders}
    names = [name.strip() for name in only.split(",")] if only else list(known)
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"bench.py: no contender {unknown[0]!r}; there are {', '.join(known)}")
    reasons = {name: known[name].unavailable(pattern) for name in names}
    skipped = {name: reason for name, reason in reasons.items() if reason}
    return [known[name] for name in reasons if name not in skipped], skipped


def show_progress(number: int, contender: Contender, measurement: Measurement) -> None:
    outcome = measurement.error or f"{measurement.seconds:.2f} s"
    print(f"round {number + 1}: {contender.name}: {outcome}", file=sys.stderr, flush=True)


def show(report: dict[str, Any]) -> None:
    from rich.console import Console  # now: what this process has in memory while it measures is a floor (see process)

    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=True)
    print_report(console, report)


def _file(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return Path(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"need a number from 1, found {text}")
    return int(text)


def _writable(text: str) -> Path:
    """Refuse now what would fail after the last round."""
    if not Path(text).parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {Path(text).parent}")
    return Path(text)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
