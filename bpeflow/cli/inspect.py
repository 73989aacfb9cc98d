"""`bpeflow inspect`: describe a vocabulary, and how it fits a corpus."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter

from rich.console import Console

from bpeflow._util.text import format_count, format_size, one_line
from bpeflow.cli.parser import Parser, add_description_flags, add_json_flag, add_quiet_flag, add_tokenizer, description
from bpeflow.cli.progress import observing
from bpeflow.cli.settings import add_corpus_flags, corpus_of
from bpeflow.look.render import (
    fields_of,
    join_tokens,
    output_console,
    print_bars,
    print_fields,
    print_json,
    print_table,
)
from bpeflow.look.usage import CorpusFigures, count_pretokens, inspect_corpus
from bpeflow.look.vocabulary import LISTED, VocabFigures, VocabToken, inspect_vocab, list_tokens
from bpeflow.run_dir.run_files import report_of_tokenizer
from bpeflow.run_dir.summary import count_unit
from bpeflow.tokenizer.tokenizer import Tokenizer

_DESCRIPTION = """\
Describe a vocabulary: its size, special tokens, lengths and scripts; tokens that are incomplete UTF-8, and tokens that
no text ever yields; the longest tokens; and the training counts of merges, if the tokenizer has them.

With a corpus, also: entries used and unused, the most frequent tokens, and the bytes per token of the vocabulary and of
its prefixes, which shows which size is enough. Special tokens are left out there, as they are not text.

  bpeflow inspect runs/mine
  bpeflow inspect runs/mine --input held_out.txt
  bpeflow inspect cl100k_base.tiktoken --json > cl100k.json
"""

#: Lengths in bytes that have a bar of their own; longer ones share one.
_OWN_BAR = 16

_REASONS = {
    "other tokens": "merging their own bytes yields other tokens",
    "not UTF-8": "their bytes are part of no text in UTF-8",
    "normalized": "the normalizer changes their text",
    "same bytes": "a lower id has the same bytes",
}


def inspect_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("inspect", _DESCRIPTION, "TOKENIZER [flags]")
    add_tokenizer(parser)
    add_description_flags(parser)
    add_corpus_flags(parser)
    add_json_flag(parser)
    add_quiet_flag(parser)
    return parser


def run_inspect(options: Namespace) -> None:
    """Describe a vocabulary."""
    settings = corpus_of(options, required=False)
    inputs = settings.pop("inputs")
    corpus = None
    with observing(options.quiet) as observer:
        tokenizer = Tokenizer.from_pretrained(options.tokenizer, **description(options))
        if inputs:
            corpus = inspect_corpus(tokenizer, count_pretokens(tokenizer, inputs, observer, **settings))
        figures = inspect_vocab(tokenizer)
    if options.json:
        print_json({**fields_of(figures), "corpus": corpus})
        return
    console = output_console()
    _print_vocab(console, figures)
    if figures.merge_counts and (unit := count_unit(report_of_tokenizer(options.tokenizer))):
        console.print(unit)
    if corpus:
        _print_corpus(console, corpus)


def _print_vocab(console: Console, figures: VocabFigures) -> None:
    unused = f", {figures.unused_ids:,} of them without a token" if figures.unused_ids else ""
    specials = [f"{one_line(token)} ({token_id})" for token, token_id in figures.special_tokens.items()]
    more = f" … {len(specials) - LISTED:,} more" if len(specials) > LISTED else ""
    fields = [
        ("vocabulary", f"{format_count(figures.ids, 'id')}{unused}; {format_count(figures.merges, 'merge')}"),
        ("special", f"{', '.join(specials[:LISTED]) or 'none'}{more}"),
        ("incomplete UTF-8", f"{format_count(len(figures.incomplete), 'token')}: {list_tokens(figures.incomplete)}"),
        *_of_several_words(figures),
    ]
    unreached: dict[str, list[VocabToken]] = {}
    for token in figures.never:
        unreached.setdefault(_REASONS[token.reason], []).append(token)
    label = "never reached"
    for why, tokens in unreached.items():
        fields.append((label, f"{format_count(len(tokens), 'token')}: {why}: {list_tokens(tokens)}"))
        label = ""
    if unproved := figures.unproved:
        why = "their own text does not yield them, other text may"
        fields.append(("perhaps reached", f"{format_count(len(unproved), 'token')}: {why}: {list_tokens(unproved)}"))
    print_fields(console, fields)
    for heading, entries in (("bytes", _by_length(figures.lengths)), ("script", figures.scripts)):
        console.print()
        rows = [(label, f"{count:,}") for label, count in entries.items()]
        print_bars(console, (heading, "tokens"), rows, [*entries.values()])
    console.print()
    longest = [(f"{len(token.bytes):,}", join_tokens([token.bytes]), str(token.id)) for token in figures.longest]
    print_table(console, ("bytes", "longest tokens", "id"), longest, "rlr")
    if figures.merge_counts:
        console.print()
        merges = [
            (f"{m.rank:,}", "unknown" if m.count is None else f"{m.count:,}", join_tokens([m.left, m.right], " + "))
            for m in figures.merge_counts
        ]
        print_table(console, ("rank", "training count", "merge"), merges, "rrl")


def _of_several_words(figures: VocabFigures) -> list[tuple[str, str]]:
    several = {words: tokens for words, tokens in figures.words.items() if words > 1}
    by_words = ", ".join(f"{tokens:,} of {words}" for words, tokens in several.items())
    return [("several words", f"{format_count(sum(several.values()), 'token')}: {by_words} words")] if several else []


def _print_corpus(console: Console, figures: CorpusFigures) -> None:
    pretokens = f"{figures.pretokens:,} pre-tokens, {figures.distinct_pretokens:,} distinct"
    used, unused = format_count(len(figures.used), "token"), figures.unused
    fields = [
        ("corpus", f"{format_size(figures.bytes)} in {pretokens}"),
        ("", f"{format_count(figures.tokens, 'token')}, {figures.bytes_per_token:.3f} bytes per token"),
        ("used", f"{used}; {len(unused):,} unused: {list_tokens(unused)}"),
    ]
    console.print()
    print_fields(console, fields)
    console.print()
    frequent = [
        (f"{token.count:,}", f"{token.count / figures.tokens:.2%}", join_tokens([token.bytes]), str(token.id))
        for token in figures.used[:LISTED]
    ]
    print_table(console, ("count", "share", "most frequent tokens", "id"), frequent, "rrlr")
    if prefixes := figures.prefixes:
        console.print()
        rows = [(f"{prefix.entries:,}", f"{prefix.tokens:,}", f"{prefix.bytes_per_token:.3f}") for prefix in prefixes]
        headings = ("entries of the vocabulary", "tokens", "bytes per token")
        print_bars(console, headings, rows, [prefix.bytes_per_token for prefix in prefixes])


def _by_length(lengths: dict[int, int]) -> Counter[str]:
    """Return the number of tokens of each length; long ones share a row."""
    groups: Counter[str] = Counter()
    for length, tokens in lengths.items():
        groups[f"{length:,}" if length <= _OWN_BAR else f"over {_OWN_BAR}"] += tokens
    return groups
