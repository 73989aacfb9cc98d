"""The figures of `bpeflow.tokenizer.evaluate` as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from bpeflow.terminal import format_size
from bpeflow.tokenizer import Tokenizer
from bpeflow.tokenizer.evaluate import Evaluation, longest_tokens

#: How many of the longest tokens are shown, and how many characters of each.
_LONGEST, _CHARACTERS = 3, 40

_SECONDS = (("days", 86_400.0), ("hours", 3_600.0), ("min", 60.0))


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

    rate, foretold = figures["bytes_per_second"], figures["seconds_for_82_gb"]
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
        _duration(foretold) if foretold else "–",
    ]


def _duration(seconds: float) -> str:
    for unit, scale in _SECONDS:
        if seconds >= scale:
            return f"{seconds / scale:,.1f} {unit}"
    return f"{seconds:.1f} s"


def _shown(token: bytes) -> str:
    text = token.decode(errors="backslashreplace")
    return f"{(text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + '…')!r} ({len(token)} bytes)"
