"""Counts → merges → vocabulary: the one place that knows the order of things."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from bpeflow import formats
from bpeflow.backends.choice import choose_backend
from bpeflow.config import Settings, load_settings, make_settings
from bpeflow.corpus.given import GivenDocuments
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.pipeline import CorpusCounter, given_apart
from bpeflow.errors import ConfigError, FormatError
from bpeflow.flow import Sample
from bpeflow.formats.saved import SavedTokenizer
from bpeflow.init_from import read_initial_merges
from bpeflow.merging import LearnedMerges, learn_by_settings
from bpeflow.observer import Observer
from bpeflow.report import run
from bpeflow.vocab import Merge, Vocab

COUNTS_FILE = "counts.npz"
MONITOR_FILE = "monitor.jsonl"
_TOKENIZER_FILES = tuple(name for known in formats.FORMATS for name in known.files)
VOCAB_FILES = (*_TOKENIZER_FILES, *(f"vocab_*/{name}" for name in _TOKENIZER_FILES))
#: All that a run leaves; the report first.
RUN_FILES = (run.RUN_FILE, COUNTS_FILE, MONITOR_FILE, *VOCAB_FILES)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult:
    """What a run gives.

    Attributes:
        vocab: the vocabulary of the largest size asked for; None after `skip_merge`.
        merges: its merges, by rank; empty after `skip_merge`.
        statistics: what `run.json` holds.
        counts: the pre-token counts.
        learned: the merges with their counts and the backend's statistics; None after `skip_merge`.
    """

    vocab: Vocab | None
    merges: tuple[Merge, ...] = field(repr=False)
    statistics: dict[str, Any] = field(repr=False)
    counts: PretokenCounts = field(repr=False)
    learned: LearnedMerges | None = field(default=None, repr=False)


def train(config: Settings | Mapping[str, Any] | str | Path, observer: Observer | None = None) -> TrainResult:
    """Train a tokenizer as a config says: settings, a mapping of them, or the path of a YAML file.

    In a mapping, `input` may be an iterable of documents (`str` or `bytes`), as for `bpeflow.count`.
    With `out_dir` everything is written to that folder; without it nothing is written.

    Raises:
        ConfigError: a setting that is unknown or out of range, or a folder that cannot be written to.
        CorpusError: input that is missing, unreadable, or not UTF-8 (`InvalidUtf8Error`).
        BackendUnavailable: a backend that was asked for by name and is not here; before any counting.
        CountOverflowError: a count that does not fit 64 bits.
        ScratchError: counts for which there was neither memory nor room on the disk.
        WorkerDied: a process of the pipeline was killed.
    """
    given: GivenDocuments | None = None
    if isinstance(config, Mapping):
        config, given = given_apart(config)
    settings = _as_settings(config)
    observer = observer or Observer()
    started = perf_counter()
    choose_backend(settings.backend)  # to fail now, not after hours of counting
    corpus = CorpusCounter(settings, settings.out_dir, given)
    _check_init_from(settings)
    _check_formats(settings)
    initial_merges = read_initial_merges(settings, corpus.pretokenizer.regex)
    with _Output(settings.out_dir) as output:
        with output.monitor(settings.monitor.enabled, observer) as on_sample:
            counted = corpus.count(observer, on_sample, settings.monitor.interval)
        report = run.describe_run(settings)
        report["corpus"] = run.describe_corpus(corpus, counted)
        report["counting"] = run.describe_counting(counted)
        if not len(counted.counts):
            log.warning("there are no pre-tokens: the corpus is empty, or the pattern matches nothing in it")
        output.remove_earlier(RUN_FILES)
        output.write(COUNTS_FILE, counted.counts.save)
        output.write_report(report, started)  # so that `merge` can go on from here, with these settings
        return _merge_and_finish(counted.counts, settings, initial_merges, report, output, observer, started)


def train_from_counts(
    counts: PretokenCounts,
    settings: Settings,
    observer: Observer | None = None,
    carried_over: Mapping[str, Any] | None = None,
) -> TrainResult:
    """Learn and write the vocabularies that `settings` ask for from counts that exist already.

    `carried_over` is what an earlier report told of the counts, and this one shall tell too. Raises as `train` does.
    """
    started = perf_counter()
    choose_backend(settings.backend)
    _check_formats(settings)
    initial_merges = read_initial_merges(settings, (carried_over or {}).get("corpus", {}).get("pattern"))
    with _Output(settings.out_dir) as output:
        report = {**run.describe_run(settings), **(carried_over or {})}
        return _merge_and_finish(counts, settings, initial_merges, report, output, observer or Observer(), started)


def train_bpe(
    input_path: str | Path | Sequence[str | Path] | Iterable[str | bytes],
    vocab_size: int,
    special_tokens: Sequence[str],
    **options: Any,
) -> tuple[dict[int, bytes], list[Merge]]:
    """Train as Stanford CS336's assignment asks: return ``{id: bytes}`` and the merges in order.

    Args:
        input_path: a UTF-8 text file (or several, or a folder, or a glob, or documents, as for `bpeflow.count`).
        vocab_size: entries of the vocabulary: 256 bytes, special tokens, merges.
        special_tokens: strings that are never split or merged. The first one ends documents.
        options: any other setting of `bpeflow.config.Settings`, such as ``backend="omp"`` or ``num_counter=4``.
            Without `out_dir` nothing is written.

    Raises as `train` does.
    """
    values = {"input": input_path, "vocab_size": vocab_size, "special_tokens": special_tokens, **options}
    result = train(values)
    vocab = result.vocab.to_dict() if result.vocab is not None else {}
    return vocab, list(result.merges)


def _as_settings(config: Settings | Mapping[str, Any] | str | Path) -> Settings:
    if isinstance(config, Settings):
        return config
    if isinstance(config, Mapping):
        return make_settings(Settings, config)
    return load_settings(Path(config))


def _check_init_from(settings: Settings) -> None:
    """Refuse to count into the folder of the tokenizer to begin with: its files go when the new counts are written."""
    if settings.init_from and settings.out_dir and settings.init_from.resolve() == settings.out_dir.resolve():
        raise ConfigError(
            f"init_from and out_dir are both {settings.out_dir}, whose files the run replaces: give another out_dir "
            "(to go on with the counts that are there: python -m bpeflow merge)"
        )


def _check_formats(settings: Settings) -> None:
    """Write a tokenizer without merges in each further format: what one cannot hold is refused before the work."""
    vocab = Vocab.build(
        (),
        settings.special_tokens,
        special_tokens_first=settings.special_tokens_first,
        reuse_tokens=settings.tie_break == "huggingface",
    )
    for name in settings.output.formats:
        with TemporaryDirectory() as folder:
            try:
                formats.save(SavedTokenizer(vocab, settings.pattern), Path(folder), name)
            except FormatError as error:
                reason = str(error).partition(": ")[2]  # without the file, which nobody knows
                raise ConfigError(f"output.formats: {name}: {reason}") from None


def _merge_and_finish(
    counts: PretokenCounts,
    settings: Settings,
    initial_merges: Sequence[Merge],
    report: dict[str, Any],
    output: _Output,
    observer: Observer,
    started: float,
) -> TrainResult:
    vocab, learned = None, None
    if not settings.skip_merge:
        merging_started = perf_counter()
        largest = settings.model_copy(update={"vocab_size": settings.sizes[-1]})
        learned = learn_by_settings(counts, largest, initial_merges, observer)
        seconds = perf_counter() - merging_started
        output.remove_earlier(VOCAB_FILES)
        vocab = _write_vocabs(learned, settings, output)
        report["merging"] = run.describe_merges(learned, vocab, seconds)
        if len(vocab) < settings.sizes[-1]:
            log.warning(
                "the vocabulary has %d entries, not %d: no more pairs could be merged", len(vocab), settings.sizes[-1]
            )
        output.write_report(report, started)
    return TrainResult(vocab, vocab.merges if vocab else (), report, counts, learned)


def _write_vocabs(learned: LearnedMerges, settings: Settings, output: _Output) -> Vocab:
    """Write a vocabulary for each size: the largest into the run folder, the others into ``vocab_<size>`` in it."""
    for size in settings.sizes:
        vocab = Vocab.build(
            learned.pairs,
            settings.special_tokens,
            special_tokens_first=settings.special_tokens_first,
            reuse_tokens=learned.reuse_tokens,
            max_tokens=size,
        )
        saved = SavedTokenizer(vocab, settings.pattern)
        output.write_tokenizer(saved, "" if size == settings.sizes[-1] else f"vocab_{size}", settings.output.formats)
    return vocab


def _save_if_it_fits(saved: SavedTokenizer, folder: Path, name: str) -> list[Path]:
    """Write another format, or say why it cannot hold the tokenizer: what hours have taught is not lost for that."""
    try:
        return formats.save(saved, folder, name)
    except FormatError as error:
        log.warning("output.formats: %s is not written: %s", name, error)
        return []


class _Output:
    """The run folder, or nothing at all where there is none. As a context manager it takes back an empty folder."""

    def __init__(self, folder: Path | None) -> None:
        """Make the folder and see that it can be written to. Raises `ConfigError`; before any work is done."""
        self.folder = folder
        self._written: list[Path] = []
        self._made = folder is not None and not folder.exists()
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the run folder {folder}: {error.strerror}") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(f"cannot write to the run folder {folder}: no permission")

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed and self._made and self.folder is not None:
            with suppress(OSError):  # it is not empty
                self.folder.rmdir()

    def remove_earlier(self, patterns: Sequence[str]) -> None:
        """Remove what an earlier run left, its report first: old and new files must not look like those of one run."""
        if self.folder is None:
            return
        earlier = [path for pattern in patterns for path in sorted(self.folder.glob(pattern))]
        for path in earlier:
            if path not in self._written:
                path.unlink(missing_ok=True)
        for folder in {path.parent for path in earlier} - {self.folder}:
            with suppress(OSError):  # something else is in it
                folder.rmdir()

    def write(self, name: str, save: Callable[[Path], object]) -> None:
        if self.folder is not None:
            save(self.folder / name)
            self._written.append(self.folder / name)

    def write_report(self, report: dict[str, Any], started: float) -> None:
        """Bring the report up to date and write it."""
        if self.folder is not None:
            known = [self.folder / name for name in (COUNTS_FILE, MONITOR_FILE)]
            files = [*(path for path in known if path.exists()), *self._written]
            report |= run.describe_end(perf_counter() - started, dict.fromkeys(files), self.folder)
            run.write_run(self.folder / run.RUN_FILE, report)

    def write_tokenizer(self, saved: SavedTokenizer, subfolder: str, others: Sequence[str]) -> None:
        """Write a tokenizer in our own form, and in other formats; warn of one that cannot hold it."""
        if self.folder is None:
            return
        self._written += formats.save(saved, self.folder / subfolder, "gpt2")
        for name in others:
            self._written += _save_if_it_fits(saved, self.folder / subfolder, name)

    @contextmanager
    def monitor(self, enabled: bool, observer: Observer) -> Iterator[Callable[[Sample], None] | None]:
        """Yield what to do with a sample: tell the observer, and append it to ``monitor.jsonl``."""
        if not enabled:
            yield None
        elif self.folder is None:
            yield observer.monitored
        else:
            path = self.folder / MONITOR_FILE
            with path.open("w", encoding="utf-8", buffering=1) as file:

                def record(sample: Sample) -> None:
                    observer.monitored(sample)
                    file.write(json.dumps(sample.to_dict()) + "\n")

                yield record
            self._written.append(path)
