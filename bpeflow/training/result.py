"""`TrainResult`: what a training run returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.run_dir.report import RunReport
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
