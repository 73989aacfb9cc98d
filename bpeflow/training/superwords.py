"""Superwords (SuperBPE): after a first stage, learning continues over the chunks of a second, looser pattern.

A run with superwords is two runs. The first one, in the subfolder `FIRST_STAGE` of the unfinished run, counts with the
first pattern and learns `transition_size` entries. The second one extends that tokenizer: it counts with the second
pattern, and learns from these chunks as the first stage's merges leave them. So each stage is counted, resumed and
reported as any run. The files of the first stage are among the results of the second, and published with them.

The second stage encodes whole chunks of the second pattern with the merges of the first stage, without the first
pattern: that is how the finished tokenizer will encode. Encoding along the first pattern gives other tokens in some
places.

Source: Liu et al. 2025, SuperBPE, arXiv 2503.13423.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bpeflow._util.text import Pattern, format_size
from bpeflow.config import Settings
from bpeflow.errors import ConfigError
from bpeflow.formats import any_format as formats
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.run_dir.layout import FIRST_STAGE
from bpeflow.run_dir.run_files import read_report
from bpeflow.vocab import Vocab

#: Documents of an iterator, which can be read only once, are kept in memory up to this many bytes of text.
SMALL_ITERATOR = 100_000_000


def first_stage_settings(settings: Settings, within: Path | None) -> Settings:
    """Return the settings of the run that learns the first stage, in a subfolder of the folder given."""
    of_second_stage = ("superwords", "superword_pattern", "transition_size", "max_words", "colon_rule")
    return settings.model_copy(
        update={
            **{name: Settings.model_fields[name].default for name in of_second_stage},
            "vocab_size": settings.transition,
            "vocab_sizes": (),
            "out_dir": within and within / FIRST_STAGE,
            # An earlier first stage is discarded with the run as a whole.
            "overwrite": False,
            "restart": False,
        }
    )


def second_stage_settings(settings: Settings) -> Settings:
    """Return the settings with which the second stage counts."""
    return settings.model_copy(update={"pattern": settings.superword_pattern, "unmatched": "isolate"})


def with_second_pattern(base: TokenizerSpec, settings: Settings) -> TokenizerSpec:
    """Return the tokenizer that the second stage extends: it splits by the second pattern."""
    return replace(base, pattern=settings.superword_pattern, unmatched="isolate")


def first_stage_vocab(base: TokenizerSpec, settings: Settings, size: int) -> Vocab:
    """Return a prefix of the first stage: a vocabulary of at most the transition size."""
    vocab = Vocab.build(
        base.vocab.merges,
        settings.special_tokens,
        special_tokens_first=settings.special_tokens_first,
        reuse_tokens=settings.tie_break == "huggingface",
        max_tokens=size,
    )
    return vocab.annotated(merge_counts=(base.vocab.merge_counts or ())[: vocab.merge_count] or None)


def check_second_pattern(settings: Settings, counts_pattern: Pattern | None) -> None:
    """Raise `ConfigError` if counts to learn superwords from are known to be of another pattern."""
    if (
        counts_pattern
        and load_pretokenizer(counts_pattern).regex != load_pretokenizer(settings.superword_pattern).regex
    ):
        raise ConfigError(
            f"superwords: these counts are of the pattern {counts_pattern!r}, and superwords are learned from counts "
            f"of {settings.superword_pattern!r}: count with that pattern, or train from the corpus"
        )


def load_first_stage(settings: Settings, counted_in: Path | None) -> TokenizerSpec:
    """Load the first stage of the run whose counts are in a folder. Raises `ConfigError`."""
    folder = counted_in and counted_in / FIRST_STAGE
    if folder is None or not folder.is_dir():
        raise ConfigError(
            f"superwords: the counts have no {FIRST_STAGE} beside them: give init_from with the tokenizer to extend"
        )
    base = formats.load(folder)
    report = read_report(folder)  # which asked for more entries if the text had too few pairs
    if settings.transition not in (len(base.vocab), report and report.settings["vocab_size"]):
        raise ConfigError(
            f"transition_size: {folder} has {len(base.vocab):,} entries, not {settings.transition:,}: leave it as it "
            "is, or train from the corpus"
        )
    return base


def rereadable(documents: Iterable[Any], limit: int = SMALL_ITERATOR) -> Iterable[Any]:
    """Return documents that can be read twice: a small iterator as a list. Raises `ConfigError` for a larger one."""
    if not isinstance(documents, Iterator):
        return documents
    kept, size = [], 0
    for document in documents:
        values = document.values() if isinstance(document, Mapping) else [document]
        size += sum(len(value) for value in values if isinstance(value, str | bytes))
        if size > limit:
            raise ConfigError(
                "superwords: the corpus is read twice, once for each stage, and an iterator of more than "
                f"{format_size(limit)} can be read only once: pass files, a list, or an iterable that starts over"
            )
        kept.append(document)
    return kept
