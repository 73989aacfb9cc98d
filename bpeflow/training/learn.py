"""`learn_merges`: pre-token counts to merges; gives a backend its task, steps it to the end, reads the result."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.delimiters import END_OF_DOCUMENT
from bpeflow._util.machine import available_memory
from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy, format_size
from bpeflow.backends import choose_backend
from bpeflow.backends.base import EncodedWords, MergeSession, MergeStatistics, MergeTask, WordCounts
from bpeflow.config import MergeSettings, check_vocab_sizes, make_settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.report import Thinned
from bpeflow.errors import ConfigError, explain_memory_error
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.keywords import BackendName, LearnKeywords, takes_settings
from bpeflow.progress import Observer, observer_for
from bpeflow.run_dir.run_files import MergeCheckpoint
from bpeflow.training.task import after_merges, learning_task
from bpeflow.vocab import Merge, Vocab, as_merges

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from bpeflow.tokenizer.tokenizer import Tokenizer

#: Merges to learn before the clock and Ctrl-C are checked for the first time. With the slowest search (`max_search:
#: scan` in Python) they take seconds.
FIRST_STEP = 64

#: Target duration of a step, in seconds. Shorter steps add overhead; longer ones delay Ctrl-C and progress.
STEP_SECONDS = 0.1

#: Bytes per position and per token to learn of what is allocated while learning: lists of occurrences, pairs, the heap.
#: With them, `memory_needed` is 0.95 to 1.1 of the peak of the process at 32,000 and at 128,000 tokens of English,
#: multilingual text and code (7 to 66 million positions), and 1.2 of that of English at 128,000.
_PER_POSITION = 4
_PER_TOKEN = 400

#: The most tokens whose ids take 2 bytes (``ext/learn/ids.h``).
_NARROW_IDS = 2**16 - 1

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LearnedMerges(Sequence[Merge]):
    """The merges by rank: a sequence of ``(left bytes, right bytes)``.

    Attributes:
        pairs: the merges.
        counts: the count of each pair when it was merged; 0 for initial merges, because they are not learned.
        statistics: the figures of the learning backend.
        wanted: number of merges that fill the vocabulary. There are fewer if no pair was left to merge.
        reuse_tokens: whether a merge that made an existing token got the id of that token (`Vocab.build`).
        replayed: the number of initial merges, which come first.
        resumed: the number of further merges that an interrupted run had learned.
        special_tokens: the special tokens that the vocabulary has room for.
        pattern: the split pattern of the counts; None if it is unknown.
        unmatched: how text that the pattern did not match was handled; None if the pattern is unknown.
        base: the extended tokenizer, if any. Its merges come first.
        normalizer: the names of the normalizers of the text that was counted.
        thinned: the effect of `thin_rare`; None without it.

    >>> from bpeflow import learn_merges
    >>> merges = learn_merges({"low": 5, "lower": 2}, vocab_size=259)
    >>> len(merges), merges[0], merges.counts
    (2, (b'o', b'w'), (7, 7))
    """

    pairs: tuple[Merge, ...]
    counts: tuple[int, ...]
    statistics: MergeStatistics
    wanted: int
    reuse_tokens: bool
    replayed: int = 0
    resumed: int = 0
    special_tokens: tuple[str, ...] = ()
    pattern: Pattern | None = None
    unmatched: UnmatchedPolicy | None = None
    normalizer: tuple[NormalizerName, ...] = ()
    base: TokenizerSpec | None = field(default=None, repr=False)
    thinned: Thinned | None = None

    @property
    def backend(self) -> str:
        """The name of the backend that learned them."""
        return self.statistics.name

    def vocab(
        self,
        special_tokens: Sequence[str] | None = None,
        *,
        special_tokens_first: bool = False,
        max_tokens: int | None = None,
    ) -> Vocab:
        """Return the vocabulary of these merges.

        Args:
            special_tokens: by default as given to `bpeflow.learn_merges`.
            special_tokens_first: as for `tokenizer`.
            max_tokens: the size to stop at; by default all merges are in it.
        """
        specials = self.special_tokens if special_tokens is None else special_tokens
        if self.base is not None:
            merges = self.pairs[len(self.base.vocab.merges) :]
            vocab = self.base.vocab.extend(merges, specials, reuse_tokens=self.reuse_tokens, max_tokens=max_tokens)
            return vocab.annotated(merge_counts=self._known_counts(vocab))
        vocab = Vocab.build(
            self.pairs,
            specials,
            special_tokens_first=special_tokens_first,
            reuse_tokens=self.reuse_tokens,
            max_tokens=max_tokens,
        )
        return vocab.annotated(
            pattern=self.pattern,
            unmatched=self.unmatched,
            normalizer=self.normalizer,
            merge_counts=self._known_counts(vocab),
        )

    def _known_counts(self, vocab: Vocab) -> tuple[int | None, ...] | None:
        """Return the training counts of the merges of a vocabulary; of initial merges, as the extended tokenizer."""
        initial = (self.base and self.base.vocab.merge_counts) or (None,) * self.replayed
        known = (*initial, *self.counts[self.replayed :])[: vocab.merge_count]
        return known if any(known) else None

    def tokenizer(
        self,
        special_tokens: Sequence[str] | None = None,
        *,
        pattern: str | Sequence[str] | None = None,
        unmatched: UnmatchedPolicy | None = None,
        special_tokens_first: bool = False,
    ) -> Tokenizer:
        r"""Return a tokenizer with these merges.

        >>> from bpeflow import count, learn_merges
        >>> counts = count(iter(["low lower"]), pattern=r"\w+")
        >>> learn_merges(counts, 259, ["<s>"]).tokenizer().encode("low<s>")
        [258, 256]

        Args:
            special_tokens: by default as given to `bpeflow.learn_merges`.
            pattern: by default the pattern that the counts were made with, or ``"gpt2"`` if it is unknown.
            unmatched: what to do with text that the pattern does not match; by default what was done in counting.
            special_tokens_first: whether special tokens are numbered before the bytes, as HuggingFace does. A tokenizer
                that was extended keeps its ids.

        Raises:
            PatternError: the pattern is invalid.
        """
        from bpeflow import Tokenizer  # the public class, which trains with this module

        vocab = self.vocab(special_tokens, special_tokens_first=special_tokens_first)
        whole_tokens = self.base is not None and self.base.whole_tokens
        return Tokenizer.from_spec(TokenizerSpec.of(vocab, pattern, unmatched, whole_tokens))

    def __repr__(self) -> str:
        return f"LearnedMerges({len(self):,} of {self.wanted:,} merges, by {self.backend})"

    def __len__(self) -> int:
        return len(self.pairs)

    @overload
    def __getitem__(self, index: int) -> Merge: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Merge, ...]: ...

    def __getitem__(self, index: int | slice) -> Merge | tuple[Merge, ...]:
        return self.pairs[index]


@takes_settings
def learn_merges(
    counts: PretokenCounts | Mapping[bytes, int] | Mapping[str, int],
    vocab_size: int,
    special_tokens: str | Sequence[str] = END_OF_DOCUMENT,
    *,
    initial_merges: Iterable[Merge] = (),
    backend: BackendName = "auto",
    progress: bool = False,
    observer: Observer | None = None,
    **options: Unpack[LearnKeywords],
) -> LearnedMerges:
    """Learn the merges of a vocabulary of `vocab_size` entries: 256 bytes, the special tokens, and merges.

    `initial_merges` extend a vocabulary: learning begins with the pre-tokens as these merges leave them. Continuing
    from merges of the same counts gives the same result as learning at once.

    Args:
        counts: the result of `bpeflow.count`, or a mapping from pre-token to count.
        vocab_size: entries of the vocabulary. Fewer merges are returned if no pair is left before it is full.
        special_tokens: one or several strings; each takes an entry. With ``tie_break="huggingface"`` the strings
            themselves affect the merges.
        initial_merges: ``(left bytes, right bytes)`` by rank. They keep their ranks and count towards `vocab_size`.
            `min_frequency` and `max_token_length` apply only to the merges learned after them.
        backend: ``"auto"``, ``"omp"``, ``"c"`` or ``"python"``. All give the same merges.
        progress: show progress on standard error, or in the notebook.
        observer: progress callbacks, instead.
        options: `tie_break`, `min_frequency`, `max_token_length`, `thin_rare`, `threads`, `max_search`.

    Raises:
        ConfigError: a setting is unknown or out of range, or `vocab_size` is too small for the initial merges.
        BackendUnavailableError: the chosen backend is not available.
        CountOverflowError: the count of a pair does not fit 64 bits.

    >>> learn_merges({"low": 5, "lower": 2}, vocab_size=260, backend="python").pairs
    ((b'o', b'w'), (b'l', b'ow'), (b'low', b'e'))
    >>> learn_merges({"low": 5, "lower": 2}, 260, initial_merges=[(b"l", b"o")], backend="python").pairs
    ((b'l', b'o'), (b'lo', b'w'), (b'low', b'e'))
    """
    values = {"vocab_size": vocab_size, "special_tokens": special_tokens, "backend": backend, **options}
    settings = make_settings(MergeSettings, values)
    if settings.vocab_size is None:
        raise ConfigError("vocab_size is missing: the number of entries, for instance 32000")
    try:
        check_vocab_sizes((settings.vocab_size,), len(settings.special_tokens))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if not isinstance(counts, PretokenCounts):
        counts = PretokenCounts.from_mapping(counts)
    with observer_for(progress, observer) as watching:
        return learn_with_settings(counts, settings, as_merges(initial_merges), watching)


def learn_with_settings(
    counts: PretokenCounts,
    settings: MergeSettings,
    initial_merges: Iterable[Merge] = (),
    observer: Observer | None = None,
    checkpoint: MergeCheckpoint | None = None,
    base: TokenizerSpec | None = None,
) -> LearnedMerges:
    """Learn merges with validated settings that have a `vocab_size`; raises as `learn_merges` does.

    With `base` that tokenizer is extended, and its merges are the initial ones, before `initial_merges`. With
    `checkpoint` learning resumes from the merges saved there, and saves its own at an interval.
    """
    chosen, given = choose_backend(settings.backend), counts
    if counts.cut is not None:
        from bpeflow.training.cut import settings_for_cut  # only superwords are learned from cut pre-tokens

        settings = settings_for_cut(counts.cut, settings, base)
    counts, thinned = _thinned(given, settings)
    initial_merges = base.vocab.merges if base else tuple(initial_merges)
    pairs, pair_counts = [*initial_merges], [0] * len(initial_merges)
    if checkpoint and checkpoint.merges:
        pairs, pair_counts = checkpoint.merges, checkpoint.merge_counts
    resumed = len(pairs) - len(initial_merges)
    task = learning_task(counts, settings, base)
    first_token = len(task.tokens)
    task = after_merges(task, counts, pairs, base)
    need = warn_of_need(task.counts, len(task.tokens), task.max_tokens)
    with explain_memory_error("learning the merges", need), chosen.start(task) as session:
        task, counts = replace(task, counts=given), given  # the backend has its own copy; thinned counts are freed
        given.unload()
        _step_to_the_end(session, task, first_token, pairs, pair_counts, observer or Observer(), checkpoint)
        statistics = session.statistics()
    return LearnedMerges(
        pairs=tuple(pairs),
        counts=tuple(pair_counts),
        statistics=statistics,
        wanted=task.max_tokens - first_token + (len(initial_merges) if base else 0),
        reuse_tokens=settings.tie_break == "huggingface",
        replayed=len(initial_merges),
        resumed=resumed,
        special_tokens=settings.special_tokens,
        pattern=counts.pattern,
        unmatched=counts.unmatched,
        base=base,
        normalizer=counts.normalizer,
        thinned=thinned,
    )


def _thinned(counts: PretokenCounts, settings: MergeSettings) -> tuple[PretokenCounts, Thinned | None]:
    if settings.thin_rare is None:
        return counts, None
    kept = counts.thin(settings.thin_rare.below, settings.thin_rare.keep)
    return kept, Thinned(
        pretokens=len(counts),
        positions=len(counts.data),
        kept_pretokens=len(kept),
        kept_positions=len(kept.data),
    )


def _step_to_the_end(
    session: MergeSession,
    task: MergeTask,
    first_token: int,
    pairs: list[Merge],
    counts: list[int],
    observer: Observer,
    checkpoint: MergeCheckpoint | None,
) -> None:
    """Learn everything the task asks for, in steps of about `STEP_SECONDS` each.

    Append to the pairs and their counts. Progress is the number of tokens from `first_token` on.
    """
    wanted, step = task.max_tokens - first_token, FIRST_STEP
    tokens = list(task.tokens)
    observer.learning(len(tokens) - first_token, wanted)
    finished = False
    while not finished:
        started = perf_counter()
        records = session.step(step)
        pairs += _pairs_of(records, tokens)
        counts += records["count"].tolist()
        finished = len(records) < step
        if perf_counter() - started < STEP_SECONDS / 2:
            step *= 2
        made = len(tokens) - first_token
        observer.learning(made, made if finished else wanted)
        if pairs:
            observer.merged(len(pairs), *pairs[-1], counts[-1])
        if checkpoint is not None and checkpoint.due and not finished:
            checkpoint.save(pairs, counts)


def _pairs_of(records: NDArray[np.void], tokens: list[bytes]) -> list[Merge]:
    """Return the bytes of the pairs, and append the new tokens to `tokens`."""
    left_ids, right_ids = records["left"].tolist(), records["right"].tolist()
    for left_id, right_id, token in zip(left_ids, right_ids, records["token"].tolist(), strict=True):
        if token == len(tokens):
            tokens.append(tokens[left_id] + tokens[right_id])
    return [*zip(map(tokens.__getitem__, left_ids), map(tokens.__getitem__, right_ids), strict=True)]


# ---- whether learning fits into memory ----


def memory_needed(words: int, positions: int, tokens: int, max_tokens: int) -> int:
    """Estimate the peak memory of learning with a native backend, in bytes, the counts included.

    `positions` are the total bytes of the distinct pre-tokens, `words`. There are `tokens` tokens before the first
    merge, and at most `max_tokens` after the last. What depends on the first tokens alone is left out: about 20 MB for
    100,000.

    >>> memory_needed(2_837_366, 65_769_619, 256, 32_000) // 10**6
    524
    """
    ids = (positions + words) * (2 if tokens <= _NARROW_IDS else 4)
    growth = _PER_POSITION * positions + _PER_TOKEN * min(max_tokens - tokens, positions)
    return _size_of_counts(words, positions) + ids + growth


def warn_of_need(counts: WordCounts | EncodedWords, tokens: int, max_tokens: int) -> str:
    """Warn if learning from `counts`, which are in memory already, takes more memory than is available.

    Return the memory that it takes, and the remedies if that is too much.
    """
    words, positions = len(counts), int(counts.offsets[-1])
    needed, available = memory_needed(words, positions, tokens, max_tokens), available_memory()
    need = (
        f"{words:,} distinct pre-tokens of {format_size(positions)} in total take about "
        f"{format_size(needed)} with backend c. Have fewer of them "
        "(thin_rare={'below': 5, 'keep': 0.1} keeps a part of the rare ones; max_bytes of a source takes a part of the "
        "documents), or add memory. Counts in a run folder can be reused (resume=True, or bpeflow merge)"
    )
    if needed - _size_of_counts(words, positions) > available:
        size = format_size(available)
        log.warning("learning the merges may run out of memory, of which %s are available: %s", size, need)
    return need


def _size_of_counts(words: int, positions: int) -> int:
    return positions + 16 * words
