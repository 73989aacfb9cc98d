"""The encoder in plain Python: the specification of the native one, and what runs where that cannot be had."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow.formats.spec import TokenizerSpec
from bpeflow.pretokenize.cuts import Utf8
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer.encoder import DEFAULT_CACHE_BYTES, unknown_token
from bpeflow.tokenizer.special_tokens import SpecialTokens
from bpeflow.tokenizer.validate import not_utf8

_CACHED_LENGTH = 32


"""Longer pre-tokens are not cached: hardly any comes twice."""


_ENTRY_BYTES = 400


"""What a cached pre-token takes at most, roughly: a string, a list of ids, and their place in the dictionary."""


class PythonEncoder:
    """Fulfils `Encoder`, whose docstrings say what is meant."""

    name = "python"

    def __init__(self, spec: TokenizerSpec, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        """Raises `FormatError` where a byte, or a part or the result of a merge, has no id."""
        vocab = spec.vocab
        self._spec = spec
        self._pretokenizer = load_pretokenizer(spec.pattern)
        self._byte_ids = vocab.byte_ids
        self._merges: dict[tuple[int, int], tuple[int, int]] = {}
        for rank, (left, right, made) in enumerate(vocab.merge_ids.tolist()):
            self._merges.setdefault((left, right), (rank, made))
        self._whole = {token: i for i, token in enumerate(vocab.ordinary_tokens) if token} if spec.whole_tokens else {}
        self._tokens = {token_id: token for token_id, token in enumerate(vocab.decoded_tokens) if token}
        self._cache: dict[str, list[int]] = {}
        self._cache_size = cache_bytes // _ENTRY_BYTES

    def with_cache(self, cache_bytes: int) -> PythonEncoder:
        other = PythonEncoder.__new__(PythonEncoder)
        other.__dict__ |= self.__dict__ | {"_cache": {}, "_cache_size": cache_bytes // _ENTRY_BYTES}
        return other

    def encode(self, text: bytes, specials: SpecialTokens) -> list[int]:
        ids: list[int] = []
        end = 0
        try:
            for match in specials.matches(text):
                self._encode_ordinary(text[end : match.start()], ids)
                ids.append(specials.ids[match.group()])
                end = match.end()
            self._encode_ordinary(text[end:], ids)
        except UnicodeDecodeError:
            raise not_utf8(text) from None
        return ids

    def encode_to_array(
        self, text: Utf8, specials: SpecialTokens, dtype: np.dtype[Any]
    ) -> NDArray[np.unsignedinteger[Any]]:
        return np.array(self.encode(bytes(text), specials), dtype)

    def encode_batch(
        self, texts: Sequence[bytes], specials: SpecialTokens, dtype: np.dtype[Any]
    ) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int64]]:
        encoded = [self.encode(text, specials) for text in texts]
        ends = np.cumsum([len(ids) for ids in encoded], dtype=np.int64)
        return np.array([token_id for ids in encoded for token_id in ids], dtype), ends

    def count_tokens(self, text: Utf8, specials: SpecialTokens) -> int:
        return len(self.encode(bytes(text), specials))

    def decode(self, ids: NDArray[np.unsignedinteger[Any]]) -> bytes:
        numbers = ids.tolist()
        try:
            return b"".join([self._tokens[token_id] for token_id in numbers])
        except KeyError as error:
            token_id = error.args[0]
            raise unknown_token(token_id, numbers.index(token_id), len(self._spec.vocab)) from None

    def _encode_ordinary(self, text: bytes, ids: list[int]) -> None:
        for pretoken in self._pretokenizer.pretokens(text.decode()):
            known = self._cache.get(pretoken)
            if known is None:
                known = self._encode_pretoken(pretoken.encode())
                if len(pretoken) <= _CACHED_LENGTH and self._cache_size:
                    if len(self._cache) >= self._cache_size:
                        self._cache.clear()
                    self._cache[pretoken] = known
            ids += known

    def _encode_pretoken(self, pretoken: bytes) -> list[int]:
        whole = self._whole.get(pretoken)
        return self._merge(pretoken) if whole is None else [whole]

    def _merge(self, pretoken: bytes) -> list[int]:
        """Apply the merge of the lowest rank, the leftmost of several, until none applies.

        Applicable merges wait in a heap as (rank, place). A token stands at the place of its first byte; `following`
        and `previous` lead to its neighbours' places. An entry is stale, and dropped, when the token at its place or
        the one behind it is no longer there to make that merge.
        """
        ids: list[int | None] = [self._byte_ids[byte] for byte in pretoken]
        following = list(range(1, len(ids) + 1))
        previous = list(range(-1, len(ids) - 1))
        heap: list[tuple[int, int]] = []

        def find(place: int) -> tuple[int, int] | None:
            """Rank and result of the merge of the token at `place` and the next one."""
            if place < 0 or following[place] == len(ids):
                return None
            left, right = ids[place], ids[following[place]]
            return None if left is None or right is None else self._merges.get((left, right))

        def offer(place: int) -> None:
            merge = find(place)
            if merge is not None:
                heapq.heappush(heap, (merge[0], place))

        for place in range(len(ids)):
            offer(place)
        while heap:
            rank, place = heapq.heappop(heap)
            merge = find(place)
            if merge is None or merge[0] != rank:
                continue
            gone = following[place]
            ids[place], ids[gone] = merge[1], None
            following[place] = following[gone]
            if following[place] < len(ids):
                previous[following[place]] = place
            offer(previous[place])
            offer(place)
        return [token_id for token_id in ids if token_id is not None]
