"""`bpeflow train`, the default command: count a corpus, learn the merges, write the tokenizer."""

from __future__ import annotations

from argparse import Namespace

from bpeflow.cli.parser import Parser
from bpeflow.cli.progress import run_training, set_up_logging
from bpeflow.cli.settings import add_run_flags, settings_of
from bpeflow.config import load_values

_DESCRIPTION = """\
Train a byte-level BPE tokenizer: count the pre-tokens of a corpus, learn merges, write vocab.json and merges.txt.

  bpeflow --config configs/quickstart.yaml
  bpeflow --config configs/quickstart.yaml --backend omp --num_counter 8 --do_monitor
  bpeflow --input 'corpus/*.txt' --vocab_size 32000 --out_dir runs/mine
  bpeflow --input 'corpus/*.txt' --init_from cl100k_base.tiktoken --vocab_size 110k --out_dir runs/more
"""


def train_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("train", _DESCRIPTION, "--input PATH ... --vocab_size N --out_dir FOLDER [flags]")
    add_run_flags(parser)
    return parser


def run_train(options: Namespace) -> None:
    """Train as the flags and the config say."""
    flags = settings_of(options)
    set_up_logging(options.quiet)
    values = load_values(options.config, flags)
    from bpeflow.run_dir.resume import counts_to_resume, make_run_settings
    from bpeflow.training.train import train

    if (counts := counts_to_resume(values)) is not None:
        from bpeflow.cli.merge import merge

        merge(counts, options.config, flags, options.quiet)
        return
    settings = make_run_settings(values)
    run_training(settings, options.quiet, lambda observer: train(settings, observer))
