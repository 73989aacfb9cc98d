"""`bpeflow show`: show the tokens of a text, and how they came to be."""

from __future__ import annotations

import logging
import os
import sys
from argparse import Namespace

from bpeflow._util.atomic import write_text
from bpeflow._util.text import format_size
from bpeflow.cli.parser import Parser, add_description_flags, add_json_flag, add_tokenizer, description, page_file, size
from bpeflow.cli.progress import set_up_logging
from bpeflow.errors import ConfigError
from bpeflow.tokenizer.tokenizer import Tokenizer

_DESCRIPTION = """\
Show the tokens of a text, with their ids and offsets: in colours on a terminal, as plain text elsewhere or with
NO_COLOR set. Tokens that begin or end inside a character are shown as bytes, such as \\xf0, and control characters as
escapes, such as \\x1b. Input that is not UTF-8 is replaced by U+FFFD.

--explain adds the merges of each pre-token in the order in which they applied, with ranks and training counts (if the
tokenizer has them), and why neighbours did not merge; for a run with superwords also the stage of each merge. --html
writes the same to a page for a browser.

  bpeflow show runs/mine "The quick brown fox"
  bpeflow show runs/mine --explain " unbelievable"
  bpeflow show runs/mine --input corpus.jsonl.gz --first 2kb
  bpeflow show runs/mine --ids "The quick brown fox"
  git diff | bpeflow show cl100k_base.tiktoken - --html diff.html
"""

#: Bytes of input that are shown by default.
_FIRST = 10_000

log = logging.getLogger(__name__)


def show_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("show", _DESCRIPTION, 'TOKENIZER ["TEXT" | -] [flags]')
    add_tokenizer(parser)
    parser.add_argument("text", metavar="TEXT", nargs="?", help="text to show, or - for standard input")
    parser.add_argument(
        "--input", "-i", metavar="PATH", nargs="+", dest="inputs",
        help="show the beginning of files, folders, globs, URLs, or - for standard input instead",
    )  # fmt: skip
    parser.add_argument(
        "--first", metavar="SIZE", type=size, default=_FIRST, help="bytes of --input or - to show (default: 10kb)"
    )
    add_description_flags(parser)
    parser.add_argument("--explain", action="store_true", help="also show merges, and why neighbours did not merge")
    parser.add_argument("--ids", action="store_true", help="print the ids alone, on one line")
    add_json_flag(parser)
    parser.add_output("--html", metavar="FILE", type=page_file, help="write a self-contained page instead")
    return parser


def run_show(options: Namespace) -> None:
    """Show a text."""
    if (options.text is None) == (options.inputs is None):
        raise ConfigError("after the TOKENIZER, give either a TEXT (or -), before all flags, or --input PATH")
    forms = [f"--{name}" for name in ("ids", "json", "html", "explain") if getattr(options, name)]
    if len(forms) > 1 and forms != ["--html", "--explain"]:
        raise ConfigError(f"{' and '.join(forms)}: give one of them")
    set_up_logging()
    from rich.console import Console

    from bpeflow.look.explainer import Explainer
    from bpeflow.look.render import print_json
    from bpeflow.run_dir.run_files import report_of_tokenizer
    from bpeflow.run_dir.summary import count_unit

    tokenizer = Tokenizer.from_pretrained(options.tokenizer, **description(options))
    text = options.text
    if text is None or text == "-":
        from bpeflow.corpus.excerpts import first_text  # pydantic

        end = next(iter(tokenizer.special_tokens), "\n")
        text, is_whole = first_text({"input": options.inputs or ["-"]}, options.first, end)
        if not is_whole:
            log.info("showing the first %s; --first SIZE shows more", format_size(options.first))
    else:
        text = os.fsencode(text).decode(errors="replace")
    report = report_of_tokenizer(options.tokenizer) if options.explain else None
    if unit := count_unit(report):
        log.info("%s", unit)
    explanation = Explainer(tokenizer, report.second_stage if report else None).explain(text)
    if options.ids:
        sys.stdout.write(" ".join(map(str, explanation.ids)) + "\n")
        return
    if options.json:
        print_json({"text": text, "tokens": explanation.tokens})
        return
    if options.html is not None:
        write_text(options.html, explanation.to_page(options.tokenizer.resolve().name, options.explain))
        print(options.html)  # noqa: T201
        return
    console, table = Console(), explanation.table(options.explain)
    if console.is_terminal and console.color_system is not None and not console.no_color:
        console.print(explanation.coloured(), "", table, sep="\n")
    else:
        sys.stdout.write(f"{table.plain}\n")
