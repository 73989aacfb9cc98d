"""What `NativeEncoder` has in native memory: a vocabulary, special tokens, caches, and encoders with their buffers."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Callable
from ctypes import POINTER, PYFUNCTYPE, Structure, byref, c_char_p, c_int, c_int32, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.library import Signature, check_status, load_library
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens

#: Maximum length in bytes of a short text, whose ids go to a buffer that each session keeps. Larger: more texts avoid
#: the allocation of an array. Smaller: less memory, 4 bytes per byte of text.
SHORT_TEXT = 4096


class Vocabulary(Structure):
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


class Encoding(Structure):
    """`bpeflow_encoding` of the header."""

    _fields_ = (
        ("pattern", c_uint32),
        ("id_size", c_uint32),
        ("specials", c_void_p),
        ("ids", c_void_p),
        ("capacity", c_uint64),
        ("written", c_uint64),
    )


class Prepared(Structure):
    """`bpeflow_prepared` of the header."""

    _fields_ = (("encoder", c_void_p), ("encoding", Encoding))


# Functions that return a status but are not checked here (None) are called where speed matters, or return a status that
# the caller handles.
_SIGNATURES: dict[str, Signature] = {
    "bpeflow_model_new": (c_int, [POINTER(Vocabulary), POINTER(c_void_p)], check_status),
    "bpeflow_model_free": (None, [c_void_p], None),
    "bpeflow_specials_new": (c_int, [c_char_p, c_void_p, c_void_p, c_uint32, POINTER(c_void_p)], check_status),
    "bpeflow_specials_free": (None, [c_void_p], None),
    "bpeflow_cache_new": (c_int, [c_uint64, POINTER(c_void_p)], check_status),
    "bpeflow_cache_free": (None, [c_void_p], None),
    "bpeflow_encoder_new": (c_int, [c_void_p, c_void_p, c_char_p, POINTER(c_void_p)], check_status),
    "bpeflow_encoder_free": (None, [c_void_p], None),
    "bpeflow_encoder_encode": (c_int, [c_void_p, c_void_p, c_void_p, c_uint64], None),
    "bpeflow_encoder_encode_pieces": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_uint64, c_void_p], None),
    "bpeflow_encode_prepared": (c_int32, [POINTER(Prepared), c_char_p, c_int32], None),
    "bpeflow_model_decoded_size": (
        c_int,
        [c_void_p, c_void_p, c_uint32, c_uint64, POINTER(c_uint64), POINTER(c_uint64)],
        None,
    ),
    "bpeflow_model_decode": (c_int, [c_void_p, c_void_p, c_uint32, c_uint64, c_void_p, c_uint64], check_status),
}


@cache
def encode_library() -> ctypes.CDLL:
    """Load the library on first use. Raises `NativeUnavailableError`."""
    return load_library("encode", _SIGNATURES)


@cache
def encode_prepared() -> Callable[..., int]:
    """Return the function for short texts, in the form that takes the least time to call.

    It keeps the interpreter lock, as getting the lock back can take longer than encoding: with two threads, 3.0 instead
    of 1.2 µs for 20 characters. It has no argument types, as ctypes then takes half the time to pass arguments.
    """
    address: Any = ctypes.cast(encode_library().bpeflow_encode_prepared, c_void_p).value
    return PYFUNCTYPE(c_int32)(address)


class Model:
    """A vocabulary of `tokens` ids in native memory. `handle` is freed together with the object."""

    def __init__(self, spec: TokenizerSpec) -> None:
        library, vocab = encode_library(), spec.vocab
        self.tokens = len(vocab)
        tokens, ordinary = vocab.packed()
        byte_ids = np.array(vocab.byte_ids, np.uint32)
        merges = np.ascontiguousarray(vocab.merge_ids, np.uint32)
        native = Vocabulary(
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


class Specials:
    """Special tokens in native memory. `handle` is freed together with the object."""

    def __init__(self, specials: SpecialTokens) -> None:
        library = encode_library()
        lengths = np.array([len(token) for token in specials.ids], np.uint32)
        ids = np.array([*specials.ids.values()], np.uint32)
        self.handle = c_void_p()
        library.bpeflow_specials_new(
            b"".join(specials.ids), lengths.ctypes.data, ids.ctypes.data, len(ids), byref(self.handle)
        )
        weakref.finalize(self, library.bpeflow_specials_free, c_void_p(self.handle.value))


class Cache:
    """A cache in native memory. `handle` is freed together with the object."""

    def __init__(self, size: int) -> None:
        library = encode_library()
        self.handle = c_void_p()
        library.bpeflow_cache_new(size, byref(self.handle))
        weakref.finalize(self, library.bpeflow_cache_free, c_void_p(self.handle.value))


class Session:
    """A native encoder and its buffers, for one call at a time."""

    def __init__(self, model: Model, pattern: int, instructions: bytes, cache: Cache) -> None:
        library = encode_library()
        self._borrowed = (model, cache)  # keeps alive what the native encoder uses
        self.handle = c_void_p()
        library.bpeflow_encoder_new(model.handle, cache.handle, instructions, byref(self.handle))
        weakref.finalize(self, library.bpeflow_encoder_free, c_void_p(self.handle.value))
        # Everything that can be prepared is, as encoding a short text takes less than a microsecond.
        self.ids = array("I", bytes(4 * SHORT_TEXT))
        address, length = self.ids.buffer_info()
        self._short = Prepared(self.handle, Encoding(pattern, 4, None, address, length, 0))
        self.prepared = byref(self._short)
        self.encode_prepared = encode_prepared()
        self._room = np.empty(0, np.uint8)
        self.specials: SpecialTokens | None = NO_SPECIAL_TOKENS  # of short texts; None while they change
        self._native_specials: Specials | None = None

    def room(self, length: int, dtype: np.dtype[Any]) -> NDArray[np.unsignedinteger[Any]]:
        """Return memory for ids, which is valid during one call."""
        if self._room.nbytes < length * dtype.itemsize:
            self._room = np.empty(length * dtype.itemsize, np.uint8)
        return self._room[: length * dtype.itemsize].view(dtype)

    def set_specials(self, specials: SpecialTokens, native: Specials | None) -> None:
        """Choose the special tokens of short texts."""
        self.specials = None
        self._short.encoding.specials = None if native is None else native.handle
        self._native_specials = native
        self.specials = specials

    def encoding(
        self, pattern: int, specials: Specials | None, ids: NDArray[np.unsignedinteger[Any]] | None
    ) -> Encoding:
        """Return the parameters of an encoding call. If `ids` is None, the call only counts."""
        handle = None if specials is None else specials.handle
        if ids is None:
            return Encoding(pattern, 4, handle, None, 0, 0)
        return Encoding(pattern, ids.itemsize, handle, ids.ctypes.data, len(ids), 0)
