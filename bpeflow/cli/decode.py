"""`bpeflow decode`: decode a token file to text."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from bpeflow._util.text import format_count, format_size, one_line
from bpeflow.cli.parser import Parser, add_output_flag, add_quiet_flag, add_tokenizer_flag, description
from bpeflow.cli.progress import observing, print_summary
from bpeflow.dataset.decode import decode_file
from bpeflow.tokenizer.tokenizer import Tokenizer

_DESCRIPTION = """\
Decode a token file to the text that it was made from. End tokens become their text. The name of a set of shards
(train.bin for train_000000.bin and so on) decodes all of them.

  bpeflow decode --tokenizer runs/owt --input train.bin --out train.txt
"""


def make_parser() -> Parser:
    """Return the parser of the command's flags."""
    parser = Parser("decode", _DESCRIPTION)
    add_tokenizer_flag(parser)
    parser.add_argument("--input", metavar="FILE", type=Path, required=True, dest="source", help="token file to read")
    add_output_flag(parser, "text file to write")
    parser.add_argument(
        "--any_tokenizer", action="store_true", help="decode even if the file was encoded with another tokenizer"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing text file")
    add_quiet_flag(parser)
    return parser


def run(options: Namespace) -> None:
    """Decode a token file."""
    with observing(options.quiet) as observer:
        tokenizer = Tokenizer.load(options.tokenizer, **description(options))
        decoded = decode_file(
            tokenizer,
            options.source,
            options.out,
            any_tokenizer=options.any_tokenizer,
            overwrite=options.overwrite,
            observer=observer,
        )
    rate = format_size(decoded.bytes / max(decoded.seconds, 1e-9))
    tokens = f"{format_count(decoded.tokens, 'token')} in {decoded.seconds:.1f} s to {format_size(decoded.bytes)}"
    print_summary([("decoded", f"{tokens}, {rate}/s"), ("written", one_line(str(options.out)))], options.quiet)
