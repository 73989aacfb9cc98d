"""`bpeflow evaluate`: compare tokenizers on corpora."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from bpeflow._util.text import format_count, format_size, one_line, short_names
from bpeflow.cli.parser import Parser, add_description_flags, add_quiet_flag, description, size
from bpeflow.cli.progress import observing
from bpeflow.cli.settings import add_corpus_flags, corpus_of
from bpeflow.cli.tables import join_tokens, output_console, print_json, print_table
from bpeflow.dataset.evaluate import evaluate
from bpeflow.dataset.evaluation_report import Evaluation, EvaluationReport
from bpeflow.look.vocabulary import longest_tokens
from bpeflow.tokenizer.tokenizer import Tokenizer

_DESCRIPTION = """\
Measure every tokenizer on every corpus: bytes per token, also relative to a baseline; tokens per word (delimited by
white space), single-byte tokens, vocabulary entries in use, speed on one thread (on the first 16 MB), and the longest
tokens. Special tokens are not counted.

  bpeflow evaluate --tokenizer runs/owt runs/tinystories --input owt.txt tinystories.txt
  bpeflow evaluate --tokenizer runs/owt --baseline gpt2/tokenizer.json --input docs.jsonl.zst --for_size 12gb
"""

#: Number of the longest tokens that are shown.
_LONGEST = 3


def evaluate_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("evaluate", _DESCRIPTION)
    parser.add_argument(
        "--tokenizer", metavar="PATH", required=True, nargs="+", action="extend", dest="tokenizers",
        help="run folders, tokenizers in any known format, or published names, e.g. gpt2; repeatable",
    )  # fmt: skip
    add_description_flags(parser)
    parser.add_argument(
        "--baseline", metavar="PATH",
        help="tokenizer to compare with, one of these or a further one (default: the first of several)",
    )  # fmt: skip
    add_corpus_flags(parser)
    parser.add_argument(
        "--for_size", metavar="SIZE", type=size, help="also estimate how long encoding this much takes, e.g. 12gb"
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, dest="json_path", help="also write all figures to this file"
    )
    add_quiet_flag(parser)
    return parser


def run_evaluate(options: Namespace) -> None:
    """Measure tokenizers."""
    corpus = corpus_of(options)
    with observing(options.quiet) as observer:
        tokenizers, described = options.tokenizers, description(options)
        if any(described.values()):
            names = short_names(tokenizers)
            tokenizers = {
                names[path]: Tokenizer.from_pretrained(path, **described) for path in dict.fromkeys(tokenizers)
            }
        report = evaluate(tokenizers, corpus.pop("inputs"), baseline=options.baseline, observer=observer, **corpus)
    if options.json_path is not None:
        print_json(report.to_dict(options.for_size), options.json_path)
    print_report(report, output_console(), options.for_size)


# ---- tables ----


class _Figure(NamedTuple):
    """A column: its heading, the figure of an evaluation, how it is written, and which of several is the best."""

    heading: str
    value: Callable[[Evaluation], float | None]
    form: Callable[[float], str]
    best: Callable[[Iterable[float]], float] | None = None

    def cell(self, row: Evaluation, rows: Sequence[Evaluation]) -> str:
        """Return the figure of an evaluation, with an asterisk if it is the best of `rows` and not all are the same."""
        value = self.value(row)
        text = "–" if value is None else self.form(value)
        if self.best is None or len(rows) == 1:
            return text
        known = {other for other in map(self.value, rows) if other is not None}
        return text + ("*" if len(known) > 1 and value == self.best(known) else " ")


def _figures(report: EvaluationReport, for_size: int | None) -> list[_Figure]:
    figures = [
        _Figure("text", lambda row: row.text.bytes, format_size),
        _Figure("tokens", lambda row: row.tokens, "{:,}".format),
        _Figure("bytes/token", lambda row: row.bytes_per_token, "{:.3f}".format, max),
        _Figure("tokens/word", lambda row: row.tokens_per_word, "{:.3f}".format, min),
        _Figure("single bytes", lambda row: row.single_byte_share, "{:.2%}".format, min),
        _Figure("used", lambda row: row.used_share, "{:.1%}".format),
        _Figure("one thread", lambda row: row.bytes_per_second, lambda rate: f"{format_size(rate)}/s", max),
    ]
    if report.baseline is not None:
        figures.insert(3, _Figure("ratio", lambda row: row.ratio, "× {:.2f}".format))
    if for_size is not None:
        figures.append(_Figure(f"{format_size(for_size)} take", lambda row: row.seconds_for(for_size), _hours))
    return figures


def print_report(report: EvaluationReport, console: Console, for_size: int | None = None) -> None:
    """Print the figures, what they mean, and the longest tokens."""
    several = len(report.tokenizers) > 1
    figures = _figures(report, for_size)
    lines: list[list[str]] = []
    for corpus, group in groupby(report, lambda row: "all together" if row.corpus is None else one_line(row.corpus)):
        rows = list(group)
        for row in rows:
            names = [corpus, one_line(row.tokenizer)] if several else [corpus]
            lines.append([*names, *(figure.cell(row, rows) for figure in figures)])
    headings = ["corpus", "tokenizer"] if several else ["corpus"]
    sides = "l" * len(headings) + "r" * len(figures)
    print_table(console, [*headings, *(figure.heading for figure in figures)], lines, sides)
    if report.baseline is not None:
        example = f"1.14 times the bytes per token of {one_line(report.baseline)}"
        console.print(Text(f"ratio: × 1.14 means {example}; more is better", "dim"))
    if several:
        console.print(Text("*: best of the corpus", "dim"))
    console.print()
    print_table(console, ["tokenizer", "entries", "longest tokens"], _longest(report), "lrl")


def _longest(report: EvaluationReport) -> Iterator[list[str]]:
    for name, tokenizer in report.tokenizers.items():
        first = [one_line(name), f"{tokenizer.vocab_size:,}"]
        for token in longest_tokens(tokenizer.vocab, _LONGEST):
            yield [*first, f"{join_tokens([token.bytes])} ({format_count(len(token.bytes), 'byte')})"]
            first = ["", ""]


def _hours(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
