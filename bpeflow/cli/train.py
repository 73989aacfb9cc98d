"""`bpeflow train`, the default command: count a corpus, learn the merges, write the tokenizer."""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from bpeflow._util.text import one_line
from bpeflow.cli.parser import Parser
from bpeflow.cli.settings import add_run_flags, settings_of
from bpeflow.config import Settings, load_values
from bpeflow.errors import ConfigError, CorpusError, FolderInUseError, FormatError, ScratchError, WorkerDiedError

if TYPE_CHECKING:
    from bpeflow.progress import Observer
    from bpeflow.training.train import TrainResult

log = logging.getLogger(__name__)

_DESCRIPTION = """\
Train a byte-level BPE tokenizer: count the pre-tokens of a corpus, learn merges, write vocab.json and merges.txt.

  bpeflow --config configs/quickstart.yaml
  bpeflow --config configs/owt.yaml --backend omp --num_counter 8 --do_monitor
  bpeflow --input corpus/*.txt --vocab_size 32000 --out_dir runs/mine
  bpeflow --input corpus/*.txt --init_from cl100k_base.tiktoken --vocab_size 110k --out_dir runs/more
"""


def train_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("train", _DESCRIPTION)
    add_run_flags(parser)
    return parser


def run_train(options: Namespace) -> None:
    """Train as the flags and the config say."""
    flags = settings_of(options)
    if not flags and options.config is None:
        raise ConfigError("nothing to train on: give --input PATH or --config FILE (see bpeflow train --help)")
    from bpeflow.run_dir.resume import make_run_settings
    from bpeflow.training.train import train

    settings = make_run_settings(load_values(options.config, flags), str(options.config or ""), flags)
    run_training(settings, options.quiet, lambda observer: train(settings, observer))


def run_training(settings: Settings, quiet: bool, work: Callable[[Observer], TrainResult]) -> None:
    """Do `work` with progress shown, and print the summary of its result."""
    from bpeflow.cli.progress import observing, print_summary
    from bpeflow.run_dir.layout import REPORT_FILE
    from bpeflow.run_dir.resume import how_to_continue
    from bpeflow.run_dir.summary import describe_run

    if settings.out_dir is None:
        raise ConfigError("no output folder: give --out_dir FOLDER, or name one in the config")
    try:
        with observing(quiet) as observer:
            result = work(observer)
    except (ConfigError, CorpusError, FolderInUseError, FormatError):  # some of which are an OSError, too
        raise
    except (KeyboardInterrupt, OSError, ScratchError, WorkerDiedError):
        log.info("%s", how_to_continue(settings.out_dir))
        raise
    written = one_line(f"{settings.out_dir}: {', '.join([*result.report.files, REPORT_FILE])}")
    label = (
        "written" if result.learned is not None or settings.skip_merge else "kept"
    )  # by a run that was finished before
    print_summary([("", ""), *describe_run(result.report), (label, written)], quiet)
