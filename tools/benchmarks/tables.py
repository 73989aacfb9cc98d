"""`bench.py all`: which benchmarks the tables of docs/measurements.md consist of, and how they are written."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.machine import package_versions


@dataclass(frozen=True)
class Table:
    """A table: a benchmark, run once for each input.

    Attributes:
        title: what is measured.
        arguments: the subject's command and its options.
    """

    title: str
    arguments: tuple[str, ...]


def _table(title: str, subject: str, contenders: str, *more: str) -> Table:
    return Table(title, (subject, "--only", contenders, *more))


_NAMES = ("gpt2", "o200k", "tekken", "deepseek_v3", "superbpe")
_PATTERNS = ",".join(f"{work} {name}" for work in ("count", "encode") for name in _NAMES)
_TRAINERS = "bpeflow-omp,bpeflow-omp-1,bpeflow-c,gigabpe,bpeflow-superwords"
_ENCODERS = "bpeflow,gigatoken"

TABLES = (
    _table("Counting", "count", "bpeflow,bpeflow-1,gigatoken"),
    _table("Training to 32,000", "train", _TRAINERS, "--skip_compare"),
    _table("Learning 32,000 from counts", "merge", "bpeflow-omp,bpeflow-omp-1,bpeflow-c"),
    _table("Encoding, first call", "encode", _ENCODERS, "--work", "first"),
    _table("Encoding, warm", "encode", _ENCODERS, "--work", "warm"),
    _table("Encoding to a token file (gigatoken: in memory)", "encode", _ENCODERS, "--work", "file"),
    _table("Encoding all lines to arrays", "encode", _ENCODERS, "--work", "arrays"),
    _table("Loading the tokenizer", "encode", _ENCODERS, "--work", "load"),
    _table("Split patterns", "patterns", _PATTERNS),
)


def heading(machine: Mapping[str, Any], inputs: Sequence[Path], rounds: int, processes: int) -> str:
    """Return the heading of all tables: when, where, with what."""
    versions = package_versions(["bpeflow", "gigabpe", "gigatoken"])
    names = ", ".join(f"{path.name} ({path.stat().st_size / 1e6:,.0f} MB)" for path in inputs)
    return (
        f"## {datetime.now(timezone.utc):%Y-%m-%d}, bpeflow {versions['bpeflow']}\n\n"
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 1e9:.0f} GB; {machine['os']}, "
        f"Python {machine['python']}. Inputs: {names}. Medians (rounds: {rounds}), the tools in turn, with {processes} "
        "threads or processes each. Counting and training are whole processes; of the others only the named step "
        "counts. × is the time relative to the first row; memory is that of all processes together.\n"
    )


def render(table: Table, reports: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown of a table, given its report for each input."""
    lines = [
        f"**{table.title}**\n",
        "| | " + " | ".join(Path(report["input"][0]["path"]).name for report in reports) + " |",
        "|---" * (len(reports) + 1) + "|",
    ]
    names = [entry["name"] for entry in reports[0]["contenders"]]
    lines += [f"| {name} | " + " | ".join(_cell(name, report) for report in reports) + " |" for name in names]
    lines += [f"\n{name}: {reason}" for name, reason in reports[0]["skipped"].items()]
    return "\n".join(lines) + "\n"


def _cell(name: str, report: Mapping[str, Any]) -> str:
    entries = {entry["name"]: entry for entry in report["contenders"]}
    key = "step_seconds" if report["step"] else "median_seconds"
    first, seconds = next(iter(entries.values()))[key], entries[name][key]
    if entries[name]["error"]:
        return f"failed: {entries[name]['error']}"
    ratio = "" if name == next(iter(entries)) or not first else f", × {seconds / first:.2f}"
    memory = statistics.median(measured["tree_bytes"] for measured in entries[name]["rounds"])
    return f"{seconds:.3g} s{ratio}, {memory / 1e6:,.0f} MB"
