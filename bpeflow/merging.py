"""From pre-token counts to merges: states the task for a backend, steps it to its end, and reads the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bpeflow.backends.base import MergeStatistics, MergeTask
from bpeflow.backends.choice import choose_backend
from bpeflow.config import MergeSettings, check_vocab_sizes, make_settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError
from bpeflow.vocab import Merge, Vocab, mergeable_bytes

#: Merges to learn between two looks at the clock and at Ctrl-C. Less would call the native code more often than people
#: can see; more would let the slowest search (`max_search: scan` in Python) go unheard for minutes.
STEP = 64


class MergeObserver(Protocol):
    """Is told how far learning has come."""

    def merging(self, learned: int, wanted: int) -> None: ...


@dataclass(frozen=True)
class LearnedMerges(Sequence[Merge]):
    """The merges, in the order in which they were learned: a sequence of ``(left bytes, right bytes)``.

    Attributes:
        pairs: the merges.
        counts: how often each pair occurred when it was chosen.
        backend: the name of the backend that learned them.
        statistics: what the backend tells of its work.
        wanted: how many merges would have filled the vocabulary; fewer are there when no pair was left to merge.
        reuse_tokens: whether a merge whose bytes were there already made no new token (`Vocab.build`).
    """

    pairs: tuple[Merge, ...]
    counts: tuple[int, ...]
    backend: str
    statistics: MergeStatistics
    wanted: int
    reuse_tokens: bool

    def __repr__(self) -> str:
        return f"LearnedMerges({len(self):,} of {self.wanted:,} merges, by {self.backend})"

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: Any) -> Any:
        return self.pairs[index]


def learn_merges(
    counts: PretokenCounts | Mapping[bytes, int] | Mapping[str, int],
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    *,
    backend: str = "auto",
    observer: MergeObserver | None = None,
    **options: Any,
) -> LearnedMerges:
    """Learn the merges of a vocabulary of `vocab_size` entries: 256 bytes, the special tokens, and merges.

    Args:
        counts: what `bpeflow.count` returns, or a mapping from pre-token to count.
        vocab_size: entries of the vocabulary. Fewer merges come back when no pair is left before it is full.
        special_tokens: they take a place each; under ``tie_break="huggingface"`` their strings matter too.
        backend: ``"auto"``, ``"omp"``, ``"c"`` or ``"python"``. All give the same merges.
        observer: is told of the progress.
        options: `tie_break`, `min_frequency`, `max_token_length`, `threads`, `max_search`.

    Raises:
        ConfigError: a setting that is unknown or out of range.
        BackendUnavailable: a backend that was asked for by name and is not here.
        CountOverflowError: the count of a pair does not fit 64 bits.

    >>> learn_merges({"low": 5, "lower": 2}, vocab_size=259, backend="python").pairs
    ((b'o', b'w'), (b'l', b'ow'), (b'low', b'e'))
    """
    values = {"vocab_size": vocab_size, "special_tokens": special_tokens, "backend": backend, **options}
    settings = make_settings(MergeSettings, values)
    if settings.vocab_size is None:
        raise ConfigError("vocab_size is missing: how many entries the vocabulary shall have, for instance 32000")
    try:
        check_vocab_sizes((settings.vocab_size,), len(settings.special_tokens))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if not isinstance(counts, PretokenCounts):
        counts = PretokenCounts.from_mapping(counts)
    chosen = choose_backend(settings.backend)
    task = merge_task(counts, settings)
    wanted = task.max_tokens - len(task.tokens)
    tokens = list(task.tokens)
    pairs: list[Merge] = []
    pair_counts: list[int] = []
    if observer is not None:
        observer.merging(0, wanted)
    with chosen.start(task) as session:
        finished = False
        while not finished:
            records = session.step(STEP).tolist()
            for left, right, token, count in records:
                pairs.append((tokens[left], tokens[right]))
                pair_counts.append(count)
                if token == len(tokens):
                    tokens.append(tokens[left] + tokens[right])
            finished = len(records) < STEP
            if observer is not None:
                made = len(tokens) - len(task.tokens)
                observer.merging(made, made if finished else wanted)
        statistics = session.statistics()
    return LearnedMerges(tuple(pairs), tuple(pair_counts), chosen.name, statistics, wanted, task.reuse_tokens)


def merge_task(counts: PretokenCounts, settings: MergeSettings) -> MergeTask:
    """State what the settings, with a `vocab_size`, ask for in the terms that backends know: ids, an order, limits."""
    vocab_size, special_tokens = settings.vocab_size or 0, settings.special_tokens
    huggingface = settings.tie_break == "huggingface"
    if huggingface:
        start = Vocab.build((), special_tokens, special_tokens_first=True, reuse_tokens=True)
        specials = {token_id: mergeable_bytes(token) for token, token_id in start.special_tokens.items()}
        tokens = tuple(specials.get(token_id, token) for token_id, token in enumerate(start.tokens))
        byte_ids = tuple(tokens.index(bytes([byte])) for byte in range(256))
        max_tokens = vocab_size
    else:  # b has id b and merge k has 256 + k, whatever ids the vocabulary will give them
        tokens = tuple(bytes([byte]) for byte in range(256))
        byte_ids = tuple(range(256))
        max_tokens = vocab_size - len(special_tokens)
    return MergeTask(
        counts=counts,
        tokens=tokens,
        byte_ids=byte_ids,
        max_tokens=max_tokens,
        order="greatest_bytes" if settings.tie_break == "greatest_bytes" else "smallest_ids",
        reuse_tokens=huggingface,
        min_frequency=settings.min_frequency,
        max_token_length=settings.max_token_length,
        max_search=settings.max_search,
        threads=settings.threads,
    )
