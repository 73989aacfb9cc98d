"""The backend in plain Python: the specification that the native backends must match.

The algorithm, which the native backends share, rests on one observation: *the occurrence list of a pair is complete
the moment the younger of its tokens is created, and the pair's count only falls afterwards.* So lists are written once
and never repaired, and the heap is refreshed lazily.

**Positions.** All pre-tokens are stored in one flat list of positions, one per unit, with an end mark before, between
and after them. Units are bytes, or the tokens of encoded words. A token's id is at its first and at its last position.
The positions in between hold stale ids. A token's span, its length in units, follows from its id, so both neighbours
are found without links: the token before position `i` ends at `i - 1`. Merging a pair writes two positions and moves
nothing.

**Occurrence lists.** The list of a pair `(left, right)` has the positions where `left` starts, in ascending order,
which is why `aaa` becomes `aa a`. Occurrences that disappear stay in it as stale entries. Let `middle` be the position
where `right` starts. An entry is still an occurrence if and only if ``ids[middle - 1] == left`` and
``ids[middle] == right``. Proof: Both held when the entry was written. Tokens only grow, so whatever is written to one
of the two positions later is the id of a longer token. A merge of this `left` with its left neighbour writes to the
first, and a merge of this `right` with its right neighbour to the second. The merge of the two with each other can
leave both as they are, but it uses up the whole list and visits each entry once. If `left` and `right` are equal, it
visits overlapping entries, as in `aaa`. Of these the second is stale, because its `middle - 1` is the last position of
the new token.

**Heap.** The heap holds each pair with the count that it had when it was pushed, which is never lower than its current
count. If the count of a popped pair has fallen, the pair is pushed again with its current count. Otherwise it is the
best pair. Pairs that are too rare ever to be chosen (see `lowest_count`) are not in the heap. The native backends do
not store them at all.

**No string becomes a token twice.** Consider any place where a string is about to become a token. Until then, no token
has extended over the string's edges. So the tokens inside the string are the same as in the string alone: a merge
of two different tokens replaces all their occurrences, and a merge of two equal tokens replaces a sequence of them in
twos from the start of the sequence. Even if the sequence extends beyond the string, none of these twos crosses the
string's edge, so inside the string they are the same. Therefore each string is made by a single merge, at a single
time, everywhere. It follows that the token of a merge did not occur in the corpus before the merge, that all pairs with
it are new, and that no pair is merged twice. The same holds with `reuse_tokens`, because then a merge can only yield an
existing token that came with the task and that no earlier merge has yielded.

**Encoded words** begin as a tokenizer encodes them: the one to extend, or the one made of the merges that an
interrupted run has learned. That equals a replay of the tokenizer's merges over the bytes: each merge comes after all
merges that make its parts, so once it has been made everywhere, no merge of a lower rank becomes applicable, and
encoding, which applies the lowest rank first, uses the merges in the same order. So pairs, counts and ties are equal
from there on, and the proof above holds: it does not depend on why a pair was merged, only on all its occurrences being
merged. A token has the same span wherever it occurs: a token of the tokenizer is one unit, and any other is made by a
single merge. If a merge yields an existing token (`reuse_tokens`), that token occurs nowhere yet, as no string becomes
a token twice, and it gets the span of the merge. (Merges that were not learned can make a string that they never
produce in the corpus, as earlier ones split it differently. A word that is a single token because the tokenizer takes
it whole is an exception without effect: it has no pairs.)

Sources: the heap with lazy refresh is from HuggingFace tokenizers' `BpeTrainer`, the rest from our own measurements.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow.backends.base import (
    MERGE_DTYPE,
    EncodedWords,
    MergeSession,
    MergeStatistics,
    MergeTask,
    allowed_text,
    lowest_count,
)
from bpeflow.errors import CountOverflowError

Pair = tuple[int, int]

#: The sort key of a pair: the negative count, the keys of both tokens (see `_sort_key`), and their ids. The pair with
#: the smallest key is merged first.
Candidate = tuple[int, Any, Any, int, int]

#: The highest count that a merge can have.
MAX_COUNT = np.iinfo(MERGE_DTYPE["count"]).max

#: The end mark before, between and after pre-tokens. It is not the id of any token.
END = -1


class PythonBackend:
    """The backend that is always available."""

    name = "python"
    multithreaded = False

    def unavailable(self) -> str | None:
        return None

    def describe(self) -> str:
        return "plain Python, one thread; the specification"

    def start(self, task: MergeTask) -> PythonSession:
        return PythonSession(task)


class PythonSession(MergeSession):
    """A task in progress. The module's docstring describes the algorithm."""

    def __init__(self, task: MergeTask) -> None:
        started = perf_counter()
        self._task = task
        self._lowest_count = lowest_count(task)
        self._tokens = list(task.tokens)
        self._lengths = [len(token) for token in self._tokens]
        encoded = isinstance(task.counts, EncodedWords)
        self._spans = [1] * len(self._tokens) if encoded else self._lengths.copy()
        self._sort_keys = [self._sort_key(token_id) for token_id in range(len(self._tokens))]
        self._token_ids = {token: i for i, token in reversed(list(enumerate(self._tokens))) if token}
        self._ids: list[int] = [END]
        self._weights: list[int] = [0]
        self._counts: dict[Pair, int] = {}
        self._occurrences: dict[Pair, list[int]] = {}
        self._lay_out_words()
        self._count_pairs()
        self._heap = [self._candidate(pair) for pair in self._counts if self._may_merge(pair)]
        heapq.heapify(self._heap)
        self._statistics = MergeStatistics(
            name=PythonBackend.name,
            words=len(task.counts),
            positions=int(task.counts.offsets[-1]),
            pairs=len(self._counts),
            setup_seconds=perf_counter() - started,
        )

    def step(self, max_merges: int) -> NDArray[np.void]:
        learned: list[tuple[int, int, int, int]] = []
        while len(learned) < max_merges and len(self._tokens) < self._task.max_tokens:
            before = perf_counter()
            pair = self._best_by_scan() if self._task.max_search == "scan" else self._best_by_heap()
            chosen = perf_counter()
            self._statistics.selection_seconds += chosen - before
            if pair is None:
                break
            count, token = self._counts[pair], self._token_for(pair)
            self._merge(pair, token)
            self._statistics.update_seconds += perf_counter() - chosen
            learned.append((*pair, token, count))
        return np.array(learned, dtype=MERGE_DTYPE)

    def statistics(self) -> MergeStatistics:
        return self._statistics

    def close(self) -> None:
        for table in (self._ids, self._weights, self._counts, self._occurrences, self._heap):
            table.clear()

    # ---- set-up ----

    def _lay_out_words(self) -> None:
        words, byte_ids = self._task.counts, self._task.byte_ids
        encoded = isinstance(words, EncodedWords)
        for word, count in words.items():
            self._ids.extend(word if encoded else [byte_ids[byte] for byte in word])
            self._ids.append(END)
            self._weights.extend([count] * (len(word) + 1))

    def _count_pairs(self) -> None:
        counts: defaultdict[Pair, int] = defaultdict(int)
        occurrences: defaultdict[Pair, list[int]] = defaultdict(list)
        left = END
        for position, right in enumerate(self._ids):
            if left != END and right != END:
                counts[left, right] += self._weights[position]
                occurrences[left, right].append(position - 1)
            left = right
        self._counts = dict(counts)
        self._occurrences = dict(occurrences)
        for pair, count in counts.items():
            self._check_count(pair, count)

    # ---- choosing ----

    def _best_by_heap(self) -> Pair | None:
        while self._heap:
            negative_count, _, _, left, right = heapq.heappop(self._heap)
            count = self._counts.get((left, right), 0)
            if count == -negative_count:
                return left, right
            self._statistics.stale_pops += 1
            if count >= self._lowest_count:
                heapq.heappush(self._heap, self._candidate((left, right)))
        return None

    def _best_by_scan(self) -> Pair | None:
        best = min((self._candidate(pair) for pair in self._counts if self._may_merge(pair)), default=None)
        return None if best is None else best[3:]

    def _candidate(self, pair: Pair) -> Candidate:
        left, right = pair
        return -self._counts[pair], self._sort_keys[left], self._sort_keys[right], left, right

    def _may_merge(self, pair: Pair) -> bool:
        limit = self._task.max_token_length
        if self._counts[pair] < self._lowest_count:
            return False
        if limit is not None and self._lengths[pair[0]] + self._lengths[pair[1]] > limit:
            return False
        return allowed_text(self._tokens[pair[0]] + self._tokens[pair[1]], self._task)

    def _sort_key(self, token_id: int) -> int | str:
        """Return a key that sorts tokens ascending in the order in which they win ties.

        For ``"smallest_ids"`` it is the id. For ``"greatest_bytes"`` the order of bytes must be reversed, so byte b
        becomes character 255 - b. A character greater than all of these ends the key, so a token that starts with
        another token sorts before it.
        """
        if self._task.order == "smallest_ids":
            return token_id
        return "".join(chr(255 - byte) for byte in self._tokens[token_id]) + "\u0100"

    # ---- merging ----

    def _token_for(self, pair: Pair) -> int:
        """Return the token of merging `pair`: a new one, or with `reuse_tokens` an existing one with these bytes."""
        token = self._tokens[pair[0]] + self._tokens[pair[1]]
        span = self._spans[pair[0]] + self._spans[pair[1]]
        if self._task.reuse_tokens and token in self._token_ids:
            self._spans[self._token_ids[token]] = span
            return self._token_ids[token]
        token_id = len(self._tokens)
        self._tokens.append(token)
        self._spans.append(span)
        self._token_ids.setdefault(token, token_id)
        self._lengths.append(len(token))
        self._sort_keys.append(self._sort_key(token_id))
        return token_id

    def _merge(self, pair: Pair, token: int) -> None:
        """Merge all occurrences of `pair` from left to right, and update the counts of all affected pairs."""
        changes: defaultdict[Pair, int] = defaultdict(int)
        new_occurrences: defaultdict[Pair, list[int]] = defaultdict(list)
        left, right = pair
        for start, end in self._valid_occurrences(pair):
            weight = self._weights[start]
            previous, following = self._ids[start - 1], self._ids[end]
            self._ids[start] = self._ids[end - 1] = token
            if previous != END:
                changes[previous, left] -= weight
                changes[previous, token] += weight
                new_occurrences[previous, token].append(start - self._spans[previous])
            if following != END:
                changes[right, following] -= weight
                changes[token, following] += weight
                new_occurrences[token, following].append(start)
        # No occurrence of `pair` remains. Setting its change here overrides the changes that it has received as its own
        # neighbour, as in `aaa`.
        changes[pair] = -self._counts[pair]
        for changed, change in changes.items():
            self._change_count(changed, change)
        for made, positions in new_occurrences.items():
            if made in self._counts:  # otherwise the next occurrence of `pair` took each of them, as in `abab`
                self._add_pair(made, positions)

    def _valid_occurrences(self, pair: Pair) -> Iterator[tuple[int, int]]:
        """Yield ``(start, end)`` of each entry that is still an occurrence when its turn comes."""
        left, right = pair
        ids, left_span, right_span = self._ids, self._spans[left], self._spans[right]
        for start in self._occurrences.pop(pair):
            self._statistics.occurrences_visited += 1
            middle = start + left_span
            if ids[middle - 1] == left and ids[middle] == right:
                self._statistics.occurrences_merged += 1
                yield start, middle + right_span

    def _change_count(self, pair: Pair, change: int) -> None:
        count = self._counts.get(pair, 0) + change
        if count > 0:
            self._counts[pair] = count
        else:
            self._counts.pop(pair, None)

    def _add_pair(self, pair: Pair, positions: list[int]) -> None:
        self._statistics.pairs += 1
        self._occurrences[pair] = positions
        if self._may_merge(pair):
            heapq.heappush(self._heap, self._candidate(pair))

    def _check_count(self, pair: Pair, count: int) -> None:
        if count > MAX_COUNT:
            left, right = (self._tokens[token] for token in pair)
            raise CountOverflowError(f"the count of pair {left!r} {right!r} is {count}, which does not fit 64 bits")
