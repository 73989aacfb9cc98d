"""`evaluate`: compares tokenizers on corpora."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.text import BadRecordsPolicy, InvalidUtf8Policy, NormalizerName, Pattern, format_count, short_names
from bpeflow.config import CountSettings, make_settings
from bpeflow.corpus.chunk import RECORD_END
from bpeflow.corpus.documents import Delimiters
from bpeflow.corpus.find import InputFormat
from bpeflow.corpus.first_look import FirstLook
from bpeflow.corpus.formats.records import DocumentIterable, split_off_documents
from bpeflow.corpus.formats.stream import StandardInput, StreamTask
from bpeflow.corpus.open_chunk import ChunkBuffer, OpenChunk, open_chunk
from bpeflow.corpus.reader import LONGEST_TEXT, CorpusReader, check_unchanged
from bpeflow.corpus.sources import Corpus, CorpusEntry, find_corpus, input_files
from bpeflow.corpus.text_rules import TextRules
from bpeflow.dataset.chunk_encoder import ChunkEncoder
from bpeflow.dataset.encode import choose_separator
from bpeflow.dataset.evaluation_report import CorpusText, Evaluation, EvaluationReport
from bpeflow.errors import ConfigError
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.progress import Observer, shown
from bpeflow.tokenizer.tokenizer import Tokenizer

AnyTokenizer = Tokenizer | str | Path

#: Size of the chunks that are encoded, in bytes of text.
_CHUNK_SIZE = 4_000_000

#: Bytes of standard input that are copied at a time.
_COPIED_BYTES = 1 << 20

_RECORDS = Delimiters(None, record_end=RECORD_END)

log = logging.getLogger(__name__)


def evaluate(
    tokenizers: AnyTokenizer | Sequence[AnyTokenizer] | Mapping[str, AnyTokenizer],
    inputs: str | Path | Mapping[str, Any] | Sequence[str | Path | Mapping[str, Any]] | Iterable[str | bytes],
    *,
    baseline: str | Path | None = None,
    separator: str | None = None,
    input_format: InputFormat = "auto",
    text_field: str = "text",
    text_column: str = "text",
    exclude: str | Sequence[str] = (),
    invalid_utf8: InvalidUtf8Policy = "error",
    bad_records: BadRecordsPolicy = "error",
    progress: bool = False,
    observer: Observer | None = None,
) -> EvaluationReport:
    """Encode every corpus with every tokenizer, on one thread, and report compression, speed and use of the vocabulary.

    Args:
        tokenizers: a tokenizer, several, or tokenizers by name. A tokenizer may be a path, as for `Tokenizer.load`; it
            is named by the last part of the path, or by more parts if others have the same.
        inputs: the corpora. Each is a file, folder, glob, ``@list`` of these, ``-`` for standard input or a URL, named
            as tokenizers are. Or it is a mapping as in the setting `sources`: `paths`, and optionally `name`,
            `exclude`, `weight`, `max_bytes` (for a random sample), `seed`, `format`, `text_field` and `text_column`. Or
            `inputs` is an iterable of documents, which are one corpus; of a list of `str`, pass `iter(documents)`.
        baseline: the tokenizer to which all are compared: name or path of one of them, or path of a further one. By
            default it is the first, if there are several.
        separator: the text that ends documents, which is neither counted nor encoded; by default each tokenizer's first
            special token. ``""`` means none.
        input_format: ``text``, ``jsonl``, ``parquet``, or ``auto`` to choose by file name.
        text_field: the field of JSON Lines that holds the text. ``a.b`` is field b of field a.
        text_column: the column of Parquet that holds the text. ``a.b`` is as for `text_field`.
        exclude: globs of files to leave out.
        invalid_utf8: what to do with input that is not UTF-8: ``error``, ``replace`` (by U+FFFD) or ``skip`` (the
            document).
        bad_records: what to do with records without text: ``error`` or ``skip``.
        progress: show progress on standard error, or in the notebook.
        observer: progress callbacks, instead.

    Returns:
        The results for each corpus and, if there are several, for all of them together, where a corpus counts as many
        times as its weight.

    Raises:
        ConfigError: there are no tokenizers or no inputs, or an option is invalid.
        CorpusError: input is missing, unreadable, or not UTF-8 (`InvalidUtf8Error`).
        FormatError: a tokenizer cannot be loaded.

    >>> import bpeflow
    >>> plain = bpeflow.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
    >>> trained = bpeflow.Tokenizer.train(iter(["low low low", "lower"]), vocab_size=259)
    >>> report = bpeflow.evaluate({"plain": plain, "trained": trained}, iter(["low low", "low"]))
    >>> [(row.tokenizer, row.tokens, row.bytes_per_token, row.ratio) for row in report]
    [('plain', 10, 1.0, 1.0), ('trained', 4, 2.5, 2.5)]
    """
    loaded, base = _load(tokenizers, baseline)
    corpus = _find(
        inputs,
        {
            "input_format": input_format,
            "text_field": text_field,
            "text_column": text_column,
            "exclude": exclude,
            "invalid_utf8": invalid_utf8,
            "bad_records": bad_records,
        },
    )
    plain = TextRules(load_pretokenizer("gpt2"), Delimiters(None), "error", corpus.sources)
    FirstLook(plain, None).look_at(corpus.entries)  # UTF-16 would become U+FFFD
    measures = [
        _SourceMeasures(number, corpus, loaded, separator, invalid_utf8) for number in range(len(corpus.sources))
    ]
    with shown(progress, observer) as watching:
        _encode(corpus, measures, watching or Observer())
    rows = [row for measure in measures for row in measure.evaluations()]
    if len(measures) > 1:
        rows += _evaluations_of_all(measures)
    if skipped := sum(measure.skipped_documents for measure in measures):
        log.warning("skipped %s: not UTF-8, or without text", format_count(skipped, "document"))
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


def _find(inputs: Any, options: Mapping[str, Any]) -> Corpus:
    """Find the corpora, each as a source."""
    values, documents = split_off_documents({"input": inputs, **options})
    if documents is not None:
        return find_corpus(make_settings(CountSettings, values), documents)
    entries = [inputs] if isinstance(inputs, str | Path | Mapping) else list(inputs)
    if not entries:
        raise ConfigError("nothing to evaluate: at least one input is needed")
    paths = list(dict.fromkeys(str(entry) for entry in entries if not isinstance(entry, Mapping)))
    names = short_names(paths)
    sources = []
    for entry in entries:
        if isinstance(entry, Mapping):
            sources.append(entry)
        elif name := names.pop(str(entry), None):  # once, if it is named again
            sources.append({"name": name, "paths": str(entry)})
    return find_corpus(make_settings(CountSettings, {"sources": sources, **options}))


# ---- reading ----


@dataclass(frozen=True)
class _Reading:
    """How tokenizers read text. Tokenizers that agree in it read the same chunks, which end where both allow it."""

    delimiters: Delimiters
    pattern: Pattern
    normalizer: tuple[NormalizerName, ...]

    def chunks(self, entry: CorpusEntry, rules: TextRules) -> Iterator[OpenChunk]:
        """Yield the chunks of an entry."""
        buffer = ChunkBuffer()
        for chunk in CorpusReader(rules, _CHUNK_SIZE, LONGEST_TEXT).read([entry]):
            yield open_chunk(chunk, rules, buffer)


def _encode(corpus: Corpus, measures: Sequence[_SourceMeasures], observer: Observer) -> None:
    """Read the corpus and encode it with all tokenizers."""
    readings = measures[0].readings
    sizes = [file.size for entry in corpus.entries for file in input_files(entry)]
    done = 0
    total = None if None in sizes else corpus.known_bytes * sum(map(len, readings.values()))
    with _rereadable(corpus.entries, passes=len(readings)) as entries:
        for entry in entries:
            counted: set[Delimiters] = set()
            for together in [list(readings)] if _has_only_records(entry) else [[reading] for reading in readings]:
                names = [name for reading in together for name in readings[reading]]
                uncounted = {reading.delimiters for reading in together} - counted
                counted |= uncounted
                for opened in together[0].chunks(entry, measures[0].rules[together[0]]):
                    measures[opened.chunk.source].add(opened, names, uncounted)
                    done += opened.chunk.weight * len(names)
                    observer.encoding(done, total)
    check_unchanged(corpus.entries, "run again when it is complete", may_grow=True)


def _has_only_records(entry: CorpusEntry) -> bool:
    """Return whether the chunks of an entry are the same for all tokenizers, as records are never cut."""
    if isinstance(entry, StreamTask):
        return all(file.format != "text" for file in entry.files)
    return isinstance(entry, DocumentIterable)


@contextmanager
def _rereadable(entries: Sequence[CorpusEntry], passes: int) -> Iterator[list[CorpusEntry]]:
    """Yield the entries, with a temporary copy of text from standard input if it is to be read several times."""
    with ExitStack() as copies:

        def rereadable(entry: CorpusEntry) -> CorpusEntry:
            if passes == 1 or _has_only_records(entry) or not isinstance(entry, StreamTask):
                return entry
            if entry.files[0].location != "stdin":
                return entry
            return _copied(entry, Path(copies.enter_context(TemporaryDirectory(prefix="bpeflow-")), "stdin"))

        yield list(map(rereadable, entries))


def _copied(task: StreamTask, path: Path) -> StreamTask:
    source = StandardInput()
    with path.open("wb") as target:
        while block := source.read(_COPIED_BYTES):
            target.write(block)
    return StreamTask((replace(task.files[0], name=str(path), size=path.stat().st_size, location="file"),))


# ---- measuring ----


class _SourceMeasures:
    """What is known of a source: its text, and the ids of each tokenizer.

    Attributes:
        source: the source.
        readings: the names of the tokenizers, by the way they read text.
        rules: the same ways, with the sources.
    """

    def __init__(
        self,
        number: int,
        corpus: Corpus,
        tokenizers: Mapping[str, Tokenizer],
        separator: str | None,
        invalid_utf8: InvalidUtf8Policy,
    ) -> None:
        self.source = corpus.sources[number]
        self.rules: dict[_Reading, TextRules] = {}
        self.readings: dict[_Reading, list[str]] = {}
        self.measures: dict[str, _Measure] = {}
        for name, tokenizer in tokenizers.items():
            delimiters = Delimiters(choose_separator(tokenizer, separator), tuple(sorted(tokenizer.special_tokens)))
            reading = _Reading(delimiters, tokenizer.pattern, tokenizer.normalizer)
            self.readings.setdefault(reading, []).append(name)
            rules = TextRules(tokenizer._pretokenizer, delimiters, invalid_utf8, corpus.sources, keep_separator=True)
            rules = self.rules.setdefault(reading, rules)
            self.measures[name] = _Measure(tokenizer, ChunkEncoder(tokenizer, rules, None))
        self._texts = {reading.delimiters: _TextCounter(reading.delimiters, invalid_utf8) for reading in self.readings}

    def add(self, opened: OpenChunk, names: Iterable[str], uncounted: Iterable[Delimiters]) -> None:
        """Encode a chunk with the named tokenizers, and count its text if that is yet to be done."""
        for delimiters in uncounted:
            self._texts[delimiters].add(opened)
        for name in names:
            self.measures[name].add(opened)

    def text(self, name: str) -> CorpusText:
        """Return the text that a tokenizer has encoded."""
        return self._texts[self.measures[name].encoder.rules.delimiters].text

    @property
    def skipped_documents(self) -> int:
        """The number of documents that were left out."""
        return next(iter(self._texts.values())).text.skipped_documents

    def evaluations(self) -> list[Evaluation]:
        return [measure.evaluation(name, self.source.name, self.text(name)) for name, measure in self.measures.items()]


def _evaluations_of_all(measures: Sequence[_SourceMeasures]) -> list[Evaluation]:
    """Return the results for all sources together, each as many times as its weight."""
    rows = []
    for name, first in measures[0].measures.items():
        whole, text = _Measure(first.tokenizer, first.encoder), CorpusText()
        for part in measures:
            weight = part.source.weight
            whole.occurrences += part.measures[name].occurrences * weight
            whole.seconds += part.measures[name].seconds * weight
            text += part.text(name) * weight
        rows.append(whole.evaluation(name, None, text))
    return rows


class _Measure:
    """The ids that a tokenizer makes of a source, and the time it takes."""

    def __init__(self, tokenizer: Tokenizer, encoder: ChunkEncoder) -> None:
        self.tokenizer = tokenizer
        self.encoder = encoder
        self.occurrences: NDArray[np.int64] = np.zeros(tokenizer.vocab_size, np.int64)
        self.seconds = 0.0

    def add(self, opened: OpenChunk) -> None:
        rules = self.encoder.rules
        delimiters = rules.record_delimiters if opened.has_records else rules.delimiters
        started = perf_counter()
        encoded = self.encoder.encode_text(replace(opened, rules=rules, delimiters=delimiters))
        self.seconds += perf_counter() - started
        self.occurrences += np.bincount(encoded.ids, minlength=len(self.occurrences))

    def evaluation(self, name: str, corpus: str | None, text: CorpusText) -> Evaluation:
        vocab = self.tokenizer.vocab
        specials = set(vocab.special_tokens.values())
        single = [i for i, token in enumerate(vocab.tokens) if len(token) == 1 and i not in specials]
        return Evaluation(
            tokenizer=name,
            corpus=corpus,
            text=text,
            tokens=int(self.occurrences.sum()),
            single_byte_tokens=int(self.occurrences[single].sum()),
            used_tokens=int(np.count_nonzero(self.occurrences)),
            vocab_size=self.tokenizer.vocab_size,
            seconds=self.seconds,
        )


class _TextCounter:
    """Counts the bytes, words and documents of chunks."""

    def __init__(self, delimiters: Delimiters, invalid_utf8: InvalidUtf8Policy) -> None:
        self.text = CorpusText()
        self._delimiters = delimiters
        self._invalid_utf8 = invalid_utf8
        self._in_word = False  # whether the text so far ends in a word, which may continue in the next chunk

    def add(self, opened: OpenChunk) -> None:
        data = bytes(opened.data)
        size = words = documents = 0
        skipped = opened.left_out.skipped_documents + opened.left_out.bad_records
        delimiters = _RECORDS if opened.has_records else self._delimiters
        rules = replace(opened.rules, invalid_utf8=self._invalid_utf8 if self._invalid_utf8 == "skip" else "replace")
        for document, texts in replace(opened, rules=rules, delimiters=delimiters).documents():
            if texts is None:
                skipped += 1
                continue
            encoded = data[document.pieces[0][0] : document.pieces[-1][1]]
            text = encoded.decode(errors="replace")
            size += len(encoded)
            words += len(text.split())
            words -= self._in_word and not text[:1].isspace() and text != ""
            self._in_word = not text[-1:].isspace() if text else self._in_word
            if document.closed or opened.chunk.ends_file:
                documents += 1
                self._in_word = False
        self.text += CorpusText(size, words, documents, skipped)
