"""The native libraries, called through ctypes: this module declares all of ``ext/include/bpeflow.h`` and loads them.

The header explains each function and structure, and states the rules of the interface. `load_library` returns a
library with its functions declared; those that return a status raise its exception, except where a comment says that
the caller handles the status. `Handle` is an object in native memory.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import weakref
from collections.abc import Iterator
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bpeflow.errors import (
    BpeflowError,
    CountOverflowError,
    FormatError,
    NativeError,
    NativeMemoryError,
    NativeUnavailableError,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The number that `bpeflow_abi` of a library must return: BPEFLOW_ABI in the header.
ABI = 25

#: Environment variable with a folder to search before the package's own. Sanitizer builds are tested this way.
LIBRARY_PATH_VARIABLE = "BPEFLOW_LIBRARY_PATH"
_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"

# ---- statuses: `enum bpeflow_status`; callers handle the public ones ----

_IO = 5
NOT_UTF8 = 7
UNKNOWN_ID = 9
UNMATCHED = 10


def check_status(status: int, function: Any, arguments: tuple[Any, ...] = ()) -> int:  # noqa: ARG001
    """Raise the exception for a status of the header. ctypes calls this after each call that returns a status.

    I/O errors become an `OSError` without a file name, which only the caller knows.
    """
    if status == 0:
        return status
    name = function.__name__
    if status == _IO:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    errors: dict[int, BpeflowError] = {
        1: NativeMemoryError(f"out of memory (in {name})"),
        2: CountOverflowError(f"{name}: a count does not fit 64 bits; count less text, or in parts"),
        3: NativeError(
            f"{name}: too large: 2^32 - 3 or more bytes in one pre-token, or 2^32 - 1 or more tokens, pairs or "
            "different counts"
        ),
        4: NativeError(f"{name}: arguments that break the rules of bpeflow.h (please report this)"),
        6: FormatError(f"{name}: a shard that is truncated, out of order or of the wrong size"),
    }
    raise errors.get(status) or NativeError(f"{name}: unknown status {status}")


# ---- structures: each is named as in the header, without `bpeflow_` ----


class Step(Structure):
    _fields_ = (
        ("first", c_char_p),
        ("range_class", c_char_p),
        ("next", c_char_p),
        ("moves", c_char_p),
        ("flags", c_char_p),
        ("info", c_char_p),
        ("cuts", c_char_p),
        ("ranges", c_uint32),
        ("classes", c_uint32),
        ("states", c_uint32),
        ("configs", c_uint32),
        ("gap_start", c_uint32),
        ("has_gaps", c_uint32),
    )


class Delimiters(Structure):
    _fields_ = (("data", c_char_p), ("lengths", POINTER(c_uint32)), ("count", c_uint32), ("separator", c_uint32))


class Documents(Structure):
    _fields_ = (
        ("bytes", c_uint64),
        ("documents", c_uint64),
        ("searched", c_uint64),
        ("unmatched", c_uint64),
        ("unmatched_start", c_uint64),
        ("unmatched_end", c_uint64),
        ("piece_start", c_uint64),
        ("piece_end", c_uint64),
        ("open", c_uint32),
    )


class Shard(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("path", c_char_p),
        ("tokens", c_uint64),
        ("size", c_uint64),
        ("offset", c_uint64),
    )


class MergeTask(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("ids", c_void_p),
        ("offsets", c_void_p),
        ("counts", c_void_p),
        ("words", c_uint64),
        ("token_data", c_void_p),
        ("token_offsets", c_void_p),
        ("tokens", c_uint32),
        ("max_tokens", c_uint32),
        ("byte_ids", c_void_p),
        ("min_frequency", c_int64),
        ("max_token_length", c_uint64),
        ("max_words", c_uint64),
        ("order", c_uint32),
        ("reuse_tokens", c_uint32),
        ("scan", c_uint32),
        ("threads", c_uint32),
        ("colon_rule", c_uint32),
        ("max_strip_positions", c_uint64),
    )


class MergeStatistics(Structure):
    _fields_ = (
        ("words", c_uint64),
        ("positions", c_uint64),
        ("pairs", c_uint64),
        ("occurrences_visited", c_uint64),
        ("occurrences_merged", c_uint64),
        ("stale_pops", c_uint64),
        ("memory_bytes", c_uint64),
        ("threads", c_uint64),
        ("setup_seconds", c_double),
        ("selection_seconds", c_double),
        ("update_seconds", c_double),
    )


class Vocabulary(Structure):
    _fields_ = (
        ("token_data", c_char_p),
        ("token_offsets", c_void_p),
        ("ordinary_data", c_char_p),
        ("ordinary_offsets", c_void_p),
        ("tokens", c_uint32),
        ("byte_ids", c_void_p),
        ("merges", c_void_p),
        ("merge_count", c_uint64),
        ("first_level", c_uint64),
        ("whole_tokens", c_uint32),
    )
    kept: Any  # the arrays whose addresses it has


class Encoding(Structure):
    _fields_ = (
        ("pattern", c_void_p),
        ("id_size", c_uint32),
        ("specials", c_void_p),
        ("ids", c_void_p),
        ("capacity", c_uint64),
        ("written", c_uint64),
    )


class Prepared(Structure):
    _fields_ = (("encoder", c_void_p), ("encoding", Encoding))


# ---- functions ----


class _Signature(NamedTuple):
    result: Any
    arguments: tuple[Any, ...]
    check: Any = None


def _checked(*arguments: Any) -> _Signature:
    """A function that returns a status, for which `check_status` raises the exception."""
    return _Signature(c_int, arguments, check_status)


def _unchecked(*arguments: Any) -> _Signature:
    """A function that returns a status, which the caller handles."""
    return _Signature(c_int, arguments)


def _freeing() -> _Signature:
    return _Signature(None, (c_void_p,))


_HANDLES = POINTER(c_void_p)
_NUMBER = POINTER(c_uint64)

_PATTERN = {
    "bpeflow_pattern_named": _checked(c_uint32, _HANDLES),
    "bpeflow_pattern_new": _checked(POINTER(Step), c_uint32, c_uint32, _HANDLES),
    "bpeflow_pattern_free": _freeing(),
    "bpeflow_pattern_split": _checked(c_void_p, c_char_p, c_uint64, c_void_p, _NUMBER),
    "bpeflow_pattern_find_cut": _Signature(c_uint64, (c_void_p, c_void_p, c_uint64, c_uint64, c_uint32)),
}

_COUNT = _PATTERN | {
    "bpeflow_unicode_version": _Signature(c_char_p, ()),
    "bpeflow_instructions": _Signature(c_char_p, ()),
    "bpeflow_units_new": _checked(POINTER(Vocabulary), c_void_p, c_uint64, _HANDLES),
    "bpeflow_units_free": _freeing(),
    "bpeflow_table_new": _checked(c_char_p, c_void_p, c_int64, _HANDLES),
    "bpeflow_table_count": _unchecked(c_void_p, c_void_p, POINTER(Delimiters), c_void_p, c_uint64, POINTER(Documents)),
    "bpeflow_table_add": _checked(c_void_p, c_void_p, c_void_p, c_void_p, c_uint64, c_int64, c_uint64),
    "bpeflow_table_size": _checked(c_void_p, _NUMBER, _NUMBER),
    "bpeflow_table_memory": _checked(c_void_p, c_uint64, _NUMBER),
    "bpeflow_table_write": _checked(c_void_p, c_uint32, c_void_p, c_char_p, _NUMBER, _NUMBER),
    "bpeflow_table_free": _freeing(),
    "bpeflow_sum_new": _checked(_HANDLES, c_uint64, c_uint32, _HANDLES),
    "bpeflow_sum_add_up": _checked(c_void_p),
    "bpeflow_sum_divide": _checked(c_void_p),
    "bpeflow_sum_size": _checked(c_void_p, _NUMBER, _NUMBER),
    "bpeflow_sum_distribute": _checked(c_void_p, c_void_p, c_void_p, c_void_p),
    "bpeflow_sum_sort": _checked(c_void_p, c_void_p, c_void_p, c_void_p),
    "bpeflow_sum_free": _freeing(),
    "bpeflow_kway_new": _checked(POINTER(Shard), c_uint64, c_uint64, _HANDLES),
    "bpeflow_kway_write": _checked(c_void_p, c_void_p, c_char_p, _NUMBER, _NUMBER),
    "bpeflow_kway_place": _checked(c_void_p, c_uint64, c_void_p, c_void_p, c_void_p, _NUMBER),
    "bpeflow_kway_free": _freeing(),
}

_LEARN = {
    "bpeflow_learner_new": _checked(POINTER(MergeTask), _HANDLES),
    "bpeflow_learner_step": _checked(c_void_p, c_uint64, c_void_p, _NUMBER),
    "bpeflow_learner_statistics": _checked(c_void_p, POINTER(MergeStatistics)),
    "bpeflow_learner_free": _freeing(),
}

_ENCODE = _PATTERN | {
    "bpeflow_model_new": _checked(POINTER(Vocabulary), _HANDLES),
    "bpeflow_model_decode": _unchecked(c_void_p, c_void_p, c_uint32, c_uint64, c_void_p, _NUMBER),
    "bpeflow_model_free": _freeing(),
    "bpeflow_read_ranks": _unchecked(c_char_p, c_uint64, c_void_p, c_void_p, c_void_p, c_uint64),
    "bpeflow_read_merges": _unchecked(c_char_p, c_uint64, c_char_p, c_uint64, c_uint32, c_void_p, c_uint64),
    "bpeflow_recover_merges": _checked(c_char_p, c_void_p, c_uint32, c_void_p, _NUMBER),
    "bpeflow_specials_new": _checked(c_char_p, c_void_p, c_void_p, c_uint32, _HANDLES),
    "bpeflow_specials_free": _freeing(),
    "bpeflow_cache_new": _checked(c_uint64, _HANDLES),
    "bpeflow_cache_free": _freeing(),
    "bpeflow_encoder_new": _checked(c_void_p, c_void_p, c_char_p, _HANDLES),
    "bpeflow_encoder_encode": _unchecked(c_void_p, c_void_p, c_void_p, c_void_p, c_uint64, c_void_p),
    "bpeflow_encoder_encode_texts": _unchecked(c_void_p, c_void_p, c_void_p, c_void_p, c_uint64, c_void_p),
    "bpeflow_find_texts": _Signature(c_uint64, (c_void_p, c_uint64, c_void_p, c_void_p, c_void_p, c_void_p)),
    "bpeflow_encode_prepared": _Signature(c_int32, (POINTER(Prepared), c_char_p, c_int32)),
    "bpeflow_encoder_free": _freeing(),
}

#: The functions of each library. The two that learn have the same ones.
_FUNCTIONS = {"count": _COUNT, "encode": _ENCODE, "c": _LEARN, "omp": _LEARN}


class Handle(c_void_p):
    """An object in native memory, which is freed together with this one, or by `free`."""

    def __init__(self, library: ctypes.CDLL, kind: str, *arguments: Any, create: str = "new") -> None:
        """Create the object with `bpeflow_<kind>_<create>`.

        Args:
            library: the library of these functions.
            kind: the object's name in the functions.
            arguments: arguments before the handle. Handles among them are kept alive, because the object may use them.
            create: the last part of the function's name.
        """
        super().__init__()
        self._borrowed = [argument for argument in arguments if isinstance(argument, Handle)]
        getattr(library, f"bpeflow_{kind}_{create}")(*arguments, byref(self))
        self._free = weakref.finalize(self, getattr(library, f"bpeflow_{kind}_free"), c_void_p(self.value))

    def free(self) -> None:
        """Free the object. Afterwards the handle is NULL, which every native function refuses."""
        self.value = None
        self._free()


def address(data: bytes | bytearray | memoryview | mmap | NDArray[Any]) -> bytes | int:
    """Return data in a form that ctypes passes as its address."""
    if isinstance(data, bytes):
        return data
    import numpy as np  # late: workers that count have only `bytes`

    return int(np.frombuffer(data, np.uint8).ctypes.data)


# ---- loading ----


@cache
def load_library(name: str) -> ctypes.CDLL:
    """Load ``libbpeflow_<name>`` on first use and declare its functions.

    Raises `NativeUnavailableError`, with the reason and the remedy, if the library is missing or incompatible.
    """
    file_name = f"libbpeflow_{name}{_SUFFIX}"
    path = next((folder / file_name for folder in library_folders() if (folder / file_name).is_file()), None)
    if path is None:
        raise NativeUnavailableError(_why_missing(name))
    try:
        library = ctypes.CDLL(str(path), use_errno=True)
    except OSError as error:
        raise NativeUnavailableError(f"{path} cannot be loaded: {error}") from error
    _declare(library, path, {"bpeflow_abi": _Signature(c_uint32, ()), **_FUNCTIONS[name]})
    return library


def library_folders() -> Iterator[Path]:
    """Yield the folders to search for the libraries, first to last.

    The libraries are normally inside the package. If the package is imported from its source tree (an editable install,
    or ``python -m`` in that tree), they are in the installed copy instead.
    """
    if override := os.environ.get(LIBRARY_PATH_VARIABLE):
        yield Path(override)
    yield Path(__file__).parents[1] / "_native"
    yield from (Path(folder) / "bpeflow/_native" for folder in sys.path)


def build_records() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folders of libraries that have a build.json, and its content, which CMakeLists.txt defines."""
    for folder in library_folders():
        record = folder / "build.json"
        if record.is_file():
            yield folder, json.loads(record.read_text(encoding="utf-8"))


def _declare(library: ctypes.CDLL, path: Path, signatures: dict[str, _Signature]) -> None:
    """Declare the functions. Reject a library that was built for another version of the header."""
    try:
        for name, signature in signatures.items():
            function = getattr(library, name)
            function.restype, function.argtypes = signature.result, signature.arguments
            if signature.check is not None:
                function.errcheck = signature.check
        found = library.bpeflow_abi()
    except AttributeError as error:
        found = f"none ({error})"
    if found != ABI:
        raise NativeUnavailableError(
            f"{path} has interface version {found}, but this bpeflow needs {ABI}: rebuild it with pip install "
            "--force-reinstall"
        )


def _why_missing(library: str) -> str:
    """Return why a library is missing: the reason that the build recorded."""
    for _, record in build_records():
        if reason := record["missing"].get(library):
            return f"{reason}, then reinstall bpeflow"
    return (
        "the package has no native libraries: their build failed during installation, or this source tree was never "
        "installed; pip install -v . shows the compiler's messages"
    )
