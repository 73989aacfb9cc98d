"""`bpeflow backends`: list the merge backends and the scanner, and why any is unavailable."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bpeflow.backends.registry import BACKENDS
from bpeflow.cli.parser import Parser, new_parser
from bpeflow.pretokenize.native import chosen_instructions, why_regex
from bpeflow.pretokenize.regex import load_pretokenizer


def make_parser() -> Parser:
    """Return the parser of the command's flags."""
    return new_parser("backends", "List the merge backends, and why any is unavailable.", "")


def run(argv: Sequence[str]) -> int:
    """List the backends."""
    make_parser().parse(argv)
    table = Table("backend", "available", "description, or what is missing", box=None, header_style="bold")
    for backend in BACKENDS:
        reason = backend.unavailable()
        table.add_row(backend.name, "no" if reason else "yes", escape(reason or backend.describe()))
    Console().print(table)
    best = next(backend.name for backend in BACKENDS if backend.unavailable() is None)
    print(f"backend: auto selects {best}")  # noqa: T201
    reason = why_regex(load_pretokenizer("gpt2"))
    print("counting: " + (f"by the regex module: {reason}" if reason else f"native, {chosen_instructions()}"))  # noqa: T201
    return 0
