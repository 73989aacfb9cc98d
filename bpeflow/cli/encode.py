"""`bpeflow encode`: encode a corpus to a token file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bpeflow._util.text import format_count, format_size, one_line
from bpeflow.cli.options import (
    add_corpus_flags,
    add_engine_flags,
    add_invalid_utf8_flag,
    add_output_flag,
    add_quiet_flag,
    add_separator_flag,
    add_tokenizer_flag,
    count,
    description,
    number,
    parse_with_corpus,
    size,
)
from bpeflow.cli.parser import Parser, new_parser
from bpeflow.cli.progress import observing, summary
from bpeflow.dataset.encode import encode_file
from bpeflow.dataset.facade import Tokenizer

if TYPE_CHECKING:
    from bpeflow.cli.progress import Summary
    from bpeflow.dataset.encode import EncodedCorpus

#: The most files that the summary lists by name.
_LISTED_FILES = 6

_DESCRIPTION = """\
Encode a corpus to a token file: the ids of its documents, concatenated, as little-endian uint16 or uint32. A JSON
sidecar (train.bin.json) describes it; --index also writes where each document starts (train.bin.idx, uint64).

--shard_tokens divides the file into train_000000.bin and so on, between documents, and --val_fraction chooses documents
at random for val.bin. --engine ray encodes on a Ray cluster.

  bpeflow encode --tokenizer runs/owt --input 'corpus/*.txt' --out train.bin
  bpeflow encode --tokenizer runs/mix --config mix.yaml --out train.bin
  bpeflow encode --tokenizer runs/owt --input owt/ --out train.bin --shard_tokens 100m --val_fraction 0.005
  bpeflow encode --tokenizer runs/owt --input owt/ --out owt.bin --format megatron
  bpeflow encode --tokenizer runs/owt --input /shared/owt --out /shared/train.bin --engine ray
  bpeflow encode --tokenizer runs/owt --input web/ --special_tokens_as_text --separator '' --out web.bin
"""


def make_parser() -> Parser:
    """Return the parser of the command's flags."""
    parser = new_parser("encode", _DESCRIPTION)
    add_tokenizer_flag(parser)
    parser.add_argument(
        "--input", metavar="PATH", nargs="+", dest="inputs",
        help="files, folders, globs, @lists, URLs, or - for standard input, encoded in the order given",
    )  # fmt: skip
    add_corpus_flags(parser)
    add_output_flag(parser, "token file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace existing token files")
    parser.add_argument(
        "--format", metavar="NAME",
        help="bin (the ids alone), npy, or megatron (Megatron-LM's train.bin and train.idx) (default: npy if the name "
        "ends in .npy, else bin)",
    )  # fmt: skip
    parser.add_argument(
        "--shard_tokens", metavar="N", type=count, help="divide into files of at most N tokens, e.g. 100m"
    )
    parser.add_argument(
        "--val_fraction", metavar="P", type=float, default=0.0,
        help="probability with which a document goes to val.bin instead, e.g. 0.005 (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", metavar="N", type=int, default=0, help="chooses other documents for validation (default: 0)"
    )
    parser.add_argument("--dtype", metavar="NAME", default="auto", help="auto, uint16 or uint32 (default: auto)")
    add_separator_flag(parser)
    parser.add_argument(
        "--end_token",
        metavar="TOKEN",
        help="special token that replaces separators and ends every document; '' for none (default: the separator, "
        "and the last document ends as in its file)",
    )
    parser.add_argument(
        "--special_tokens_as_text", action="store_true",
        help="encode special tokens in documents as ordinary text; for untrusted corpora",
    )  # fmt: skip
    add_invalid_utf8_flag(parser)
    parser.add_argument("--index", action="store_true", help="also write where each document starts")
    parser.add_argument(
        "--threads", metavar="N", type=number, dest="num_threads", help="encoder threads (default: one per core)"
    )
    parser.add_argument(
        "--chunk_size", metavar="SIZE", type=size, help="text per encoder and step, e.g. 8mb; decides the memory needed"
    )
    add_engine_flags(parser)
    add_quiet_flag(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Encode a corpus."""
    options = parse_with_corpus(make_parser(), argv)
    quiet, path, described = options.pop("quiet"), options.pop("tokenizer"), description(options)
    with observing(quiet) as observer:
        corpus = encode_file(
            Tokenizer.load(path, **described), options.pop("inputs"), options.pop("out"), observer=observer, **options
        )
    with summary(quiet) as lines:
        _print_summary(lines, corpus)
    return 0


def _print_summary(lines: Summary, corpus: EncodedCorpus) -> None:
    stored = corpus.input_bytes or corpus.bytes  # the size of standard input is unknown
    other_size = format_size(stored) != format_size(corpus.bytes)
    rate = f"{format_size(stored / max(corpus.seconds, 1e-9))}/s{' of input' if other_size else ''}"
    size = format_size(corpus.bytes) + (f" of text from {format_size(stored)}" if other_size else "")
    skipped = f", {corpus.skipped_documents:,} skipped" if corpus.skipped_documents else ""
    bad_records = f", {format_count(corpus.bad_records, 'bad record')} left out" if corpus.bad_records else ""
    documents = format_count(corpus.documents, "document") + skipped + bad_records
    lines.line(
        "encoded",
        f"{size} in {corpus.seconds:.1f} s, {rate}, "
        f"{format_count(corpus.tokens, 'token')} ({corpus.dtype}) in {documents}",
    )
    if corpus.val_documents:
        lines.line(
            "",
            f"of these {format_count(corpus.val_tokens, 'token')} in "
            f"{format_count(corpus.val_documents, 'document')} for validation",
        )
    lines.line("written", one_line(_list_files(corpus.written)))


def _list_files(paths: Sequence[Path]) -> str:
    if len(paths) <= _LISTED_FILES:
        return ", ".join(map(str, paths))
    return f"{paths[0]} … {paths[-1]} ({len(paths):,} files)"
