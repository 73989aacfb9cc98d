"""Train byte-level BPE tokenizers from corpora of any size, exactly and fast, and encode with them.

from bpeflow import Tokenizer

tokenizer = Tokenizer.train("corpus.txt", vocab_size=32_000)          # files, folders, globs, or iter(documents)
tokenizer.encode("some text<|endoftext|>")                            # a list of ids
tokenizer.encode_batch_to_numpy(["many", "texts"])                    # ids of all texts, and offsets
tokenizer.encode_file("corpus.txt", "train.bin")                      # a token file, for load_tokens("train.bin")
tokenizer.save("mine"); Tokenizer.load("mine")                        # or tokenizer.json, cl100k_base.tiktoken …
Tokenizer.from_pretrained("gpt2")                                     # a published tokenizer, by its name

vocab, merges = bpeflow.train_bpe("corpus.txt", vocab_size=32_000)    # the interface of Stanford CS336
print(bpeflow.evaluate({"mine": tokenizer}, "held_out.txt"))          # bytes per token, speed …
"""

# All public names but the exceptions are imported on first use, because worker processes import this package too and
# need only a few of its modules.

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bpeflow import errors
from bpeflow.errors import *

#: The version of the package.
__version__ = "0.1.0"

if TYPE_CHECKING:
    from bpeflow.counting.count import count
    from bpeflow.counting.counts import PretokenCounts
    from bpeflow.dataset.encode import encode_documents as encode_documents
    from bpeflow.dataset.encode import encode_file as encode_file
    from bpeflow.dataset.encoded_corpus import EncodedCorpus
    from bpeflow.dataset.evaluate import evaluate
    from bpeflow.dataset.evaluation_report import Evaluation, EvaluationReport
    from bpeflow.dataset.token_file import load_document_offsets, load_shards, load_tokens
    from bpeflow.look.explainer import Explainer as Explainer
    from bpeflow.look.explanation import Explanation
    from bpeflow.progress import Observer
    from bpeflow.tokenizer.padding import Padding
    from bpeflow.tokenizer.streaming import StreamDecoder
    from bpeflow.tokenizer.tokenizer import Tokenizer
    from bpeflow.training.learn import LearnedMerges, learn_merges
    from bpeflow.training.train import TrainResult, train, train_bpe
    from bpeflow.vocab import Vocab

__all__ = [
    "EncodedCorpus",
    "Evaluation",
    "EvaluationReport",
    "Explanation",
    "LearnedMerges",
    "Observer",
    "Padding",
    "PretokenCounts",
    "StreamDecoder",
    "Tokenizer",
    "TrainResult",
    "Vocab",
    "__version__",
    "count",
    "evaluate",
    "learn_merges",
    "load_document_offsets",
    "load_shards",
    "load_tokens",
    "train",
    "train_bpe",
]
__all__ += errors.__all__

#: The module of each public name that is not an exception, and of the names by which `Tokenizer` reaches what is above
#: its room: the lazy names are the one place where imports do not run downwards.
_MODULES = {
    "EncodedCorpus": "bpeflow.dataset.encoded_corpus",
    "Evaluation": "bpeflow.dataset.evaluation_report",
    "EvaluationReport": "bpeflow.dataset.evaluation_report",
    "Explainer": "bpeflow.look.explainer",
    "Explanation": "bpeflow.look.explanation",
    "LearnedMerges": "bpeflow.training.learn",
    "Observer": "bpeflow.progress",
    "Padding": "bpeflow.tokenizer.padding",
    "PretokenCounts": "bpeflow.counting.counts",
    "StreamDecoder": "bpeflow.tokenizer.streaming",
    "Tokenizer": "bpeflow.tokenizer.tokenizer",
    "TrainResult": "bpeflow.training.train",
    "Vocab": "bpeflow.vocab",
    "count": "bpeflow.counting.count",
    "encode_documents": "bpeflow.dataset.encode",
    "encode_file": "bpeflow.dataset.encode",
    "evaluate": "bpeflow.dataset.evaluate",
    "learn_merges": "bpeflow.training.learn",
    "load_document_offsets": "bpeflow.dataset.token_file",
    "load_shards": "bpeflow.dataset.token_file",
    "load_tokens": "bpeflow.dataset.token_file",
    "train": "bpeflow.training.train",
    "train_bpe": "bpeflow.training.train",
}


if not TYPE_CHECKING:  # which would take misspelt names for correct

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'bpeflow' has no attribute {name!r}{_hint(name)}")
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def _hint(name: str) -> str:
    """Return what to use instead of a name, as the end of a message."""
    if name.startswith("_"):
        return ""
    from bpeflow._util.text import suggestion
    from bpeflow.tokenizer.tokenizer import Tokenizer

    method = "from_pretrained" if name == "get_encoding" else name
    if hasattr(Tokenizer, method):
        return f"; use bpeflow.Tokenizer.{method}"
    return suggestion(name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
