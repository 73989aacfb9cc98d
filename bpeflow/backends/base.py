"""The contract between the trainer and the backends that learn merges.

A backend is given a `MergeTask` and answers with a `MergeSession`, which is stepped until it has no more to learn.
Every backend must give the same merges for the same task; `python.py` is the specification.

Terms: a *pair* is two adjacent tokens inside one pre-token. A *merge* is a learned pair. Tokens are numbered; which
numbers the bytes have, and how ties are broken by them, is part of the task, so that a backend knows of no mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from bpeflow.counting.counts import PretokenCounts

MaxSearch = Literal["heap", "scan"]

#: One merge: the pair, the token that it makes, and its count when it was chosen (0 for an initial merge that did not
#: occur).
MERGE_DTYPE = np.dtype(
    [("left", np.uint32), ("right", np.uint32), ("token", np.uint32), ("count", np.int64)], align=True
)


@dataclass(frozen=True)
class MergeTask:
    """What a backend is asked to learn.

    The pair with the highest count is merged first. Among equals, ``order`` decides: ``"greatest_bytes"`` takes the
    greater ``(left bytes, right bytes)``, compared as a tuple of byte strings; ``"smallest_ids"`` the smaller
    ``(left id, right id)``. A pair of more than `max_token_length` bytes is never merged, nor one that occurs less
    than `min_frequency` times.

    Attributes:
        counts: the pre-tokens and their counts, in canonical order.
        tokens: the tokens that there are before the first merge; a token's id is its index. An entry that no merge
            can ever yield (a special token with a space, say) is empty.
        byte_ids: for each of the 256 bytes, its token's id.
        max_tokens: learning ends when there are so many tokens, those in `tokens` included.
        order: which of several pairs of the same count comes first.
        reuse_tokens: whether a merge whose bytes a token already has yields that token (HuggingFace's way) instead of
            a new one. Such a merge does not count towards `max_tokens`.
        min_frequency: learning ends when the best pair's count is below this; at least 1.
        max_token_length: in bytes; None for no limit.
        max_search: ``"heap"``, or ``"scan"`` to look through all pairs for each merge: a baseline to compare with.
        threads: for backends that use several; None for as many as there are cores.
        initial_merges: ids of pairs, ``(left, right)``, that are merged before any is chosen, in this order, whatever
            their counts are: the limits above do not concern them. One that does not occur only makes its token. Each
            part must be a byte or made by an initial merge before it, and no pair may come twice.
    """

    counts: PretokenCounts
    tokens: tuple[bytes, ...]
    byte_ids: tuple[int, ...]
    max_tokens: int
    order: Literal["greatest_bytes", "smallest_ids"] = "greatest_bytes"
    reuse_tokens: bool = False
    min_frequency: int = 1
    max_token_length: int | None = None
    max_search: MaxSearch = "heap"
    threads: int | None = None
    initial_merges: tuple[tuple[int, int], ...] = ()


def lowest_count(task: MergeTask) -> int:
    """A count below which no pair is ever chosen, so that rarer pairs need not be kept.

    It is the count of the n-th most frequent pre-token that can become a token, with n = `max_tokens` - 256; at least
    `min_frequency`. Proof: as long as one of these n pre-tokens is more than one token, a pair in it is short enough
    and at least so frequent, and so is the best pair. When each of them is one token, there are n tokens besides the
    256 bytes, which are all that are wanted.
    """
    lengths = np.diff(task.counts.offsets)
    longest = task.max_token_length or np.iinfo(np.int64).max
    counts = task.counts.counts[(lengths >= 2) & (lengths <= longest)]
    needed = max(task.max_tokens - 256, 1)
    return max(int(counts[needed - 1]), task.min_frequency) if len(counts) >= needed else task.min_frequency


@dataclass
class MergeStatistics:
    """What a backend can tell of its work, so far.

    Attributes:
        words: distinct pre-tokens.
        positions: bytes of all distinct pre-tokens.
        pairs: distinct pairs met.
        occurrences_visited: entries of occurrence lists looked at.
        occurrences_merged: those that still were an occurrence, and were merged.
        stale_pops: pairs taken from the heap whose count had fallen since they were put there.
        setup_seconds, selection_seconds, update_seconds: wall time of counting the pairs of the corpus, of choosing
            the best pairs, and of merging them (initial merges are not chosen).
        memory_bytes: the most that the backend's own tables took; 0 where that is not known.
        threads: how many there were to use; short lists are not worth more than one.
    """

    words: int = 0
    positions: int = 0
    pairs: int = 0
    occurrences_visited: int = 0
    occurrences_merged: int = 0
    stale_pops: int = 0
    setup_seconds: float = 0.0
    selection_seconds: float = 0.0
    update_seconds: float = 0.0
    memory_bytes: int = 0
    threads: int = 1


class MergeSession(Protocol):
    """Merges being learned. Close it, or use it as a context manager, to free what it holds."""

    def step(self, max_merges: int) -> npt.NDArray[np.void]:
        """Learn up to `max_merges` (at least 1) more and return them, oldest first, as an array of `MERGE_DTYPE`.

        The initial merges of the task come first. Fewer than asked, possibly none, means that there are no more to
        learn.
        """
        ...

    def statistics(self) -> MergeStatistics:
        """What has been done so far."""
        ...

    def close(self) -> None:
        """Free everything. Closing twice does no harm."""
        ...

    def __enter__(self) -> MergeSession: ...

    def __exit__(self, *exception: object) -> None: ...


class MergeBackend(Protocol):
    """An implementation of the merge step.

    Attributes:
        name: what settings call it.
        several_threads: whether the `threads` of a task concern it.
    """

    name: str
    several_threads: bool

    def unavailable(self) -> str | None:
        """Say why the backend cannot be used here, and what to do about it; None if it can be used."""
        ...

    def describe(self) -> str:
        """Say in a few words what it is, for people who choose."""
        ...

    def start(self, task: MergeTask) -> MergeSession:
        """Count the pairs of `task.counts` and get ready for the first step.

        Raises `CountOverflowError` when a pair's count does not fit 64 bits and `NativeError` when the task is beyond
        the backend's documented limits or memory.
        """
        ...
