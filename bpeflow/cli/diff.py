"""`bpeflow diff`: compare two vocabularies."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rich.console import Console
from rich.text import Text

from bpeflow._util.text import format_count, format_size, one_line, short_names
from bpeflow.cli.parser import Parser, add_json_flag, add_quiet_flag, add_tokenizer
from bpeflow.cli.progress import observing
from bpeflow.cli.settings import add_corpus_flags, corpus_of
from bpeflow.corpus.sources import check_rereadable
from bpeflow.errors import ConfigError
from bpeflow.look.difference import (
    Block,
    PretokenDifference,
    VocabDifference,
    compare_pretokens,
    compare_texts,
    compare_vocabs,
)
from bpeflow.look.render import join_tokens, output_console, print_fields, print_json, print_table
from bpeflow.look.usage import count_pretokens, count_settings, token_occurrences
from bpeflow.look.vocabulary import list_tokens
from bpeflow.tokenizer.tokenizer import Tokenizer

_DESCRIPTION = """\
Compare two vocabularies: the tokens and merges that they share, the first rank at which the merges differ, and how they
split text differently.

--text shows their tokens of a text side by side, where they differ. --input shows their bytes per token on a corpus,
and the most frequent pre-tokens that they divide differently. (Those are the pre-tokens of the first tokenizer.)

  bpeflow diff runs/small runs/large --text 'an unbelievable story'
  bpeflow diff runs/mine r50k_base.tiktoken --input held_out.txt
"""

#: Pre-tokens that are shown.
_PRETOKENS = 20


def diff_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("diff", _DESCRIPTION, "A B [flags]")
    add_tokenizer(parser, "first", "A")
    add_tokenizer(parser, "second", "B")
    parser.add_argument("--text", metavar="TEXT", help="text to encode with both")
    add_corpus_flags(parser)
    add_json_flag(parser)
    add_quiet_flag(parser)
    return parser


def run_diff(options: Namespace) -> None:
    """Compare two vocabularies."""
    settings = corpus_of(options, required=False)
    paths, inputs, text = [options.first, options.second], settings.pop("inputs"), options.text
    names = [*short_names(list(map(str, paths))).values()]
    if len(names) == 1:
        raise ConfigError(f"{paths[0]} is given twice: need two tokenizers")
    with observing(options.quiet) as observer:
        first, second = (Tokenizer.from_pretrained(path) for path in paths)
        difference = compare_vocabs(first, second)
        content: dict[str, Any] = {"tokenizers": names, "vocabulary": difference}
        if text is not None:
            explained = first.explain(text), second.explain(text)
            content["text"] = {
                "bytes": [len(text.encode())] * 2,
                "tokens": [len(explanation.tokens) for explanation in explained],
                "blocks": [block for block in compare_texts(*explained) if block.differs],
            }
        if inputs:
            check_rereadable(count_settings(first, {**settings, "input": inputs}).all_sources, "diff")
            counts = count_pretokens(first, inputs, observer, **settings)
            others = count_pretokens(second, inputs, observer, **settings) if difference.splits_differ else counts
            content["corpus"] = {
                "bytes": [counts.total_bytes, others.total_bytes],
                "tokens": [int(token_occurrences(*pair).sum()) for pair in ((first, counts), (second, others))],
                "pretokens": [*islice(compare_pretokens(first, second, counts), _PRETOKENS)],
            }
    if options.json:
        print_json(content)
        return
    console = output_console()
    print_fields(console, _fields(difference, names))
    if part := content.get("text"):
        _print_part(console, "text", part, "bytes", [*map(_block_row, part["blocks"])])
    if part := content.get("corpus"):
        _print_part(console, "corpus", part, "count", [*map(_word_row, part["pretokens"])])


def _print_part(console: Console, title: str, part: Mapping[str, Any], heading: str, rows: Sequence[Any]) -> None:
    console.print(Text(f"\n{title}", "bold"))
    print_fields(console, zip("AB", map(_ratio, part["tokens"], part["bytes"]), strict=True))
    if rows:
        print_table(console, (heading, "A", "B"), rows, "rll")
    else:
        console.print("both divide it in the same way")


def _ratio(tokens: int, size: int) -> str:
    ratio = f", {size / tokens:.3f} bytes per token" if tokens else ""
    return f"{format_count(tokens, 'token')} for {format_size(size)}{ratio}"


def _block_row(block: Block) -> tuple[str, ...]:
    sides = [[f"{join_tokens([token.bytes])}:{token.id}" for token in side] for side in (block.first, block.second)]
    return (f"{block.span[0]}-{block.span[1]}", *map(" ".join, sides))


def _word_row(word: PretokenDifference) -> tuple[str, ...]:
    return (f"{word.count:,}", join_tokens(word.first), join_tokens(word.second))


def _fields(difference: VocabDifference, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from zip("AB", map(one_line, names), strict=True)
    yield "tokens", f"{difference.shared:,} shared, {difference.same_ids:,} of them with the same id"
    for letter, tokens in (("A", difference.only_first), ("B", difference.only_second)):
        yield "", f"{len(tokens):,} only in {letter}: {list_tokens(tokens)}"
    yield "merges", f"{difference.shared_merges:,} shared"
    if difference.first_difference is None:
        yield "", "all of them, at the same ranks"
    else:
        merges = [join_tokens(merge, " + ") if merge else "no more merges" for merge in difference.merges_there]
        there = [f"{letter}: {merge}" for letter, merge in zip("AB", merges, strict=True)]
        yield "", f"first difference at rank {difference.first_difference:,}: {'; '.join(there)}"
    for token, ids in difference.special_tokens.items():
        each = ", ".join(f"{letter}: {'none' if i is None else i}" for letter, i in zip("AB", ids, strict=True))
        yield "special", f"{one_line(token)} ({each})"
    for name, values in difference.settings.items():
        for letter, value in zip("AB", values, strict=True):
            yield name, f"{letter}: {one_line(str(value))}"
