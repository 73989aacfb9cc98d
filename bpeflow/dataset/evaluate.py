"""`evaluate`: compares tokenizers on corpora."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cache
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.text import as_path, short_names
from bpeflow.config import CorpusSettings, CountSettings, SourceSettings, make_settings
from bpeflow.config.settings import UNNAMED_SOURCE
from bpeflow.corpus.open_chunk import open_chunk
from bpeflow.corpus.reader import CorpusReader
from bpeflow.corpus.sources import DOCUMENTS, check_rereadable, each_document_once, split_off_documents
from bpeflow.counting.count import CorpusCounter
from bpeflow.dataset.corpus_encoder import ChunkEncoder
from bpeflow.dataset.evaluation_report import CorpusText, Evaluation, EvaluationReport
from bpeflow.errors import ConfigError, CorpusError, InputTypeError, TokenizerNotFoundError
from bpeflow.keywords import CorpusKeywords, takes_settings
from bpeflow.look.usage import count_settings, token_occurrences
from bpeflow.progress import Observer, observer_for
from bpeflow.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack


log = logging.getLogger(__name__)

AnyTokenizer = Tokenizer | str | Path

#: Words, as `str.split` finds them.
_WORD = r"[^\s\x1c-\x1f]+"

#: The chunks at the beginning of a corpus in which speed is measured: their size in bytes, and how many. More: steadier
#: figures. Fewer: less time and memory.
_CHUNK_SIZE, _CHUNKS = 4_000_000, 4


@takes_settings
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

    Special tokens in the text, separators among them, are left out, but not those of white space: they are text, as the
    runs of spaces of GPT-NeoX.

    Args:
        tokenizers: a tokenizer, several, or tokenizers by name. A tokenizer may be a path, as for `Tokenizer.load`; it
            is named by the last part of the path, or by more parts if two paths end alike.
        inputs: the corpora. Each is a file, folder, glob, ``@list`` of these or a URL, and is named like tokenizers. Or
            it is a mapping as in the setting `sources`: `paths`, and optionally `name`, `exclude`, `max_bytes` (for a
            random sample), `seed`, `format` and `text_field`. Or `inputs` is an iterable of documents, which make up
            one corpus; they are kept in memory, because they are read several times. If the documents are a list of
            `str`, pass `iter(documents)`.
        baseline: the tokenizer to compare with: the name or path of one of them, or the path of another one. By default
            the first of several.
        progress: show progress on standard error, or in the notebook.
        observer: progress callbacks, instead.
        options: the other settings of `bpeflow.config.CorpusSettings`: `sources`, `input_format`, `text_field`,
            `exclude`, `separator`, `invalid_utf8`, `bad_records`. By default, the separator is the
            special token of each tokenizer that ends documents (`Tokenizer.eot_token`).

    Returns:
        The results for each corpus and, if there are several, for all of them together. Weights are ignored.

    Raises:
        ConfigError: there are no tokenizers or no inputs, or an option is invalid.
        CorpusError: input is missing, unreadable, or not UTF-8 (`InvalidUtf8Error`); or no corpus has text.
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
        documents = list(documents)
    sources = _sources(values) if documents is None else (SourceSettings(name=UNNAMED_SOURCE, paths=(DOCUMENTS,)),)
    rest = {key: value for key, value in values.items() if key not in ("input", "sources")}
    with observer_for(progress, observer) as watching:
        corpora = [_counters(source, rest, documents, loaded) for source in sources]
        measured = [_measure(loaded, counters, watching) for counters in corpora]
    if not any(measure.text.bytes for measures in measured for measure in measures.values()):
        raise CorpusError(f"nothing to evaluate: no text in {', '.join(source.name for source in sources)}")
    rows = [
        _evaluation(tokenizer, name, source.name, [measures[name]])
        for source, measures in zip(sources, measured, strict=True)
        for name, tokenizer in loaded.items()
    ]
    if len(sources) > 1:
        for name, tokenizer in loaded.items():
            rows.append(_evaluation(tokenizer, name, None, [measures[name] for measures in measured]))
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
    else:
        one = isinstance(tokenizers, AnyTokenizer) or not isinstance(tokenizers, Iterable)
        given = _by_name([tokenizers] if one else cast(Iterable[Any], tokenizers), "tokenizer")
    for name, entry in given.items():
        if not isinstance(entry, AnyTokenizer):
            raise InputTypeError(f"{name} is {type(entry).__name__}; it must be a Tokenizer, a name or a path")
    if not given:
        raise ConfigError("nothing to evaluate: at least one tokenizer is needed")
    base = next(iter(given)) if len(given) > 1 else None
    if baseline is not None:
        path = str(as_path(baseline, "baseline"))
        named = {str(Path(entry)): name for name, entry in given.items() if not isinstance(entry, Tokenizer)}
        base = str(baseline) if str(baseline) in given else named.get(path)
        if base is None:
            base = short_names([*given, *named, path])[path]
            try:
                given[base] = Tokenizer.from_pretrained(path)
            except TokenizerNotFoundError as error:
                raise TokenizerNotFoundError(f"baseline {error}; the tokenizers are: {', '.join(given)}") from None
    loaded = {
        name: entry if isinstance(entry, Tokenizer) else Tokenizer.from_pretrained(entry)
        for name, entry in given.items()
    }
    return loaded, base


def _sources(values: Mapping[str, Any]) -> tuple[SourceSettings, ...]:
    """Return the corpora, each as a source."""
    inputs = values["input"]
    named = _by_name([inputs] if isinstance(inputs, str | Path | Mapping) else inputs, "corpus")
    if not named and not values.get("sources"):
        raise ConfigError("nothing to evaluate: at least one input is needed")
    sources = [
        entry if isinstance(entry, Mapping) else {"name": name, "paths": str(entry)} for name, entry in named.items()
    ]
    settings = each_document_once(make_settings(CorpusSettings, {**values, "input": sources}))
    check_rereadable(settings.sources, "evaluate")
    return settings.sources


def _by_name(entries: Iterable[Any], noun: str) -> dict[str, Any]:
    """Return paths by their last parts, each path once, and other entries by their numbers."""
    given: dict[str, Any] = {}
    for number, entry in enumerate(entries, 1):
        key = str(entry) if isinstance(entry, str | Path) else f"{noun} {number}"
        if key in given:
            log.warning("%s is named more than once, and read once", key)
        given[key] = entry
    names = short_names([*given])
    return {names[key]: entry for key, entry in given.items()}


# ---- measuring ----


class _Counters(NamedTuple):
    """The counters of a corpus for a tokenizer.

    Attributes:
        pretokens: counts its pre-tokens.
        words: counts its special tokens of white space, and the words between all special tokens.
        white_space: these special tokens.
    """

    pretokens: CorpusCounter
    words: CorpusCounter
    white_space: list[str]


class _Measure(NamedTuple):
    """A text, how often each id of a tokenizer occurs in it, and the time that encoding it takes."""

    text: CorpusText
    occurrences: NDArray[np.int64]
    seconds: float


def _counters(
    source: SourceSettings,
    options: Mapping[str, Any],
    documents: Iterable[Any] | None,
    tokenizers: Mapping[str, Tokenizer],
) -> dict[str, _Counters]:
    """Return the counters of a corpus for each tokenizer. Tokenizers that split it alike share them."""

    @cache
    def counter(settings: CountSettings, pattern: str = "") -> CorpusCounter:
        if pattern:  # the mistakes in the corpus have been reported
            settings = settings.model_copy(update={"pattern": pattern, "unmatched": "drop", "normalizer": ()})
        return CorpusCounter(settings, documents=documents, learns=False, seen=bool(pattern))

    chosen = {}
    for name, tokenizer in tokenizers.items():
        settings = count_settings(tokenizer, {**options, "sources": (source,)})
        blank = sorted(filter(str.isspace, settings.special_tokens), key=len, reverse=True)
        others = tuple(token for token in settings.special_tokens if token not in blank)
        of_words = settings.model_copy(update={"special_tokens": others})
        words = counter(of_words, "|".join([*map(re.escape, blank), _WORD]))
        chosen[name] = _Counters(counter(settings), words, blank)
    return chosen


def _measure(
    tokenizers: Mapping[str, Tokenizer], counters: Mapping[str, _Counters], observer: Observer
) -> dict[str, _Measure]:
    """Count a corpus, and return what is known of each tokenizer."""
    count = cache(lambda counter: counter.count(observer, may_be_empty=True))
    measures = {}
    for name, tokenizer in tokenizers.items():
        pretokens, words, white_space = counters[name]
        counted = count(words)
        documents = counted.documents
        occurrences = token_occurrences(tokenizer, count(pretokens).counts)
        spaces = [counted.counts.get(token, 0) for token in white_space]
        for token, times in zip(white_space, spaces, strict=True):
            occurrences[tokenizer.special_tokens[token]] += times
        text = CorpusText(
            bytes=documents.matched_bytes + documents.unmatched_bytes,
            words=counted.counts.total - sum(spaces),
            documents=documents.documents - documents.skipped_documents,
            skipped_documents=documents.skipped_documents + documents.bad_records,
        )
        measures[name] = _Measure(text, occurrences, _seconds_per_byte(tokenizer, pretokens) * documents.bytes)
    return measures


def _seconds_per_byte(tokenizer: Tokenizer, counter: CorpusCounter) -> float:
    """Return the time that a tokenizer takes for a byte of text on one thread, without reading."""
    rules = replace(counter.rules, keep_separator=True)
    encoder = ChunkEncoder(tokenizer, rules, None)
    chunks = CorpusReader(rules, _CHUNK_SIZE).read(counter.corpus.entries)
    opened = [open_chunk(chunk, rules) for chunk in islice(chunks, _CHUNKS)]
    started = perf_counter()
    size = sum(encoder.encode_text(chunk).statistics.bytes for chunk in opened)
    return (perf_counter() - started) / max(size, 1)


def _evaluation(tokenizer: Tokenizer, name: str, corpus: str | None, measures: Sequence[_Measure]) -> Evaluation:
    """Return the results on corpora together."""
    texts, counted, seconds = zip(*measures, strict=True)
    occurrences = np.sum(counted, axis=0)
    return Evaluation(
        tokenizer=name,
        corpus=corpus,
        text=CorpusText(*np.sum([astuple(text) for text in texts], axis=0).tolist()),
        tokens=int(occurrences.sum()),
        single_byte_tokens=int(occurrences[tokenizer.vocab.own_tokens.lengths == 1].sum()),
        used_tokens=int(np.count_nonzero(occurrences)),
        vocab_size=tokenizer.vocab_size,
        seconds=sum(seconds),
    )
