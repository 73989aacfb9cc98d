"""Merges from ranks: what a vocabulary that is only bytes with ranks, as tiktoken's is, merges and how.

tiktoken joins the two adjacent pieces of a pre-token whose joined bytes have the lowest rank, the leftmost of several,
until no two joined are a token. It has no list of merges, but it has one merge for each token at most:

    *What a token is made of is what merging its own bytes alone yields just before it is made.*

For let two adjacent pieces be joined to the token t. No merge before crossed the ends of t, so those inside t were
chosen among the pairs inside, lowest rank and leftmost first, just as they are where the bytes of t stand alone.
Nothing here needs ranks to rise from parts to wholes. So the list of these pairs, in the order of the tokens' ranks,
merges every text as the ranks do. A token that merging its bytes never yields is made by no merge: tiktoken gives it
only for a pre-token that equals it, which it looks for first (`TokenizerSpec.whole_tokens`).

For the same reason further pairs do no harm which a list holds for tokens beside these, as those that HuggingFace's
converter writes: whenever two pieces could be joined to a token that has the lowest rank, they are its pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from bpeflow.vocab import Merge


def recover_merges(ranks: Mapping[bytes, int]) -> list[Merge]:
    """The merge of each token that merging yields, in the order of ranks.

    >>> ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b"bc": 257, b"abc": 258, b"xyz": 259}
    >>> recover_merges(ranks)
    [(b'a', b'b'), (b'b', b'c'), (b'ab', b'c')]
    """
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        middle = last_cut(token, ranks) if len(token) > 1 else None
        if middle is not None:
            merges.append((token[:middle], token[middle:]))
    return merges


def last_cut(token: bytes, ranks: Mapping[bytes, int]) -> int | None:
    """Where the last two pieces of `token` meet, when its bytes are merged; None where they never become one piece.

    The pieces are entries of `ends`: the piece that starts at `start` ends at ``ends[start]``, or is empty when it has
    become a part of the one before. A candidate of the heap that no longer is two adjacent pieces is left out.
    """
    rank_of, size = ranks.get, len(token)
    ends, befores = list(range(1, size + 1)), list(range(-1, size - 1))
    candidates = [(r, i, i + 2) for i in range(size - 1) if (r := rank_of(token[i : i + 2])) is not None]
    heapify(candidates)
    while candidates:
        _, start, end = heappop(candidates)
        middle = ends[start]
        if not start < middle < end or ends[middle] != end:
            continue
        if end - start == size:
            return middle
        ends[start], ends[middle] = end, middle
        if end < size:
            befores[end] = start
            after = ends[end]
            if (rank := rank_of(token[start:after])) is not None:
                heappush(candidates, (rank, start, after))
        if start > 0:
            before = befores[start]
            if (rank := rank_of(token[before:end])) is not None:
                heappush(candidates, (rank, before, end))
    return None


def first_difference(ranks: Mapping[bytes, int], merges: Iterable[Merge], whole_tokens: bool) -> str | None:
    """Say what `ranks` alone would do differently from `merges`; None where both yield the same for every text.

    With `whole_tokens`, tokens that merging never yields are found in both cases; without it they are a difference,
    for tiktoken takes a pre-token that is a token whole.
    """
    merges = list(merges)
    recovered = recover_merges(ranks)
    if not whole_tokens and len(recovered) + 256 < len(ranks):
        made = {left + right for left, right in recovered}
        token = min((t for t in ranks if len(t) > 1 and t not in made), key=ranks.__getitem__)
        return f"token {token!r} (id {ranks[token]}) is yielded by no merge, but would be taken where it is a pre-token"
    if recovered == merges:
        return None
    known = set(merges)
    for left, right in recovered:
        if (left, right) not in known:
            return f"token {left + right!r} (id {ranks[left + right]}) would be merged from {left!r} and {right!r}"
    highest = -1
    for number, (left, right) in enumerate(merges):
        if ranks[left + right] < highest:
            return (
                f"merge {number}, {left!r} + {right!r}, makes id {ranks[left + right]}, lower than the {highest} of a "
                "merge before it"
            )
        highest = ranks[left + right]
    return None
