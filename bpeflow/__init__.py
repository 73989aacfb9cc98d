"""bpeflow: train byte-level BPE vocabularies from corpora of any size, exactly and fast, and encode with them.

The public names are imported when they are first used: worker processes, which import this package too, need few of
the modules behind them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bpeflow.counting.counts import PretokenCounts
    from bpeflow.counting.pipeline import count
    from bpeflow.merging import LearnedMerges, learn_merges
    from bpeflow.tokenizer import StreamDecoder, Tokenizer
    from bpeflow.tokenizer.token_file import load_document_offsets, load_tokens
    from bpeflow.training import TrainResult, train, train_bpe
    from bpeflow.vocab import Vocab

__all__ = [
    "LearnedMerges",
    "PretokenCounts",
    "StreamDecoder",
    "Tokenizer",
    "TrainResult",
    "Vocab",
    "count",
    "learn_merges",
    "load_document_offsets",
    "load_tokens",
    "train",
    "train_bpe",
]

_HOMES = {
    "LearnedMerges": "bpeflow.merging",
    "PretokenCounts": "bpeflow.counting.counts",
    "StreamDecoder": "bpeflow.tokenizer",
    "Tokenizer": "bpeflow.tokenizer",
    "TrainResult": "bpeflow.training",
    "Vocab": "bpeflow.vocab",
    "count": "bpeflow.counting.pipeline",
    "learn_merges": "bpeflow.merging",
    "load_document_offsets": "bpeflow.tokenizer.token_file",
    "load_tokens": "bpeflow.tokenizer.token_file",
    "train": "bpeflow.training",
    "train_bpe": "bpeflow.training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bpeflow' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
