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
from bpeflow.look.vocabulary import VocabToken
from bpeflow.progress import Observer
from bpeflow.tokenizer.parallel import encoded_batches
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
        prefixes: what smaller prefixes of the vocabulary would yield; empty without tokens, and where
            `tokens_of_prefixes` returns None. A trained vocabulary has them.
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
    tokens, is_token = [*tokenizer.vocab.decoded_tokens], tokenizer.vocab.own_tokens.lengths > 0
    order = np.argsort(-occurrences, kind="stable")
    number = int(occurrences.sum())
    used = order[: np.count_nonzero(occurrences)]
    unused = np.flatnonzero(is_token & (occurrences == 0)).tolist()
    return CorpusFigures(
        bytes=counts.total_bytes,
        pretokens=counts.total,
        distinct_pretokens=len(counts),
        tokens=number,
        bytes_per_token=counts.total_bytes / number if number else 0.0,
        used=tuple(UsedToken(i, tokens[i], n) for i, n in zip(used.tolist(), occurrences[used].tolist(), strict=True)),
        unused=tuple(VocabToken(i, tokens[i]) for i in unused),
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
    settings = each_document_once(count_settings(tokenizer, {**options, "input": list(inputs)}))
    return CorpusCounter(settings, learns=False).count(observer).counts


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
        those that make their parts, several merges make the same token, or the tokenizer has `whole_tokens`.
    """
    merge_ids, lengths = tokenizer.vocab.merge_ids.astype(np.int64), tokenizer.vocab.decoded_tokens.lengths
    left, right, made = merge_ids.T
    ranks, rank_of = np.arange(len(made)), np.full(len(lengths), -1)
    rank_of[made] = ranks
    in_order = np.maximum(rank_of[left], rank_of[right]) < ranks
    if tokenizer.to_spec().whole_tokens or not (in_order & (rank_of[made] == ranks)).all():
        return None
    used, sizes = occurrences.copy(), lengths[made]
    for size in np.unique(sizes)[::-1]:  # the longest tokens first, as parts are shorter
        of_size = sizes == size
        np.add.at(used, left[of_size], used[made[of_size]])
        np.add.at(used, right[of_size], used[made[of_size]])
    saved = np.cumsum(np.append(0, used[made]))
    entries = np.count_nonzero(lengths) - len(made) + np.arange(len(made) + 1)
    return entries, int(occurrences @ np.where(rank_of < 0, 1, lengths)) - saved


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
