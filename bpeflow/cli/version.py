"""`bpeflow --version --verbose`: how this installation was built, and what it uses here."""

from __future__ import annotations

import platform
import sys
from argparse import Namespace
from collections.abc import Iterator
from importlib.metadata import version

import psutil

from bpeflow import __version__
from bpeflow._util.native import build_records
from bpeflow.backends import BACKENDS
from bpeflow.cli.backends import scanner_in_use
from bpeflow.cli.parser import Parser
from bpeflow.errors import NativeUnavailableError
from bpeflow.pretokenize.native import native_instructions, native_unicode_version
from bpeflow.pretokenize.regex import unicode_version

#: How the files of OpenMP's runtimes begin: of GCC, LLVM and Intel.
_OPENMP_RUNTIMES = ("libgomp", "libomp", "libiomp")


def make_parser() -> Parser:
    """Return the parser of the flags beside `--version`."""
    parser = Parser("--version", "Print the version.", "")
    parser.add_argument("--verbose", action="store_true", help="also print how it was built, and what it uses here")
    return parser


def run(options: Namespace) -> None:
    """Print the version and, on request, the details."""
    print(f"bpeflow {__version__}")  # noqa: T201
    if options.verbose:
        for name, value in _details():
            print(f"  {name:<16}{value}")  # noqa: T201


def _details() -> Iterator[tuple[str, str]]:
    reasons = [(backend, backend.unavailable()) for backend in BACKENDS]  # loads OpenMP's runtime
    yield "Python", f"{platform.python_version()}, {sys.executable}"
    yield "platform", platform.platform()
    yield "numpy", version("numpy")
    yield "regex", f"{version('regex')}, Unicode {unicode_version()}"
    for folder, record in build_records():
        libraries = sorted(path.stem.removeprefix("libbpeflow_") for path in folder.glob("libbpeflow_*"))
        yield "libraries", f"{folder}: {', '.join(libraries) or 'none'}"
        yield "built with", f"C {record['c_compiler']}, C++ {record['cxx_compiler']}, {record['build_type']}"
        yield "instructions", f"compiled: {record['instructions']}; {_usable_instructions()}"
        yield "OpenMP", ", ".join([record["openmp"] or "not compiled", *_openmp_runtimes()])
        break
    else:
        yield "libraries", "none were built"
    yield "counting", scanner_in_use()
    for backend, reason in reasons:
        yield f"backend {backend.name}", f"not available: {reason}" if reason else backend.describe()


def _usable_instructions() -> str:
    try:
        return f"usable here: {' '.join(native_instructions())}; Unicode {native_unicode_version()}"
    except NativeUnavailableError:
        return "no library uses them"


def _openmp_runtimes() -> list[str]:
    """Return the paths of the OpenMP runtimes in this process, where the platform can list them."""
    process = psutil.Process()
    if not hasattr(process, "memory_maps"):  # macOS
        return []
    paths = {area.path for area in process.memory_maps()}
    return sorted(path for path in paths if path.rpartition("/")[2].startswith(_OPENMP_RUNTIMES))
