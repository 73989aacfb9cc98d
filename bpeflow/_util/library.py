"""Finding, checking and declaring the native libraries: with the modules that call them, all that touches ctypes.

`ext/include/bpeflow.h` states the rules of the border. There is a library for counting and one for each native merge
backend. A module that calls one brings the table of the signatures that it needs; nothing is called undeclared.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ctypes import c_uint32
from pathlib import Path
from typing import Any

from bpeflow.errors import (
    BpeflowError,
    CountOverflowError,
    FormatError,
    NativeError,
    NativeMemoryError,
    NativeUnavailableError,
)

#: The number that `bpeflow_abi` must return: BPEFLOW_ABI of the header that this package was written for.
ABI = 5

#: A folder to look for the libraries in before the package's own: how sanitizer builds are tested.
LIBRARY_PATH_VARIABLE = "BPEFLOW_LIBRARY_PATH"
_SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")

#: BPEFLOW_IO of the header.
_IO = 5

#: A function's result, its arguments, and what looks at its result (see `check_status`).
Signature = tuple[Any, list[Any], Any]


def check_status(status: int, function: Any, arguments: tuple[Any, ...]) -> int:
    """Turn the statuses of the header into exceptions; ctypes calls this after every call that returns one.

    Failed input and output is an `OSError`, which does not say which file it was: the caller knows.
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
            f"{name}: 2^32 - 1 or more positions (bytes of distinct pre-tokens), tokens or pairs, or a pre-token of so "
            "many bytes, which is the limit"
        ),
        4: NativeError(f"{name}: arguments that break the rules of bpeflow.h (please report this)"),
        6: FormatError(f"{name}: a run of counts that is cut short, out of order or otherwise none"),
    }
    raise errors.get(status) or NativeError(f"{name}: unknown status {status}")


def load_library(name: str, signatures: Mapping[str, Signature]) -> ctypes.CDLL:
    """Load ``libbpeflow_<name>`` and declare these functions of it.

    Raises `NativeUnavailableError` with the reason and the remedy where it is missing or does not fit.
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
    """Where the libraries are looked for, first to last.

    Beside the package, as a rule. But a package that is imported from its sources (an editable install; or the current
    folder, where ``python -m`` looks first) has its libraries where it was installed.
    """
    if override := os.environ.get(LIBRARY_PATH_VARIABLE):
        yield Path(override)
    yield Path(__file__).parent / "_native"
    from importlib.metadata import PackageNotFoundError, distribution  # seldom needed, and slow to import

    with suppress(PackageNotFoundError):
        yield Path(str(distribution("bpeflow").locate_file("bpeflow/_native")))


def _declare(library: ctypes.CDLL, path: Path, signatures: Mapping[str, Signature]) -> None:
    """Give every function its types; refuse a library that was built for another version of the header."""
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
            f"{path} has interface {found}, this bpeflow needs {ABI}: rebuild it with pip install --force-reinstall"
        )


def _why_missing(library: str) -> str:
    """Say why there is no library, as the build noted it down (CMakeLists.txt writes the note)."""
    for folder in library_folders():
        note = folder / "build.json"
        if note.is_file():
            reason: str = json.loads(note.read_text(encoding="utf-8"))["missing"].get(library, "")
            if reason:
                return f"{reason}, then reinstall bpeflow"
    return (
        "there are no native libraries beside the package: its build failed when it was installed, or this source tree "
        "was never installed; pip install -v . shows the compiler's messages"
    )
