"""tiktoken's ranks: the lines of a file, and the merges that are recovered from them.

tiktoken repeatedly joins the two adjacent pieces of a pre-token whose concatenation is the token with the lowest rank,
the leftmost if there are several, until no two adjacent pieces form a token. It has no list of merges, but there is at
most one merge for each token:

    *A token is always joined from the same two pieces: the last two that remain when its own bytes are merged in
    isolation.*

Proof: Let two adjacent pieces of a text be joined to the token t. No earlier join crossed the edges of t. So the joins
inside t were chosen among the pieces inside t, lowest rank first and leftmost first, exactly as they are if the bytes
of t stand alone. This does not require that ranks increase from parts to wholes. Therefore the list of these pairs, in
the order of the tokens' ranks, merges every text as the ranks do. A token that merging its own bytes never yields has
no merge: tiktoken yields it only for a pre-token that equals it, which it checks first (`TokenizerSpec.whole_tokens`).

So merges can be recovered in the order of lengths, shortest first: those of all shorter tokens join a token's bytes to
its two pieces. Native code does this. The Python code below looks up the concatenations, as tiktoken does.

For the same reason, further pairs for the same tokens do no harm, such as those in the list that HuggingFace's
converter writes: whenever two pieces can be joined to the token with the lowest rank, they are its recovered pair.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ctypes import byref, c_uint64
from heapq import heapify, heappop, heappush
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.native import load_library
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import short_repr
from bpeflow.errors import FormatError, NativeUnavailableError
from bpeflow.formats.untrusted import has_duplicates
from bpeflow.vocab import Merge, Vocab

# ---- lines ----


def read_ranks(path: Path, content: bytes) -> tuple[PackedBytes, NDArray[np.int64]]:
    """Return the tokens and their ranks. Raises `FormatError` for the first line that is not a token and its rank."""
    with suppress(NativeUnavailableError):
        if (read := read_natively(content)) and not has_duplicates(read[1]):
            return read
    ranks = read_lines(path, content)
    return PackedBytes.of(ranks), np.fromiter(ranks.values(), np.int64, len(ranks))


def read_lines(path: Path, content: bytes) -> dict[bytes, int]:
    """Implement `read_ranks`; returns the rank of each token."""
    ranks: dict[bytes, int] = {}
    lines: dict[int, int] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line:
            continue
        parts = line.split()
        if len(parts) != 2 or not parts[1].isdigit() or len(parts[1]) > 10:
            raise FormatError(f"{path}, line {number}: need a token in base64 and its rank, found {short_repr(line)}")
        try:
            token = base64.b64decode(parts[0], validate=True)
        except binascii.Error as error:
            raise FormatError(f"{path}, line {number}: {short_repr(parts[0])} is not base64: {error}") from error
        if len(parts[0]) != 4 * math.ceil(len(token) / 3):  # versions of Python differ in what they accept
            raise FormatError(f"{path}, line {number}: {short_repr(parts[0])} is not base64: excess padding")
        rank = int(parts[1])
        if not token:
            raise FormatError(f"{path}, line {number}: an empty token")
        if token in ranks:
            raise FormatError(
                f"{path}, line {number}: token {short_repr(token)} already has rank {ranks[token]}, from line "
                f"{lines[ranks[token]]}"
            )
        if rank in lines:
            raise FormatError(f"{path}, line {number}: rank {rank} is already in line {lines[rank]}")
        ranks[token] = rank
        lines[rank] = number
    return ranks


def read_natively(content: bytes) -> tuple[PackedBytes, NDArray[np.int64]] | None:
    """Return the tokens and their ranks; None if a line has another form, or two have equal tokens.

    Raises `NativeUnavailableError` if the library is not available.
    """
    lines = content.count(b"\n")
    data, offsets, ranks = np.empty(len(content), np.uint8), np.empty(lines + 1, np.int64), np.empty(lines, np.int64)
    arrays = (data.ctypes.data, offsets.ctypes.data, ranks.ctypes.data)
    read = load_library("encode").bpeflow_read_ranks
    if read(content, len(content), *arrays, lines) != 0:  # other text is left to the caller
        return None
    return PackedBytes(data[: offsets[-1]].tobytes(), offsets), ranks


# ---- merges ----


def recover_merge_ids(tokens: PackedBytes) -> NDArray[np.uint32]:
    """Return the merge of each token that merging can yield, as ids: rows of left, right and result, by result.

    Args:
        tokens: the token of each rank, which is also its id; ``b""`` if there is none. Of equal tokens only the first
            counts. A token has no merge if one of its bytes is not a token.

    >>> tokens = [*(bytes([byte]) for byte in range(256)), b"ab", b"bc", b"abc"]
    >>> recover_merge_ids(PackedBytes.of(tokens)).tolist()
    [[97, 98, 256], [98, 99, 257], [256, 99, 258]]
    """
    try:
        return recover_natively(tokens)
    except NativeUnavailableError:
        return recover_in_python(tokens)


def recover_natively(tokens: PackedBytes) -> NDArray[np.uint32]:
    """Implement `recover_merge_ids`. Raises `NativeUnavailableError` if the library is not available."""
    merges, count = np.empty((len(tokens), 3), np.uint32), c_uint64()
    arguments = (tokens.data, tokens.offsets.ctypes.data, len(tokens), merges.ctypes.data, byref(count))
    load_library("encode").bpeflow_recover_merges(*arguments)
    recovered: NDArray[np.uint32] = merges[: count.value].copy()
    return recovered


def recover_in_python(tokens: Sequence[bytes]) -> NDArray[np.uint32]:
    """Implement `recover_merge_ids`, in twenty times the time."""
    singles = {token[0] for token in tokens if len(token) == 1}
    ids = {t: i for i, t in reversed([*enumerate(tokens)]) if t and singles.issuperset(t)}
    merges = [(ids[left], ids[right], ids[left + right]) for left, right in recover_merges(ids)]
    return np.array(merges, np.uint32).reshape(-1, 3)


def recover_merges(ranks: Mapping[bytes, int]) -> list[Merge]:
    """Return the merge of each token that merging can yield, in the order of ranks.

    >>> ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b"bc": 257, b"abc": 258, b"xyz": 259}
    >>> recover_merges(ranks)
    [(b'a', b'b'), (b'b', b'c'), (b'ab', b'c')]
    """
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        middle = final_split(token, ranks) if len(token) > 1 else None
        if middle is not None:
            merges.append((token[:middle], token[middle:]))
    return merges


def final_split(token: bytes, ranks: Mapping[bytes, int]) -> int | None:
    """Return where the last two pieces of `token` meet when its bytes are merged; None if they never become one piece.

    A piece that starts at `start` ends at ``ends[start]``. After it has been joined to the piece before it, this entry
    is an empty piece. Candidates in the heap that are no longer two adjacent pieces are skipped.
    """
    rank_of, size = ranks.get, len(token)
    ends, previous_starts = list(range(1, size + 1)), list(range(-1, size - 1))
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
            previous_starts[end] = start
            next_end = ends[end]
            if (rank := rank_of(token[start:next_end])) is not None:
                heappush(candidates, (rank, start, next_end))
        if start > 0:
            previous_start = previous_starts[start]
            if (rank := rank_of(token[previous_start:end])) is not None:
                heappush(candidates, (rank, previous_start, end))
    return None


def first_difference(vocab: Vocab, whole_tokens: bool) -> str | None:
    """Describe the first difference between merging by ranks and by a list of merges; None if both yield the same.

    Tokens that merging never yields are a difference unless `whole_tokens` is true, because tiktoken yields them for
    pre-tokens that equal them.
    """
    _, packed = vocab.packed()
    merge_ids, tokens = recover_merge_ids(packed), vocab.ordinary_tokens
    never_made = np.setdiff1d(np.flatnonzero(packed.lengths > 1), merge_ids[:, 2])
    if len(never_made) and not whole_tokens:
        token_id = never_made[0]
        return (
            f"token {tokens[token_id]!r} (id {token_id}) is not the result of any merge, but would be used for a "
            "pre-token that equals it"
        )
    if np.array_equal(merge_ids, vocab.merge_ids):
        return None
    merges = vocab.merges
    recovered = [(tokens[left], tokens[right]) for left, right in merge_ids[:, :2].tolist()]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    known = set(merges)
    for left, right in recovered:
        if (left, right) not in known:
            return f"token {left + right!r} (id {ranks[left + right]}) would be merged from {left!r} and {right!r}"
    highest = -1
    for rank, (left, right) in enumerate(merges):
        if ranks[left + right] < highest:
            return (
                f"merge {rank}, {left!r} + {right!r}, makes id {ranks[left + right]}, which is lower than the id "
                f"{highest} of an earlier merge"
            )
        highest = ranks[left + right]
    return None
