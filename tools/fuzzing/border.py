"""The C interface: arguments that break the rules of bpeflow.h are refused with a status or do no harm.

Results are not compared: AddressSanitizer is the only check. Pointers and the sizes of the arrays that they point to
are correct, since native code cannot check those. The contents of the arrays are arbitrary.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from ctypes import byref, c_uint64, c_void_p
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bpeflow._util import native
from bpeflow.backends import BACKENDS
from bpeflow.backends.base import MERGE_DTYPE
from bpeflow.backends.native_backend import NativeBackend
from bpeflow.errors import BpeflowError
from bpeflow.pretokenize.compiled import compile_step
from bpeflow.pretokenize.tables import CompiledStep, new_compiled_pattern
from fuzzing.choices import Choices
from fuzzing.difference import REFUSED, outcome

_ERRORS = (BpeflowError,)


def check(data: bytes) -> None:
    choices = Choices(data)
    if choices.flag():
        _learn(choices)
    else:
        _encode(choices)


def _learn(choices: Choices) -> None:
    backend = choices.one_of([backend for backend in BACKENDS if isinstance(backend, NativeBackend)])
    words, tokens = choices.below(5), 256 + choices.below(4)
    text, token_data = _bytes(choices, 64), np.arange(256 + 16, dtype=np.uint8)
    offsets, counts = _offsets(choices, words, len(text)), _numbers(choices, words, np.int64)
    token_offsets = np.minimum(np.arange(tokens + 1, dtype=np.int64), len(token_data))
    token_offsets[257:] += choices.below(4)
    _spoil(choices, token_offsets, len(token_data))
    byte_ids = np.arange(256, dtype=np.uint32)
    _spoil(choices, byte_ids, 300)
    encoded = choices.flag()
    ids = _numbers(choices, len(text), np.uint32, 97, 260)
    arrays: dict[str, npt.NDArray[Any]] = {
        "data": text,
        "offsets": offsets,
        "counts": counts,
        "token_data": token_data,
        "token_offsets": token_offsets,
        "byte_ids": byte_ids,
    }
    task = native.MergeTask(
        **{name: array.ctypes.data for name, array in arrays.items()},
        ids=ids.ctypes.data if encoded else None,
        words=words,
        tokens=tokens,
        max_tokens=choices.below(300),
        min_frequency=choices.below(4),
        max_token_length=choices.below(5),
        max_words=choices.below(3),
        colon_rule=choices.below(2),
        order=choices.below(3),
        reuse_tokens=choices.below(3),
        scan=choices.below(2),
        threads=choices.below(3) + 1,
        max_strip_positions=choices.below(20),
    )
    handle, learned = c_void_p(), c_uint64()
    records = np.empty(20, MERGE_DTYPE)
    library = backend.library
    if outcome(_ERRORS, library.bpeflow_learner_new, byref(task), byref(handle)) != REFUSED:
        outcome(_ERRORS, library.bpeflow_learner_step, handle, len(records), records.ctypes.data, byref(learned))
    library.bpeflow_learner_free(handle)


def _encode(choices: Choices) -> None:
    library = native.load_library("encode")
    tokens, merges = 256 + choices.below(8), choices.below(8)
    token_data = np.concatenate([np.arange(256, dtype=np.uint8), np.frombuffer(b"abcabcabcabc" * 3, np.uint8)])
    offsets = [np.minimum(np.arange(tokens + 1, dtype=np.int64), 256) for _ in range(2)]
    for each in offsets:
        each[257:] += np.arange(1, tokens - 255) * choices.below(5)
        _spoil(choices, each, len(token_data))
    byte_ids = np.arange(256, dtype=np.uint32)
    _spoil(choices, byte_ids, 300)
    triples = _numbers(choices, 3 * merges, np.uint32, 97, tokens + choices.below(2))
    joined = token_data.tobytes()
    vocabulary = native.Vocabulary(
        joined, offsets[0].ctypes.data, joined, offsets[1].ctypes.data, tokens, byte_ids.ctypes.data,
        triples.ctypes.data, merges, choices.below(merges + 2), choices.below(2),
    )  # fmt: skip
    model, cache, encoder, specials = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    if outcome(_ERRORS, library.bpeflow_model_new, byref(vocabulary), byref(model)) == REFUSED:
        return
    lengths = _numbers(choices, choices.below(4), np.uint32, 0, 4)
    special_ids = _numbers(choices, len(lengths), np.uint32, 0, 1 << 17)
    special_data = b"abcabcabcabc"[: int(lengths.sum())]
    outcome(
        _ERRORS, library.bpeflow_specials_new, special_data, lengths.ctypes.data, special_ids.ctypes.data,
        len(lengths), byref(specials),
    )  # fmt: skip
    library.bpeflow_cache_new(1 << choices.below(20), byref(cache))
    library.bpeflow_encoder_new(model, cache, choices.one_of((None, b"scalar")), byref(encoder))
    for _ in range(choices.below(4)):
        _encode_pieces(choices, library, encoder, specials)
    _decode(choices, library, model)
    library.bpeflow_encoder_free(encoder)
    library.bpeflow_cache_free(cache)
    library.bpeflow_specials_free(specials)
    library.bpeflow_model_free(model)


def _encode_pieces(choices: Choices, library: ctypes.CDLL, encoder: c_void_p, specials: c_void_p) -> None:
    """Encode arbitrary bytes, in arbitrary pieces and at once, to an array that may be too small."""
    text, pieces = _bytes(choices, 200), choices.below(5)
    ends = _offsets(choices, pieces, len(text)).astype(np.uint64)[1:]
    id_ends, ids = np.empty(pieces, np.uint64), np.empty(choices.below(200), np.uint32)
    id_size = choices.one_of((2, 4, 4, 3))
    pattern = _pattern(choices, library)
    request = native.Encoding(pattern, id_size, specials, ids.ctypes.data, len(ids), 0)
    library.bpeflow_encoder_encode(
        encoder, byref(request), text.ctypes.data, ends.ctypes.data, pieces, id_ends.ctypes.data
    )
    prepared = native.Prepared(encoder, request)
    library.bpeflow_encode_prepared(byref(prepared), text.tobytes(), len(text) - choices.below(2))
    if pattern is not None and not isinstance(pattern, native.Handle):
        library.bpeflow_pattern_free(pattern)


def _pattern(choices: Choices, library: ctypes.CDLL) -> c_void_p | None:
    """Return no pattern, a named one, or a compiled one with damaged tables."""
    kind = choices.below(3)
    if kind == 0:
        return None
    if kind == 1:
        named = c_void_p()
        outcome(_ERRORS, library.bpeflow_pattern_named, choices.below(6), byref(named))
        return named
    steps = []
    for _ in range(1 + choices.below(3)):
        step = _step(choices.one_of((r" ?\p{L}+|\p{N}{1,3}|[^\S\n]+(?!\S)|\s", "a+b|.", "(?i:s)a?|[a-c]{2}")))
        name = choices.one_of([field.name for field in fields(step)])
        value = getattr(step, name)
        if isinstance(value, bytes):
            spoiled = bytearray(value)
            for _ in range(choices.below(4)):
                spoiled[choices.below(min(len(spoiled), 256))] = choices.below(256)
            damage: dict[str, Any] = {name: bytes(spoiled)}
            step = replace(step, **damage)
        steps.append(step)
    with suppress(*_ERRORS):
        return new_compiled_pattern("encode", tuple(steps), choices.one_of(("isolate", "drop", "error")))
    return None


@cache
def _step(source: str) -> CompiledStep:
    return compile_step(source)


def _decode(choices: Choices, library: ctypes.CDLL, model: c_void_p) -> None:
    """Decode arbitrary ids to a buffer that may be too small."""
    ids = _numbers(choices, choices.below(9), np.uint32, 0, 270)
    data, size = np.empty(choices.below(100), np.uint8), c_uint64()
    library.bpeflow_model_decode(model, ids.ctypes.data, 4, len(ids), None, byref(size))
    size.value = len(data)
    library.bpeflow_model_decode(model, ids.ctypes.data, 4, len(ids), data.ctypes.data, byref(size))


def _bytes(choices: Choices, limit: int) -> npt.NDArray[np.uint8]:
    """Return fewer than `limit` bytes in a separate allocation, so that AddressSanitizer detects reads past the end."""
    return np.array(list(choices.take(choices.below(limit))), np.uint8)


def _offsets(choices: Choices, count: int, end: int) -> npt.NDArray[np.int64]:
    """Return the offsets of `count` items in `end` bytes, and the end of the last one; usually in order."""
    offsets = np.array([choices.below(end + 1) for _ in range(count + 1)], np.int64)
    return offsets if choices.below(8) == 7 else np.sort(offsets)


def _numbers(choices: Choices, count: int, dtype: type, low: int = -1, high: int = 6) -> npt.NDArray[Any]:
    return np.array([low + choices.below(high - low) for _ in range(count)], dtype)


def _spoil(choices: Choices, numbers: npt.NDArray[Any], limit: int) -> None:
    """Sometimes overwrite one of the numbers."""
    if choices.below(8) == 7:
        numbers[choices.below(len(numbers))] = choices.below(limit)
