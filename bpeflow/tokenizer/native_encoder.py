"""The native encoder, in the library `libbpeflow_encode` (source: ``ext/encode``)."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from ctypes import CFUNCTYPE, PYFUNCTYPE, byref, c_int32, c_uint64, c_void_p
from functools import cache, partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.native import (
    NOT_UTF8,
    UNKNOWN_ID,
    UNMATCHED,
    Encoding,
    Handle,
    Prepared,
    address,
    check_status,
    load_library,
)
from bpeflow.errors import InvalidTextError, UnmatchedTextError, explain_memory_error
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.native import chosen_instructions, new_pattern
from bpeflow.pretokenize.patterns import Utf8
from bpeflow.tokenizer.encoder import (
    DEFAULT_CACHE_BYTES,
    EncodedTexts,
    IdArray,
    invalid_utf8_error,
    text_error,
    unknown_token_error,
)
from bpeflow.tokenizer.parallel import encode_text
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from bpeflow.tokenizer.validate import to_utf8

#: Maximum length in bytes of a short text, whose ids go to a buffer that each session keeps. Larger: more texts avoid
#: the allocation of an array. Smaller: less memory, 4 bytes per byte of text.
SHORT_TEXT = 4096

#: Maximum length in bytes of a text that is encoded to memory that each session keeps, from which the ids are copied.
#: Providing and clearing new pages for an array of one id per byte takes the kernel longer than the copy. Larger:
#: longer texts avoid that. Smaller: less memory.
_REUSED_ROOM = 8 * 1024 * 1024

#: Maximum number of ids that are decoded by looking up each in a dictionary, which then takes as long as the native
#: functions, with the preparations for calling them.
_FEW_IDS = 64

#: One in this many merges are few. Larger: more vocabularies have two levels, some of them without gaining anything, as
#: accidental superwords suffice. Smaller: superwords that few merges make are encoded slowly.
_FEW_MERGES = 8

_SPACE = ord(" ")
#: By byte: whether it is a character of ASCII, but not white space. Other white space is joined to spaces in ordinary
#: vocabularies, and its last byte also ends other characters.
_IS_GRAPHIC = np.array([_SPACE < byte < 127 for byte in range(256)])

_UINT32 = np.dtype(np.uint32)

# Creates a `bytes` object. If the first argument is NULL, the content is uninitialized and is to be filled in.
_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.restype = ctypes.py_object
_new_bytes.argtypes = [c_void_p, ctypes.c_ssize_t]


class NativeEncoder:
    """Implements `Encoder`.

    A call encodes with a *session*: a native encoder and buffers. Idle sessions wait in a list, so there are as many
    sessions as there have been concurrent calls. All of them share a cache. The class has no threads and no locks, so a
    forked child can use the encoder that it inherits.
    """

    name = "native"

    def __init__(
        self,
        spec: TokenizerSpec,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        instructions: str | None = None,
        model: Handle | None = None,
    ) -> None:
        """Prepare a vocabulary, unless `model` has it already.

        `instructions` are one of `native_instructions`; by default `chosen_instructions`. Raises
        `NativeUnavailableError`, or `FormatError` if a byte, or a part or the result of a merge, has no id.
        """
        self._spec = spec
        self._library = load_library("encode")
        self._pretokenizer = spec.pretokenizer
        self._pattern = new_pattern("encode", self._pretokenizer)
        self._instructions = instructions or chosen_instructions()
        self._model = model or new_model(spec, first_level(spec))
        self._specials: weakref.WeakKeyDictionary[SpecialTokens, Handle] = weakref.WeakKeyDictionary()
        self._decoded: dict[int, bytes] = {}
        with explain_memory_error(f"a cache of {cache_bytes:,} bytes", "give a smaller cache_bytes, or add memory"):
            self._cache = Handle(self._library, "cache", cache_bytes)
        self._idle: deque[Session] = deque()
        self._takes_any_text = self._pattern is not None and not spec.normalizer

    def with_cache(self, cache_bytes: int) -> NativeEncoder:
        return NativeEncoder(self._spec, cache_bytes, self._instructions, self._model)

    def encode(self, text: bytes, specials: SpecialTokens) -> list[int]:
        if len(text) > SHORT_TEXT or not (self._takes_any_text or self._is_taken(text)):
            ids: list[int] = encode_text(self, text, specials, self._pretokenizer, _UINT32, 1).tolist()  # in parts
            return ids
        session = self._take_session()
        try:
            return session.ids[: self._encode_prepared(session, session.to_ids, text, specials)].tolist()
        except UnmatchedTextError as error:
            raise self._explained(error, [text], specials) from None
        finally:
            self._idle.append(session)

    def encode_to_array(self, text: Utf8, specials: SpecialTokens, dtype: np.dtype[Any]) -> IdArray:
        try:
            prepared = (text, specials) if self._takes_any_text else self._prepare(bytes(text), specials)
            if prepared is None:
                return self._encode_in_pieces([bytes(text)], specials, dtype)[0]
            return self._encode_to_array(*prepared, dtype)
        except UnmatchedTextError as error:
            raise self._explained(error, [bytes(text)], specials) from None

    def _encode_to_array(self, text: Utf8, specials: SpecialTokens, dtype: np.dtype[Any]) -> IdArray:
        if not isinstance(text, bytes) or len(text) > _REUSED_ROOM:
            return self._encode_packed(text, np.array([len(text)]), specials, dtype, self._pattern)[0]
        session = self._take_session()
        try:
            ids = session.room(len(text), dtype)
            return session.take(ids, self._encode_prepared(session, session.to_room, text, specials))
        finally:
            self._idle.append(session)

    def encode_batch(self, texts: list[str], specials: SpecialTokens, dtype: np.dtype[Any]) -> EncodedTexts:
        try:
            if self._takes_any_text or all(self._is_taken(to_utf8(text)) for text in texts):
                return self._encode_texts(texts, specials, dtype)
            return self._encode_in_pieces([*map(to_utf8, texts)], specials, dtype)
        except UnmatchedTextError as error:
            raise self._explained(error, map(to_utf8, texts), specials) from None

    def encode_pretokens(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], dtype: np.dtype[Any]
    ) -> EncodedTexts:
        text = np.ascontiguousarray(data[offsets[0] : offsets[-1]])
        return self._encode_packed(text, offsets[1:] - offsets[0], NO_SPECIAL_TOKENS, dtype, None)

    def decode(self, ids: IdArray) -> bytes:
        if len(ids) > _FEW_IDS:
            return self._decode(ids)
        try:
            return b"".join(map(self._decoded.__getitem__, ids.tolist()))
        except KeyError:
            decoded = self._decode(ids)
            for token_id in ids.tolist():
                self._decoded[token_id] = self._decode(np.array([token_id], np.uint32))
            return decoded

    def _decode(self, ids: IdArray) -> bytes:
        arguments = (self._model, ids.ctypes.data, ids.itemsize, len(ids))
        size, function = c_uint64(), self._library.bpeflow_model_decode
        status = function(*arguments, None, byref(size))
        if status == UNKNOWN_ID:
            raise unknown_token_error(int(ids[size.value]), size.value, len(self._spec.vocab))
        check_status(status, function)
        text: bytes = _new_bytes(None, size.value)
        if text:  # safe to write to: no other reference exists yet (but the empty object is shared by all)
            check_status(function(*arguments, text, byref(size)), function)
        return text

    def _encode_prepared(
        self, session: Session, encode: Callable[[bytes, int], int], text: bytes, specials: SpecialTokens
    ) -> int:
        if specials is not session.specials:
            session.set_specials(specials, self._native_specials(specials))
        count = encode(text, len(text))
        if count < 0:
            _raise(-count, self._library.bpeflow_encode_prepared, text)
        return count

    def _encode_texts(self, texts: list[str], specials: SpecialTokens, dtype: np.dtype[Any]) -> EncodedTexts:
        """Encode texts without a step in Python for each of them."""
        addresses, sizes = np.empty(len(texts), np.uint64), np.empty(len(texts), np.uint64)
        try:
            _find_texts()(texts, len(texts), *_PYTHON_API, addresses.ctypes.data, sizes.ctypes.data)
        except (TypeError, UnicodeEncodeError):
            for text in texts:
                to_utf8(text)  # raises it with the reason
            raise
        function = self._library.bpeflow_encoder_encode_texts
        return self._call(function, addresses, sizes, int(sizes.sum()), specials, dtype, self._pattern)

    def _encode_packed(
        self,
        text: Utf8 | NDArray[np.uint8],
        ends: NDArray[np.int64],
        specials: SpecialTokens,
        dtype: np.dtype[Any],
        pattern: Handle | None,
    ) -> EncodedTexts:
        """Encode texts that end at `ends`, or pre-tokens without a pattern."""
        function = self._library.bpeflow_encoder_encode
        return self._call(function, text, ends, len(text), specials, dtype, pattern)

    def _call(
        self,
        function: Any,
        texts: Utf8 | NDArray[Any],
        ends: NDArray[Any],
        size: int,
        specials: SpecialTokens,
        dtype: np.dtype[Any],
        pattern: Handle | None,
    ) -> EncodedTexts:
        """Call a native function for texts of `size` bytes, given their ends or, for `encode_texts`, their sizes."""
        id_ends = np.empty(len(ends), np.int64)
        session = self._take_session()
        try:
            ids = session.room(size, dtype)
            encoding = session.encoding(pattern, self._native_specials(specials), ids)
            arguments = (address(texts), ends.ctypes.data, len(ends), id_ends.ctypes.data)
            status = function(session.handle, byref(encoding), *arguments)
            if status:
                _raise(status, function, bytes(texts))
            return session.take(ids, encoding.written), id_ends
        finally:
            self._idle.append(session)

    def _explained(
        self, error: UnmatchedTextError, texts: Iterable[bytes], specials: SpecialTokens
    ) -> InvalidTextError:
        """Return the error with the first of the texts that has unmatched text, and the position in it."""
        explained = (text_error(error, text, specials, self._pretokenizer) for text in texts)
        return next((each for each in explained if each is not error), error)

    # ---- texts that native code does not take as they are: with a pattern not compiled, or a normalizer ----

    def _prepare(self, text: bytes, specials: SpecialTokens) -> tuple[bytes, SpecialTokens] | None:
        """Return a text that native code can take as a whole, and its special tokens; None if there is none.

        If normalizing changes nothing, it does not change the parts between special tokens: this holds for the forms of
        Unicode, lower case does not depend on other characters, and neither undoes what the other does to a character.
        """
        if self._pattern is None:
            return None
        normalized = self._normalize(text)
        if normalized is text:
            return text, specials
        return (normalized, NO_SPECIAL_TOKENS) if specials.literals.find(text) is None else None

    def _is_taken(self, text: bytes) -> bool:
        """Return whether native code takes a text as it is."""
        return self._pattern is not None and self._normalize(text) is text

    def _normalize(self, text: bytes) -> bytes:
        try:
            return self._pretokenizer.normalizer.utf8(text)
        except UnicodeDecodeError:
            raise invalid_utf8_error(text) from None

    def _encode_in_pieces(self, texts: Sequence[bytes], specials: SpecialTokens, dtype: np.dtype[Any]) -> EncodedTexts:
        """Encode texts that are split here: at special tokens, and, with a pattern not compiled, into pre-tokens."""
        pieces: list[bytes] = []
        inserted: dict[int, int] = {}  # special ids, by the index of an empty piece
        text_ends: list[int] = []  # in pieces
        for text in texts:
            try:
                for piece, special_id in specials.split(text):
                    if special_id is None:
                        pieces += self._pieces(piece)
                    else:
                        inserted[len(pieces)] = special_id
                        pieces.append(b"")
            except UnicodeDecodeError:
                raise invalid_utf8_error(text) from None
            text_ends.append(len(pieces))
        ends = np.fromiter(accumulate(map(len, pieces)), np.int64, len(pieces))
        # A normalizer may make special tokens of other text.
        ids, piece_ends = self._encode_packed(b"".join(pieces), ends, NO_SPECIAL_TOKENS, dtype, self._pattern)
        if inserted:
            empty = np.array([*inserted])
            ids = np.insert(ids, piece_ends[empty], np.array([*inserted.values()], dtype))
            piece_ends += np.searchsorted(empty, np.arange(len(pieces)), side="right")
        return ids, np.concatenate([[0], piece_ends])[text_ends]

    def _pieces(self, text: bytes) -> Iterable[bytes]:
        normalizer = self._pretokenizer.normalizer
        if self._pattern is not None:
            return [normalizer.utf8(text)]
        return map(str.encode, self._pretokenizer.pretokens(normalizer(text.decode())))

    def _take_session(self) -> Session:
        """Return a session for one call, which must return it to `_idle`."""
        try:
            return self._idle.pop()
        except IndexError:
            return Session(self._model, self._pattern, self._instructions.encode(), self._cache)

    def _native_specials(self, specials: SpecialTokens) -> Handle | None:
        if not specials.ids:
            return None
        native = self._specials.get(specials)
        if native is None:
            native = self._specials.setdefault(specials, _new_specials(specials))
        return native


class Session:
    """A native encoder and its buffers, for one call at a time."""

    def __init__(self, model: Handle, pattern: Handle | None, instructions: bytes, cache: Handle) -> None:
        self.handle = Handle(load_library("encode"), "encoder", model, cache, instructions)
        # Everything that can be prepared is, as encoding a short text takes less than a microsecond.
        self.ids = array("I", bytes(4 * SHORT_TEXT))
        address, length = self.ids.buffer_info()
        self._prepared = tuple(
            Prepared(self.handle, encoding)
            for encoding in (Encoding(pattern, 4, None, address, length, 0), Encoding(pattern, 4, None, None, 0, 0))
        )
        short, long = _encode_prepared()
        self.to_ids = partial(short, byref(self._prepared[0]))
        self.to_room = partial(long, byref(self._prepared[1]))
        self._room: IdArray = np.empty(0, np.uint16)
        self.specials: SpecialTokens | None = NO_SPECIAL_TOKENS  # of prepared calls; None while they change
        self._native_specials: Handle | None = None
        self._in_use: Handle | None = None

    def room(self, length: int, dtype: np.dtype[Any]) -> IdArray:
        """Return memory for the ids of a text of `length` bytes. It is valid during one call; `take` takes the ids.

        Up to `_REUSED_ROOM` the session keeps it, and `to_room` writes to it.
        """
        if length > _REUSED_ROOM:
            return np.empty(length, dtype)
        if len(self._room) < length or self._room.dtype != dtype:
            self._room = np.empty(min(_REUSED_ROOM, max(SHORT_TEXT, 2 * length)), dtype)
            encoding = self._prepared[1].encoding
            encoding.id_size, encoding.ids, encoding.capacity = dtype.itemsize, self._room.ctypes.data, len(self._room)
        return self._room

    def take(self, room: IdArray, written: int) -> IdArray:
        """Return the ids that were written to a room, in an array that the caller owns."""
        if room is self._room:
            ids: IdArray = room[:written].copy()
            return ids
        room.resize(written, refcheck=False)  # the rest was never written to, so it has not used memory
        return room

    def set_specials(self, specials: SpecialTokens, native: Handle | None) -> None:
        """Choose the special tokens of prepared calls."""
        self.specials = None
        for prepared in self._prepared:
            prepared.encoding.specials = native
        self._native_specials = native
        self.specials = specials

    def encoding(self, pattern: Handle | None, specials: Handle | None, ids: IdArray) -> Encoding:
        """Return the parameters of an encoding call.

        The session holds `specials` during the call, as another thread may replace it in the encoder's cache.
        """
        self._in_use = specials
        return Encoding(pattern, ids.itemsize, specials, ids.ctypes.data, len(ids), 0)


@cache
def _encode_prepared() -> tuple[Callable[..., int], Callable[..., int]]:
    """Return the function for prepared calls, in two forms that take little time to call: for short and for long texts.

    The first keeps the interpreter lock, as getting the lock back can take longer than encoding: with two threads, 3.0
    instead of 1.2 µs for 20 characters. Neither has argument types: ctypes takes half the time to pass arguments then.
    """
    address: Any = ctypes.cast(load_library("encode").bpeflow_encode_prepared, c_void_p).value
    return PYFUNCTYPE(c_int32)(address), CFUNCTYPE(c_int32)(address)


#: The addresses of the functions of Python that native code calls for each text of a list.
_PYTHON_API = tuple(
    ctypes.cast(function, c_void_p)
    for function in (ctypes.pythonapi.PyList_GetItem, ctypes.pythonapi.PyUnicode_AsUTF8AndSize)
)


@cache
def _find_texts() -> Callable[..., int]:
    """Return the function that finds the texts of a list. It keeps the interpreter lock and raises Python's errors."""
    address: Any = ctypes.cast(load_library("encode").bpeflow_find_texts, c_void_p).value
    arguments = (ctypes.py_object, c_uint64, c_void_p, c_void_p, c_void_p, c_void_p)
    return PYFUNCTYPE(c_uint64, *arguments)(address)


def new_model(spec: TokenizerSpec, first: int) -> Handle:
    """Return a vocabulary in native memory. Its first level is the `first` merges of the lowest ranks."""
    return Handle(load_library("encode"), "model", byref(spec.native(first)))


def first_level(spec: TokenizerSpec) -> int:
    """Return the number of merges to apply first: those before superwords, or all if there are none.

    A superword is taken to be the merge of an ASCII character with a following space. Few merges before the first one,
    or few superwords among the merges after it, are not worth a level of their own.
    """
    packed, merges = spec.vocab.decoded_tokens, spec.vocab.merge_ids
    data, offsets = np.frombuffer(packed.data, np.uint8), packed.offsets
    last_bytes = data.take(offsets[merges[:, 0] + 1] - 1, mode="clip")
    first_bytes = data.take(offsets[merges[:, 1]], mode="clip")
    superwords = np.flatnonzero(_IS_GRAPHIC[last_bytes] & (first_bytes == _SPACE))
    first = int(superwords[0]) if len(superwords) else len(merges)
    few = first * _FEW_MERGES < len(merges) or len(superwords) * _FEW_MERGES < len(merges) - first
    return len(merges) if few else first


def _new_specials(specials: SpecialTokens) -> Handle:
    """Return special tokens in native memory."""
    lengths = np.array([len(token) for token in specials.ids], np.uint32)
    ids = np.array([*specials.ids.values()], np.uint32)
    arguments = (b"".join(specials.ids), lengths.ctypes.data, ids.ctypes.data, len(ids))
    return Handle(load_library("encode"), "specials", *arguments)


def _raise(status: int, function: Any, text: bytes) -> None:
    if status == NOT_UTF8:
        raise invalid_utf8_error(text)
    if status == UNMATCHED:
        raise UnmatchedTextError("the pattern does not match all text")
    check_status(status, function)
