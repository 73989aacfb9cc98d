"""`bpeflow report`: write a page about a run, or about several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bpeflow.cli.parser import Parser
from bpeflow.run_dir.layout import PAGE_FILE

_DESCRIPTION = """\
Write a page about finished runs, in one file that opens in any browser: settings, times, charts, a vocabulary to search
in, and text in coloured tokens. Needs matplotlib (pip install 'bpeflow[report]').

  bpeflow report runs/owt                                       writes runs/owt/report.html
  bpeflow report runs/owt runs/tinystories --out compare.html   side by side
  bpeflow report runs/owt --sample valid.txt                    bytes per token on text that was held out
"""


def make_parser() -> Parser:
    """Return the parser of the command's flags."""
    parser = Parser("report", _DESCRIPTION, "RUN [RUN…]")
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="run folders")
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="the page to write (default: report.html in the first run folder)"
    )
    parser.add_argument(
        "--sample", metavar="PATH", nargs="+", action="extend", default=[],
        help="text to measure bytes per token on: files, folders or globs (default: a sample of the runs' corpora)",
    )  # fmt: skip
    return parser


def run(argv: Sequence[str]) -> int:
    """Write the page."""
    from bpeflow.reporting.page import write_page

    options = make_parser().parse(argv)
    path = options.out or options.runs[0] / PAGE_FILE
    write_page(options.runs, path, options.sample)
    print(path)  # noqa: T201
    return 0
