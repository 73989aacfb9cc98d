"""Encoding in plain Python: the specification of the native encoder, and the fallback if that is not available."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow.errors import UnmatchedTextError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.patterns import Utf8
from bpeflow.tokenizer.encoder import DEFAULT_CACHE_BYTES, EncodedTexts, IdArray, text_error, unknown_token_error
from bpeflow.tokenizer.special_tokens import SpecialTokens
from bpeflow.tokenizer.validate import to_utf8

#: Longest pre-token that is cached, in characters. Longer ones hardly ever occur twice.
_MAX_CACHED_LENGTH = 32

#: Estimated upper bound in bytes of a cache entry: a string, a list of ids, and their place in the cache.
_ENTRY_BYTES = 500


def merge_table(merge_ids: IdArray) -> dict[tuple[int | None, int | None], tuple[int, int]]:
    """Return the rank of each merge and the id of its result, by the ids of its parts.

    Args:
        merge_ids: the ids of left part, right part and result, of shape (merges, 3). Of two merges of the same parts,
            the first applies.
    """
    left, right, results = merge_ids[::-1].T.tolist()
    ranks = range(len(results) - 1, -1, -1)
    return dict(zip(zip(left, right, strict=True), zip(ranks, results, strict=True), strict=True))


class PretokenMerging:
    """Applies the merge of the lowest rank, at its leftmost position, until none applies.

    A token's position is the position of its first byte. `following` and `previous` link the positions of neighbours.
    Applicable merges wait in a heap as (rank, position). An entry is stale, and is dropped, if the token at its
    position and the next token no longer make a merge of that rank.

    Attributes:
        ids: the id of the token at each position, None where there is none.
        following: the position of the next token, the length of the pre-token after the last.
        previous: the position of the token before, -1 before the first.
    """

    def __init__(
        self, pretoken: bytes, byte_ids: Sequence[int], merges: Mapping[tuple[int | None, int | None], tuple[int, int]]
    ) -> None:
        """Start with a token for each byte.

        Args:
            pretoken: the bytes.
            byte_ids: the id of each of the 256 bytes.
            merges: as `merge_table` returns them.
        """
        self.ids: list[int | None] = [byte_ids[byte] for byte in pretoken]
        self.following = list(range(1, len(pretoken) + 1))
        self.previous = list(range(-1, len(pretoken) - 1))
        self._merges = merges

    def find(self, position: int) -> tuple[int, int] | None:
        """Return rank and result of the merge of the token at `position` with the next one."""
        if position < 0 or (following := self.following[position]) == len(self.ids):
            return None
        return self._merges.get((self.ids[position], self.ids[following]))

    def steps(self) -> Iterator[tuple[int, int, int]]:
        """Apply all merges. Yield rank, result and position of each before it is applied."""
        ids, following, previous, find = self.ids, self.following, self.previous, self.find
        heap = [(merge[0], position) for position in range(len(ids)) if (merge := find(position))]
        heapq.heapify(heap)
        while heap:
            rank, position = heapq.heappop(heap)
            merge = find(position)
            if merge is None or merge[0] != rank:
                continue
            yield rank, merge[1], position
            absorbed = following[position]
            ids[position], ids[absorbed] = merge[1], None
            following[position] = following[absorbed]
            if following[position] < len(ids):
                previous[following[position]] = position
            for changed in (previous[position], position):
                if merge := find(changed):
                    heapq.heappush(heap, (merge[0], changed))


class PythonEncoder:
    """Implements `Encoder`."""

    name = "python"

    def __init__(self, spec: TokenizerSpec, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        """Prepare a vocabulary. Raises `FormatError` if a byte, or a part or the result of a merge, has no id."""
        vocab = spec.vocab
        self._spec = spec
        self._pretokenizer = spec.pretokenizer
        self._byte_ids = vocab.byte_ids
        self._merges = merge_table(vocab.merge_ids)
        self._whole = vocab.ordinary_ids if spec.whole_tokens else {}
        self._tokens = {token_id: token for token_id, token in enumerate(vocab.decoded_tokens) if token}
        self._cached = lru_cache(cache_bytes // _ENTRY_BYTES)(self._encode_pretoken)

    def with_cache(self, cache_bytes: int) -> PythonEncoder:
        other = copy(self)
        other._cached = lru_cache(cache_bytes // _ENTRY_BYTES)(other._encode_pretoken)
        return other

    def encode(self, text: bytes, specials: SpecialTokens) -> list[int]:
        ids: list[int] = []
        try:
            for piece, special_id in specials.split(text):
                if special_id is None:
                    self._encode_ordinary(piece, ids)
                else:
                    ids.append(special_id)
        except (UnicodeDecodeError, UnmatchedTextError) as error:
            raise text_error(error, text, specials, self._pretokenizer) from None
        return ids

    def encode_to_array(self, text: Utf8, specials: SpecialTokens, dtype: np.dtype[Any]) -> IdArray:
        return np.array(self.encode(bytes(text), specials), dtype)

    def encode_batch(self, texts: list[str], specials: SpecialTokens, dtype: np.dtype[Any]) -> EncodedTexts:
        return _joined([self.encode(to_utf8(text), specials) for text in texts], dtype)

    def encode_pretokens(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], dtype: np.dtype[Any]
    ) -> EncodedTexts:
        pretokens = (data[start:end].tobytes() for start, end in pairwise(offsets.tolist()))
        return _joined([self._encode_pretoken(pretoken) for pretoken in pretokens], dtype)

    def decode(self, ids: IdArray) -> bytes:
        numbers = ids.tolist()
        try:
            return b"".join([self._tokens[token_id] for token_id in numbers])
        except KeyError as error:
            token_id = error.args[0]
            raise unknown_token_error(token_id, numbers.index(token_id), len(self._spec.vocab)) from None

    def _encode_ordinary(self, text: bytes, ids: list[int]) -> None:
        for pretoken in self._pretokenizer.pretokens(self._pretokenizer.normalizer(text.decode())):
            encode = self._cached if len(pretoken) <= _MAX_CACHED_LENGTH else self._encode_pretoken
            ids += encode(pretoken.encode())

    def _encode_pretoken(self, pretoken: bytes) -> list[int]:
        if pretoken in self._whole:
            return [self._whole[pretoken]]
        merging = PretokenMerging(pretoken, self._byte_ids, self._merges)
        for _ in merging.steps():
            pass
        return [token_id for token_id in merging.ids if token_id is not None]


def _joined(encoded: Sequence[Sequence[int]], dtype: np.dtype[Any]) -> EncodedTexts:
    """Return the ids of several texts as one array, and the end of each text's ids in it."""
    ends = np.cumsum([len(ids) for ids in encoded], dtype=np.int64)
    return np.array([token_id for ids in encoded for token_id in ids], dtype), ends
