"""`Encoder`: the interface that the native and the Python encoder implement for `Tokenizer`, and its errors."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bpeflow.errors import InvalidTextError, UnknownTokenError, UnmatchedTextError
from bpeflow.pretokenize.patterns import Utf8
from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.tokenizer.special_tokens import SpecialTokens

#: Size of the cache of merged pre-tokens, in bytes. Larger: fewer pre-tokens of a large corpus are merged again.
#: Smaller: more of the cache stays in the processor's caches, and less memory is used.
DEFAULT_CACHE_BYTES = 256 * 1024 * 1024

#: The same for streams. Larger: a stream would exceed the 1 MB that it may use altogether. Smaller: more pre-tokens are
#: merged again.
STREAM_CACHE_BYTES = 256 * 1024

#: Ids: uint16 or uint32.
IdArray = NDArray[np.unsignedinteger[Any]]

#: The ids of texts, concatenated, and the end of each text's ids in that array.
EncodedTexts = tuple[IdArray, NDArray[np.int64]]


class Encoder(Protocol):
    """Encodes UTF-8 text to ids and decodes ids to bytes.

    Encoders are thread-safe. Each call runs on the calling thread only. The rules of encoding:

    * Text that is not UTF-8 raises `InvalidTextError`.
    * Special tokens are found as `SpecialTokens.matches` finds them. The text between two of them is split into
      pre-tokens separately.
    * Text that a custom pattern does not match becomes a pre-token of each stretch between two matches. It yields no
      ids if `unmatched` of the spec is ``"drop"``, and raises `UnmatchedTextError` if it is ``"error"``.
    * With a normalizer, the text between two special tokens is normalized before it is split.
    * In a pre-token, the applicable merge of the lowest rank is applied first, at its leftmost place, until no merge
      applies. With `whole_tokens`, a pre-token that is an ordinary token becomes that token without merging.

    A `dtype` is uint16 or uint32, and must hold every id of the vocabulary.
    """

    @property
    def name(self) -> str:
        """The encoder's name in `tokenizer.ENCODERS`."""

    def encode(self, text: bytes, specials: SpecialTokens) -> list[int]:
        """Encode one text. Optimised for short texts."""

    def encode_to_array(self, text: Utf8, specials: SpecialTokens, dtype: np.dtype[Any]) -> IdArray:
        """Encode one text to an array that the caller owns."""

    def encode_batch(self, texts: list[str], specials: SpecialTokens, dtype: np.dtype[Any]) -> EncodedTexts:
        """Encode texts. Return their ids, concatenated, and the end of each text's ids in that array."""

    def encode_pretokens(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], dtype: np.dtype[Any]
    ) -> EncodedTexts:
        """Encode texts that are pre-tokens already, and normalized: each is `data` from one offset to the next.

        Return the same as `encode_batch`.
        """

    def decode(self, ids: IdArray) -> bytes:
        """Return the bytes of ids, joined. `ids` must be one-dimensional, contiguous, and uint16 or uint32.

        Raises `UnknownTokenError` (see `unknown_token_error`) for an id outside the vocabulary or in a gap of it.
        """

    def with_cache(self, cache_bytes: int) -> Encoder:
        """Return an encoder of the same vocabulary with its own cache of up to `cache_bytes`."""


def unknown_token_error(token_id: int, index: int, tokens: int) -> UnknownTokenError:
    """Return the error for `token_id` at `index` of the ids to decode, given a vocabulary of `tokens` ids."""
    if 0 <= token_id < tokens:
        return UnknownTokenError(f"id {token_id} at index {index} has no token: it is a gap in the vocabulary")
    return UnknownTokenError(f"unknown id {token_id} at index {index}: the vocabulary has the ids 0 to {tokens - 1}")


def invalid_utf8_error(text: Utf8) -> InvalidTextError:
    """Return the error for bytes that are not UTF-8, with the position."""
    try:
        bytes(text).decode()
    except UnicodeDecodeError as error:
        return InvalidTextError(f"the text is not UTF-8: {error.reason} at byte {error.start}")
    return InvalidTextError("the text is not UTF-8")


def text_error(
    error: UnicodeDecodeError | UnmatchedTextError, text: bytes, specials: SpecialTokens, pretokenizer: Pretokenizer
) -> InvalidTextError:
    """Return the error for a part of `text` that is not UTF-8 or unmatched, with the position in the whole."""
    if isinstance(error, UnicodeDecodeError):
        return invalid_utf8_error(text)
    position = 0
    for piece, special_id in specials.split(text):
        characters = piece.decode()
        if special_id is None and (unmatched := pretokenizer.find_unmatched_before_normalizing(characters)):
            start = position + unmatched.start
            return UnmatchedTextError(pretokenizer.describe(unmatched._replace(start=start)))
        position += len(characters)
    return error
