"""`train`: corpus to counts to merges to vocabulary; the one place that knows the whole sequence."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bpeflow._util.delimiters import END_OF_DOCUMENT
from bpeflow._util.text import Described, as_path, short_repr
from bpeflow.backends import choose_backend
from bpeflow.config import EngineSettings, Settings, load_values
from bpeflow.corpus.sources import check_rereadable, split_off_documents
from bpeflow.counting.count import CorpusCounter
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError, InputTypeError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.keywords import TrainKeywords, takes_settings
from bpeflow.progress import Observer, observer_for
from bpeflow.run_dir.layout import (
    CHECKPOINT_FILE,
    COUNTS_FILE,
    PAGE_FILE,
    REPORT_FILE,
    RUN_FILES,
    SEGMENTS,
    UNFINISHED,
    VOCAB_FILES,
    same_folder,
    start_over,
    vocab_subfolder,
)
from bpeflow.run_dir.resume import (
    SavedCounts,
    find_counts,
    find_learned,
    learned_tokenizer,
    make_run_settings,
    make_way,
    nothing_left,
)
from bpeflow.run_dir.run_dir import RunDir
from bpeflow.run_dir.run_files import (
    LearningReport,
    MergeCheckpoint,
    RunReport,
    TokenReport,
    learning_fingerprint,
    start_report,
)
from bpeflow.run_dir.summary import describe_run
from bpeflow.training.learn import LearnedMerges, learn_with_settings
from bpeflow.training.superwords import (
    check_second_pattern,
    first_stage_settings,
    first_stage_vocab,
    load_first_stage,
    rereadable,
    second_stage_settings,
    with_second_pattern,
)
from bpeflow.training.task import check_formats, resolve_initial, spec_of, split_off_tokenizer
from bpeflow.vocab import Merge, Vocab

if TYPE_CHECKING:
    from typing_extensions import Never, Unpack

    from bpeflow.counting.ray_tasks import ClusterCounting
    from bpeflow.tokenizer.tokenizer import Tokenizer
    from bpeflow.training.cut import CutCounting

#: Seconds that a run takes at least to get a page about it without being asked. Writing one takes about two.
PAGE_AFTER = 60.0

#: The remedy for a corpus or keywords in place of settings.
_TAKES_SETTINGS = "; Tokenizer.train takes texts or files of text, and settings as keywords"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult(Described):
    """The result of a training run.

    Attributes:
        spec: the content of the tokenizer of the largest size asked for; None with `skip_merge`.
        report: what ``run.json`` holds.
        counts: the pre-token counts.
        learned: the merges with their counts and the backend's statistics; None with `skip_merge`, or if `resume` found
            a finished run.

    >>> from bpeflow import train
    >>> result = train({"input": iter(["low low low", "lower"]), "vocab_size": 258})
    >>> result.merges, len(result.vocab), result.report.learning.learned
    (((b'o', b'w'),), 258, 1)
    >>> result.tokenizer.encode("low")
    [108, 257]
    """

    spec: TokenizerSpec | None
    report: RunReport = field(repr=False)
    counts: PretokenCounts = field(repr=False)
    learned: LearnedMerges | None = field(default=None, repr=False)

    def describe(self) -> Iterator[tuple[str, str]]:
        """Yield the lines that the `train` command prints about a run."""
        return describe_run(self.report)

    @property
    def vocab(self) -> Vocab | None:
        """The vocabulary; None with `skip_merge`."""
        return self.spec.vocab if self.spec else None

    @property
    def merges(self) -> tuple[Merge, ...]:
        """The merges by rank; empty with `skip_merge`."""
        return self.spec.vocab.merges if self.spec else ()

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            ConfigError: with `skip_merge` the run has no vocabulary.
        """
        from bpeflow import Tokenizer  # the public class, which trains

        if self.spec is None:
            raise ConfigError("skip_merge leaves no vocabulary for a tokenizer; train without it")
        return Tokenizer.from_spec(self.spec)


def train(
    config: Settings | Mapping[str, Any] | str | Path,
    observer: Observer | None = None,
    *,
    progress: bool = False,
    **_unknown: Never,
) -> TrainResult:
    """Train a tokenizer.

    With `out_dir` everything is written to that folder; without it nothing is written. With `resume` an interrupted or
    failed run in that folder continues, and writes the same bytes as an uninterrupted one. ``train({"out_dir": folder,
    "resume": True})`` takes all other settings from the interrupted run.

    Args:
        config: settings, a mapping of them, or the path of a YAML config. In a mapping, `input` may be an iterable of
            documents, as for `bpeflow.count`, and `init_from` a `Tokenizer` or a `Vocab`.
        observer: progress callbacks.
        progress: show progress on standard error, or in the notebook, instead.

    Raises:
        ConfigError: a setting is unknown or out of range, or a folder cannot be written to.
        ResumeError: the folder has an unfinished run with other settings or another corpus, or neither `resume` nor
            `restart` says what to do with it.
        AlreadyExistsError: the folder has a finished run or a tokenizer, and `overwrite` is not set.
        FolderInUseError: another run is at work in the folder.
        CorpusError: input is missing, unreadable, or not UTF-8 (`InvalidUtf8Error`).
        BackendUnavailableError: the chosen backend is not available; raised before counting.
        CountOverflowError: a count does not fit 64 bits.
        ScratchError: there was neither memory nor disk space for the counts.
        WorkerDiedError: a worker process was killed.
        EngineError: the cluster that `engine` names cannot be reached, a node differs, or tasks were lost too often.

    >>> train({"input": iter(["low low low", "lower"]), "vocab_size": 258}).vocab
    Vocab(258 tokens, 1 merges, special tokens: <|endoftext|>)
    """
    if _unknown:
        raise InputTypeError(f"train() has no parameter {next(iter(_unknown))!r}{_TAKES_SETTINGS}")
    documents: Iterable[Any] | None = None
    base: TokenizerSpec | None = None
    if isinstance(config, Mapping):
        config, documents = split_off_documents(config)
        config, base = split_off_tokenizer(config)
    with observer_for(progress, observer) as watching:
        settings = _as_settings(config)
        _check_init_from(settings)
        return _Training(settings, base, watching).of_corpus(documents)


def train_from_counts(saved: SavedCounts, settings: Settings, observer: Observer) -> TrainResult:
    """Learn and write the vocabularies that `settings` ask for from existing counts; raises as `train` does.

    If the counts are of an unfinished run in `out_dir`, they are published with the results. The description of the
    corpus is copied from the report of the run that counted.
    """
    counts = saved.counts
    if not len(counts):
        raise ConfigError(f"{saved.place}: no pre-tokens, so there is nothing to learn from")
    if counts.pattern is not None and not settings.superwords:  # the counts know it better than unused settings
        counted_with = {"pattern": counts.pattern, "unmatched": counts.unmatched, "normalizer": counts.normalizer}
        settings = settings.model_copy(update=counted_with)
    return _Training(settings, None, observer).of_counts(saved)


@takes_settings
def train_bpe(
    input_path: str | Path | Sequence[str | Path] | Iterable[str | bytes | Mapping[str, Any]],
    vocab_size: int,
    special_tokens: str | Sequence[str] = END_OF_DOCUMENT,
    *,
    progress: bool = False,
    observer: Observer | None = None,
    **options: Unpack[TrainKeywords],
) -> tuple[dict[int, bytes], list[Merge]]:
    """Train with the interface of Stanford CS336's assignment.

    Args:
        input_path: a UTF-8 text file; or several, a folder, a glob, or documents, as for `bpeflow.count`.
        vocab_size: entries of the vocabulary: 256 bytes, special tokens, merges.
        special_tokens: one or several strings that are never split or merged. One ends documents, as in
            `Tokenizer.eot_token`. Pass ``()`` for none.
        progress: show progress on standard error, or in the notebook.
        observer: progress callbacks, instead.
        options: any other setting, such as ``backend="omp"`` or ``num_counter=4``; `bpeflow config` describes each.
            Nothing is written without `out_dir`.

    Returns:
        ``{id: bytes}``, and the merges by rank as pairs of bytes. Neither holds the pattern: if you give one here, also
        give it to `Tokenizer`.

    Raises:
        BpeflowError: one of the errors of `train`.

    >>> vocab, merges = train_bpe(iter(["low low low", "lower"]), 258, ["<s>"])
    >>> merges
    [(b'o', b'w')]
    >>> vocab[256], vocab[257]
    (b'<s>', b'ow')
    """
    values = {"input": input_path, "vocab_size": vocab_size, "special_tokens": special_tokens, **options}
    result = train(values, observer, progress=progress)
    vocab = result.vocab.to_dict() if result.vocab is not None else {}
    return vocab, list(result.merges)


class _Training:
    """A training run with complete and checked settings."""

    def __init__(self, settings: Settings, base: TokenizerSpec | None, observer: Observer) -> None:
        self._started = perf_counter()
        choose_backend(settings.backend)  # fail now, not after hours of counting
        settings, self._base = resolve_initial(settings, base)
        self._settings = self._counting = settings
        if settings.superwords:
            check_rereadable(settings.all_sources, "a training with superwords")
            self._counting = second_stage_settings(settings)
            if self._base is None:
                self._settings = settings.model_copy(update={"transition_size": settings.transition})
            else:
                self._base = with_second_pattern(self._base, settings)
        check_formats(self._counting, self._base)
        self._first_stage: TokenizerSpec | None = None
        self._cut: CutCounting | None = None
        self._observer = observer

    @property
    def _fingerprint(self) -> dict[str, Any]:
        return learning_fingerprint(self._settings, self._base)

    def of_corpus(self, documents: Iterable[Any] | None) -> TrainResult:
        """Count the corpus, unless an earlier run has counted it, and learn."""
        settings = self._settings
        two_stages = settings.superwords and self._base is None
        if two_stages and documents is not None:
            documents = rereadable(documents)
        segments = settings.out_dir and settings.out_dir / UNFINISHED / SEGMENTS
        corpus = CorpusCounter(self._counting, segments, documents, scratch_in=settings.out_dir, seen=two_stages)
        if settings.engine.kind != "local":
            corpus.check_distributable()
        with RunDir(settings.out_dir, corpus.scratch) as folder:
            if folder.path is not None:
                make_way(folder.path, settings)
            found = find_counts(settings, corpus.fingerprint, two_stages)
            if found is None:
                folder.begin(settings)
            text_bytes = corpus.corpus.total_bytes
            if two_stages:
                within = folder.path if found and found.finished else folder.unfinished
                text_bytes = self._learn_first_stage(documents, within)
            if self._base is not None and settings.superwords:
                from bpeflow.training.cut import choose_cut

                self._cut = choose_cut(self._base, settings, corpus, text_bytes, documents)
            if found is None:
                counts, report = self._count(corpus, folder)
            elif found.finished and found.report and nothing_left(settings, self._fingerprint, found.report):
                return self._finished(folder.path, found.report, found.counts)
            else:
                folder.begin(settings, stale=RUN_FILES if found.finished else VOCAB_FILES)
                counts, report = found.counts, replace(self._report_of(found), resumed=COUNTS_FILE)
            while isinstance(result := self._learn(counts, report, folder), int):
                folder.begin(settings, stale=(REPORT_FILE, COUNTS_FILE, CHECKPOINT_FILE))
                if self._cut is not None and counts.cut is not None:
                    self._cut.lower(counts.cut)
                counts, report = self._count(corpus, folder)
            return result

    def _learn_first_stage(self, documents: Iterable[Any] | None, within: Path | None) -> int | None:
        """Train the tokenizer that superwords extend, in a subfolder of the folder given, unless it is there.

        Return the size of the text.
        """
        log.info("superwords: the first stage, to %s entries", f"{self._settings.transition:,}")
        first = _Training(first_stage_settings(self._settings, within), None, self._observer).of_corpus(documents)
        assert first.spec is not None  # noqa: S101 -- for the type checker: only with skip_merge
        self._begin_second_stage(first.spec)
        return first.report.corpus.bytes if first.report.corpus else None

    def _begin_second_stage(self, first_stage: TokenizerSpec) -> None:
        self._first_stage = first_stage
        self._base = with_second_pattern(first_stage, self._settings)

    def _report_of(self, saved: SavedCounts) -> RunReport:
        """Return the first report of a run that learns from counts."""
        report, earlier = start_report(self._settings), saved.report
        return replace(report, corpus=earlier.corpus, counting=earlier.counting) if earlier else report

    def of_counts(self, saved: SavedCounts) -> TrainResult:
        """Learn from counts."""
        settings, counts, counted_in = self._settings, saved.counts, saved.path.parent
        if settings.superwords:
            check_second_pattern(settings, counts.pattern)
        if settings.superwords and self._base is None:
            self._begin_second_stage(load_first_stage(settings, counted_in))
        with RunDir(settings.out_dir) as folder:
            completes = same_folder(counted_in, folder.unfinished)
            if folder.path is not None:
                make_way(folder.path, settings, counts=False, counts_in=counted_in)
                if finished := find_learned(settings, self._fingerprint, saved):
                    return self._finished(folder.path, finished, counts)
            given = None if completes else str(saved.place.absolute())
            folder.begin(settings, given, VOCAB_FILES if completes else RUN_FILES)
            if saved.report is not None:
                _warn_of_left_out(saved.report.settings["special_tokens"], settings.special_tokens)
            result = self._learn(counts, replace(self._report_of(saved), counts=str(saved.place)), folder)
            if isinstance(result, int):
                raise ConfigError(
                    f"vocab_size: chunks were cut for fewer superwords than {settings.sizes[-1]:,} entries take when "
                    f"{saved.place} was counted: give at most {result:,}, or train from the corpus"
                )
            return result

    def _finished(self, folder: Path | None, report: RunReport, counts: PretokenCounts) -> TrainResult:
        """Return the result of the finished run in a folder, which the settings ask for again."""
        if folder is None:
            return TrainResult(None, report, counts)
        log.info(
            "the run in %s is finished: nothing left to do (for other settings, start over with %s)",
            folder,
            start_over(folder),
        )
        return TrainResult(learned_tokenizer(folder, report), report, counts)

    def _count(self, corpus: CorpusCounter, folder: RunDir) -> tuple[PretokenCounts, RunReport]:
        """Count the corpus and write the counts with a report, so that `merge` and `resume` can start from here."""
        settings, observer = self._settings, self._observer
        interval = settings.monitor.interval or observer.sample_interval
        with (
            folder.monitor(settings.monitor.enabled, observer, append=settings.resume) as on_sample,
            _cluster(settings.engine) as cluster,
        ):
            count = partial(self._cut.count, corpus) if self._cut else corpus.count
            counted = count(observer, on_sample, interval, cluster)
        folder.write(COUNTS_FILE, counted.counts.dump)
        if folder.unfinished is not None:
            counted.counts.kept_in(folder.unfinished / COUNTS_FILE)
        report = replace(start_report(settings), corpus=counted.corpus, counting=counted.counting)
        report = folder.write_report(report, self._started)
        if counted.counting.segments is not None:
            corpus.forget_segments()
        return counted.counts, report

    def _learn(self, counts: PretokenCounts, report: RunReport, folder: RunDir) -> TrainResult | int:
        """Learn the merges, write a tokenizer of each size, and complete the run.

        Return the largest possible size instead if pre-tokens were cut where further merges may be.
        """
        settings, spec, learned, checkpoint = self._settings, None, None, None
        if folder.unfinished is not None and not settings.skip_merge:
            checkpoint = MergeCheckpoint(folder.unfinished, counts, self._fingerprint)
        if report.resumed:
            log.info("%s: the corpus is already counted", folder.path)
        if not settings.skip_merge:
            started = perf_counter()
            learned = learn_with_settings(counts, settings.for_learning(), (), self._observer, checkpoint, self._base)
            seconds = perf_counter() - started
            specs = [self._spec_of_size(learned, size) for size in settings.sizes]
            full = len(specs[-1].vocab) == settings.sizes[-1]
            if not full and counts.cut and counts.cut.lowest_count > settings.min_frequency:
                return len(specs[-1].vocab)
            for size, spec in zip(settings.sizes, specs, strict=True):
                subfolder = "" if size == settings.sizes[-1] else vocab_subfolder(size)
                folder.write_tokenizer(spec, subfolder, settings.output)
                vocab = spec.vocab
            report = replace(report, learning=_describe(learned, vocab, seconds, self._fingerprint))
            if len(vocab) < settings.sizes[-1]:
                log.warning(
                    "the vocabulary has %s entries, not %s: no more pairs could be merged",
                    f"{len(vocab):,}",
                    f"{settings.sizes[-1]:,}",
                )
            if learned.wanted == learned.replayed:
                log.warning("no merges: vocab_size %s leaves no room for any", f"{settings.sizes[-1]:,}")
        report = folder.finish(report, self._started)
        self._write_page(report, folder)
        return TrainResult(spec, report, counts, learned)

    def _spec_of_size(self, learned: LearnedMerges, size: int) -> TokenizerSpec:
        settings, first = self._settings, self._first_stage
        if first is not None and size <= len(first.vocab):
            return replace(first, vocab=first_stage_vocab(first, settings, size))
        vocab = learned.vocab(special_tokens_first=settings.special_tokens_first, max_tokens=size)
        return spec_of(vocab, self._counting, self._base)

    def _write_page(self, report: RunReport, folder: RunDir) -> None:
        """Write the page about a finished run, if it is to have one. The run has succeeded, whatever happens here."""
        wanted = self._settings.output.report
        if wanted is None:
            wanted = (report.seconds or 0.0) >= PAGE_AFTER and find_spec("matplotlib") is not None
        if folder.path is None or not wanted:
            return
        path = folder.path / PAGE_FILE
        try:
            from bpeflow.look.page import write_page  # matplotlib

            write_page(folder.path, path)
        except Exception as error:
            log.warning("%s was not written: %s", path, error)
        else:
            log.info("a page about the run: %s", path)


def _as_settings(config: Settings | Mapping[str, Any] | str | Path) -> Settings:
    if isinstance(config, Settings):
        return config
    if isinstance(config, Mapping):
        return make_run_settings(config)
    if not isinstance(config, str | PathLike):
        raise InputTypeError(
            f"config is {short_repr(config)}; it must be settings, a mapping of them, or a path{_TAKES_SETTINGS}"
        )
    path = as_path(config, "config")
    try:
        values = load_values(path)
    except ConfigError as error:
        raise error if path.suffix in (".yaml", ".yml") else type(error)(f"{error}{_TAKES_SETTINGS}") from None
    return make_run_settings(values)


def _check_init_from(settings: Settings) -> None:
    """Refuse to train into the folder of the tokenizer to extend, which would be replaced."""
    out_dir, init_from = (path and path.resolve() for path in (settings.out_dir, settings.init_from))
    if out_dir and init_from and out_dir in (init_from, init_from.parent):
        raise ConfigError(
            f"init_from is in out_dir, {settings.out_dir}, whose files the run replaces: give another out_dir "
            "(to learn more merges from its counts: bpeflow merge)"
        )


def _warn_of_left_out(before: Sequence[str], now: Sequence[str]) -> None:
    """Warn of special tokens that were left out of the counts, and are ordinary text to the new tokenizer."""
    if missing := [token for token in before if token not in now]:
        log.warning(
            "special_tokens: %s not among them, but left out of the counts, so the tokenizer splits such text into "
            "tokens that are not learned from it",
            " and ".join(map(repr, missing)) + (" is" if len(missing) == 1 else " are"),
        )


@contextmanager
def _cluster(settings: EngineSettings) -> Iterator[ClusterCounting | None]:
    """Yield the cluster of the settings; None for the local engine."""
    if settings.kind == "local":
        yield None
        return
    from bpeflow.counting import cluster, ray_tasks  # with Ray, which is slow to import

    with cluster.connect(settings) as connected:
        yield ray_tasks.ClusterCounting(connected)


def _describe(learned: LearnedMerges, vocab: Vocab, seconds: float, fingerprint: dict[str, Any]) -> LearningReport:
    longest = vocab.longest_token
    new = len(learned) - learned.replayed
    return LearningReport(
        replayed=learned.replayed,
        resumed=learned.resumed,
        learned=new,
        wanted=learned.wanted,
        seconds=seconds,
        lowest_count=learned.counts[-1] if new else None,
        backend=learned.statistics,
        vocab_size=len(vocab),
        longest_token=TokenReport(text=longest.decode(errors="replace"), bytes=len(longest), hex=longest.hex()),
        fingerprint=fingerprint,
        thinned=learned.thinned,
    )
