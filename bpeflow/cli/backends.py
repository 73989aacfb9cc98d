"""`bpeflow backends`: list the merge backends and the scanner, and why any is unavailable; how bpeflow was built."""

from __future__ import annotations

import platform
import sys
from argparse import Namespace
from collections.abc import Iterator
from importlib.metadata import version

from bpeflow import __version__
from bpeflow._util.native import build_records
from bpeflow.backends import BACKENDS
from bpeflow.cli.parser import Parser, add_json_flag
from bpeflow.errors import NativeUnavailableError
from bpeflow.look.render import output_console, print_fields, print_json, print_table
from bpeflow.pretokenize.native import chosen_instructions, native_instructions, native_unicode_version, why_regex
from bpeflow.pretokenize.regex import load_pretokenizer, unicode_version


def backends_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("backends", "List the merge backends, and why any is unavailable.")
    parser.add_argument("--verbose", action="store_true", help="also print how bpeflow was built, and what it uses")
    add_json_flag(parser)
    return parser


def run_backends(options: Namespace) -> None:
    """List the backends."""
    console = output_console()
    reasons = {backend: backend.unavailable() for backend in BACKENDS}
    reason = why_regex(load_pretokenizer("gpt2"))
    auto = next(b.name for b, why in reasons.items() if why is None)
    counting = f"by the regex module: {reason}" if reason else f"native, {chosen_instructions()}"
    if options.json:
        backends = [
            {"name": b.name, "available": not why, "description": b.describe(), "reason": why}
            for b, why in reasons.items()
        ]
        print_json({"backends": backends, "auto": auto, "counting": counting, **dict(_details())})
        return
    rows = [(b.name, "no" if reason else "yes", reason or b.describe()) for b, reason in reasons.items()]
    print_table(console, ("backend", "available", "description, or the reason"), rows, "lll")
    fields = [("backend: auto", f"selects {auto}"), ("counting", counting)]
    print_fields(console, [*fields, *(_details() if options.verbose else ())])


def _details() -> Iterator[tuple[str, str]]:
    yield "bpeflow", __version__
    yield "Python", f"{platform.python_version()}, {sys.executable}"
    yield "platform", platform.platform()
    yield "numpy", version("numpy")
    yield "regex", f"{version('regex')}, Unicode {unicode_version()}"
    for folder, record in build_records():
        libraries = sorted(path.stem.removeprefix("libbpeflow_") for path in folder.glob("libbpeflow_*"))
        yield "libraries", f"{folder}: {', '.join(libraries) or 'none'}"
        yield "built with", f"C {record['c_compiler']}, C++ {record['cxx_compiler']}, {record['build_type']}"
        yield "instructions", f"compiled: {record['instructions']}; {_usable_instructions()}"
        yield "OpenMP", record["openmp"] or "not compiled"
        return
    yield "libraries", "none were built"


def _usable_instructions() -> str:
    try:
        return f"usable here: {' '.join(native_instructions())}; Unicode {native_unicode_version()}"
    except NativeUnavailableError:
        return "no library uses them"
