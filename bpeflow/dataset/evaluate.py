"""`evaluate`: compares tokenizers on corpora."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.text import short_names
from bpeflow.config import CorpusSettings, CountSettings, SourceSettings, make_settings
from bpeflow.config.settings import UNNAMED_SOURCE
from bpeflow.corpus.chunk import Chunk
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.files import STDIN, standard_input
from bpeflow.corpus.open_chunk import open_chunk
from bpeflow.corpus.reader import LONGEST_TEXT, CorpusReader
from bpeflow.corpus.records import DOCUMENTS, DocumentIterable, split_off_documents
from bpeflow.corpus.text_rules import TextRules
from bpeflow.counting.count import CorpusCounter
from bpeflow.dataset.chunk_encoder import ChunkEncoder
from bpeflow.dataset.evaluation_report import CorpusText, Evaluation, EvaluationReport
from bpeflow.errors import ConfigError
from bpeflow.look.usage import count_settings, token_occurrences
from bpeflow.progress import Observer, observer_for
from bpeflow.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from bpeflow.config.keywords import CorpusKeywords

AnyTokenizer = Tokenizer | str | Path

#: Bytes of text at the beginning of a corpus in which words are counted and speed is measured. More: steadier figures
#: for large corpora. Fewer: less time.
_EXCERPT = 16_000_000


def evaluate(
    tokenizers: AnyTokenizer | Sequence[AnyTokenizer] | Mapping[str, AnyTokenizer],
    inputs: str | Path | Mapping[str, Any] | Sequence[str | Path | Mapping[str, Any]] | Iterable[str | bytes],
    *,
    baseline: str | Path | None = None,
    progress: bool = False,
    observer: Observer | None = None,
    **options: Unpack[CorpusKeywords],
) -> EvaluationReport:
    """Count every corpus as each tokenizer splits it, and report compression, speed and use of the vocabulary.

    Special tokens in the text, separators among them, are not counted.

    Args:
        tokenizers: a tokenizer, several, or tokenizers by name. A tokenizer may be a path, as for `Tokenizer.load`; it
            is named by the last part of the path, or by more parts if others have the same.
        inputs: the corpora. Each is a file, folder, glob, ``@list`` of these, ``-`` for standard input or a URL, named
            as tokenizers are. Or it is a mapping as in the setting `sources`: `paths`, and optionally `name`,
            `exclude`, `weight`, `max_bytes` (for a random sample), `seed`, `format`, `text_field` and `text_column`. Or
            `inputs` is an iterable of documents, which are one corpus and are kept in memory, as they are read several
            times; of a list of `str`, pass `iter(documents)`.
        baseline: the tokenizer to which all are compared: name or path of one of them, or path of a further one. By
            default it is the first, if there are several.
        progress: show progress on standard error, or in the notebook.
        observer: progress callbacks, instead.
        options: the other settings of `bpeflow.config.CorpusSettings`: `sources`, `input_format`, `text_field`,
            `text_column`, `exclude`, `separator`, `invalid_utf8`, `bad_records`. By default, the separator is each
            tokenizer's first special token.

    Returns:
        The results for each corpus and, if there are several, for all of them together, where a corpus counts as many
        times as its weight.

    Raises:
        ConfigError: there are no tokenizers or no inputs, or an option is invalid.
        CorpusError: input is missing, unreadable, or not UTF-8 (`InvalidUtf8Error`), or has no text.
        FormatError: a tokenizer cannot be loaded.

    >>> import bpeflow
    >>> plain = bpeflow.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
    >>> trained = bpeflow.Tokenizer.train(iter(["low low low", "lower"]), vocab_size=259)
    >>> report = bpeflow.evaluate({"plain": plain, "trained": trained}, iter(["low low", "low"]))
    >>> [(row.tokenizer, row.tokens, row.bytes_per_token, row.ratio) for row in report]
    [('plain', 10, 1.0, 1.0), ('trained', 4, 2.5, 2.5)]
    """
    loaded, base = _load(tokenizers, baseline)
    values, documents = split_off_documents({"input": inputs, **options})
    if documents is not None:
        documents = DocumentIterable(list(documents.documents))
    with ExitStack() as copies, observer_for(progress, observer) as watching:
        sources = _sources(values) if documents is None else (SourceSettings(name=UNNAMED_SOURCE, paths=(DOCUMENTS,)),)
        rest = {key: value for key, value in values.items() if key not in ("input", "sources")}
        corpora = [_Corpus(_rereadable(source, copies), rest, documents, loaded) for source in sources]
        measured = [(corpus.source, corpus.measure(watching)) for corpus in corpora]
    rows = [
        measures[name].evaluation(tokenizer, name, source.name)
        for source, measures in measured
        for name, tokenizer in loaded.items()
    ]
    if len(measured) > 1:
        for name, tokenizer in loaded.items():
            first, *others = [measures[name] * source.weight for source, measures in measured]
            rows.append(sum(others, start=first).evaluation(tokenizer, name, None))
    if base is not None:
        to_compare = {row.corpus: row for row in rows if row.tokenizer == base}
        rows = [row.relative_to(to_compare[row.corpus]) for row in rows]
    return EvaluationReport(loaded, base, tuple(rows))


# ---- arguments ----


def _load(
    tokenizers: AnyTokenizer | Sequence[AnyTokenizer] | Mapping[str, AnyTokenizer], baseline: str | Path | None
) -> tuple[dict[str, Tokenizer], str | None]:
    """Return the tokenizers by name, and the name of the baseline."""
    if isinstance(tokenizers, Mapping):
        given = dict(tokenizers)
        names = {name: name for name in given}
    else:
        listed = [tokenizers] if isinstance(tokenizers, AnyTokenizer) else list(tokenizers)
        given = {
            f"tokenizer {number}" if isinstance(entry, Tokenizer) else str(Path(entry)): entry
            for number, entry in enumerate(listed, 1)
        }
        names = short_names([*given])
    if not given:
        raise ConfigError("nothing to evaluate: at least one tokenizer is needed")
    base = names[next(iter(given))] if len(given) > 1 else None
    if baseline is not None:
        base = str(baseline)
        if base not in names.values():
            path = str(Path(baseline))
            if path not in given and not Path(path).exists():
                known = ", ".join(names.values())
                raise ConfigError(f"baseline: {base} is neither a path nor one of the tokenizers ({known})")
            given.setdefault(path, path)
            names = {**short_names([*given]), **names}
            base = names[path]
    loaded = {
        names[key]: entry if isinstance(entry, Tokenizer) else Tokenizer.load(entry) for key, entry in given.items()
    }
    return loaded, base


def _sources(values: Mapping[str, Any]) -> tuple[SourceSettings, ...]:
    """Return the corpora, each as a source."""
    inputs = values["input"]
    entries = [inputs] if isinstance(inputs, str | Path | Mapping) else list(inputs)
    if not entries and not values.get("sources"):
        raise ConfigError("nothing to evaluate: at least one input is needed")
    paths = list(dict.fromkeys(str(entry) for entry in entries if not isinstance(entry, Mapping)))
    names = short_names(paths)
    sources = []
    for entry in entries:
        if isinstance(entry, Mapping):
            sources.append(entry)
        elif name := names.pop(str(entry), None):  # once, if it is named again
            sources.append({"name": name, "paths": str(entry)})
    return make_settings(CorpusSettings, {**values, "input": sources}).sources


def _rereadable(source: SourceSettings, copies: ExitStack) -> SourceSettings:
    """Return a source that can be read several times: a temporary copy of standard input."""
    if source.paths != (STDIN,):
        return source
    path = Path(copies.enter_context(TemporaryDirectory(prefix="bpeflow-")), "stdin")
    with path.open("wb") as target:
        copyfileobj(standard_input(), target)
    return source.model_copy(update={"paths": (str(path),)})


# ---- measuring ----


class _Corpus:
    """A corpus that tokenizers are evaluated on. It is counted once for each way in which they split it.

    Args:
        source: where it is.
        options: the other settings of the corpus.
        documents: the corpus, if it is an iterable.
        tokenizers: the tokenizers by name.
    """

    def __init__(
        self,
        source: SourceSettings,
        options: Mapping[str, Any],
        documents: DocumentIterable | None,
        tokenizers: Mapping[str, Tokenizer],
    ) -> None:
        self.source = source
        self._tokenizers = tokenizers
        self._ways: dict[str, CountSettings] = {}
        self._counters: dict[CountSettings, CorpusCounter] = {}
        for name, tokenizer in tokenizers.items():
            values = {**options, "sources": (source.model_copy(update={"weight": 1}),)}
            if values.get("separator") is None:
                values["separator"] = next(iter(tokenizer.special_tokens), None)
            self._ways[name] = way = count_settings(tokenizer, values)
            for settings in (way, _plain(way)):
                if settings not in self._counters:
                    self._counters[settings] = CorpusCounter(settings, documents=documents)

    def measure(self, observer: Observer | None) -> dict[str, _Measure]:
        """Count the corpus, and return what is known of each tokenizer."""
        counted = {settings: counter.count(observer) for settings, counter in self._counters.items()}
        excerpts = {plain: _Excerpt(self._counters[plain]) for plain in map(_plain, self._ways.values())}
        measures = {}
        for name, tokenizer in self._tokenizers.items():
            way = self._ways[name]
            excerpt, plain = excerpts[_plain(way)], counted[_plain(way)]
            text = excerpt.describe(plain.counts.total_bytes, plain.documents)
            seconds = excerpt.encoding_seconds(tokenizer, self._counters[way].rules)
            occurrences = token_occurrences(tokenizer, counted[way].counts)
            measures[name] = _Measure(text, occurrences, seconds * text.bytes / excerpt.bytes)
        return measures


@dataclass(frozen=True)
class _Measure:
    """A text, how often each id of a tokenizer occurs in it, and the time that encoding it takes."""

    text: CorpusText
    occurrences: NDArray[np.int64]
    seconds: float

    def __add__(self, other: _Measure) -> _Measure:
        occurrences = self.occurrences + other.occurrences
        return _Measure(self.text + other.text, occurrences, self.seconds + other.seconds)

    def __mul__(self, weight: int) -> _Measure:
        return _Measure(self.text * weight, self.occurrences * weight, self.seconds * weight)

    def evaluation(self, tokenizer: Tokenizer, name: str, corpus: str | None) -> Evaluation:
        specials = set(tokenizer.special_tokens.values())
        tokens = enumerate(tokenizer.vocab.tokens)
        single = [i for i, token in tokens if len(token) == 1 and i not in specials]
        return Evaluation(
            tokenizer=name,
            corpus=corpus,
            text=self.text,
            tokens=int(self.occurrences.sum()),
            single_byte_tokens=int(self.occurrences[single].sum()),
            used_tokens=int(np.count_nonzero(self.occurrences)),
            vocab_size=tokenizer.vocab_size,
            seconds=self.seconds,
        )


def _plain(settings: CountSettings) -> CountSettings:
    """Return settings that count the bytes of the text as it is, without a normalizer or a pattern that drops some."""
    if not settings.normalizer and settings.unmatched != "drop":
        return settings
    return settings.model_copy(update={"pattern": "gpt2", "normalizer": (), "unmatched": "isolate"})


class _Excerpt:
    """The beginning of a corpus, in which words are counted and speed is measured.

    Attributes:
        bytes: size of its text.
    """

    def __init__(self, counter: CorpusCounter) -> None:
        self._chunks: list[Chunk] = []
        self.bytes = self._words = 0
        for chunk in CorpusReader(counter.rules, _EXCERPT, LONGEST_TEXT).read(counter.corpus.entries):
            self._chunks.append(chunk)
            for _, texts in open_chunk(chunk, counter.rules).documents():
                self.bytes += sum(map(len, texts or ()))
                self._words += sum(len(text.decode().split()) for text in texts or ())
            if self.bytes >= _EXCERPT:
                break

    def describe(self, size: int, documents: DocumentStatistics) -> CorpusText:
        """Return the figures of the whole text, given its size in bytes."""
        skipped = documents.skipped_documents
        return CorpusText(
            bytes=size,
            words=round(self._words * size / self.bytes),
            documents=documents.documents - skipped,
            skipped_documents=skipped + documents.bad_records,
        )

    def encoding_seconds(self, tokenizer: Tokenizer, rules: TextRules) -> float:
        """Return the time that a tokenizer takes for the excerpt, on one thread and without reading."""
        rules = replace(rules, keep_separator=True)
        encoder, seconds = ChunkEncoder(tokenizer, rules, None), 0.0
        for chunk in self._chunks:
            opened = open_chunk(chunk, rules)
            started = perf_counter()
            encoder.encode_text(opened)
            seconds += perf_counter() - started
        return seconds
