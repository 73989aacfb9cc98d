"""The choice of an encoder by name, and `NormalizingEncoder`, which wraps it if the tokenizer has a normalizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bpeflow._util.text import close_matches
from bpeflow.errors import ConfigError, NativeUnavailableError, UnmatchedTextError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.cuts import Utf8
from bpeflow.pretokenize.regex import Pretokenizer, load_pretokenizer
from bpeflow.tokenizer.encoder import DEFAULT_CACHE_BYTES, Encoder, invalid_utf8_error, text_error
from bpeflow.tokenizer.native_encoder import NativeEncoder
from bpeflow.tokenizer.python_encoder import PythonEncoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Names of the encoders, best first. ``auto`` takes the first that is available.
ENCODERS = ("native", "python")


def new_encoder(spec: TokenizerSpec, name: str = "auto", cache_bytes: int = DEFAULT_CACHE_BYTES) -> Encoder:
    """Return the encoder of that name. ``auto`` is the native one if it is available, else the Python one.

    Raises:
        ConfigError: the name is unknown, or the cache size is invalid.
        NativeUnavailableError: ``native`` was requested but is not available.
        FormatError: the vocabulary and the merges do not fit each other.
    """
    if name not in ("auto", *ENCODERS):
        nearest = close_matches(str(name), ENCODERS)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ConfigError(f"unknown encoder {name!r}; {hint}there are: auto, {', '.join(ENCODERS)}")
    if not isinstance(cache_bytes, int) or not 0 <= cache_bytes < 1 << 63:
        raise ConfigError(f"cache_bytes is {cache_bytes!r}; it must be an integer number of bytes, 0 for no cache")
    encoder = _encoder_of_normalized_text(spec, name, cache_bytes)
    if not spec.normalizer:
        return encoder
    return NormalizingEncoder(encoder, load_pretokenizer(spec.pattern, spec.unmatched, spec.normalizer))


def _encoder_of_normalized_text(spec: TokenizerSpec, name: str, cache_bytes: int) -> Encoder:
    if name != "python":
        try:
            return NativeEncoder(spec, cache_bytes)
        except NativeUnavailableError:
            if name == "native":
                raise
    return PythonEncoder(spec, cache_bytes)


class NormalizingEncoder:
    """Implements `Encoder` on top of another one.

    Special tokens are found in the text as it is. The text between two of them is normalized separately, and never has
    a special token, even if normalizing makes the characters of one. Most text is unchanged by a normalizer, and is
    passed on as a whole: then each part of it is normalized, too. (This holds for the forms of Unicode, lower case does
    not depend on other characters, and neither of the two undoes what the other does to a character.)
    """

    def __init__(self, encoder: Encoder, pretokenizer: Pretokenizer) -> None:
        """Wrap the encoder of normalized text. The pre-tokenizer is its own, with the normalizer."""
        self._encoder = encoder
        self._pretokenizer = pretokenizer
        self._normalizer = pretokenizer.normalizer
        self.name = encoder.name

    def with_cache(self, cache_bytes: int) -> NormalizingEncoder:
        return NormalizingEncoder(self._encoder.with_cache(cache_bytes), self._pretokenizer)

    def encode(self, text: bytes, specials: SpecialTokens) -> list[int]:
        normalized = self._normalize(text)
        if normalized is text:
            return self._encoder.encode(text, specials)
        ids: list[int] = self._encode_changed(text, normalized, specials, np.dtype(np.uint32)).tolist()
        return ids

    def encode_to_array(
        self, text: Utf8, specials: SpecialTokens, dtype: np.dtype[Any]
    ) -> NDArray[np.unsignedinteger[Any]]:
        text = bytes(text)
        normalized = self._normalize(text)
        if normalized is text:
            return self._encoder.encode_to_array(text, specials, dtype)
        return self._encode_changed(text, normalized, specials, dtype)

    def count_tokens(self, text: Utf8, specials: SpecialTokens) -> int:
        text = bytes(text)
        normalized = self._normalize(text)
        if normalized is text:
            return self._encoder.count_tokens(text, specials)
        return len(self._encode_changed(text, normalized, specials, np.dtype(np.uint32)))

    def encode_batch(
        self, texts: Sequence[bytes], specials: SpecialTokens, dtype: np.dtype[Any]
    ) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int64]]:
        if all(self._normalize(text) is text for text in texts):
            return self._encoder.encode_batch(texts, specials, dtype)
        pieces: list[bytes] = []
        special_ids: list[int] = []
        specials_before_end: list[int] = []
        pieces_before_special: list[int] = []
        for text in texts:
            for piece, special_id in specials.split(text):
                if special_id is None:
                    pieces.append(self._normalize(piece))
                else:
                    special_ids.append(special_id)
                    pieces_before_special.append(len(pieces))
            specials_before_end.append(len(special_ids))
        ids, piece_ends = self._encoder.encode_batch(pieces, NO_SPECIAL_TOKENS, dtype)
        ends = np.concatenate([[0], piece_ends])
        if special_ids:
            ids = np.insert(ids, ends[pieces_before_special], np.array(special_ids, dtype))
        before = np.array(specials_before_end, np.int64)
        pieces_before_end = before + np.arange(1, len(texts) + 1)  # a text has one piece more than special tokens
        return ids, ends[pieces_before_end] + before

    def decode(self, ids: NDArray[np.unsignedinteger[Any]]) -> bytes:
        return self._encoder.decode(ids)

    def _normalize(self, text: bytes) -> bytes:
        """Return a normalized text: `text` itself if it is normalized. Raises `InvalidTextError` if it is not UTF-8."""
        try:
            return self._normalizer.utf8(text)
        except UnicodeDecodeError:
            raise invalid_utf8_error(text) from None

    def _encode_changed(
        self, text: bytes, normalized: bytes, specials: SpecialTokens, dtype: np.dtype[Any]
    ) -> NDArray[np.unsignedinteger[Any]]:
        """Encode a text that is not normalized. `normalized` is right if it has no special tokens."""
        try:
            if specials.first_match(text) is None:
                return self._encoder.encode_to_array(normalized, NO_SPECIAL_TOKENS, dtype)
            return self.encode_batch([text], specials, dtype)[0]
        except UnmatchedTextError as error:
            raise text_error(error, text, specials, self._pretokenizer) from None
