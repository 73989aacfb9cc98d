"""`bpeflow encode` and `bpeflow decode`: a corpus to a token file, and back to text."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path

from bpeflow._util.text import format_count, format_size, one_line
from bpeflow.cli.parser import Parser, add_quiet_flag, add_tokenizer_flag, description, output_file
from bpeflow.cli.progress import observing, print_summary
from bpeflow.cli.settings import add_corpus_flags, corpus_of
from bpeflow.config.encoding import EncodeSettings
from bpeflow.dataset.decode import decode_file
from bpeflow.dataset.encode import encode_file
from bpeflow.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_ENCODE = """\
Encode a corpus to a token file: the ids of its documents, concatenated, as little-endian uint16 or uint32. A JSON
sidecar (train.bin.json) describes it; --index also writes where each document starts (train.bin.idx, uint64).

--shard_tokens divides the file into train_000000.bin and so on, between documents, and --val_fraction chooses documents
at random for val.bin. --engine ray encodes on a Ray cluster.

For untrusted JSON Lines, Parquet or files of one document each, add --special_tokens_as_text --separator ''
--end_token '<|endoftext|>'. Without a separator, a text file with several documents becomes a single one.

  bpeflow encode --tokenizer runs/mine --input 'corpus/*.txt' --out train.bin
  bpeflow encode --tokenizer runs/mix --config mix.yaml --out train.bin
  bpeflow encode --tokenizer runs/mine --input corpus/ --out train.bin --shard_tokens 100m --val_fraction 0.005
  bpeflow encode --tokenizer runs/mine --input corpus/ --out mine.bin --format megatron
  bpeflow encode --tokenizer runs/mine --input /shared/corpus --out /shared/train.bin --engine ray
"""


def encode_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("encode", _ENCODE, "--tokenizer PATH --input PATH ... --out FILE [flags]")
    add_tokenizer_flag(parser)
    parser.add_argument("--out", "-o", metavar="FILE", type=output_file, required=True, help="token file to write")
    add_corpus_flags(parser, EncodeSettings)
    add_quiet_flag(parser)
    return parser


def run_encode(options: Namespace) -> None:
    """Encode a corpus."""
    settings = corpus_of(options, EncodeSettings)
    try:
        with observing(options.quiet) as observer:
            tokenizer = Tokenizer.from_pretrained(options.tokenizer, **description(options))
            encoded = encode_file(tokenizer, settings.pop("inputs"), options.out, observer=observer, **settings)
    except BaseException as error:
        for note in getattr(error, "__notes__", ()):
            log.info("%s", note)
        raise
    print_summary(encoded.describe(), options.quiet)


# ---- decode ----

_DECODE = """\
Decode a token file to the text that it was made from. End tokens become their text. The name of a set of shards
(train.bin for train_000000.bin and so on) decodes all of them.

  bpeflow decode --tokenizer runs/mine --input train.bin --out train.txt
"""


def decode_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("decode", _DECODE, "--tokenizer PATH --input FILE --out FILE [flags]")
    add_tokenizer_flag(parser)
    parser.add_argument(
        "--input", "-i", metavar="FILE", type=Path, required=True, dest="source", help="token file to read"
    )
    parser.add_output("--out", "-o", metavar="FILE", required=True, help="text file to write")
    parser.add_argument(
        "--any_tokenizer", action="store_true", help="decode even if the file was encoded with another tokenizer"
    )
    add_quiet_flag(parser)
    return parser


def run_decode(options: Namespace) -> None:
    """Decode a token file."""
    with observing(options.quiet) as observer:
        tokenizer = Tokenizer.from_pretrained(options.tokenizer, **description(options))
        decoded = decode_file(
            tokenizer,
            options.source,
            options.out,
            any_tokenizer=options.any_tokenizer,
            observer=observer,
        )
    rate = format_size(decoded.bytes / max(decoded.seconds, 1e-9))
    tokens = f"{format_count(decoded.tokens, 'token')} in {decoded.seconds:.1f} s to {format_size(decoded.bytes)}"
    print_summary([("decoded", f"{tokens}, {rate}/s"), ("written", one_line(str(options.out)))], options.quiet)
