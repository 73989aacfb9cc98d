"""`bpeflow backends`: list the merge backends and the scanner, and why any is unavailable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bpeflow.backends import BACKENDS
from bpeflow.cli.parser import Parser
from bpeflow.pretokenize.native import chosen_instructions, why_regex
from bpeflow.pretokenize.regex import load_pretokenizer


class ListedBackend(NamedTuple):
    """A backend, and its description or the reason why it is unavailable."""

    name: str
    available: bool
    description: str


def make_parser() -> Parser:
    """Return the parser of the command's flags."""
    return Parser("backends", "List the merge backends, and why any is unavailable.", "")


def run(argv: Sequence[str]) -> int:
    """List the backends."""
    make_parser().parse(argv)
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    backends = list(list_backends())
    table = Table("backend", "available", "description, or the reason", box=None, header_style="bold")
    for name, available, description in backends:
        table.add_row(name, "yes" if available else "no", escape(description))
    Console().print(table)
    print(f"backend: auto selects {next(backend.name for backend in backends if backend.available)}")  # noqa: T201
    print(f"counting: {scanner_in_use()}")  # noqa: T201
    return 0


def list_backends() -> Iterator[ListedBackend]:
    """Yield the merge backends, best first."""
    for backend in BACKENDS:
        reason = backend.unavailable()
        yield ListedBackend(backend.name, reason is None, reason or backend.describe())


def scanner_in_use() -> str:
    """Return what counts pre-tokens of the named patterns: native code and its instructions, or why not."""
    reason = why_regex(load_pretokenizer("gpt2"))
    return f"by the regex module: {reason}" if reason else f"native, {chosen_instructions()}"
