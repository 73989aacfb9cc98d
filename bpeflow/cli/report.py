"""`bpeflow report`: write a page about a run."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from bpeflow.cli.parser import Parser, page_file
from bpeflow.run_dir.layout import PAGE_FILE

_DESCRIPTION = """\
Write a page about a finished run, in one file that opens in any browser: settings, times, charts, a
searchable vocabulary, and text in coloured tokens. Needs matplotlib (pip install 'bpeflow[report]'). The command
evaluate compares several runs.

  bpeflow report runs/mine                      writes runs/mine/report.html
  bpeflow report runs/mine --sample valid.txt   bytes per token on held-out text
"""


def report_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("report", _DESCRIPTION, "RUN [flags]")
    parser.add_argument("run", metavar="RUN", type=Path, help="run folder")
    parser.add_output(
        "--out", "-o", metavar="FILE", type=page_file,
        help="page to write (default: report.html in the run folder, replaced)",
    )  # fmt: skip
    parser.add_argument(
        "--sample", metavar="PATH", nargs="+", action="extend", default=[],
        help="text to measure bytes per token on: files, folders or globs (default: a sample of the run's corpus)",
    )  # fmt: skip
    return parser


def run_report(options: Namespace) -> None:
    """Write the page."""
    from bpeflow.look.page import write_page

    path = options.out or options.run / PAGE_FILE
    write_page(options.run, path, options.sample)
    print(path)  # noqa: T201
