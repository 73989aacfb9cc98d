"""The report of a benchmark: as JSON, and as a printed table."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compare import Comparison
from benchmarks.contender import Contender, Job, Subject
from benchmarks.machine import package_versions
from benchmarks.process import Measurement
from benchmarks.rounds import Result

if TYPE_CHECKING:
    from rich.console import Console

_REPOSITORY = Path(__file__).parents[2]
_MEMORY = (
    "memory: resident MB of the largest process and of all processes together (sampled; shared pages count once per "
    "process); no lower than that of bench.py itself, about 30 MB"
)


def make_report(
    subject: Subject,
    job: Job,
    rounds: int,
    machine: Mapping[str, Any],
    inputs: Sequence[Mapping[str, Any]],
    results: Sequence[Result],
    skipped: Mapping[str, str],
    comparisons: Sequence[Comparison] = (),
) -> dict[str, Any]:
    """Return the full report of a benchmark, as JSON values."""
    packages = [result.contender.package for result in results if result.contender.package]
    return {
        "subject": subject.name,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": dict(machine),
        "versions": package_versions(["bpeflow", "numpy", "regex", *packages]),
        "input": [dict(file) for file in inputs],
        "settings": {
            "pattern": job.pattern,
            "processes": job.processes,
            "rounds": rounds,
            **({"vocab_size": job.vocab_size} if subject.learns else {}),
            **({"work": job.work, "tokenizer": str(job.tokenizer)} if subject.works else {}),
        },
        "reference": subject.reference,
        "step": subject.step,
        "contenders": [_entry(result, job, sum(file["bytes"] for file in inputs)) for result in results],
        "skipped": dict(skipped),
        "disagreement": disagreement(results),
        "comparisons": [asdict(comparison) for comparison in comparisons],
    }


def has_failed(report: Mapping[str, Any]) -> bool:
    """Return whether a contender failed or the results differ."""
    return (
        report["disagreement"] is not None
        or any(entry["error"] for entry in report["contenders"])
        or any(each["error"] or each["first_difference"] is not None for each in report["comparisons"])
    )


def disagreement(results: Sequence[Result]) -> str | None:
    """Describe how the results differ, or return None if the contenders that report a figure agree on it."""
    reported: dict[str, dict[int, list[str]]] = {}
    for result in results:
        for key, value in result.outcome.items():
            reported.setdefault(key, {}).setdefault(value, []).append(result.contender.name)
    parts = [
        f"{key}: " + "; ".join(f"{value:,} ({', '.join(names)})" for value, names in values.items())
        for key, values in reported.items()
        if len(values) > 1
    ]
    return " / ".join(parts) or None


def print_report(console: Console, report: Mapping[str, Any]) -> None:
    """Print a report as a table with its notes."""
    from rich.table import Table

    console.print(_headline(report))
    table = Table("contender", box=None, header_style="bold", pad_edge=False)
    rate = f"{report['step']} s" if report["step"] else "MB/s"
    for column in ("median s", "min", "max", rate, f"÷ {report['reference']}", "largest", "all"):
        table.add_column(column, justify="right", no_wrap=True)
    for entry in report["contenders"]:
        table.add_row(entry["name"], *_cells(entry, report))
    console.print(table)
    for entry in report["contenders"]:
        if entry["error"]:
            console.print(f"{entry['name']} failed: {entry['error']}")
    for name, reason in report["skipped"].items():
        console.print(f"{name} skipped: {reason}")
    console.print(_agreement(report))
    for comparison in report["comparisons"]:
        console.print(_describe_comparison(comparison))
    if report["step"]:
        console.print(f"÷ compares the seconds of {report['step']}; the other figures are for the whole process")
    console.print(_MEMORY)
    for entry in report["contenders"]:
        console.print(f"{entry['name']}: {entry['note']}")


def _entry(result: Result, job: Job, size: int) -> dict[str, Any]:
    seconds = result.median_seconds
    return {
        "name": result.contender.name,
        "note": result.contender.note,
        "command": _command_line(result.contender, job),
        "error": result.error,
        "median_seconds": seconds,
        "step_seconds": result.step_seconds,
        "mb_per_second": None if seconds is None else size / seconds / 1e6,
        "outcome": dict(result.outcome),
        "rounds": [_numbers(measurement) for measurement in result.measurements],
        "steps": result.steps,
        "without_step": [_numbers(measurement) for measurement in result.without_step],
    }


def _numbers(measurement: Measurement) -> dict[str, Any]:
    return {key: value for key, value in asdict(measurement).items() if key not in ("stdout", "stderr")}


def _command_line(contender: Contender, job: Job) -> str:
    """Return the command as typed in the repository: without the paths of this computer."""
    return shlex.join(["python", *contender.arguments(job)]).replace(f"{_REPOSITORY}/", "")


def _headline(report: Mapping[str, Any]) -> str:
    machine, settings = report["machine"], report["settings"]
    size = sum(file["bytes"] for file in report["input"]) / 1e6
    vocabulary = f"vocabulary of {settings['vocab_size']:,}, " if "vocab_size" in settings else ""
    return (
        f"{report['subject']}: {', '.join(file['path'] for file in report['input'])} ({size:,.1f} MB), "
        f"{vocabulary}pattern {settings['pattern']}, {settings['processes']} processes, {settings['rounds']} rounds\n"
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 1e9:.0f} GB; {machine['os']}, "
        f"Python {machine['python']}; load {machine['load_average']}"
    )


def _cells(entry: Mapping[str, Any], report: Mapping[str, Any]) -> list[str]:
    median = entry["median_seconds"]
    if median is None:
        return ["failed", *["–"] * 6]
    seconds = [each["seconds"] for each in entry["rounds"]]
    key = "step_seconds" if report["step"] else "median_seconds"
    compared = entry[key]
    reference = next((other[key] for other in report["contenders"] if other["name"] == report["reference"]), None)
    largest, tree = (
        statistics.median(each[kind] for each in entry["rounds"]) / 1e6 for kind in ("largest_bytes", "tree_bytes")
    )
    return [
        f"{median:.2f}",
        f"{min(seconds):.2f}",
        f"{max(seconds):.2f}",
        f"{compared:.2f}" if report["step"] else f"{entry['mb_per_second']:.1f}",
        f"{compared / reference:.2f}" if reference else "–",
        f"{largest:,.0f}",
        f"{tree:,.0f}",
    ]


def _agreement(report: Mapping[str, Any]) -> str:
    if report["disagreement"]:
        return f"THE RESULTS DIFFER: {report['disagreement']}"
    reporting = [entry for entry in report["contenders"] if entry["outcome"]]
    if not reporting:
        return "no contender reported its result"
    result = ", ".join(f"{value:,} {key}" for key, value in reporting[0]["outcome"].items())
    return f"{', '.join(entry['name'] for entry in reporting)} agree: {result}"


def _describe_comparison(comparison: Mapping[str, Any]) -> str:
    if comparison["error"]:
        return f"{comparison['contender']} not compared: {comparison['error']}"
    pair = f"{comparison['contender']} and {comparison['twin']}"
    rank, merges = comparison["first_difference"], comparison["merges"]
    if rank is None:
        return f"{pair}: same merges, {merges:,}"
    actual, expected = (f"'{merge}'" if merge else "none" for merge in (comparison["told"], comparison["expected"]))
    return f"{pair}: FIRST DIFFERENCE at merge rank {rank:,} of {merges:,}: {actual} instead of {expected}"
