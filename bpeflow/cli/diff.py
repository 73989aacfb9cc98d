"""`bpeflow diff`: compare two vocabularies."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from bpeflow._util.text import format_count, format_size, one_line, short_names, show_token
from bpeflow.cli.parser import Parser, add_quiet_flag
from bpeflow.cli.progress import observing
from bpeflow.cli.settings import add_corpus_flags, corpus_of
from bpeflow.cli.tables import TOKEN_WIDTH, list_tokens, output_console, print_fields, print_table
from bpeflow.errors import ConfigError
from bpeflow.look.difference import (
    Block,
    PretokenDifference,
    VocabDifference,
    compare_pretokens,
    compare_texts,
    compare_vocabs,
)
from bpeflow.look.render import to_json
from bpeflow.look.usage import count_pretokens, token_occurrences
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Merge

_DESCRIPTION = """\
Compare two vocabularies: the tokens and merges that they share, the first rank at which the merges differ, and how they
split text differently.

--text shows their tokens of a text side by side, where they differ. --input shows their bytes per token on a corpus,
and the most frequent pre-tokens that they divide differently. (Those are the pre-tokens of the first tokenizer.)

  bpeflow diff runs/small runs/large --text 'an unbelievable story'
  bpeflow diff runs/owt r50k_base.tiktoken --input held_out.txt
"""

#: Pre-tokens that are shown.
_PRETOKENS = 20


def diff_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("diff", _DESCRIPTION, "A B [flags]")
    for name, which in (("first", "A"), ("second", "B")):
        parser.add_argument(name, metavar=which, type=Path, help="run folder, or tokenizer in any known format")
    parser.add_argument("--text", metavar="TEXT", help="text to encode with both")
    add_corpus_flags(parser)
    parser.add_argument("--json", action="store_true", help="print everything as JSON, with all tokens of all lists")
    add_quiet_flag(parser)
    return parser


def run_diff(options: Namespace) -> None:
    """Compare two vocabularies."""
    settings = corpus_of(options, required=False)
    paths, inputs, text = [options.first, options.second], settings.pop("inputs"), options.text
    names = [*short_names(list(map(str, paths))).values()]
    if len(names) == 1:
        raise ConfigError(f"{paths[0]} is given twice: need two tokenizers")
    if "-" in inputs:
        raise ConfigError("standard input can be read only once: save it to a file, and give that as --input")
    with observing(options.quiet) as observer:
        tokenizers = [Tokenizer.load(path) for path in paths]
        difference = compare_vocabs(tokenizers[0], tokenizers[1])
        content: dict[str, Any] = {"tokenizers": names, "vocabulary": to_json(difference)}
        parts: list[_Part] = []
        if text is not None:
            explained = [tokenizer.explain(text) for tokenizer in tokenizers]
            blocks = [block for block in compare_texts(explained[0], explained[1]) if block.differs]
            tokens = [len(explanation.tokens) for explanation in explained]
            content["text"] = {"tokens": tokens, "blocks": to_json(blocks)}
            parts.append(_Part("text", [len(text.encode())] * 2, tokens, "bytes", map(_block_row, blocks)))
        if inputs:
            counts = [count_pretokens(tokenizers[0], inputs, observer, **settings)]
            alike = not difference.splits_differ
            counts += counts if alike else [count_pretokens(tokenizers[1], inputs, observer, **settings)]
            tokens = [int(token_occurrences(*pair).sum()) for pair in zip(tokenizers, counts, strict=True)]
            sizes = [of_one.total_bytes for of_one in counts]
            words = list(islice(compare_pretokens(tokenizers[0], tokenizers[1], counts[0]), _PRETOKENS))
            content["corpus"] = {"bytes": sizes, "tokens": tokens, "pretokens": to_json(words)}
            parts.append(_Part("corpus", sizes, tokens, "count", map(_word_row, words)))
    if options.json:
        json.dump(content, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    console = output_console()
    print_fields(console, _fields(difference, names))
    for part in parts:
        part.print(console)


class _Part(NamedTuple):
    """How much of a text or a corpus the tokens of both take, and rows of those that differ."""

    title: str
    sizes: Sequence[int]
    tokens: Sequence[int]
    heading: str
    rows: Iterable[tuple[str, ...]]

    def print(self, console: Console) -> None:
        """Print the sizes and the rows."""
        console.print(Text(f"\n{self.title}", "bold"))
        ratios = []
        for letter, size, number in zip("AB", self.sizes, self.tokens, strict=True):
            ratio = f", {size / number:.3f} bytes per token" if number else ""
            ratios.append((letter, f"{format_count(number, 'token')} for {format_size(size)}{ratio}"))
        print_fields(console, ratios)
        if rows := list(self.rows):
            print_table(console, (self.heading, "A", "B"), rows, "rll")
        else:
            console.print("both divide it in the same way")


def _block_row(block: Block) -> tuple[str, ...]:
    sides = (" ".join(f"{_token(token.bytes)}:{token.id}" for token in side) for side in (block.first, block.second))
    return (f"{block.span[0]}-{block.span[1]}", *sides)


def _word_row(word: PretokenDifference) -> tuple[str, ...]:
    return (f"{word.count:,}", *(" ".join(map(_token, side)) for side in (word.first, word.second)))


def _fields(difference: VocabDifference, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from zip("AB", map(one_line, names), strict=True)
    yield "tokens", f"{difference.shared:,} shared, {difference.same_ids:,} of them with the same id"
    for letter, tokens in (("A", difference.only_first), ("B", difference.only_second)):
        yield "", f"{len(tokens):,} only in {letter}: {list_tokens([token.bytes for token in tokens])}"
    yield "merges", f"{difference.shared_merges:,} shared"
    if difference.first_difference is None:
        yield "", "all of them, at the same ranks"
    else:
        there = [f"{letter}: {_merge(merge)}" for letter, merge in zip("AB", difference.merges_there, strict=True)]
        yield "", f"first difference at rank {difference.first_difference:,}: {'; '.join(there)}"
    for token, ids in difference.special_tokens.items():
        each = ", ".join(f"{letter}: {'none' if i is None else i}" for letter, i in zip("AB", ids, strict=True))
        yield "special", f"{one_line(token)} ({each})"
    for name, values in difference.settings.items():
        for letter, value in zip("AB", values, strict=True):
            yield name, f"{letter}: {one_line(str(value))}"


def _merge(merge: Merge | None) -> str:
    return "no more merges" if merge is None else " + ".join(map(_token, merge))


def _token(token: bytes) -> str:
    return show_token(token, TOKEN_WIDTH)
