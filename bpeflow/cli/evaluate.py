"""`bpeflow evaluate`: compare tokenizers on corpora."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from bpeflow._util.text import short_names
from bpeflow.cli.parser import Parser, add_description_flags, add_json_flag, add_quiet_flag, description, size
from bpeflow.cli.progress import observing
from bpeflow.cli.settings import add_corpus_flags, corpus_of
from bpeflow.dataset.evaluate import evaluate
from bpeflow.look.render import output_console, print_json
from bpeflow.tokenizer.tokenizer import Tokenizer

_DESCRIPTION = """\
Measure every tokenizer on every corpus: bytes per token, also relative to a baseline; tokens per word (delimited by
white space), single-byte tokens, vocabulary entries in use, and speed on one thread (on the first 16 MB). Special
tokens are left out.

  bpeflow evaluate --tokenizer runs/mine runs/other --input web.txt code.txt
  bpeflow evaluate --tokenizer runs/mine --baseline gpt2/tokenizer.json --input docs.jsonl.zst --for_size 12gb
"""


def evaluate_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("evaluate", _DESCRIPTION, "--tokenizer PATH ... --input PATH ... [flags]")
    parser.add_argument(
        "--tokenizer", metavar="PATH", required=True, nargs="+", action="extend",
        help="run folders, tokenizers in any known format, or published names, e.g. gpt2; repeatable",
    )  # fmt: skip
    add_description_flags(parser)
    parser.add_argument(
        "--baseline", metavar="PATH",
        help="tokenizer to compare with, one of these or a further one (default: the first of several)",
    )  # fmt: skip
    add_corpus_flags(parser)
    parser.add_argument(
        "--for_size", metavar="SIZE", type=size, help="also estimate the time to encode this much text, e.g. 12gb"
    )
    add_json_flag(parser)
    add_quiet_flag(parser)
    return parser


def run_evaluate(options: Namespace) -> None:
    """Measure tokenizers."""
    corpus = corpus_of(options)
    with observing(options.quiet) as observer:
        paths, described = options.tokenizer, description(options)
        tokenizers: Any = paths
        if any(described.values()):
            names = short_names(paths)
            tokenizers = {names[path]: Tokenizer.from_pretrained(path, **described) for path in dict.fromkeys(paths)}
        report = evaluate(tokenizers, corpus.pop("inputs"), baseline=options.baseline, observer=observer, **corpus)
    if options.json:
        print_json(report.to_dict(options.for_size))
        return
    report.print_to(output_console(), options.for_size)
