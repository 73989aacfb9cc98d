"""What encodes and decodes behind `Tokenizer`: the contract, and which encoder a tokenizer gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from bpeflow.errors import UnknownTokenError
from bpeflow.pretokenize.cuts import Utf8
from bpeflow.tokenizer.special_tokens import SpecialTokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


DEFAULT_CACHE_BYTES = 128 * 1024 * 1024


"""For the pre-tokens of each thread. More: fewer are merged again in a large corpus; less: more of it stays in the
processor's caches, and in bounds."""


STREAM_CACHE_BYTES = 256 * 1024


"""The same for streams, whose memory is bounded by 1 MB altogether."""


class Encoder(Protocol):
    """Encodes UTF-8 text to ids, and decodes ids to bytes. Thread-safe; each call runs on the calling thread alone.

    The contract of every method: text that is not UTF-8 raises `InvalidTextError`. Special tokens are found as
    `SpecialTokens.matches` finds them; what lies between two of them is split into pre-tokens on its own; text that a
    custom pattern does not match yields nothing. A pre-token is merged as DESIGN's rule 10 says: lowest rank first,
    leftmost first, until nothing applies; with ``whole_tokens`` one that is an ordinary token is taken whole before
    that. ``dtype`` is uint16 or uint32, and holds every id of the vocabulary.
    """

    @property
    def name(self) -> str:
        """One of `ENCODERS`."""

    def encode(self, text: bytes, specials: SpecialTokens) -> list[int]:
        """Encode one text; made for short ones."""

    def encode_to_array(
        self, text: Utf8, specials: SpecialTokens, dtype: np.dtype[Any]
    ) -> NDArray[np.unsignedinteger[Any]]:
        """Encode one text to an array that belongs to the caller."""

    def encode_batch(
        self, texts: Sequence[bytes], specials: SpecialTokens, dtype: np.dtype[Any]
    ) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int64]]:
        """Encode texts: all their ids, one text after the other, and where in the array each text's end."""

    def count_tokens(self, text: Utf8, specials: SpecialTokens) -> int:
        """How many ids `encode` would give."""

    def decode(self, ids: NDArray[np.unsignedinteger[Any]]) -> bytes:
        """The bytes of ids, joined. ``ids``: one dimension, contiguous, uint16 or uint32.

        Raises `UnknownTokenError` (see `unknown_token`) for an id that is too large or stands for nothing.
        """

    def with_cache(self, cache_bytes: int) -> Encoder:
        """An encoder of the same vocabulary with a cache of its own, of at most `cache_bytes` a thread."""


def unknown_token(token_id: int, index: int, tokens: int) -> UnknownTokenError:
    """Say that id `token_id`, which stands at `index` of the ids to decode, is none of a vocabulary of `tokens` ids."""
    if 0 <= token_id < tokens:
        return UnknownTokenError(f"id {token_id} at index {index} stands for no token: it is a gap in the vocabulary")
    return UnknownTokenError(f"unknown id {token_id} at index {index}: the vocabulary has the ids 0 to {tokens - 1}")
