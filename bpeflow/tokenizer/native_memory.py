"""What `NativeEncoder` has in native memory: a vocabulary, special tokens, caches, and encoders with their buffers."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from ctypes import PYFUNCTYPE, byref, c_int32, c_void_p
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.native import Encoding, Handle, Prepared, Vocabulary, load_library
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens

#: Maximum length in bytes of a short text, whose ids go to a buffer that each session keeps. Larger: more texts avoid
#: the allocation of an array. Smaller: less memory, 4 bytes per byte of text.
SHORT_TEXT = 4096


@cache
def encode_prepared() -> Callable[..., int]:
    """Return the function for short texts, in the form that takes the least time to call.

    It keeps the interpreter lock, as getting the lock back can take longer than encoding: with two threads, 3.0 instead
    of 1.2 µs for 20 characters. It has no argument types, as ctypes then takes half the time to pass arguments.
    """
    address: Any = ctypes.cast(load_library("encode").bpeflow_encode_prepared, c_void_p).value
    return PYFUNCTYPE(c_int32)(address)


def new_model(spec: TokenizerSpec) -> Handle:
    """Return a vocabulary in native memory."""
    vocab = spec.vocab
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
    return Handle(load_library("encode"), "model", byref(native))


def new_specials(specials: SpecialTokens) -> Handle:
    """Return special tokens in native memory."""
    lengths = np.array([len(token) for token in specials.ids], np.uint32)
    ids = np.array([*specials.ids.values()], np.uint32)
    arguments = (b"".join(specials.ids), lengths.ctypes.data, ids.ctypes.data, len(ids))
    return Handle(load_library("encode"), "specials", *arguments)


class Session:
    """A native encoder and its buffers, for one call at a time."""

    def __init__(self, model: Handle, pattern: int, instructions: bytes, cache: Handle) -> None:
        self.handle = Handle(load_library("encode"), "encoder", model, cache, instructions)
        # Everything that can be prepared is, as encoding a short text takes less than a microsecond.
        self.ids = array("I", bytes(4 * SHORT_TEXT))
        address, length = self.ids.buffer_info()
        self._short = Prepared(self.handle, Encoding(pattern, 4, None, address, length, 0))
        self.prepared = byref(self._short)
        self.encode_prepared = encode_prepared()
        self._room = np.empty(0, np.uint8)
        self.specials: SpecialTokens | None = NO_SPECIAL_TOKENS  # of short texts; None while they change
        self._native_specials: Handle | None = None

    def room(self, length: int, dtype: np.dtype[Any]) -> NDArray[np.unsignedinteger[Any]]:
        """Return memory for ids, which is valid during one call."""
        if self._room.nbytes < length * dtype.itemsize:
            self._room = np.empty(length * dtype.itemsize, np.uint8)
        return self._room[: length * dtype.itemsize].view(dtype)

    def set_specials(self, specials: SpecialTokens, native: Handle | None) -> None:
        """Choose the special tokens of short texts."""
        self.specials = None
        self._short.encoding.specials = native
        self._native_specials = native
        self.specials = specials

    def encoding(self, pattern: int, specials: Handle | None, ids: NDArray[np.unsignedinteger[Any]] | None) -> Encoding:
        """Return the parameters of an encoding call. If `ids` is None, the call only counts."""
        if ids is None:
            return Encoding(pattern, 4, specials, None, 0, 0)
        return Encoding(pattern, ids.itemsize, specials, ids.ctypes.data, len(ids), 0)
