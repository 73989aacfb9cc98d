"""The native encoder, in the library `libbpeflow_encode` (source: ``ext/encode``)."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import POINTER, PYFUNCTYPE, Structure, byref, c_char_p, c_int, c_int32, c_uint32, c_uint64, c_void_p
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.library import Signature, check_status, load_library
from bpeflow.errors import UnmatchedTextError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.cuts import Utf8
from bpeflow.pretokenize.native import NATIVE_PATTERNS, chosen_instructions
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer.encoder import DEFAULT_CACHE_BYTES, unknown_token_error
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from bpeflow.tokenizer.validate import invalid_utf8_error, unmatched_text_error

#: BPEFLOW_NO_PATTERN of the header: the text is already split into pre-tokens.
_NO_PATTERN = 0xFFFF

#: BPEFLOW_NOT_UTF8 and BPEFLOW_UNKNOWN_ID of the header, which are errors in the caller's input.
_NOT_UTF8 = 7
_UNKNOWN_ID = 9

#: Maximum length in bytes of a short text, whose ids go to a buffer that each session keeps. Larger: more texts avoid
#: the allocation of an array. Smaller: less memory, 4 bytes per byte of text.
_SHORT_TEXT = 4096

#: Maximum length in bytes of a text that is encoded to memory that each session keeps, from which the ids are copied.
#: Providing and clearing new pages for an array of one id per byte takes the kernel longer than the copy. Larger:
#: longer texts avoid that. Smaller: less memory.
_REUSED_ROOM = 8 * 1024 * 1024

#: Maximum number of ids that are decoded by looking up each in a dictionary, which then takes as long as the native
#: functions, with the preparations for calling them.
_FEW_IDS = 64


class _Vocabulary(Structure):
    """`bpeflow_vocabulary` of the header."""

    _fields_ = (
        ("token_data", c_char_p),
        ("token_offsets", c_void_p),
        ("ordinary_data", c_char_p),
        ("ordinary_offsets", c_void_p),
        ("tokens", c_uint32),
        ("byte_ids", c_void_p),
        ("merges", c_void_p),
        ("merge_count", c_uint64),
        ("whole_tokens", c_uint32),
    )


class _Encoding(Structure):
    """`bpeflow_encoding` of the header."""

    _fields_ = (
        ("pattern", c_uint32),
        ("id_size", c_uint32),
        ("specials", c_void_p),
        ("ids", c_void_p),
        ("capacity", c_uint64),
        ("written", c_uint64),
    )


class _Prepared(Structure):
    """`bpeflow_prepared` of the header."""

    _fields_ = (("encoder", c_void_p), ("encoding", _Encoding))


# Functions that return a status but are not checked here (None) are called where speed matters, or return a status that
# the caller handles.
_SIGNATURES: dict[str, Signature] = {
    "bpeflow_model_new": (c_int, [POINTER(_Vocabulary), POINTER(c_void_p)], check_status),
    "bpeflow_model_free": (None, [c_void_p], None),
    "bpeflow_specials_new": (c_int, [c_char_p, c_void_p, c_void_p, c_uint32, POINTER(c_void_p)], check_status),
    "bpeflow_specials_free": (None, [c_void_p], None),
    "bpeflow_cache_new": (c_int, [c_uint64, POINTER(c_void_p)], check_status),
    "bpeflow_cache_free": (None, [c_void_p], None),
    "bpeflow_encoder_new": (c_int, [c_void_p, c_void_p, c_char_p, POINTER(c_void_p)], check_status),
    "bpeflow_encoder_free": (None, [c_void_p], None),
    "bpeflow_encoder_encode": (c_int, [c_void_p, c_void_p, c_void_p, c_uint64], None),
    "bpeflow_encoder_encode_pieces": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_uint64, c_void_p], None),
    "bpeflow_encode_prepared": (c_int32, [POINTER(_Prepared), c_char_p, c_int32], None),
    "bpeflow_model_decoded_size": (
        c_int,
        [c_void_p, c_void_p, c_uint32, c_uint64, POINTER(c_uint64), POINTER(c_uint64)],
        None,
    ),
    "bpeflow_model_decode": (c_int, [c_void_p, c_void_p, c_uint32, c_uint64, c_void_p, c_uint64], check_status),
}


@cache
def _library() -> ctypes.CDLL:
    return load_library("encode", _SIGNATURES)


@cache
def _encode_prepared() -> Callable[..., int]:
    """Return the function for short texts, in the form that takes the least time to call.

    It keeps the interpreter lock, as getting the lock back can take longer than encoding: with two threads, 3.0 instead
    of 1.2 µs for 20 characters. It has no argument types, as ctypes then takes half the time to pass arguments.
    """
    address: Any = ctypes.cast(_library().bpeflow_encode_prepared, c_void_p).value
    return PYFUNCTYPE(c_int32)(address)


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
        model: _Model | None = None,
    ) -> None:
        """Prepare a vocabulary.

        Args:
            spec: the vocabulary, the pattern and `whole_tokens`.
            cache_bytes: size of the cache of merged pre-tokens, in bytes. Sessions share three quarters of it. When
                these are full, each session adds a quarter of its own.
            instructions: one of `native_instructions`; by default `chosen_instructions`.
            model: the vocabulary in native memory, if it is there already.

        Raises:
            NativeUnavailableError: the native library is not available.
            FormatError: a byte, or a part or the result of a merge, has no id.
        """
        self._spec = spec
        self._library = _library()
        self._pretokenizer = load_pretokenizer(spec.pattern, spec.unmatched)
        self._pattern = NATIVE_PATTERNS.get(self._pretokenizer.name, _NO_PATTERN)
        self._instructions = instructions or chosen_instructions()
        self._model = model or _Model(spec)
        self._specials: weakref.WeakKeyDictionary[SpecialTokens, _Specials] = weakref.WeakKeyDictionary()
        self._decoded: dict[int, bytes] = {}
        self._cache = _Cache(cache_bytes)
        self._idle: deque[_Session] = deque()

    def with_cache(self, cache_bytes: int) -> NativeEncoder:
        return NativeEncoder(self._spec, cache_bytes, self._instructions, self._model)

    def encode(self, text: bytes, specials: SpecialTokens) -> list[int]:
        if len(text) > _SHORT_TEXT or self._pattern == _NO_PATTERN:
            ids: list[int] = self.encode_to_array(text, specials, np.dtype(np.uint32)).tolist()
            return ids
        session = self._take_session()
        try:
            return session.ids[: self._encode_short(session, text, specials)].tolist()
        finally:
            self._idle.append(session)

    def encode_to_array(
        self, text: Utf8, specials: SpecialTokens, dtype: np.dtype[Any]
    ) -> NDArray[np.unsignedinteger[Any]]:
        if self._pattern == _NO_PATTERN:
            ids = np.empty(len(text), dtype)
            self._encode_pieces(self._pretokens(bytes(text), specials), specials, ids)
            return ids
        session = self._take_session()
        try:
            reuse = len(text) <= _REUSED_ROOM
            ids = session.room(len(text), dtype) if reuse else np.empty(len(text), dtype)
            written = self._encode(session, text, specials, ids)
            if reuse:
                ids = ids[:written].copy()
            else:
                ids.resize(written, refcheck=False)
            return ids
        finally:
            self._idle.append(session)

    def encode_batch(
        self, texts: Sequence[bytes], specials: SpecialTokens, dtype: np.dtype[Any]
    ) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int64]]:
        ids = np.empty(sum(map(len, texts)), dtype)
        if self._pattern != _NO_PATTERN:
            return ids, self._encode_pieces(texts, specials, ids)
        pretokens = [self._pretokens(text, specials) for text in texts]
        ends = self._encode_pieces([piece for pieces in pretokens for piece in pieces], specials, ids)
        pretokens_before_end = np.fromiter(accumulate(map(len, pretokens)), np.int64, len(texts))
        return ids, np.concatenate([[0], ends])[pretokens_before_end]

    def count_tokens(self, text: Utf8, specials: SpecialTokens) -> int:
        if self._pattern == _NO_PATTERN:
            return len(self.encode_to_array(text, specials, np.dtype(np.uint32)))
        session = self._take_session()
        try:
            if len(text) > _SHORT_TEXT or not isinstance(text, bytes):
                return self._encode(session, text, specials, None)
            return self._encode_short(session, text, specials)
        finally:
            self._idle.append(session)

    def decode(self, ids: NDArray[np.unsignedinteger[Any]]) -> bytes:
        if len(ids) > _FEW_IDS:
            return self._decode(ids)
        try:
            return b"".join(map(self._decoded.__getitem__, ids.tolist()))
        except KeyError:
            decoded = self._decode(ids)
            for token_id in ids.tolist():
                self._decoded[token_id] = self._decode(np.array([token_id], np.uint32))
            return decoded

    def _decode(self, ids: NDArray[np.unsignedinteger[Any]]) -> bytes:
        arguments = (self._model.handle, ids.ctypes.data, ids.itemsize, len(ids))
        size, bad = c_uint64(), c_uint64()
        function = self._library.bpeflow_model_decoded_size
        status = function(*arguments, byref(size), byref(bad))
        if status == _UNKNOWN_ID:
            raise unknown_token_error(int(ids[bad.value]), bad.value, self._model.tokens)
        check_status(status, function, ())
        text: bytes = _new_bytes(None, size.value)
        if text:  # safe to write to: no other reference exists yet (but the empty object is shared by all)
            self._library.bpeflow_model_decode(*arguments, text, len(text))
        return text

    def _encode_short(self, session: _Session, text: bytes, specials: SpecialTokens) -> int:
        """Encode a text of up to `_SHORT_TEXT` bytes. Return the number of its ids, which `session.ids` begins with."""
        if specials is not session.specials:
            session.set_specials(specials, self._native_specials(specials))
        encode = session.encode_prepared
        count = encode(session.prepared, text, len(text))
        if count < 0:
            _raise(-count, self._library.bpeflow_encode_prepared, text)
        return count

    def _encode(
        self,
        session: _Session,
        text: Utf8,
        specials: SpecialTokens,
        ids: NDArray[np.unsignedinteger[Any]] | None,
    ) -> int:
        """Encode one text into `ids`, or only count its ids. Return their number."""
        native_specials = self._native_specials(specials)
        encoding = session.encoding(self._pattern, native_specials, ids)
        function = self._library.bpeflow_encoder_encode
        status = function(session.handle, byref(encoding), _address(text), len(text))
        if status:
            _raise(status, function, bytes(text))
        return int(encoding.written)

    def _encode_pieces(
        self, pieces: Sequence[bytes], specials: SpecialTokens, ids: NDArray[np.unsignedinteger[Any]]
    ) -> NDArray[np.int64]:
        """Encode texts into `ids`, which is shrunk to fit. Return the end of each text's ids."""
        text = b"".join(pieces)
        ends = np.fromiter(accumulate(map(len, pieces)), np.int64, len(pieces))
        id_ends = np.empty(len(pieces), np.int64)
        session, native_specials = self._take_session(), self._native_specials(specials)
        try:
            encoding = session.encoding(self._pattern, native_specials, ids)
            function = self._library.bpeflow_encoder_encode_pieces
            status = function(session.handle, byref(encoding), text, ends.ctypes.data, len(pieces), id_ends.ctypes.data)
        finally:
            self._idle.append(session)
        if status:
            _raise(status, function, text)
        # The array was allocated for one id per byte of text. The rest was never written to, so it has not used memory.
        ids.resize(encoding.written, refcheck=False)
        return id_ends

    def _pretokens(self, text: bytes, specials: SpecialTokens) -> list[bytes]:
        """Return the pre-tokens of a custom pattern, and the special tokens, which the native code finds again."""
        pieces: list[bytes] = []
        end = 0
        try:
            for match in specials.matches(text):
                pieces += map(str.encode, self._pretokenizer.pretokens(text[end : match.start()].decode()))
                pieces.append(match.group())
                end = match.end()
            pieces += map(str.encode, self._pretokenizer.pretokens(text[end:].decode()))
        except UnicodeDecodeError:
            raise invalid_utf8_error(text) from None
        except UnmatchedTextError:
            raise unmatched_text_error(text, specials, self._pretokenizer) from None
        return pieces

    def _take_session(self) -> _Session:
        """Return a session for one call, which must return it to `_idle`."""
        try:
            return self._idle.pop()
        except IndexError:
            return _Session(self._model, self._pattern, self._instructions.encode(), self._cache)

    def _native_specials(self, specials: SpecialTokens) -> _Specials | None:
        if not specials.ids:
            return None
        native = self._specials.get(specials)
        if native is None:
            native = self._specials[specials] = _Specials(specials)
        return native


class _Model:
    """A vocabulary of `tokens` ids in native memory. `handle` is freed together with the object."""

    def __init__(self, spec: TokenizerSpec) -> None:
        library, vocab = _library(), spec.vocab
        self.tokens = len(vocab)
        tokens, ordinary = vocab.packed()
        byte_ids = np.array(vocab.byte_ids, np.uint32)
        merges = np.ascontiguousarray(vocab.merge_ids, np.uint32)
        native = _Vocabulary(
            tokens.data,
            tokens.offsets.ctypes.data,
            ordinary.data,
            ordinary.offsets.ctypes.data,
            len(vocab),
            byte_ids.ctypes.data,
            merges.ctypes.data,
            len(merges),
            spec.whole_tokens or vocab.merging_yields_all,
        )
        self.handle = c_void_p()
        library.bpeflow_model_new(byref(native), byref(self.handle))
        weakref.finalize(self, library.bpeflow_model_free, c_void_p(self.handle.value))


class _Specials:
    """Special tokens in native memory. `handle` is freed together with the object."""

    def __init__(self, specials: SpecialTokens) -> None:
        library = _library()
        lengths = np.array([len(token) for token in specials.ids], np.uint32)
        ids = np.array([*specials.ids.values()], np.uint32)
        self.handle = c_void_p()
        library.bpeflow_specials_new(
            b"".join(specials.ids), lengths.ctypes.data, ids.ctypes.data, len(ids), byref(self.handle)
        )
        weakref.finalize(self, library.bpeflow_specials_free, c_void_p(self.handle.value))


class _Cache:
    """A cache in native memory. `handle` is freed together with the object."""

    def __init__(self, size: int) -> None:
        library = _library()
        self.handle = c_void_p()
        library.bpeflow_cache_new(size, byref(self.handle))
        weakref.finalize(self, library.bpeflow_cache_free, c_void_p(self.handle.value))


class _Session:
    """A native encoder and its buffers, for one call at a time."""

    def __init__(self, model: _Model, pattern: int, instructions: bytes, cache: _Cache) -> None:
        library = _library()
        self._borrowed = (model, cache)  # keeps alive what the native encoder uses
        self.handle = c_void_p()
        library.bpeflow_encoder_new(model.handle, cache.handle, instructions, byref(self.handle))
        weakref.finalize(self, library.bpeflow_encoder_free, c_void_p(self.handle.value))
        # Everything that can be prepared is, as encoding a short text takes less than a microsecond.
        self.ids = array("I", bytes(4 * _SHORT_TEXT))
        address, length = self.ids.buffer_info()
        self._short = _Prepared(self.handle, _Encoding(pattern, 4, None, address, length, 0))
        self.prepared = byref(self._short)
        self.encode_prepared = _encode_prepared()
        self._room = np.empty(0, np.uint8)
        self.specials: SpecialTokens | None = NO_SPECIAL_TOKENS  # of short texts; None while they change
        self._native_specials: _Specials | None = None

    def room(self, length: int, dtype: np.dtype[Any]) -> NDArray[np.unsignedinteger[Any]]:
        """Return memory for ids, which is valid during one call."""
        if self._room.nbytes < length * dtype.itemsize:
            self._room = np.empty(length * dtype.itemsize, np.uint8)
        return self._room[: length * dtype.itemsize].view(dtype)

    def set_specials(self, specials: SpecialTokens, native: _Specials | None) -> None:
        """Choose the special tokens of short texts."""
        self.specials = None
        self._short.encoding.specials = None if native is None else native.handle
        self._native_specials = native
        self.specials = specials

    def encoding(
        self, pattern: int, specials: _Specials | None, ids: NDArray[np.unsignedinteger[Any]] | None
    ) -> _Encoding:
        """Return the parameters of an encoding call. If `ids` is None, the call only counts."""
        handle = None if specials is None else specials.handle
        if ids is None:
            return _Encoding(pattern, 4, handle, None, 0, 0)
        return _Encoding(pattern, ids.itemsize, handle, ids.ctypes.data, len(ids), 0)


def _raise(status: int, function: Any, text: bytes) -> None:
    if status == _NOT_UTF8:
        raise invalid_utf8_error(text)
    check_status(status, function, ())


def _address(text: Utf8) -> bytes | int:
    """Return a text in a form that ctypes passes as its address."""
    if isinstance(text, bytes):
        return text
    return int(np.frombuffer(text, np.uint8).ctypes.data)
