"""`bpeflow train`, the default command: count a corpus, learn the merges, write the tokenizer."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from bpeflow.cli.parser import Parser
from bpeflow.cli.progress import set_up_logging
from bpeflow.cli.settings import add_run_flags, settings_of
from bpeflow.config import load_values
from bpeflow.errors import ConfigError

_DESCRIPTION = """\
Train a byte-level BPE tokenizer: count the pre-tokens of a corpus, learn merges, write vocab.json and merges.txt.

  bpeflow --config configs/quickstart.yaml
  bpeflow --config configs/quickstart.yaml --backend omp --num_counter 8 --do_monitor
  bpeflow --input 'corpus/*.txt' --vocab_size 32000 --out_dir runs/mine
  bpeflow --input 'corpus/*.txt' --init_from cl100k_base.tiktoken --vocab_size 110k --out_dir runs/more
"""

#: Valid values in place of missing settings, for checking those that are given.
_ANY = {"input": ".", "vocab_size": 1_000_000, "out_dir": "."}


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
    from bpeflow.cli.training import run_training
    from bpeflow.run_dir.resume import counts_to_resume, make_run_settings
    from bpeflow.training.train import train

    if (counts := counts_to_resume(values)) is not None:
        from bpeflow.cli.merge import merge

        merge(counts, options.config, flags, options.quiet)
        return
    missing = _missing(values)
    where = str(options.config or "")
    hint = "; without input, --resume takes them from the run" if values.get("resume") else ""
    settings = make_run_settings({**values, **{key: _ANY[key] for key in missing}}, where, flags)  # its mistakes first
    if missing and where:
        raise ConfigError(f"missing in {where}, and not given as flags: {', '.join(missing)}{hint}")
    if missing:
        named = ", ".join(f"--{key}" for key in missing)
        raise ConfigError(f"missing: {named}, as flags or in a --config FILE (see bpeflow train --help){hint}")
    run_training(settings, options.quiet, lambda observer: train(settings, observer))


def _missing(values: Mapping[str, Any]) -> list[str]:
    """Return the keys of required settings that are missing."""
    given = {key for key, value in values.items() if value is not None and value != []}
    if values.get("resume") and given.isdisjoint({"input", "sources"}):
        return []  # the run has its own settings
    sizes = {"vocab_size", "vocab_sizes"} | ({"skip_merge"} if values.get("skip_merge") else set())
    alternatives = {"input": {"input", "sources"}, "vocab_size": sizes, "out_dir": {"out_dir"}}
    return [key for key, keys in alternatives.items() if given.isdisjoint(keys)]
