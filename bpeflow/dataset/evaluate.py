"""Evaluation of tokenizers on corpora: compression, speed, and use of the vocabulary.

The metrics are those that Stanford CS336 asks for in its tokenizer experiments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np

from bpeflow.corpus.chunk import CorpusFile
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.documents import ChunkBuffer
from bpeflow.corpus.reader import ChunkReader
from bpeflow.dataset.chunk_encoder import ChunkEncoder, NumberedChunk
from bpeflow.dataset.encode import choose_separator, find_in_order
from bpeflow.errors import ConfigError
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.progress import Observer, shown
from bpeflow.tokenizer.identity import tokenizer_hash
from bpeflow.tokenizer.tokenizer import BaseTokenizer

#: Size of the corpus whose encoding time is estimated, in bytes.
ESTIMATE_BYTES = 82_000_000_000

#: Size of the chunks that are encoded, in bytes of text.
_CHUNK_SIZE = 4_000_000

#: Number of a vocabulary's longest tokens in the description.
_LONGEST_TOKENS = 10


@dataclass(frozen=True)
class CorpusText:
    """The content of a corpus without separators.

    Attributes:
        bytes: size of the documents.
        words: number of words, which are separated by Unicode white space.
        documents: number of documents.
    """

    bytes: int
    words: int
    documents: int


@dataclass(frozen=True)
class Evaluation:
    """The results of a tokenizer on a corpus.

    Attributes:
        tokenizer: name of the tokenizer.
        corpus: name of the corpus, which is its input as given.
        text: the text that was encoded.
        tokens: number of ids of the text.
        single_byte_tokens: number of ids of single bytes, to which no merge applied.
        used_tokens: number of entries of the vocabulary that occur.
        seconds: time for encoding on one thread, without reading.
    """

    tokenizer: str
    corpus: str
    text: CorpusText
    tokens: int
    single_byte_tokens: int
    used_tokens: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics, including derived ones. A ratio whose denominator is zero is None."""
        rate = _ratio(self.text.bytes, self.seconds)
        return {
            **asdict(self),
            "bytes_per_token": _ratio(self.text.bytes, self.tokens),
            "tokens_per_word": _ratio(self.tokens, self.text.words),
            "single_byte_share": _ratio(self.single_byte_tokens, self.tokens),
            "bytes_per_second": rate,
            "seconds_for_82_gb": _ratio(ESTIMATE_BYTES, rate),
        }


def evaluate_all(
    tokenizers: Mapping[str, BaseTokenizer],
    inputs: Sequence[str],
    separator: str | None = None,
    observer: Observer | None = None,
    *,
    progress: bool = False,
) -> list[Evaluation]:
    """Encode every corpus with every tokenizer in one thread.

    Args:
        tokenizers: the tokenizers by name.
        inputs: the corpora, each a file, a folder or a glob. Bytes that are not UTF-8 are replaced by U+FFFD.
        separator: the text that ends documents, which is neither counted nor encoded; by default each tokenizer's first
            special token. ``""`` means none.
        observer: progress callbacks.
        progress: show progress on standard error, or in the notebook, instead.

    Returns:
        The results, corpus by corpus, with the tokenizers of each in the given order.

    Raises:
        ConfigError: there are no tokenizers or no inputs, or an input is not plain text.
        CorpusError: input is missing or unreadable.
    """
    if not tokenizers or not inputs:
        raise ConfigError("nothing to evaluate: at least one tokenizer and one input are needed")
    corpora = {str(entry): _plain_files(entry) for entry in inputs}
    with shown(progress, observer) as watching:
        return _evaluate(tokenizers, corpora, separator, watching or Observer())


def _evaluate(
    tokenizers: Mapping[str, BaseTokenizer],
    corpora: Mapping[str, Sequence[CorpusFile]],
    separator: str | None,
    observer: Observer,
) -> list[Evaluation]:
    done, total = 0, len(tokenizers) * sum(file.size for files in corpora.values() for file in files)
    evaluations = []
    for corpus, files in corpora.items():
        texts: dict[Delimiters, CorpusText] = {}
        for name, tokenizer in tokenizers.items():
            delimiters = Delimiters(choose_separator(tokenizer, separator), tuple(tokenizer.special_tokens))
            if delimiters not in texts:
                texts[delimiters] = count_text(files, delimiters)
            measure = _Measure(tokenizer, delimiters)
            for size in measure.encode(files):
                done += size
                observer.encoding(done, total)
            evaluations.append(measure.evaluation(name, corpus, texts[delimiters]))
    return evaluations


def _plain_files(entry: str) -> list[CorpusFile]:
    found = find_in_order([entry])
    files = [file for file in found if isinstance(file, CorpusFile)]
    if len(files) < len(found):
        raise ConfigError(f"{entry}: evaluate reads only plain text files; decompress or convert it first")
    return files


def count_text(files: Sequence[CorpusFile], delimiters: Delimiters) -> CorpusText:
    """Count the bytes, words and documents of a corpus."""
    size = words = documents = 0
    buffer = ChunkBuffer()
    in_word = False  # whether the text so far ends in a word, which may continue in the next chunk
    for chunk in ChunkReader(files, _CHUNK_SIZE, delimiters, load_pretokenizer("gpt2"), "replace").chunks():
        data = bytes(buffer.read(chunk))
        for document in delimiters.documents(data):
            encoded = data[document.pieces[0][0] : document.pieces[-1][1]]
            text = encoded.decode(errors="replace")
            size += len(encoded)
            words += len(text.split())
            words -= in_word and not text[:1].isspace() and text != ""
            in_word = not text[-1:].isspace() if text else in_word
            if document.closed or chunk.ends_file:
                documents += 1
                in_word = False
    return CorpusText(size, words, documents)


class _Measure:
    """Encodes a corpus with one tokenizer and collects the metrics."""

    def __init__(self, tokenizer: BaseTokenizer, delimiters: Delimiters) -> None:
        self._tokenizer = tokenizer
        self._encoder = ChunkEncoder(tokenizer, delimiters, None, "replace")
        self._occurrences = np.zeros(tokenizer.vocab_size, np.int64)
        self._seconds = 0.0

    def encode(self, files: Sequence[CorpusFile]) -> Iterator[int]:
        """Encode a corpus chunk by chunk. Yield the size of each chunk."""
        buffer = ChunkBuffer()
        encoder = self._encoder
        pretokenizer = load_pretokenizer(self._tokenizer.pattern)
        chunks = ChunkReader(files, _CHUNK_SIZE, encoder.delimiters, pretokenizer, encoder.invalid_utf8).chunks()
        for number, chunk in enumerate(chunks):
            data = buffer.read(chunk)
            started = perf_counter()
            encoded = encoder.encode_text(data, NumberedChunk(number, chunk))
            self._seconds += perf_counter() - started
            self._occurrences += np.bincount(encoded.ids, minlength=len(self._occurrences))
            yield chunk.length

    def evaluation(self, name: str, corpus: str, text: CorpusText) -> Evaluation:
        vocab = self._tokenizer.vocab
        specials = set(vocab.special_tokens.values())
        single = [i for i, token in enumerate(vocab.tokens) if len(token) == 1 and i not in specials]
        return Evaluation(
            tokenizer=name,
            corpus=corpus,
            text=text,
            tokens=int(self._occurrences.sum()),
            single_byte_tokens=int(self._occurrences[single].sum()),
            used_tokens=int(np.count_nonzero(self._occurrences)),
            seconds=self._seconds,
        )


def longest_tokens(tokenizer: BaseTokenizer, count: int) -> list[tuple[int, bytes]]:
    """Return the longest tokens of a vocabulary with their ids, without special tokens. Ties are in order of ids."""
    specials = set(tokenizer.special_tokens.values())
    tokens = [(i, token) for i, token in enumerate(tokenizer.vocab.tokens) if i not in specials]
    return sorted(tokens, key=lambda entry: -len(entry[1]))[:count]


def describe(evaluations: Sequence[Evaluation], tokenizers: Mapping[str, BaseTokenizer]) -> dict[str, Any]:
    """Return all metrics for JSON."""
    from importlib.metadata import version  # slow to import

    return {
        "bpeflow": version("bpeflow"),
        "tokenizers": [
            {
                "name": name,
                "sha256": tokenizer_hash(tokenizer.to_spec()),
                "vocab_size": tokenizer.vocab_size,
                "pattern": tokenizer.pattern,
                "encoder": tokenizer.encoder,
                "longest_tokens": [
                    {"id": i, "bytes": len(token), "text": token.decode(errors="replace"), "hex": token.hex()}
                    for i, token in longest_tokens(tokenizer, _LONGEST_TOKENS)
                ],
            }
            for name, tokenizer in tokenizers.items()
        ],
        "evaluations": [evaluation.to_dict() for evaluation in evaluations],
    }


def _ratio(numerator: float, denominator: float | None) -> float | None:
    return numerator / denominator if denominator else None
