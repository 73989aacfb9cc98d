"""`bpeflow inspect`: describe a vocabulary, and how it fits a corpus."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from bpeflow._util.text import format_count, format_size, one_line, show_token
from bpeflow.cli.parser import Parser, add_description_flags, add_quiet_flag, description
from bpeflow.cli.progress import observing
from bpeflow.cli.settings import add_corpus_flags, corpus_of
from bpeflow.cli.tables import print_lines
from bpeflow.look.render import to_json
from bpeflow.look.usage import CorpusFigures, count_pretokens, inspect_corpus
from bpeflow.look.vocabulary import NeverToken, VocabFigures, VocabToken, inspect_vocab
from bpeflow.tokenizer.tokenizer import Tokenizer

_DESCRIPTION = """\
Describe a vocabulary: its size, special tokens, lengths and scripts; tokens that are incomplete UTF-8, and tokens that
no text ever yields; the longest tokens; and the training counts of merges, if the tokenizer has them.

With a corpus, also: entries used and unused, the most frequent tokens, and the bytes per token of the vocabulary and of
its prefixes, which shows which size is enough. Special tokens are left out there, as they are not text.

  bpeflow inspect runs/owt
  bpeflow inspect runs/owt --input held_out.txt
  bpeflow inspect cl100k_base.tiktoken --json > cl100k.json
"""

#: Tokens of a list that are shown, and the most columns of the screen for each.
_LISTED, _WIDTH = 10, 40

#: Lengths in bytes that have a bar of their own; longer ones share bars, each up to twice as long.
_OWN_BAR = 16

#: Columns of the longest bar.
_BAR = 40

_REASONS = {
    "other tokens": "merging their own bytes yields other tokens",
    "not UTF-8": "their bytes are part of no text in UTF-8",
    "normalized": "the normalizer changes their text",
    "same bytes": "a lower id has the same bytes",
}


def make_parser() -> Parser:
    """Return the parser of the command's flags."""
    parser = Parser("inspect", _DESCRIPTION, "TOKENIZER [flags]")
    parser.add_argument(
        "tokenizer", metavar="TOKENIZER", type=Path, help="run folder, or tokenizer in any known format"
    )
    add_description_flags(parser)
    add_corpus_flags(parser)
    parser.add_argument("--json", action="store_true", help="print everything as JSON, with all tokens of all lists")
    add_quiet_flag(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Describe a vocabulary."""
    options = make_parser().parse(argv)
    settings = corpus_of(options, required=False)
    inputs = settings.pop("inputs")
    corpus = None
    with observing(options.quiet) as observer:
        tokenizer = Tokenizer.load(options.tokenizer, **description(options))
        if inputs:
            corpus = inspect_corpus(tokenizer, count_pretokens(tokenizer, inputs, observer, **settings))
        figures = inspect_vocab(tokenizer)
    if options.json:
        content = {**to_json(figures), "corpus": to_json(corpus)}
        json.dump(content, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        lines = [*vocab_lines(figures), *(corpus_lines(corpus) if corpus else ())]
        print_lines(lines)
    return 0


def vocab_lines(figures: VocabFigures) -> Iterator[str]:
    """Yield the description of a vocabulary."""
    unused = f", {figures.unused_ids:,} of them without a token" if figures.unused_ids else ""
    yield f"vocabulary  {format_count(figures.ids, 'id')}{unused}; {format_count(figures.merges, 'merge')}"
    specials = [f"{one_line(token)} ({token_id})" for token, token_id in figures.special_tokens.items()]
    more = f" … {len(specials) - _LISTED:,} more" if len(specials) > _LISTED else ""
    yield f"special     {', '.join(specials[:_LISTED]) or 'none'}{more}"
    yield from ("", "lengths in bytes")
    yield from _bars([(_length_label(group), count) for group, count in _by_length(figures.lengths)])
    yield from ("", "scripts")
    yield from _bars([*figures.scripts.items()])
    yield from ("", f"incomplete UTF-8  {format_count(len(figures.incomplete), 'token')}: {_list(figures.incomplete)}")
    yield from ("", f"never reached     {format_count(len(figures.never), 'token')}")
    by_reason = sorted(figures.never, key=lambda token: token.reason)
    for reason, tokens in groupby(by_reason, key=lambda token: token.reason):
        entries: list[NeverToken] = list(tokens)
        yield f"  {len(entries):,}: {_REASONS[reason]}: {_list(entries)}"
    if figures.unproved:
        whole = format_count(len(figures.unproved), "token")
        yield f"  unknown: {whole} that their own text does not yield, but other text may: {_list(figures.unproved)}"
    yield from ("", "longest")
    for token in figures.longest:
        yield f"  {len(token.bytes):>6,} bytes  {show_token(token.bytes, _WIDTH)} ({token.id})"
    if figures.merge_counts:
        yield from ("", "training counts of merges")
        for entry in figures.merge_counts:
            count = "unknown" if entry.count is None else f"{entry.count:,}"
            pair = f"{show_token(entry.left, _WIDTH)} + {show_token(entry.right, _WIDTH)}"
            yield f"  rank {entry.rank:>9,}  {count:>15}  {pair}"


def corpus_lines(figures: CorpusFigures) -> Iterator[str]:
    """Yield the description of how a vocabulary fits a corpus."""
    yield from (
        "",
        f"corpus      {format_size(figures.bytes)} in {figures.pretokens:,} pre-tokens, "
        f"{figures.distinct_pretokens:,} distinct",
        f"            {format_count(figures.tokens, 'token')}, {figures.bytes_per_token:.3f} bytes per token",
        f"used        {format_count(len(figures.used), 'token')}; {len(figures.unused):,} unused: "
        + _list(figures.unused),
    )
    yield from ("", "most frequent")
    for token in figures.used[:_LISTED]:
        share = token.count / figures.tokens
        yield f"  {token.count:>15,}  {share:>6.2%}  {show_token(token.bytes, _WIDTH)} ({token.id})"
    if figures.prefixes:
        yield from ("", "prefixes of the vocabulary", "    entries          tokens  bytes per token")
        longest = max(prefix.bytes_per_token for prefix in figures.prefixes)
        for prefix in figures.prefixes:
            bar = "█" * round(prefix.bytes_per_token / longest * _BAR)
            yield f"  {prefix.entries:>9,}  {prefix.tokens:>14,}  {prefix.bytes_per_token:>6.3f}  {bar}"


def _by_length(lengths: dict[int, int]) -> Iterator[tuple[range, int]]:
    """Yield groups of lengths, and the number of tokens in each."""
    longest = max(lengths, default=0)
    start = 1
    while start <= longest:
        end = start + 1 if start <= _OWN_BAR else 2 * start - 1
        yield range(start, end), sum(lengths.get(length, 0) for length in range(start, end))
        start = end


def _length_label(lengths: range) -> str:
    return str(lengths[0]) if len(lengths) == 1 else f"{lengths[0]:,}-{lengths[-1]:,}"


def _bars(entries: Sequence[tuple[str, int]]) -> Iterator[str]:
    width = max((len(label) for label, _ in entries), default=0)
    most = max((count for _, count in entries), default=1)
    for label, count in entries:
        bar = "█" * round(count / most * _BAR) or "▏" * bool(count)
        yield f"  {label:>{width}}  {count:>9,}  {bar}".rstrip()


def _list(tokens: Iterable[VocabToken]) -> str:
    tokens = list(tokens)
    shown = " ".join(show_token(token.bytes, _WIDTH) for token in tokens[:_LISTED])
    return f"{shown} …" if len(tokens) > _LISTED else shown or "none"
