"""Libraries that may be missing: the native ones, called through ctypes, and optional ones of Python (`load_extra`).

`ext/include/bpeflow.h` states the rules of the native interface. There is one library for counting, one for encoding
and one for each native backend. A module that calls a library passes the signatures of the functions that it calls to
`load_library`, so that no function is called undeclared. Only this module and those callers use ctypes.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator, Mapping
from ctypes import c_uint32
from importlib import import_module
from pathlib import Path
from typing import Any

from bpeflow.errors import (
    BpeflowError,
    CorpusError,
    CountOverflowError,
    FormatError,
    NativeError,
    NativeMemoryError,
    NativeUnavailableError,
)

#: The number that `bpeflow_abi` of a library must return: BPEFLOW_ABI in the header.
ABI = 10

#: Environment variable with a folder to search before the package's own. Sanitizer builds are tested this way.
LIBRARY_PATH_VARIABLE = "BPEFLOW_LIBRARY_PATH"
_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"

#: BPEFLOW_IO in the header.
_IO = 5

#: The result type of a function, its argument types, and the function that checks its result (see `check_status`).
Signature = tuple[Any, list[Any], Any]


def load_library(name: str, signatures: Mapping[str, Signature]) -> ctypes.CDLL:
    """Load ``libbpeflow_<name>`` and declare the functions in `signatures`.

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
    _declare(library, path, {"bpeflow_abi": (c_uint32, [], None), **signatures})
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


def check_status(status: int, function: Any, arguments: tuple[Any, ...]) -> int:  # noqa: ARG001
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
        1: NativeMemoryError(f"no memory for {name}"),
        2: CountOverflowError(f"{name}: a count does not fit 64 bits; count less text, or in parts"),
        3: NativeError(
            f"{name}: too large: 2^32 - 3 or more bytes in one pre-token, or 2^32 - 1 or more tokens, pairs or "
            "different counts"
        ),
        4: NativeError(f"{name}: arguments that break the rules of bpeflow.h (please report this)"),
        6: FormatError(f"{name}: a shard that is truncated, out of order or of the wrong size"),
    }
    raise errors.get(status) or NativeError(f"{name}: unknown status {status}")


def _declare(library: ctypes.CDLL, path: Path, signatures: Mapping[str, Signature]) -> None:
    """Declare the functions. Reject a library that was built for another version of the header."""
    try:
        for name, (result, arguments, check) in signatures.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
            if check is not None:
                function.errcheck = check
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


def load_extra(module: str, extra: str, needed_by: str, error: type[Exception] = CorpusError) -> Any:
    """Import an optional library.

    Args:
        module: the module to import.
        extra: the extra of this package that installs it.
        needed_by: what needs it, in the plural, for the message.
        error: the exception to raise.

    Raises:
        CorpusError: or `error`: the library is not installed. The message names the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        raise error(f"{needed_by} need {module}: pip install 'bpeflow[{extra}]' ({missing})") from missing
