"""The naive recount: byte-pair encoding exactly as defined, as the oracle for tests of the backends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from bpeflow.backends.base import MergeTask

Merge = tuple[int, int, int, int]  # left, right, token, count


def naive_merges(task: MergeTask, initial_merges: Sequence[tuple[int, int]] = ()) -> list[Merge]:
    """Count all pairs of the current tokenization from scratch, merge the best pair everywhere, and repeat.

    As long as there are initial merges, the next of them is the best pair.
    """
    tokens = list(task.tokens)
    initial = iter(initial_merges)
    words = [(_units(task, word), count) for word, count in task.counts.items()]
    merges: list[Merge] = []
    while len(tokens) < task.max_tokens:
        pairs: Counter[tuple[int, int]] = Counter()
        for word, count in words:
            for pair in pairwise(word):
                pairs[pair] += count
        best = next(initial, None) or _best(pairs, tokens, task)
        if best is None:
            break
        merged = tokens[best[0]] + tokens[best[1]]
        token = tokens.index(merged) if task.reuse_tokens and merged in tokens else len(tokens)
        if token == len(tokens):
            tokens.append(merged)
        merges.append((*best, token, pairs[best]))
        words = [(_replace(word, best, token), count) for word, count in words]
    return merges


def _units(task: MergeTask, word: bytes | list[int]) -> list[int]:
    return [task.byte_ids[byte] for byte in word] if isinstance(word, bytes) else word


def _best(pairs: Counter[tuple[int, int]], tokens: list[bytes], task: MergeTask) -> tuple[int, int] | None:
    allowed = [p for p in pairs if pairs[p] >= task.min_frequency and _allowed(tokens[p[0]] + tokens[p[1]], task)]
    if not allowed:
        return None
    if task.order == "greatest_bytes":
        ties = max((pairs[p], tokens[p[0]], tokens[p[1]]) for p in allowed)
        return min(p for p in allowed if (pairs[p], tokens[p[0]], tokens[p[1]]) == ties)
    return min(allowed, key=lambda p: (-pairs[p], p))


def _allowed(token: bytes, task: MergeTask) -> bool:
    if len(token) > (task.max_token_length or len(token)) or (task.colon_rule and b": " in token):
        return False
    return task.max_words is None or len(token.split()) <= task.max_words


def _replace(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    replaced: list[int] = []
    i = 0
    while i < len(word):
        if tuple(word[i : i + 2]) == pair:
            replaced.append(token)
            i += 2
        else:
            replaced.append(word[i])
            i += 1
    return replaced
