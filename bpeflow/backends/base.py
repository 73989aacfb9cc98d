"""The contract between training and the backends, which learn merges.

A backend takes a `MergeTask` and returns a `MergeSession`, whose `step` is called until there are no more merges. For
one task, all backends must learn the same merges. `python_backend` is the specification.

Terms: a *word* is a distinct pre-token, and consists of *units*: its bytes, or the tokens that it was encoded to. A
*pair* is two adjacent tokens inside one word. A *merge* is a learned pair.
The task defines the ids of the bytes and which pair wins a tie, so backends do not know the modes of `tie_break`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from bpeflow._util.text import count_words

MaxSearch = Literal["heap", "scan"]

#: A merge: the pair, the token that it makes, and the pair's count when it was merged.
MERGE_DTYPE = np.dtype(
    [("left", np.uint32), ("right", np.uint32), ("token", np.uint32), ("count", np.int64)], align=True
)


class WordCounts(Protocol):
    """The words and their counts, in canonical order. `PretokenCounts` describes the attributes."""

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes of the words."""

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where in `data` each word begins, and the end."""

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The count of each word."""

    def __len__(self) -> int: ...
    def items(self) -> Iterable[tuple[bytes, int]]:
        """Return the words, each with its count."""


@dataclass(frozen=True)
class EncodedWords:
    """Words that consist of tokens, with their counts, in the order of `WordCounts`.

    Attributes:
        ids: the token ids of the words, one word after another.
        offsets: where in `ids` each word begins, and the end. No word is empty.
        counts: the count of each word.
    """

    ids: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.counts)

    def items(self) -> Iterator[tuple[list[int], int]]:
        """Yield the ids of each word, with its count."""
        for word, count in enumerate(self.counts.tolist()):
            yield self.ids[self.offsets[word] : self.offsets[word + 1]].tolist(), count


@dataclass(frozen=True)
class MergeTask:
    """The input of a backend.

    The pair with the highest count is merged first. If several have this count, `order` decides:
    ``"greatest_bytes"`` takes the pair with the greater ``(left bytes, right bytes)``, compared as a tuple of byte
    strings, and ``"smallest_ids"`` the pair with the smaller ``(left id, right id)``. A pair that is longer than
    `max_token_length` bytes, makes a token that `max_words` or `colon_rule` forbids, or occurs fewer than
    `min_frequency` times is never merged.

    Attributes:
        counts: the pre-tokens and their counts, in canonical order. `EncodedWords` begin as the tokens that a tokenizer
            encodes them to. Its merges must apply in the order of their ranks: each comes after all merges that make
            its parts.
        tokens: the tokens that exist before the first merge, indexed by id. An entry is empty if no merge can yield
            the token, such as a special token that contains a space.
        byte_ids: the token id of each of the 256 bytes.
        max_tokens: the number of tokens, including those in `tokens`, at which learning ends.
        order: which of several pairs with the same count is merged first.
        reuse_tokens: whether a merge that makes the bytes of an existing token yields that token, as in HuggingFace
            tokenizers, instead of a new one. Such a merge does not count towards `max_tokens`.
        min_frequency: the count of the best pair below which learning ends; at least 1.
        max_token_length: in bytes; None for no limit.
        max_words: the most words of a token, as `count_words` counts them; None for no limit.
        colon_rule: whether no token may contain a colon and then a space.
        max_search: how to find the best pair: with a ``"heap"``, or with a ``"scan"`` of all pairs for each merge, as
            a baseline for comparisons.
        threads: the number of threads for multithreaded backends; None for one per core.
    """

    counts: WordCounts | EncodedWords
    tokens: tuple[bytes, ...]
    byte_ids: tuple[int, ...]
    max_tokens: int
    order: Literal["greatest_bytes", "smallest_ids"] = "greatest_bytes"
    reuse_tokens: bool = False
    min_frequency: int = 1
    max_token_length: int | None = None
    max_words: int | None = None
    colon_rule: bool = False
    max_search: MaxSearch = "heap"
    threads: int | None = None


def lowest_count(task: MergeTask) -> int:
    """Return a lower bound on the counts of the pairs that are chosen, so that backends need not keep rarer pairs.

    Let n be `max_tokens` - 256, and consider the n most frequent pre-tokens that can become a token (of 2 or more
    bytes, and allowed by `max_token_length`, `max_words` and `colon_rule`). The bound is the lowest of their counts, or
    `min_frequency` if that is higher or there are fewer than n such pre-tokens.

    Proof: As long as one of the n pre-tokens consists of several tokens, it contains a pair at least as frequent as
    the pre-token. That pair is allowed, as each limit that allows a string allows all its parts. The best pair is at
    least as frequent as that pair. Once each of the n pre-tokens is a single token, there are n tokens besides the 256
    bytes. So there are `max_tokens` tokens, and learning ends.
    """
    max_length = task.max_token_length or np.iinfo(np.int64).max
    counts = task.counts.counts[_may_be_token(task, max_length)]
    n = max(task.max_tokens - 256, 1)
    return max(int(counts[n - 1]), task.min_frequency) if len(counts) >= n else task.min_frequency


def allowed_text(text: bytes, task: MergeTask) -> bool:
    """Return whether `max_words` and `colon_rule` allow a token.

    They allow all parts of a token that they allow, which `lowest_count` needs. For words: decoding, which ignores
    incomplete characters, turns a part of the bytes into a part of the text. At the end of the part, the
    bytes of a divided character are ignored. At its start, they are ignored one by one, as none of them can begin a
    character. From the next byte that can, both are decoded alike. A part of a text has no more words than the text.
    """
    if task.colon_rule and b": " in text:
        return False
    return task.max_words is None or count_words(text) <= task.max_words


def _may_be_token(task: MergeTask, max_length: int) -> npt.NDArray[np.bool_]:
    words = task.counts
    if isinstance(words, EncodedWords):
        token_lengths = np.fromiter(map(len, task.tokens), np.int64, len(task.tokens))
        lengths = np.add.reduceat(token_lengths[words.ids], words.offsets[:-1])
    else:
        lengths = np.diff(words.offsets)
    possible = (lengths >= 2) & (lengths <= max_length)
    if task.max_words is None and not task.colon_rule:
        return possible
    texts = (
        word if isinstance(word, bytes) else b"".join(map(task.tokens.__getitem__, word)) for word, _ in words.items()
    )
    return possible & np.fromiter((allowed_text(text, task) for text in texts), np.bool_, len(words))


@dataclass
class MergeStatistics:
    """Statistics of a session so far.

    Attributes:
        name: the backend's name.
        words: number of distinct pre-tokens.
        positions: total units of the distinct pre-tokens.
        pairs: number of distinct pairs that have occurred.
        occurrences_visited: number of entries of occurrence lists that were visited.
        occurrences_merged: number of visited entries that were still occurrences, and so were merged.
        stale_pops: number of pairs popped from the heap whose count had fallen since they were pushed.
        setup_seconds: wall time of counting the pairs of the corpus.
        selection_seconds: wall time of choosing the best pairs.
        update_seconds: wall time of merging the pairs.
        memory_bytes: peak memory of the backend's own tables; 0 if unknown.
        threads: number of threads available to the session. Short lists are processed on one thread anyway.
    """

    name: str
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
    """A task in progress. Close it, or use it as a context manager, to free its memory."""

    def step(self, max_merges: int) -> npt.NDArray[np.void]:
        """Learn up to `max_merges` (at least 1) more merges.

        Returns:
            The merges in the order in which they were learned, as an array of `MERGE_DTYPE`. If there are fewer than
            `max_merges`, there are no more to learn.
        """
        ...

    def statistics(self) -> MergeStatistics:
        """Return the statistics of the work so far, also after `close`."""
        ...

    def close(self) -> None:
        """Free all memory. Idempotent."""
        ...

    def __enter__(self) -> MergeSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class MergeBackend(Protocol):
    """A backend: an implementation of learning.

    Attributes:
        name: the backend's name in settings.
        multithreaded: whether the backend uses `MergeTask.threads`.
    """

    name: str
    multithreaded: bool

    def unavailable(self) -> str | None:
        """Return why the backend cannot be used here and what to do about it; None if it can be used."""
        ...

    def describe(self) -> str:
        """Return a short description for people who choose a backend."""
        ...

    def start(self, task: MergeTask) -> MergeSession:
        """Count the pairs of `task.counts` and prepare the first step.

        Raises:
            CountOverflowError: the count of a pair does not fit 64 bits.
            NativeError: the task exceeds the backend's documented limits, or memory.
        """
        ...
