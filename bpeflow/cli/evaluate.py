"""`bpeflow evaluate`: compare tokenizers on corpora."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from bpeflow._util.atomic import atomic_path
from bpeflow._util.text import format_size, short_names, show_token
from bpeflow.cli.options import add_quiet_flag, add_separator_flag
from bpeflow.cli.parser import Parser, new_parser
from bpeflow.cli.progress import observing, table_console
from bpeflow.cli.tables import print_table
from bpeflow.dataset.evaluate import Evaluation, describe, evaluate_all, longest_tokens
from bpeflow.dataset.facade import Tokenizer

_DESCRIPTION = """\
Measure every tokenizer on every corpus, on one thread: bytes per token, tokens per word (delimited by white space),
single-byte tokens, vocabulary entries in use, speed, estimated time for 82 GB, and the longest tokens.

  python -m bpeflow evaluate --tokenizer runs/owt runs/tinystories --input owt.txt tinystories.txt
"""

#: How many of the longest tokens are shown, and how many characters of each.
_LONGEST, _CHARACTERS = 3, 40
_SECONDS = (("days", 86_400.0), ("hours", 3_600.0), ("min", 60.0))


def make_parser() -> Parser:
    """Return the parser of the command's flags."""
    parser = new_parser("evaluate", _DESCRIPTION)
    parser.add_argument(
        "--tokenizer", metavar="PATH", type=Path, required=True, nargs="+", action="extend", dest="tokenizers",
        help="run folders, or tokenizers in any known format; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--input", metavar="PATH", required=True, nargs="+", action="extend", dest="inputs",
        help="files, folders and globs, each a corpus of its own; repeatable",
    )  # fmt: skip
    add_separator_flag(parser)
    parser.add_argument(
        "--json", metavar="FILE", type=Path, dest="json_path", help="also write all figures to this file"
    )
    add_quiet_flag(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Measure tokenizers."""
    options = make_parser().parse(argv)
    with observing(options.quiet) as observer:
        tokenizers = {str(path): Tokenizer.load(path) for path in options.tokenizers}
        evaluated = evaluate_all(tokenizers, options.inputs, separator=options.separator, observer=observer)
    if options.json_path is not None:
        text = json.dumps(describe(evaluated, tokenizers), indent=2, ensure_ascii=False) + "\n"
        with atomic_path(options.json_path) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    console = table_console()
    if console.is_terminal:
        evaluated, tokenizers = _with_short_names(evaluated, tokenizers)
    figures, longest = make_tables(evaluated, tokenizers)
    print_table(console, figures, keys=2)
    print_table(console, longest, keys=2)
    return 0


def _with_short_names(
    evaluations: Sequence[Evaluation], tokenizers: Mapping[str, Tokenizer]
) -> tuple[list[Evaluation], dict[str, Tokenizer]]:
    """Name corpora and tokenizers by the last parts of their paths."""
    names = short_names(list(tokenizers))
    corpora = short_names(list(dict.fromkeys(evaluation.corpus for evaluation in evaluations)))
    renamed = [replace(e, corpus=corpora[e.corpus], tokenizer=names[e.tokenizer]) for e in evaluations]
    return renamed, {names[name]: tokenizer for name, tokenizer in tokenizers.items()}


def make_tables(evaluations: Sequence[Evaluation], tokenizers: Mapping[str, Tokenizer]) -> list[Table]:
    """Show the figures, and the longest tokens."""
    figures = Table(box=None, header_style="bold")
    figures.add_column("corpus", overflow="fold")
    figures.add_column("tokenizer", overflow="fold")
    for heading in ("text", "tokens", "bytes/token", "tokens/word", "single bytes", "used", "one thread", "82 GB take"):
        figures.add_column(heading, justify="right")
    for evaluation in evaluations:
        figures.add_row(*_row(evaluation, tokenizers[evaluation.tokenizer].vocab_size))
    longest = Table("tokenizer", "entries", "longest tokens", box=None, header_style="bold")
    for name, tokenizer in tokenizers.items():
        shown = [_shown(token) for _, token in longest_tokens(tokenizer, _LONGEST)]
        longest.add_row(escape(name), f"{tokenizer.vocab_size:,}", escape(", ".join(shown)))
    return [figures, longest]


def _row(evaluation: Evaluation, vocab_size: int) -> list[str]:
    figures = evaluation.to_dict()

    def show(name: str, form: str) -> str:
        return "–" if figures[name] is None else form.format(figures[name])

    rate, estimated = figures["bytes_per_second"], figures["seconds_for_82_gb"]
    return [
        escape(evaluation.corpus),
        escape(evaluation.tokenizer),
        format_size(evaluation.text.bytes),
        f"{evaluation.tokens:,}",
        show("bytes_per_token", "{:.3f}"),
        show("tokens_per_word", "{:.3f}"),
        show("single_byte_share", "{:.2%}"),
        f"{evaluation.used_tokens / vocab_size:.1%}",
        f"{format_size(rate)}/s" if rate else "–",
        _duration(estimated) if estimated else "–",
    ]


def _duration(seconds: float) -> str:
    for unit, scale in _SECONDS:
        if seconds >= scale:
            return f"{seconds / scale:,.1f} {unit}"
    return f"{seconds:.1f} s"


def _shown(token: bytes) -> str:
    return f"{show_token(token.decode(errors='backslashreplace'), _CHARACTERS)} ({len(token):,} bytes)"
