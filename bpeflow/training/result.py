"""The result of a training run: `TrainResult`, and the parts of its report, from what counting and learning return."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bpeflow import __version__
from bpeflow._util.machine import available_cores
from bpeflow.config import Settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.run_dir.run_report import (
    BackendReport,
    LearningReport,
    RunReport,
    TokenReport,
    Versions,
)
from bpeflow.training.learn import LearnedMerges
from bpeflow.vocab import Merge, Vocab

if TYPE_CHECKING:
    from bpeflow.dataset.facade import Tokenizer


@dataclass(frozen=True)
class TrainResult:
    """The result of a training run.

    Attributes:
        spec: the content of the tokenizer of the largest size asked for; None with `skip_merge`.
        report: what ``run.json`` holds.
        counts: the pre-token counts.
        learned: the merges with their counts and the backend's statistics; None with `skip_merge`, and where `resume`
            finds a finished run.

    >>> from bpeflow import train
    >>> result = train({"input": iter(["low low low", "lower"]), "vocab_size": 258})
    >>> result.merges, len(result.vocab), result.report.learning.learned
    (((b'o', b'w'),), 258, 1)
    >>> result.tokenizer.encode("low")
    [108, 257]
    """

    spec: TokenizerSpec | None
    report: RunReport = field(repr=False)
    counts: PretokenCounts = field(repr=False)
    learned: LearnedMerges | None = field(default=None, repr=False)

    @property
    def vocab(self) -> Vocab | None:
        """The vocabulary; None with `skip_merge`."""
        return self.spec.vocab if self.spec else None

    @property
    def merges(self) -> tuple[Merge, ...]:
        """The merges by rank; empty with `skip_merge`."""
        return self.spec.vocab.merges if self.spec else ()

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            ConfigError: with `skip_merge` the run has no vocabulary.
        """
        from bpeflow import Tokenizer  # the public class, which trains

        if self.spec is None:
            raise ConfigError("skip_merge leaves no vocabulary for a tokenizer; train without it")
        return Tokenizer.from_spec(self.spec)


def start_report(settings: Settings) -> RunReport:
    """Return a report with everything that is known before the work: settings and versions."""
    system = os.uname()
    return RunReport(
        bpeflow=__version__,
        command=tuple(sys.argv),
        settings=settings.model_dump(mode="json"),
        versions=Versions(
            python=".".join(map(str, sys.version_info[:3])),
            numpy=np.__version__,
            regex=getattr(sys.modules.get("regex"), "__version__", None),
            platform=" ".join((system.sysname, system.release, system.machine)),
            cores=available_cores(),
        ),
    )


def describe_learning(
    learned: LearnedMerges, vocab: Vocab, seconds: float, fingerprint: dict[str, Any]
) -> LearningReport:
    """Describe the merges that were learned."""
    longest = vocab.longest_token
    new = len(learned) - learned.replayed
    return LearningReport(
        replayed=learned.replayed,
        resumed=learned.resumed,
        learned=new,
        wanted=learned.wanted,
        seconds=seconds,
        lowest_count=learned.counts[-1] if new else None,
        backend=BackendReport.of(learned.backend, learned.statistics),
        vocab_size=len(vocab),
        longest_token=TokenReport(text=longest.decode(errors="replace"), bytes=len(longest), hex=longest.hex()),
        fingerprint=fingerprint,
        thinned=learned.thinned,
    )
