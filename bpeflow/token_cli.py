"""The flags of the commands that use a tokenizer: encode, decode, evaluate. What they do is in `token_commands`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bpeflow.flags import new_parser, number, size

_ENCODE = """\
Encode a corpus to a token file: the ids of its documents, one after another, as little-endian uint16 or uint32. Beside
it stands what it is, as JSON (train.bin.json), and with --index where each document starts (train.bin.idx, uint64).

  python -m bpeflow encode --tokenizer runs/owt --input 'corpus/*.txt' --out train.bin
  python -m bpeflow encode --tokenizer runs/owt --input web/ --special_tokens_as_text --separator '' --out web.bin
"""
_DECODE = """\
Decode a token file to the text that it was made of. End tokens become their text.

  python -m bpeflow decode --tokenizer runs/owt --input train.bin --out train.txt
"""
_EVALUATE = """\
Measure tokenizers on corpora, every one on every one, in one thread: bytes per token, tokens per word (between white
space), tokens of a single byte, entries of the vocabulary in use, speed, the time for 82 GB, and the longest tokens.

  python -m bpeflow evaluate --tokenizer runs/owt runs/tinystories --input owt.txt tinystories.txt
"""


def encode_command(argv: Sequence[str]) -> int:
    """Encode a corpus."""
    parser = new_parser("python -m bpeflow encode", _ENCODE)
    _tokenizer_flag(parser)
    parser.add_argument(
        "--input", metavar="PATH", nargs="+", required=True, dest="inputs",
        help="files, folders, globs, @lists, URLs, or - for standard input; documents keep the order in which they are "
        "named",
    )  # fmt: skip
    parser.add_argument(
        "--input_format", metavar="NAME", choices=["auto", "text", "jsonl", "parquet"], default="auto",
        help="auto (by the files' names), text, jsonl or parquet",
    )  # fmt: skip
    parser.add_argument("--text_field", metavar="NAME", default="text", help="field of JSON Lines with the text")
    parser.add_argument("--text_column", metavar="NAME", default="text", help="column of Parquet with the text")
    _out_flag(parser, "the token file to write")
    parser.add_argument("--dtype", metavar="NAME", default="auto", help="auto, uint16 or uint32 (default: auto)")
    _separator_flag(parser)
    parser.add_argument(
        "--end_token", metavar="TOKEN", help="special token that ends each document; '' for none (default: separator)"
    )
    parser.add_argument(
        "--special_tokens_as_text", action="store_true", help="in documents; for a corpus not to be trusted with them"
    )
    parser.add_argument(
        "--invalid_utf8", metavar="POLICY", default="error",
        help="input that is not UTF-8: error, replace, or skip the document (default: error)",
    )  # fmt: skip
    parser.add_argument("--index", action="store_true", help="write where each document starts, too")
    parser.add_argument("--threads", metavar="N", type=number, help="how many encode (default: one per core)")
    parser.add_argument(
        "--chunk_size", metavar="SIZE", type=size, help="text that each takes at a time, such as 8mb; sets the memory"
    )
    _quiet_flag(parser)
    options = parser.parse_args(argv)
    from bpeflow import token_commands

    return token_commands.encode(**vars(options))


def decode_command(argv: Sequence[str]) -> int:
    """Decode a token file."""
    parser = new_parser("python -m bpeflow decode", _DECODE)
    _tokenizer_flag(parser)
    parser.add_argument("--input", metavar="FILE", type=Path, required=True, dest="source", help="the token file")
    _out_flag(parser, "the text to write")
    parser.add_argument("--any_tokenizer", action="store_true", help="decode even if another tokenizer has encoded")
    _quiet_flag(parser)
    options = parser.parse_args(argv)
    from bpeflow import token_commands

    return token_commands.decode(**vars(options))


def evaluate_command(argv: Sequence[str]) -> int:
    """Measure tokenizers."""
    parser = new_parser("python -m bpeflow evaluate", _EVALUATE)
    parser.add_argument(
        "--tokenizer", metavar="PATH", type=Path, required=True, nargs="+", action="extend", dest="tokenizers",
        help="run folders, or any others that convert reads; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--input", metavar="PATH", required=True, nargs="+", action="extend", dest="inputs",
        help="files, folders and globs, each of them a corpus; may be repeated",
    )  # fmt: skip
    _separator_flag(parser)
    parser.add_argument("--json", metavar="FILE", type=Path, dest="json_path", help="where to write all figures to")
    _quiet_flag(parser)
    options = parser.parse_args(argv)
    from bpeflow import token_commands

    return token_commands.evaluate(**vars(options))


def _tokenizer_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tokenizer", metavar="PATH", type=Path, required=True, help="a run folder, or any other that convert reads"
    )


def _out_flag(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help=what)


def _separator_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--separator", metavar="TEXT",
        help="what ends documents; '' for nothing but the ends of files (default: the first special token)",
    )  # fmt: skip


def _quiet_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
