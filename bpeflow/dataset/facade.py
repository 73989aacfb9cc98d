"""`Tokenizer`, the public class: `BaseTokenizer` plus training and the encoding of corpora to token files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpeflow.tokenizer.tokenizer import BaseTokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from bpeflow._util.keywords import EncodeKeywords, TokenizerKeywords
    from bpeflow.dataset.encode import EncodedCorpus
    from bpeflow.inspection.explanation import Explainer, Explanation
    from bpeflow.progress import Observer
    from bpeflow.tokenizer.special_tokens import SpecialChoice


class Tokenizer(BaseTokenizer):
    """Encodes text to ids with a vocabulary and its merges, and decodes ids. Immutable, thread-safe and picklable.

    `train`, `load` and `from_files` make a tokenizer, as does the constructor from a vocabulary and merges.

    Special tokens in a text are encoded as their ids, as Stanford CS336 asks. `allowed_special` and
    `disallowed_special`, which have tiktoken's meanings, change that for a call (see `encode`). For untrusted text pass
    ``allowed_special=()``.

    >>> from bpeflow import Tokenizer
    >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
    >>> tokenizer.encode("low<|endoftext|>")
    [108, 257, 256]
    >>> tokenizer.decode([108, 257, 256])
    'low<|endoftext|>'
    >>> tokenizer.encode("<|endoftext|>", allowed_special=())[:3]
    [60, 124, 101]
    >>> tokenizer.decode([108, 257, tokenizer.eot_token], skip_special_tokens=True)
    'low'
    >>> len(tokenizer), "ow" in tokenizer, tokenizer.vocab[257]
    (258, True, b'ow')
    """

    @classmethod
    def train(
        cls,
        corpus: str | Path | Iterable[str | Path | bytes | Mapping[str, Any]],
        vocab_size: int,
        *,
        progress: bool = False,
        observer: Observer | None = None,
        **settings: Unpack[TokenizerKeywords],
    ) -> Tokenizer:
        """Train a tokenizer.

        Args:
            corpus: a text file, a folder, a glob, a list of these, or documents, as for `bpeflow.count`.
            vocab_size: number of entries in the vocabulary: 256 bytes, special tokens and merges.
            progress: show progress on standard error, or in the notebook.
            observer: progress callbacks, instead.
            settings: any other settings of `bpeflow.config.Settings`. With `out_dir` the run is written to that folder,
                from which `load` reads it.

        Returns:
            The tokenizer.

        Raises:
            Exception: as `bpeflow.train` does.
        """
        from bpeflow.training.train import train  # imports pydantic, which encoding does not need

        trained = train({**settings, "input": corpus, "vocab_size": vocab_size}, observer, progress=progress)
        return cls.from_spec(trained.tokenizer.to_spec())

    def encode_file(
        self,
        src: str | Path | Sequence[str | Path | Mapping[str, Any]] | Iterable[str | bytes | Mapping[str, Any]],
        dst: str | Path,
        *,
        progress: bool = False,
        observer: Observer | None = None,
        **options: Unpack[EncodeKeywords],
    ) -> EncodedCorpus:
        """Encode a corpus of any size to a token file.

        Args:
            src: the corpus: a file, a folder, a glob, or a list of these, or an iterable of documents.
            dst: the token file to write.
            progress: show progress on standard error, or in the notebook.
            observer: progress callbacks, instead.
            options: the other settings of `bpeflow.config.EncodeSettings`, as for `bpeflow.dataset.encode.encode_file`.

        Returns:
            The files that were written, and statistics of the corpus.

        Raises:
            Exception: as `bpeflow.dataset.encode.encode_file` does.

        >>> from tempfile import TemporaryDirectory
        >>> from bpeflow import Tokenizer, load_tokens
        >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
        >>> with TemporaryDirectory() as folder:
        ...     corpus, out = Path(folder, "corpus.txt"), Path(folder, "train.bin")
        ...     _ = corpus.write_text("low<|endoftext|>lower", encoding="utf-8")
        ...     encoded = tokenizer.encode_file(corpus, out)
        ...     print(encoded.documents, load_tokens(out).tolist())
        2 [108, 257, 256, 108, 257, 101, 114]
        """
        from bpeflow.dataset.encode import encode_file  # imports the flow framework, which text in memory does not need

        return encode_file(self, src, dst, progress=progress, observer=observer, **options)

    def encode_documents(
        self,
        documents: Iterable[str | bytes | Mapping[str, Any]],
        dst: str | Path,
        *,
        progress: bool = False,
        observer: Observer | None = None,
        **options: Unpack[EncodeKeywords],
    ) -> EncodedCorpus:
        """Encode documents to a token file, with an end token after each.

        Args:
            documents: the documents: each a `str`, `bytes` of UTF-8, or a mapping with the text in `text_field`, such
                as the rows of a HuggingFace dataset.
            dst: the token file to write.
            progress: show progress on standard error, or in the notebook.
            observer: progress callbacks, instead.
            options: the other settings of `bpeflow.config.EncodeSettings`, as for `bpeflow.dataset.encode.encode_file`.

        Returns:
            The files that were written, and statistics of the documents.

        Raises:
            Exception: as `bpeflow.dataset.encode.encode_documents` does.

        >>> from tempfile import TemporaryDirectory
        >>> from bpeflow import Tokenizer, load_tokens
        >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
        >>> with TemporaryDirectory() as folder:
        ...     encoded = tokenizer.encode_documents(["low", "lower"], Path(folder, "train.bin"))
        ...     print(encoded.documents, load_tokens(Path(folder, "train.bin")).tolist())
        2 [108, 257, 256, 108, 257, 101, 114, 256]
        """
        from bpeflow.dataset.encode import encode_documents

        return encode_documents(self, documents, dst, progress=progress, observer=observer, **options)

    def explain(
        self, text: str, *, allowed_special: SpecialChoice = "all", disallowed_special: SpecialChoice = ()
    ) -> Explanation:
        """Explain how a text is encoded: its pre-tokens and tokens, and the merges in the order in which they applied.

        Arguments and errors are those of `encode`. A notebook shows the result in colours.

        >>> from bpeflow import Tokenizer
        >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=259)
        >>> [(step.left, step.right) for step in tokenizer.explain("low").pieces[0].steps]
        [(b'o', b'w'), (b'l', b'ow')]
        """
        return self._explainer.explain(text, allowed_special=allowed_special, disallowed_special=disallowed_special)

    @cached_property
    def _explainer(self) -> Explainer:
        from bpeflow.inspection.explanation import Explainer

        return Explainer(self)
