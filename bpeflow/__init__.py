"""bpeflow: train byte-level BPE vocabularies from corpora of any size, exactly and fast."""

from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.pipeline import count
from bpeflow.merging import LearnedMerges, learn_merges
from bpeflow.training import TrainResult, train, train_bpe
from bpeflow.vocab import Vocab

__all__ = [
    "LearnedMerges",
    "PretokenCounts",
    "TrainResult",
    "Vocab",
    "count",
    "learn_merges",
    "train",
    "train_bpe",
]
