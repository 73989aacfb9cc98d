"""`TextCodec`: text to ids and back, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.errors import InvalidTextError, UnknownTokenError, UnmatchedTextError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.cuts import Utf8
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer.encoder import STREAM_CACHE_BYTES
from bpeflow.tokenizer.encoder_choice import new_encoder
from bpeflow.tokenizer.lookup import TokenLookup
from bpeflow.tokenizer.offsets import Offsets, token_lengths, token_offsets
from bpeflow.tokenizer.parallel import JoinedIds, cut_text, group_texts, in_threads
from bpeflow.tokenizer.special_tokens import (
    NO_SPECIAL_TOKENS,
    SpecialChoice,
    SpecialTokenControl,
    SpecialTokens,
    check_disallowed,
)
from bpeflow.tokenizer.streaming import StreamDecoder, TextCutter, encode_stream
from bpeflow.tokenizer.validate import (
    Ids,
    as_utf8,
    for_each,
    invalid_utf8_error,
    smallest_dtype,
    to_utf8,
    validate_dtype,
    validate_ids,
)


class TextCodec(TokenLookup):
    """Encoding and decoding, with the vocabulary, the pattern and the encoder that `_set_up` is given."""

    def _set_up(self, spec: TokenizerSpec, encoder: str, cache_bytes: int) -> None:
        self._spec = spec
        self._options = (encoder, cache_bytes)
        self._control = SpecialTokenControl(spec.vocab.special_tokens)
        self._encoder = new_encoder(spec, encoder, cache_bytes)
        self._stream_encoder = self._encoder.with_cache(min(cache_bytes, STREAM_CACHE_BYTES))
        self._pretokenizer = load_pretokenizer(spec.pattern, spec.unmatched, spec.normalizer)
        self._every_special = self._control.every
        self._tokens = len(spec.vocab)
        self._dtype = smallest_dtype(self._tokens)

    @property
    def unmatched(self) -> UnmatchedPolicy:
        """What happens to text that the pattern does not match: ``"error"``, ``"isolate"`` or ``"drop"``."""
        return self._spec.unmatched

    @property
    def encoder(self) -> str:
        """The name of the encoder in use: ``"native"`` or ``"python"``."""
        return self._encoder.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smaller of uint16 and uint32 that can hold every id."""
        return self._dtype

    def encode(
        self, text: str, *, allowed_special: SpecialChoice = "all", disallowed_special: SpecialChoice = ()
    ) -> list[int]:
        """Return the ids of a text.

        Args:
            text: the text.
            allowed_special: special tokens to encode as their ids, or ``"all"``. All others are ordinary text. Pass
                ``()`` for untrusted text.
            disallowed_special: special tokens whose occurrence is an error; ``"all"`` means all that are not allowed.

        Raises:
            InputTypeError: an argument has a wrong type.
            InvalidTextError: the text has a lone surrogate.
            UnmatchedTextError: the pattern does not match all of the text, and `unmatched` is ``"error"``.
            SpecialTokenError: the text has a disallowed special token, or a name is not a special token.
        """
        data = to_utf8(text)
        if allowed_special == "all" and not disallowed_special:  # without a call, which a short text would notice
            return self._encoder.encode(data, self._every_special)
        return self._encoder.encode(data, self._specials(data, allowed_special, disallowed_special))

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the ids of a text, with special tokens as ordinary text. Raises as `encode` does."""
        return self._encoder.encode(to_utf8(text), NO_SPECIAL_TOKENS)

    def encode_to_numpy(
        self,
        text: str | Utf8,
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
        dtype: DTypeLike | None = None,
        num_threads: int | None = None,
    ) -> NDArray[Any]:
        """Return the ids of a text as an array. Large texts are encoded in several threads.

        Args:
            text: a `str`, or UTF-8 bytes such as a memory-mapped file.
            allowed_special: as for `encode`.
            disallowed_special: as for `encode`.
            dtype: uint16 or uint32; by default `dtype` of the tokenizer.
            num_threads: by default one per core. A text with a custom pattern cannot be cut and is encoded in one
                thread.

        Raises:
            ConfigError: `dtype` is too small or neither of the two, or `num_threads` is less than 1.
            InvalidTextError: bytes are not UTF-8, or the text has a lone surrogate.
            InputTypeError: as for `encode`.
            SpecialTokenError: as for `encode`.
        """
        data = as_utf8(text)
        specials = self._specials(data, allowed_special, disallowed_special)
        ids_dtype = self._dtype if dtype is None else validate_dtype(dtype, self.vocab_size)
        joined = JoinedIds(len(data), ids_dtype)

        def encode(begin: int, end: int) -> None:
            with memoryview(data) as view, view[begin:end] as part:
                joined.add(begin, end, self._encoder.encode_to_array(part, specials, ids_dtype))

        try:
            for _ in in_threads(cut_text(data, self._pretokenizer, specials), encode, num_threads):
                pass
            return joined.result()
        except UnmatchedTextError:
            raise
        except InvalidTextError:
            raise invalid_utf8_error(data) from None  # with the position in the whole text

    def encode_batch(
        self,
        texts: Iterable[str],
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
        num_threads: int | None = None,
    ) -> list[list[int]]:
        """Return the ids of each text, encoded in `num_threads` threads, by default one per core.

        Raises as `encode` does, with the index of the text in the message.
        """
        batch = for_each(to_utf8, texts)
        specials = self._control.allowed(allowed_special)
        disallowed = self._control.disallowed(allowed_special, disallowed_special)
        if disallowed:
            for_each(lambda data: check_disallowed(data, disallowed), batch)

        def encode(begin: int, end: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
            return self._encoder.encode_batch(batch[begin:end], specials, self._dtype)

        encoded = in_threads(group_texts(batch), encode, num_threads)
        try:
            return [ids for group in encoded for ids in _split(*group)]
        except UnmatchedTextError:
            return for_each(lambda data: self._encoder.encode(data, specials), batch)  # raises it with the index

    def encode_ordinary_batch(self, texts: Iterable[str], *, num_threads: int | None = None) -> list[list[int]]:
        """Return the ids of each text, with special tokens as ordinary text. Raises as `encode_batch` does."""
        return self.encode_batch(texts, allowed_special=(), num_threads=num_threads)

    def encode_with_offsets(
        self,
        text: str,
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
        byte_offsets: bool = False,
    ) -> tuple[list[int], Offsets]:
        """Return the ids of a text, and the (start, end) of the characters that the bytes of each belong to.

        A token can begin or end inside a character. That character then belongs to the neighbouring token as well. With
        `byte_offsets` the offsets are exact positions in the UTF-8 bytes. A token of normalized text covers all of the
        characters that it comes from, such as a letter and the accent that is composed with it. Raises as `encode`
        does.

        >>> from bpeflow import Tokenizer
        >>> vocab = {byte: bytes([byte]) for byte in range(256)}
        >>> Tokenizer(vocab, []).encode_with_offsets("aé")
        ([97, 195, 169], [(0, 1), (1, 2), (1, 2)])
        """
        data = to_utf8(text)
        specials = self._specials(data, allowed_special, disallowed_special)
        ids = self._encoder.encode(data, specials)
        lengths = token_lengths(data, ids, specials, self._encoder, self.vocab)
        return ids, token_offsets(data, lengths, specials, self._pretokenizer, byte_offsets)

    def encode_iterable(
        self,
        texts: Iterable[str],
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
    ) -> Iterator[int]:
        """Yield the ids of a text that arrives in pieces, such as the lines of an open file, in bounded memory.

        The ids are those of the joined pieces, however the text was cut. The stream reads about 8,000 characters ahead
        and holds less than 1 MB besides the current piece. It holds more only where the text cannot be cut: in a longer
        word, or, with a custom pattern, in a longer stretch between two special tokens.

        Invalid arguments raise at once, as for `encode`. Errors in the text raise when the stream reaches them.
        """
        specials = self._control.allowed(allowed_special)
        disallowed = self._control.disallowed(allowed_special, disallowed_special)
        return encode_stream(
            texts,
            lambda data: self._stream_encoder.encode_to_array(data, specials, self._dtype),
            TextCutter(self._pretokenizer, specials),
            disallowed,
        )

    def count_tokens(
        self, text: str | Utf8, *, allowed_special: SpecialChoice = "all", disallowed_special: SpecialChoice = ()
    ) -> int:
        """Return the number of ids of a text: a `str`, or UTF-8 bytes. Raises as `encode` does."""
        data = as_utf8(text)
        return self._encoder.count_tokens(data, self._specials(data, allowed_special, disallowed_special))

    def decode(self, ids: Ids, errors: str = "replace", *, skip_special_tokens: bool = False) -> str:
        """Return the text of ids.

        Args:
            ids: a sequence or a one-dimensional array of integers.
            errors: what to do with bytes that are not UTF-8, as for `bytes.decode`.
            skip_special_tokens: leave special tokens out. One that shares its id with ordinary text, as it can in
                HuggingFace's mode, is kept.

        Raises:
            UnknownTokenError: an id is not in the vocabulary. The message has the id and its index.
            InputTypeError: `ids` are not integers.
        """
        return self.decode_bytes(ids, skip_special_tokens=skip_special_tokens).decode("utf-8", errors)

    def decode_bytes(self, ids: Ids, *, skip_special_tokens: bool = False) -> bytes:
        """Return the exact bytes of ids: ``decode_bytes(encode(text)) == text.encode()``, without a normalizer.

        Raises as `decode` does.
        """
        valid = validate_ids(ids, self._tokens)
        if not skip_special_tokens:
            return self._encoder.decode(valid)
        try:
            return self._encoder.decode(self._without_special_tokens(valid))
        except UnknownTokenError:
            self._encoder.decode(valid)  # raises with the index in `ids`
            raise

    def decode_batch(
        self, batch: Iterable[Ids], errors: str = "replace", *, skip_special_tokens: bool = False
    ) -> list[str]:
        """Return the text of each sequence of ids. Raises as `decode` does."""
        return for_each(lambda ids: self.decode(ids, errors, skip_special_tokens=skip_special_tokens), batch)

    def stream_decoder(self, errors: str = "replace", *, skip_special_tokens: bool = False) -> StreamDecoder:
        """Return a decoder for ids that arrive in pieces. It holds incomplete characters back."""
        return StreamDecoder(partial(self.decode_bytes, skip_special_tokens=skip_special_tokens), errors)

    def decode_stream(
        self, ids: Iterable[int], errors: str = "replace", *, skip_special_tokens: bool = False
    ) -> Iterator[str]:
        """Yield the text of a stream of ids, each piece as soon as it is complete."""
        return self.stream_decoder(errors, skip_special_tokens=skip_special_tokens).decode(ids)

    def _specials(self, data: Utf8, allowed: SpecialChoice, disallowed: SpecialChoice) -> SpecialTokens:
        if not disallowed:
            return self._every_special if allowed == "all" else self._control.allowed(allowed)
        check_disallowed(data, self._control.disallowed(allowed, disallowed))
        return self._control.allowed(allowed)


def _split(ids: NDArray[Any], ends: NDArray[np.int64]) -> Iterator[list[int]]:
    """Split the ids of several texts into one list per text."""
    ends_list = ends.tolist()
    return map(ids.tolist().__getitem__, map(slice, [0, *ends_list], ends_list))
