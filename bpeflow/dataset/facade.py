"""`Tokenizer`: the public class; text to ids and back, plus training and token files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpeflow.errors import ConfigError
from bpeflow.formats.spec import TokenizerSpec
from bpeflow.tokenizer.tokenizer import BaseTokenizer

if TYPE_CHECKING:
    from bpeflow.dataset.encode import EncodedCorpus


class Tokenizer(BaseTokenizer):
    """Encodes text with a vocabulary and its merges, and decodes ids. Immutable, thread-safe, picklable.

    >>> from bpeflow import Tokenizer
    >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
    >>> tokenizer.encode("low<|endoftext|>")
    [108, 257, 256]
    >>> tokenizer.decode([108, 257, 256])
    'low<|endoftext|>'
    """

    @classmethod
    def train(cls, corpus: str | Path | Iterable[str | Path | bytes], vocab_size: int, **settings: Any) -> Tokenizer:
        """Train a tokenizer.

        Args:
            corpus: a text file, a folder, a glob, several of these, or documents, as for `bpeflow.count`.
            vocab_size: entries of the vocabulary: 256 bytes, special tokens, merges.
            settings: any other setting of `bpeflow.config.Settings`. With `out_dir` the run is written there, and
                `load` reads it.

        Raises:
            Exception: as `bpeflow.train` does.
        """
        from bpeflow.training.train import train  # pydantic, which encoding does not need

        trained = train({**settings, "input": corpus, "vocab_size": vocab_size})
        if trained.vocab is None:
            raise ConfigError("skip_merge leaves no vocabulary for a tokenizer: leave it out, or call bpeflow.train")
        return cls.from_spec(TokenizerSpec(trained.vocab, trained.report.settings["pattern"]))

    def encode_file(self, src: str | Path | Sequence[str | Path], dst: str | Path, **options: Any) -> EncodedCorpus:
        """Encode a corpus of any size to a token file; see `bpeflow.dataset.encode.encode_file`."""
        from bpeflow.dataset.encode import encode_file  # the flow framework, which texts in memory do not need

        return encode_file(self, src, dst, **options)
