"""`bpeflow convert` and `bpeflow counts`: tokenizers and counts in another format."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from bpeflow.cli.merge import read_counts
from bpeflow.cli.parser import Parser, add_description_flags, description
from bpeflow.cli.progress import set_up_logging
from bpeflow.cli.settings import add_settings, settings_of
from bpeflow.config import TransformersSettings
from bpeflow.formats import any_format, transformers
from bpeflow.run_dir.run_files import report_of_tokenizer
from bpeflow.tokenizer.tokenizer import Tokenizer

_CONVERT = """\
Write a tokenizer in another format: gpt2 (vocab.json, merges.txt and bpeflow.json), huggingface (tokenizer.json, and
in a folder the files that transformers reads beside it) or tiktoken (base64 ranks, with a JSON file for what they
lack). SRC is a run folder, or a file or folder in any of these formats. DST is the folder or file to
write.

  bpeflow convert runs/mine my_model --to huggingface --eos '<|endoftext|>'
  bpeflow convert runs/mine tokenizer.json
  bpeflow convert cl100k_base.tiktoken mine --to gpt2
  bpeflow convert ranks.tiktoken tokenizer.json --pattern llama3 --special_tokens '<|end|>'
"""


def convert_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("convert", _CONVERT, "SRC DST [flags]")
    parser.add_argument("source", metavar="SRC", type=Path, help="tokenizer to read, or its published name")
    parser.add_argument("target", metavar="DST", type=Path, help="folder or file to write")
    parser.add_argument(
        "--to", metavar="NAME",
        help="gpt2, huggingface (or hf) or tiktoken (default: by DST's ending, and gpt2 for a folder)",
    )  # fmt: skip
    add_description_flags(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace a tokenizer in DST")
    add_settings(parser, TransformersSettings, title="folder for transformers (--to huggingface)")
    return parser


def run_convert(options: Namespace) -> None:
    """Convert a tokenizer."""
    set_up_logging()
    spec = Tokenizer.from_pretrained(options.source, **description(options)).to_spec()
    given = settings_of(options)
    if any_format.takes_options(options.target, options.to):
        source, report = options.source.expanduser(), report_of_tokenizer(options.source)
        of_run = report.settings["output"] if report else {}
        known = {name: value for name, value in of_run.items() if name in TransformersSettings.model_fields}
        known |= transformers.options_of(source.parent if source.is_file() else source, spec.vocab.special_tokens)
        given = known | given
    for path in any_format.save(spec, options.target, options.to, options.overwrite, given):
        print(path)  # noqa: T201


# ---- counts ----

_COUNTS = """\
Convert pre-token counts between bpeflow's own format (.npz) and TSV (pre-token TAB count, with backslash escapes).
File name extensions select the formats.

  bpeflow counts runs/mine counts.tsv
"""


def counts_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("counts", _COUNTS, "SRC DST [flags]")
    parser.add_argument("source", metavar="SRC", type=Path, help="run folder, or counts as .npz or .tsv")
    parser.add_output("target", metavar="DST", help="counts to write")
    return parser


def run_counts(options: Namespace) -> None:
    """Convert counts."""
    counts = read_counts(options.source).counts
    counts.write(options.target)
    print(f"{options.target}: {len(counts):,} distinct pre-tokens, {counts.total:,} in total")  # noqa: T201
