"""Counts → merges → vocabulary: the one place that knows the order of things."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
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
from bpeflow.formats.saved import SavedTokenizer
from bpeflow.init_from import read_initial_merges
from bpeflow.merging import LearnedMerges, learn_by_settings
from bpeflow.observer import Observer
from bpeflow.partial_merges import PartialMerges, merge_fingerprint
from bpeflow.publishing import COUNTS_FILE, RUN_FILES, UNFINISHED, VOCAB_FILES
from bpeflow.report import run
from bpeflow.resume import Counted, find_counted, look_for_unfinished
from bpeflow.run_folder import RunFolder
from bpeflow.vocab import Merge, Vocab

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult:
    """What a run gives.

    Attributes:
        vocab: the vocabulary of the largest size asked for; None after `skip_merge`.
        merges: its merges, by rank; empty after `skip_merge`.
        statistics: what `run.json` holds.
        counts: the pre-token counts.
        learned: the merges with their counts and the backend's statistics; None after `skip_merge`, and where `resume`
            finds a run that is finished.
    """

    vocab: Vocab | None
    merges: tuple[Merge, ...] = field(repr=False)
    statistics: dict[str, Any] = field(repr=False)
    counts: PretokenCounts = field(repr=False)
    learned: LearnedMerges | None = field(default=None, repr=False)


def train(config: Settings | Mapping[str, Any] | str | Path, observer: Observer | None = None) -> TrainResult:
    """Train a tokenizer as a config says: settings, a mapping of them, or the path of a YAML file.

    In a mapping, `input` may be an iterable of documents (`str` or `bytes`), as for `bpeflow.count`.
    With `out_dir` everything is written to that folder; without it nothing is written. With `resume` it goes on with
    the run in that folder that was killed or has failed, and ends with what an unbroken run would have given.

    Raises:
        ConfigError: a setting that is unknown or out of range, or a folder that cannot be written to.
        ResumeError: an unfinished run in the folder that is of something else, or that nobody has said what to do with.
        FolderInUse: another run is at work in the folder.
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
    corpus = CorpusCounter(
        settings, settings.out_dir and settings.out_dir / UNFINISHED, given, scratch_in=settings.out_dir
    )
    _check_init_from(settings)
    _check_formats(settings)
    initial_merges = read_initial_merges(settings, corpus.pretokenizer.regex)
    with RunFolder(settings.out_dir, corpus.scratch) as folder:
        if folder.path is not None:
            look_for_unfinished(folder.path, settings)
        found = find_counted(settings, corpus.fingerprint)
        if found is None:
            folder.begin()
            counts, report = _count(corpus, settings, folder, observer, started)
        elif found.is_finished(settings):
            log.info("the run in %s is finished: nothing is left to be done", found.folder)
            return _result_of(found, settings)
        else:
            folder.begin(VOCAB_FILES if found.is_unfinished else RUN_FILES)
            counts = found.counts
            report = run.describe_run(settings) | {key: found.report[key] for key in ("corpus", "counting")}
            report["taken_over"] = COUNTS_FILE
        return _merge_and_finish(counts, settings, initial_merges, report, folder, observer, started)


def train_from_counts(
    counts: PretokenCounts,
    settings: Settings,
    observer: Observer | None = None,
    carried_over: Mapping[str, Any] | None = None,
    counted_in: Path | None = None,
) -> TrainResult:
    """Learn and write the vocabularies that `settings` ask for from counts that exist already.

    `carried_over` is what an earlier report told of the counts, and this one shall tell too; `counted_in` the folder
    that they are in: those of an unfinished run in `out_dir` become the finished ones with it. Raises as `train` does.
    """
    started = perf_counter()
    choose_backend(settings.backend)
    _check_formats(settings)
    initial_merges = read_initial_merges(settings, (carried_over or {}).get("corpus", {}).get("pattern"))
    with RunFolder(settings.out_dir) as folder:
        ends_it = bool(counted_in and folder.unfinished and counted_in.resolve() == folder.unfinished.resolve())
        if folder.path is not None:
            look_for_unfinished(folder.path, settings, "unfinished" if ends_it else "elsewhere")
        folder.begin(VOCAB_FILES if ends_it else RUN_FILES)
        report = {**run.describe_run(settings), **(carried_over or {})}
        return _merge_and_finish(counts, settings, initial_merges, report, folder, observer or Observer(), started)


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
    """Refuse to count into the folder of the tokenizer to begin with: it would be gone in the end."""
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


def _count(
    corpus: CorpusCounter, settings: Settings, folder: RunFolder, observer: Observer, started: float
) -> tuple[PretokenCounts, dict[str, Any]]:
    """Count the corpus, write the counts, and what is known of them, and return both."""
    with folder.monitor(settings.monitor.enabled, observer, append=settings.resume) as on_sample:
        counted = corpus.count(observer, on_sample, settings.monitor.interval)
    report = run.describe_run(settings)
    report["corpus"] = run.describe_corpus(corpus, counted)
    report["counting"] = run.describe_counting(corpus, counted)
    if not len(counted.counts):
        log.warning("there are no pre-tokens: the corpus is empty, or the pattern matches nothing in it")
    folder.write(COUNTS_FILE, counted.counts.dump)
    folder.write_report(report, started)  # so that `merge` and `resume` can go on from here, with these settings
    if counted.segments is not None:
        corpus.forget_segments()
    return counted.counts, report


def _result_of(found: Counted, settings: Settings) -> TrainResult:
    """Read the result of a run that is finished."""
    vocab = found.vocab(settings.special_tokens)
    return TrainResult(vocab, vocab.merges if vocab else (), found.report, found.counts)


def _merge_and_finish(
    counts: PretokenCounts,
    settings: Settings,
    initial_merges: Sequence[Merge],
    report: dict[str, Any],
    folder: RunFolder,
    observer: Observer,
    started: float,
) -> TrainResult:
    vocab, learned = None, None
    if not settings.skip_merge:
        merging_started = perf_counter()
        largest = settings.model_copy(update={"vocab_size": settings.sizes[-1]})
        partial = PartialMerges(folder.unfinished, counts, settings) if folder.unfinished is not None else None
        learned = learn_by_settings(counts, largest, initial_merges, observer, partial)
        seconds = perf_counter() - merging_started
        vocab = _write_vocabs(learned, settings, folder)
        report["merging"] = run.describe_merges(learned, vocab, seconds)
        report["merging"]["fingerprint"] = merge_fingerprint(settings)
        if len(vocab) < settings.sizes[-1]:
            log.warning(
                "the vocabulary has %d entries, not %d: no more pairs could be merged", len(vocab), settings.sizes[-1]
            )
    folder.finish(report, started)
    return TrainResult(vocab, vocab.merges if vocab else (), report, counts, learned)


def _write_vocabs(learned: LearnedMerges, settings: Settings, folder: RunFolder) -> Vocab:
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
        folder.write_tokenizer(saved, "" if size == settings.sizes[-1] else f"vocab_{size}", settings.output.formats)
    return vocab
