"""`bpeflow backends`: list the merge backends and the scanner, and why any is unavailable."""

from __future__ import annotations

from argparse import Namespace

from bpeflow.backends import BACKENDS
from bpeflow.cli.parser import Parser
from bpeflow.cli.tables import output_console, print_table
from bpeflow.pretokenize.native import chosen_instructions, why_regex
from bpeflow.pretokenize.regex import load_pretokenizer


def make_parser() -> Parser:
    """Return the parser of the command's flags."""
    return Parser("backends", "List the merge backends, and why any is unavailable.", "")


def run(options: Namespace) -> None:  # noqa: ARG001
    """List the backends."""
    reasons = {backend: backend.unavailable() for backend in BACKENDS}
    rows = [(b.name, "no" if reason else "yes", reason or b.describe()) for b, reason in reasons.items()]
    print_table(output_console(), ("backend", "available", "description, or the reason"), rows, "lll")
    print(f"backend: auto selects {next(b.name for b, reason in reasons.items() if reason is None)}")  # noqa: T201
    print(f"counting: {scanner_in_use()}")  # noqa: T201


def scanner_in_use() -> str:
    """Return what counts pre-tokens of the named patterns: native code and its instructions, or why not."""
    reason = why_regex(load_pretokenizer("gpt2"))
    return f"by the regex module: {reason}" if reason else f"native, {chosen_instructions()}"
