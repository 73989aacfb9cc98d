"""`bpeflow counts`: convert pre-token counts between formats."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from bpeflow.cli.parser import Parser
from bpeflow.counting.counts import PretokenCounts

_DESCRIPTION = """\
Convert pre-token counts between bpeflow's own format (.npz) and TSV (pre-token TAB count, with backslash escapes).
File name extensions select the formats.

  bpeflow counts runs/owt/counts.npz counts.tsv
"""


def make_parser() -> Parser:
    """Return the parser of the command's flags."""
    parser = Parser("counts", _DESCRIPTION, "SRC DST")
    parser.add_argument("source", metavar="SRC", type=Path, help="counts to read")
    parser.add_argument("target", metavar="DST", type=Path, help="counts to write")
    return parser


def run(options: Namespace) -> None:
    """Convert counts."""
    counts = PretokenCounts.read(options.source)
    counts.write(options.target)
    print(f"{options.target}: {len(counts):,} distinct pre-tokens, {counts.total:,} in total")  # noqa: T201
