"""tiktoken's ranks: the lines of a file, and the merges that are recovered from them.

tiktoken repeatedly joins the two adjacent pieces of a pre-token whose concatenation is the token with the lowest rank,
the leftmost if there are several, until no two adjacent pieces form a token. It has no list of merges, but there is at
most one merge for each token:

    *A token is always joined from the same two pieces: the last two that remain when its own bytes are merged in
    isolation.*

Proof: Let two adjacent pieces of a text be joined to the token t. No earlier join crossed the edges of t. So the joins
inside t were chosen among the pieces inside t, lowest rank first and leftmost first, exactly as they are if the bytes
of t are the whole text. This does not require that ranks increase from parts to wholes. Therefore the list of these
pairs, in the order of the tokens' ranks, merges every text as the ranks do. A token that merging its own bytes never
yields has no merge: tiktoken yields it only for a pre-token that equals it, which it checks first
(`TokenizerSpec.whole_tokens`).

So merges can be recovered in the order of lengths, shortest first: those of all shorter tokens join a token's bytes to
its two pieces. Native code does this. The Python code below looks up the concatenations, as tiktoken does.

For the same reason, further pairs for the same tokens do no harm, such as those in the list that HuggingFace's
converter writes: whenever two pieces can be joined to the token with the lowest rank, they are its recovered pair.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ctypes import byref, c_uint64
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.native import load_library
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import short_repr
from bpeflow.errors import FormatError, NativeUnavailableError
from bpeflow.vocab import Merge, Vocab

# ---- lines ----


def read_ranks(path: Path, content: bytes) -> tuple[PackedBytes, NDArray[np.int64]]:
    """Return the tokens and their ranks. Raises `FormatError` for the first line that is not a token and its rank."""
    with suppress(NativeUnavailableError):
        if read := read_natively(content):
            return read
    ranks = read_lines(path, content)
    return PackedBytes.of(ranks), np.fromiter(ranks.values(), np.int64, len(ranks))


def read_lines(path: Path, content: bytes) -> dict[bytes, int]:
    """Implement `read_ranks`; returns the rank of each token."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line:
            continue
        token, _, rank = line.strip().partition(b" ")
        rank = rank.strip()
        try:
            decoded = base64.b64decode(token, validate=True)
        except binascii.Error:
            decoded = b""
        # Versions of Python differ in the excess padding that they accept.
        is_base64 = decoded and len(token) == 4 * math.ceil(len(decoded) / 3)
        if not is_base64 or not rank.isdigit() or len(rank) > 10:
            raise FormatError(f"{path}, line {number}: need a token in base64 and its rank, found {short_repr(line)}")
        if decoded in ranks:
            raise FormatError(f"{path}, line {number}: token {short_repr(decoded)} already has rank {ranks[decoded]}")
        ranks[decoded] = int(rank)
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
    """Implement `recover_merge_ids`, in time quadratic in the length of each token."""
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
    tokens = sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__)
    return [merge for token in tokens if (merge := final_merge(token, ranks))]


def final_merge(token: bytes, ranks: Mapping[bytes, int]) -> Merge | None:
    """Return the last two pieces of `token` when its bytes are merged; None if they never become one piece."""
    pieces = [token[i : i + 1] for i in range(len(token))]
    while len(pieces) > 2:
        joins = (ranks.get(left + right, math.inf) for left, right in pairwise(pieces))
        rank, at = min(zip(joins, itertools.count(), strict=False))
        if rank == math.inf:
            return None
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    return pieces[0], pieces[1]


def first_difference(vocab: Vocab, whole_tokens: bool) -> str | None:
    """Describe the first difference between merging by ranks and by a list of merges; None if both yield the same.

    Tokens that merging never yields are a difference unless `whole_tokens` is true, because tiktoken yields them for
    pre-tokens that equal them.
    """
    tokens = vocab.ordinary_tokens
    merge_ids, never_made = recover_merge_ids(tokens), tokens.lengths > 1
    never_made[merge_ids[:, 2]] = False
    if never_made.any() and not whole_tokens:
        token_id = int(never_made.argmax())
        return (
            f"token {tokens[token_id]!r} (id {token_id}) is not the result of any merge, but would be used for a "
            "pre-token that equals it"
        )
    if np.array_equal(merge_ids, vocab.merge_ids):
        return None
    recovered = [(tokens[left], tokens[right]) for left, right in merge_ids[:, :2].tolist()]
    pairs = enumerate(itertools.zip_longest(vocab.merges, recovered))
    rank, merges = next((rank, pair) for rank, pair in pairs if pair[0] != pair[1])
    listed, by_ranks = (" + ".join(map(repr, merge)) if merge else "none" for merge in merges)
    return f"merge {rank} is {listed}, and by ranks {by_ranks}"
