"""`inspect_corpus`: how a tokenizer encodes a corpus, from its counts, and how each prefix of it would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow.config import CountSettings, make_settings
from bpeflow.corpus.sources import each_document_once
from bpeflow.counting.count import CorpusCounter
from bpeflow.counting.counts import PretokenCounts
from bpeflow.look.vocabulary import VocabToken, merged_alone, text_tokens
from bpeflow.progress import Observer
from bpeflow.tokenizer.parallel import encoded_batches
from bpeflow.tokenizer.python_encoder import PretokenMerging, merge_table
from bpeflow.tokenizer.tokenizer import Tokenizer

#: The smallest size of a prefix that is evaluated, besides the vocabulary without merges. Each further one is twice as
#: large.
_FIRST_SIZE = 1024


@dataclass(frozen=True, slots=True)
class UsedToken(VocabToken):
    """A token and how often it occurs.

    Attributes:
        count: its occurrences.
    """

    count: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """A smaller vocabulary: the tokens that no merge makes, and the tokens of the first merges.

    Attributes:
        entries: the number of its tokens, special ones included.
        merges: the number of its merges.
        tokens: the tokens of the corpus.
        bytes_per_token: its compression.
    """

    entries: int
    merges: int
    tokens: int
    bytes_per_token: float


@dataclass(frozen=True)
class CorpusFigures:
    """How a tokenizer encodes a corpus. Special tokens are left out.

    Attributes:
        bytes: bytes of the pre-tokens.
        pretokens: the number of pre-tokens.
        distinct_pretokens: the number of distinct pre-tokens.
        tokens: the number of tokens.
        bytes_per_token: compression: more is better; 0 without tokens.
        used: the tokens that occur, the most frequent first.
        unused: the tokens that do not occur, in the order of ids.
        prefixes: what smaller prefixes of the vocabulary would yield; empty if merges come before those that make their
            parts, so that a prefix would not apply them in the same order.
    """

    bytes: int
    pretokens: int
    distinct_pretokens: int
    tokens: int
    bytes_per_token: float
    used: tuple[UsedToken, ...]
    unused: tuple[VocabToken, ...]
    prefixes: tuple[Prefix, ...]


def inspect_corpus(tokenizer: Tokenizer, counts: PretokenCounts) -> CorpusFigures:
    """Return how a tokenizer encodes the pre-tokens of a corpus.

    >>> from bpeflow import Tokenizer, count
    >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=259)
    >>> figures = inspect_corpus(tokenizer, count(iter(["low low", "lower"])))
    >>> figures.tokens, figures.used[0]
    (6, UsedToken(id=258, bytes=b'low', count=3))
    >>> [(prefix.entries, prefix.tokens) for prefix in figures.prefixes]
    [(257, 12), (259, 6)]

    Args:
        tokenizer: the tokenizer.
        counts: the counts of pre-tokens by its pattern.
    """
    occurrences = token_occurrences(tokenizer, counts)
    tokens = tokenizer.vocab.decoded_tokens
    order = np.argsort(-occurrences, kind="stable")
    number = int(occurrences.sum())
    used = order[: np.count_nonzero(occurrences)].tolist()
    return CorpusFigures(
        bytes=counts.total_bytes,
        pretokens=counts.total,
        distinct_pretokens=len(counts),
        tokens=number,
        bytes_per_token=counts.total_bytes / number if number else 0.0,
        used=tuple(UsedToken(i, tokens[i], int(occurrences[i])) for i in used),
        unused=tuple(token for token in text_tokens(tokenizer.vocab) if not occurrences[token.id]),
        prefixes=prefixes(tokenizer, occurrences, counts.total_bytes, _doubling),
    )


def count_pretokens(
    tokenizer: Tokenizer, inputs: Sequence[Any], observer: Observer | None = None, **options: Any
) -> PretokenCounts:
    """Count the pre-tokens of a corpus as a tokenizer splits it. Special tokens are not counted.

    Args:
        tokenizer: the tokenizer.
        inputs: paths, or mappings as in the setting `sources`.
        observer: progress callbacks.
        options: further settings of `bpeflow.config.CountSettings`.

    Raises:
        CorpusError: input is missing or unreadable, or has no text.
    """
    sources = [entry for entry in inputs if not isinstance(entry, str)]
    corpus = {"sources": [*sources, *({"paths": path} for path in inputs if isinstance(path, str))]} if sources else {}
    values = {**options, **(corpus or {"input": list(inputs)})}
    settings = each_document_once(count_settings(tokenizer, values))
    return CorpusCounter(settings, learns=False).count(observer or Observer()).counts


def count_settings(tokenizer: Tokenizer, values: Mapping[str, Any]) -> CountSettings:
    """Return settings that count a corpus as a tokenizer splits it. Raises `SettingsError` if `values` are invalid."""
    ours = {
        "pattern": tokenizer.pattern,
        "unmatched": tokenizer.unmatched,
        "normalizer": tokenizer.normalizer,
        "special_tokens": sorted(tokenizer.special_tokens, key=tokenizer.special_tokens.__getitem__),
    }
    return make_settings(CountSettings, {**values, **ours})


def token_occurrences(tokenizer: Tokenizer, counts: PretokenCounts) -> NDArray[np.int64]:
    """Return how often each id occurs in the pre-tokens of a corpus."""
    occurrences = np.zeros(tokenizer.vocab_size, np.int64)
    for start, ids, ends in encoded_batches(tokenizer._encoder, counts):
        repeats = np.diff(ends, prepend=0)
        np.add.at(occurrences, ids, np.repeat(counts.counts[start : start + len(ends)], repeats))
    return occurrences


def tokens_of_prefixes(
    tokenizer: Tokenizer, occurrences: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return what smaller prefixes of a vocabulary would make of a text: each has the first n merges.

    Where each merge comes after those that make its parts, the merges of a pre-token are applied in the order of ranks.
    So a prefix of `n` merges stops before the first whose rank is `n` or more, and each token falls into the pieces
    that it has at that point: each merge saves one token wherever it was applied. That is once in each token that it
    makes, and in each token that has such a token among its parts.

    Args:
        tokenizer: the tokenizer.
        occurrences: how often each id occurs.

    Returns:
        The number of entries of each prefix, and the number of tokens, for n from 0 on; None if merges come before
        those that make their parts.
    """
    vocab, tokens = tokenizer.vocab, tokenizer.vocab.decoded_tokens
    left, right, made = vocab.merge_ids.astype(np.int64).T
    ranks = np.arange(len(made))
    first, last = np.full((2, len(tokens)), -1)
    first[made[::-1]], last[made] = ranks[::-1], ranks
    if (np.maximum(last[left], last[right]) >= ranks).any():
        return None
    is_new, merges = first[made] == ranks, merge_table(vocab.merge_ids)

    def steps(token_id: int) -> list[int]:
        return [rank for rank, _, _ in PretokenMerging(tokens[token_id], vocab.byte_ids, merges).steps()]

    for token_id in np.flatnonzero(first != last).tolist():  # several merges make its bytes, one of them the token
        last[token_id] = max(steps(token_id), default=-1)
    spec = tokenizer.to_spec()
    saved = np.zeros(len(made) + 1, np.int64)
    merged = occurrences.copy()
    if spec.whole_tokens:  # where the prefix has the token, it is not merged
        taken_whole = (first >= 0) & ((first != last) | (merged_alone(spec) != np.arange(len(tokens))))
        for token_id in np.flatnonzero(occurrences * taken_whole).tolist():
            count, before = occurrences[token_id], [rank for rank in steps(token_id) if rank < first[token_id]]
            np.add.at(saved, [rank + 1 for rank in before], count)
            saved[first[token_id] + 1] += count * (len(tokens[token_id]) - 1 - len(before))
        merged[taken_whole] = 0
    used = merged.tolist()  # the others are made of their parts, and these of theirs
    ranks = ranks[last[made] == ranks][::-1]
    columns = (ids[ranks].tolist() for ids in (left, right, made))
    for left_id, right_id, token_id in zip(*columns, strict=True):
        used[left_id] += used[token_id]
        used[right_id] += used[token_id]
    saved[ranks + 1] += np.array(used)[made[ranks]]
    sizes = np.where(first < 0, 1, [*map(len, tokens)])
    entries = len(tokens) - tokens.count(b"") - np.count_nonzero(is_new) + np.cumsum([0, *is_new])
    return entries, int(occurrences @ sizes) - np.cumsum(saved)


def prefixes(
    tokenizer: Tokenizer, occurrences: NDArray[np.int64], size: int, choose: Callable[[int, int], list[int]]
) -> tuple[Prefix, ...]:
    """Return what prefixes of a vocabulary make of a text, given how often each id occurs in it and its bytes.

    `choose` returns the sizes of prefixes, given the least and the most. There are none of a text without tokens, and
    where `tokens_of_prefixes` returns None.
    """
    found = tokens_of_prefixes(tokenizer, occurrences) if occurrences.any() else None
    if found is None:
        return ()
    entries, tokens = found
    sizes = choose(int(entries[0]), int(entries[-1]))
    merges = np.searchsorted(entries, sizes, side="right") - 1
    columns = zip(sizes, merges.tolist(), tokens[merges].tolist(), strict=True)
    return tuple(Prefix(number, merge_count, made, size / made) for number, merge_count, made in columns)


def _doubling(least: int, most: int) -> list[int]:
    doubled = [_FIRST_SIZE << k for k in range(32)]
    return sorted({least, *(size for size in doubled if least < size < most), most})
