"""The encoder in plain Python: the specification of the native one, and the fallback if that is not available."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow.errors import UnmatchedTextError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.cuts import Utf8
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer.encoder import DEFAULT_CACHE_BYTES, unknown_token_error
from bpeflow.tokenizer.merging import PretokenMerging, merge_table
from bpeflow.tokenizer.special_tokens import SpecialTokens
from bpeflow.tokenizer.validate import invalid_utf8_error, unmatched_text_error

#: Longest pre-token that is cached, in characters. Longer ones hardly ever occur twice.
_MAX_CACHED_LENGTH = 32

#: Estimated upper bound in bytes of a cache entry: a string, a list of ids, and their slot in the dictionary.
_ENTRY_BYTES = 400


class PythonEncoder:
    """Implements `Encoder`."""

    name = "python"

    def __init__(self, spec: TokenizerSpec, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        """Prepare a vocabulary. Raises `FormatError` if a byte, or a part or the result of a merge, has no id."""
        vocab = spec.vocab
        self._spec = spec
        self._pretokenizer = load_pretokenizer(spec.pattern, spec.unmatched)
        self._byte_ids = vocab.byte_ids
        self._merges = merge_table(vocab.merge_ids)
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
            raise invalid_utf8_error(text) from None
        except UnmatchedTextError:
            raise unmatched_text_error(text, specials, self._pretokenizer) from None
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
            raise unknown_token_error(token_id, numbers.index(token_id), len(self._spec.vocab)) from None

    def _encode_ordinary(self, text: bytes, ids: list[int]) -> None:
        for pretoken in self._pretokenizer.pretokens(text.decode()):
            cached_ids = self._cache.get(pretoken)
            if cached_ids is None:
                cached_ids = self._encode_pretoken(pretoken.encode())
                if len(pretoken) <= _MAX_CACHED_LENGTH and self._cache_size:
                    if len(self._cache) >= self._cache_size:
                        self._cache.clear()
                    self._cache[pretoken] = cached_ids
            ids += cached_ids

    def _encode_pretoken(self, pretoken: bytes) -> list[int]:
        whole = self._whole.get(pretoken)
        return self._merge(pretoken) if whole is None else [whole]

    def _merge(self, pretoken: bytes) -> list[int]:
        merging = PretokenMerging(pretoken, self._byte_ids, self._merges)
        for _ in merging.steps():
            pass
        return [token_id for token_id in merging.ids if token_id is not None]
