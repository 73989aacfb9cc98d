"""`bpeflow evaluate`: compare tokenizers on corpora."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bpeflow._util.atomic import atomic_path
from bpeflow._util.text import format_count, format_size, one_line, short_names, show_token
from bpeflow.cli.fitting import table_console
from bpeflow.cli.parser import Parser, add_description_flags, add_quiet_flag, description, size
from bpeflow.cli.progress import observing
from bpeflow.cli.settings import add_corpus_flags, corpus_of
from bpeflow.dataset.evaluate import evaluate
from bpeflow.dataset.evaluation_report import Evaluation, EvaluationReport, longest_tokens
from bpeflow.dataset.facade import Tokenizer

_DESCRIPTION = """\
Measure every tokenizer on every corpus, on one thread: bytes per token, also relative to a baseline; tokens per word
(delimited by white space), single-byte tokens, vocabulary entries in use, speed, and the longest tokens.

  bpeflow evaluate --tokenizer runs/owt runs/tinystories --input owt.txt tinystories.txt
  bpeflow evaluate --tokenizer runs/owt --baseline gpt2/tokenizer.json --input docs.jsonl.zst --for_size 12gb
"""

#: Number of the longest tokens that are shown, and the most columns of the screen for each.
_LONGEST, _TOKEN_WIDTH = 3, 40

#: Columns of the screen that a name keeps when it has to be folded.
_NAME_WIDTH = 20

#: Columns of the screen between two columns of a table.
_GAP = 2

_SECONDS = (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0))


def make_parser() -> Parser:
    """Return the parser of the command's flags."""
    parser = Parser("evaluate", _DESCRIPTION)
    parser.add_argument(
        "--tokenizer", metavar="PATH", required=True, nargs="+", action="extend", dest="tokenizers",
        help="run folders, or tokenizers in any known format; repeatable",
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


def run(argv: Sequence[str]) -> int:
    """Measure tokenizers."""
    options = make_parser().parse(argv)
    corpus = corpus_of(options)
    with observing(options.quiet) as observer:
        tokenizers, described = options.tokenizers, description(options)
        if any(described.values()):
            names = short_names(tokenizers)
            tokenizers = {names[path]: Tokenizer.load(path, **described) for path in dict.fromkeys(tokenizers)}
        report = evaluate(tokenizers, corpus.pop("inputs"), baseline=options.baseline, observer=observer, **corpus)
    if options.json_path is not None:
        text = json.dumps(report.to_dict(options.for_size), indent=2, ensure_ascii=False) + "\n"
        with atomic_path(options.json_path) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    print_report(report, table_console(), options.for_size)
    return 0


# ---- tables ----


@dataclass(frozen=True)
class _Figure:
    """A column of figures.

    Attributes:
        heading: its heading.
        value: the figure of an evaluation; None if it has none.
        show: formats a figure.
        rank: columns of higher rank are left out first where the table is too wide.
        best: returns the best of several figures; None where more is neither better nor worse.
    """

    heading: str
    value: Callable[[Evaluation], float | None]
    show: Callable[[float], str]
    rank: int
    best: Callable[[Iterable[float]], float] | None = None

    def cell(self, row: Evaluation, rows: Sequence[Evaluation], in_bold: bool) -> Text:
        """Return the figure of an evaluation, marked if it is the best of `rows` and not all are the same."""
        value = self.value(row)
        text = "–" if value is None else self.show(value)
        if self.best is None or len(rows) == 1:
            return Text(text)
        known = {other for other in map(self.value, rows) if other is not None}
        is_best = len(known) > 1 and value == self.best(known)
        return Text(text, "bold" if is_best else "") if in_bold else Text(text + ("*" if is_best else " "))


def _figures(report: EvaluationReport, for_size: int | None) -> list[_Figure]:
    figures = [
        _Figure("text", lambda row: row.text.bytes, format_size, 9),
        _Figure("tokens", lambda row: row.tokens, "{:,}".format, 8),
        _Figure("bytes/token", lambda row: row.bytes_per_token, "{:.3f}".format, 1, max),
        _Figure("tokens/word", lambda row: row.tokens_per_word, "{:.3f}".format, 4, min),
        _Figure("single bytes", lambda row: row.single_byte_share, "{:.2%}".format, 6, min),
        _Figure("used", lambda row: row.used_share, "{:.1%}".format, 7),
        _Figure("one thread", lambda row: row.bytes_per_second, lambda rate: f"{format_size(rate)}/s", 5, max),
    ]
    if report.baseline is not None:
        figures.insert(3, _Figure("ratio", lambda row: row.ratio, "× {:.2f}".format, 2))
    if for_size is not None:
        figures.append(_Figure(f"{format_size(for_size)} take", lambda row: row.seconds_for(for_size), _duration, 3))
    return figures


def print_report(report: EvaluationReport, console: Console, for_size: int | None = None) -> None:
    """Print the figures, what they mean, and the longest tokens. Figures that do not fit the width are left out."""
    in_bold = console.color_system is not None
    several = len(report.tokenizers) > 1  # a row is then a tokenizer, below the name of a corpus; else it is a corpus
    figures = _figures(report, for_size)
    lines = [[Text("tokenizer" if several else "corpus"), *(Text(figure.heading) for figure in figures)]]
    for corpus, group in groupby(report, lambda row: "all together" if row.corpus is None else one_line(row.corpus)):
        rows = list(group)
        if several:
            lines.append([Text(corpus, "italic"), *(Text() for _ in figures)])
        for row in rows:
            name = Text(one_line(row.tokenizer) if several else corpus)
            lines.append([name, *(figure.cell(row, rows, in_bold) for figure in figures)])
    columns = _fitting(lines, [0, *(figure.rank for figure in figures)], console.width)
    console.print(_table([[line[n] for n in columns] for line in lines], console.width))
    left_out = [str(heading) for n, heading in enumerate(lines[0]) if n not in columns]
    for note in _notes(report, in_bold, left_out):
        console.print(Text(note, "dim"))
    console.print()
    console.print(_table(_longest(report, console.width), console.width, last="left"))


def _notes(report: EvaluationReport, in_bold: bool, left_out: Sequence[str]) -> Iterator[str]:
    """Yield the sentences below the table."""
    if report.baseline is not None:
        baseline = one_line(report.baseline)
        yield f"ratio: × 1.14 means 1.14 times the bytes per token of {baseline}; more is better"
    if len(report.tokenizers) > 1:
        yield f"{'bold' if in_bold else '*'}: best of the corpus"
    if left_out:
        yield f"left out at this width: {', '.join(left_out)}; --json has everything"


def _longest(report: EvaluationReport, width: int) -> list[list[Text]]:
    """Return the lines of the table of the longest tokens."""
    lines = [[Text("tokenizer"), Text("entries"), Text("longest tokens")]]
    for name, tokenizer in report.tokenizers.items():
        first = [one_line(name), f"{tokenizer.vocab_size:,}"]
        for _, token in longest_tokens(tokenizer, _LONGEST):
            size = f" ({format_count(len(token), 'byte')})"
            room = width - _NAME_WIDTH - max(len(first[1]), len("entries")) - 2 * _GAP - len(size)
            lines.append([*map(Text, first), Text(show_token(token, max(min(room, _TOKEN_WIDTH), 3)) + size)])
            first = ["", ""]
    return lines


def _widths(lines: Sequence[Sequence[Text]]) -> list[int]:
    return [max(cell.cell_len for cell in column) for column in zip(*lines, strict=True)]


def _fitting(lines: Sequence[Sequence[Text]], ranks: Sequence[int], width: int) -> list[int]:
    """Return the columns that fit, if names are folded: those of the lowest rank."""
    widths = _widths(lines)
    room = width - min(widths[0], _NAME_WIDTH)
    by_rank = sorted(range(1, len(ranks)), key=lambda n: ranks[n])
    used = accumulate(widths[n] + _GAP for n in by_rank)
    return [0, *sorted(n for n, width in zip(by_rank, used, strict=True) if width <= room)]


def _table(lines: Sequence[Sequence[Text]], width: int, last: Literal["left", "right"] = "right") -> Table:
    """Return a table whose first column is folded if it has to be. `last` is the side of the last column."""
    first, *others = _widths(lines)
    room = width - sum(others) - _GAP * len(others)
    table = Table(box=None, header_style="bold", padding=(0, _GAP, 0, 0), pad_edge=False)
    table.add_column(lines[0][0], overflow="fold", width=max(min(first, room), 1))
    for n, heading in enumerate(lines[0][1:], 1):
        table.add_column(heading, no_wrap=True, justify=last if n == len(others) else "right")
    for line in lines[1:]:
        table.add_row(*line)
    return table


def _duration(seconds: float) -> str:
    for unit, scale in _SECONDS:
        if seconds >= scale:
            return f"{seconds / scale:,.1f} {unit}"
    return f"{seconds:.1f} s"
