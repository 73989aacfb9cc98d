"""The tables of compiled patterns, as data, and where they are kept: in this process and in the user's cache folder.

`compiled` makes them. This module needs neither `regex` nor numpy. So a worker that is sent the tables imports neither,
and a process that finds them in the cache folder takes some milliseconds.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bpeflow._util.native import Handle, Step, load_library
from bpeflow._util.text import UnmatchedPolicy
from bpeflow.errors import FormatError


@dataclass(frozen=True)
class CompiledStep:
    """The tables of one regular expression. Numbers are in native byte order, and tables are by rows.

    The end of the text is read like a character, in column number `classes`.

    Attributes:
        first: uint32[ranges], the first code point of each range, ascending from 0. Together they cover 0..0x10FFFF.
        range_class: uint8[ranges], the class of the code points of each range.
        classes: the number of classes of characters.
        next: uint16[states, classes + 1], the DFA: 2 * (1 + next state, or 0 if no match can follow) + 1 if a match
            ends before the character that is read. The start is state 0.
        moves: uint16[configurations, classes + 1], the transducer (see `transducer`): the next configuration; 0 after
            the end of the text and where flags are `SPECIAL`. Empty, as are `flags` and `info`, if it were too large.
        flags: uint8[configurations, classes + 1], the flags of each transition.
        info: uint8[configurations], `IN_GAP` and `FRESH`.
        gap_start: the configuration in which matching resumes after a failed attempt; 0 if there are no gaps.
        has_gaps: whether there is text that the expression does not match.
        cuts: uint8[classes, classes], whether a text may be cut between characters of two classes: `UNSAFE`, `WEAK` or
            `STRONG` (see `cuts`).
    """

    first: bytes
    range_class: bytes
    classes: int
    next: bytes
    moves: bytes
    flags: bytes
    info: bytes
    gap_start: int
    has_gaps: bool
    cuts: bytes

    @property
    def ranges(self) -> memoryview[int]:
        """`first` as numbers."""
        return memoryview(self.first).cast("I")

    def class_of(self, character: str) -> int:
        """Return the class of a character."""
        return self.range_class[bisect_right(self.ranges, ord(character)) - 1]


#: The tables of a pattern: those of its regular expression, or of each.
CompiledPattern = tuple[CompiledStep, ...]


class UnsupportedPattern(Exception):  # noqa: N818 (not an error: the `regex` module matches the pattern)
    """The pattern cannot be compiled. The message completes "the pattern cannot be compiled, because …"."""


#: Values of the table of cuts.
UNSAFE, WEAK, STRONG = 0, 1, 2

#: `enum bpeflow_unmatched` of the header.
_POLICIES: dict[UnmatchedPolicy, int] = {"isolate": 0, "drop": 1, "error": 2}


def new_compiled_pattern(library: str, pattern: CompiledPattern, unmatched: UnmatchedPolicy) -> Handle:
    """Return a pattern for the functions of a library. Raises `NativeError` if its tables are damaged."""
    steps = (Step * len(pattern))(*map(_native_step, pattern))
    return Handle(load_library(library), "pattern", steps, len(steps), _POLICIES[unmatched])


def _native_step(step: CompiledStep) -> Step:
    return Step(
        **vars(step),
        ranges=len(step.range_class),
        states=len(step.next) // (2 * (step.classes + 1)),
        configs=len(step.info),
    )


# ---- what this process knows


#: What this process knows of patterns, by their expressions: the tables, or why they cannot be compiled.
_KNOWN: dict[tuple[str, ...], CompiledPattern | str] = {}

#: Upper bound on their number. Each takes about 30 kB.
_MAX_KNOWN = 256


def known_tables(sources: tuple[str, ...]) -> CompiledPattern | str | None:
    """Return the tables of a pattern, or why it cannot be compiled; None if it was not compiled yet."""
    if sources not in _KNOWN and (cached := _read_cached(sources)):
        learn_tables(sources, cached)
    return _KNOWN.get(sources)


def learn_tables(sources: tuple[str, ...], tables: CompiledPattern | str) -> None:
    """Keep what another process knows of a pattern, or this one has found out."""
    while len(_KNOWN) >= _MAX_KNOWN:
        _KNOWN.pop(next(iter(_KNOWN)))
    _KNOWN[sources] = tables


# ---- the cache


#: Changes with the tables, and with what compiling makes of a pattern.
_FORMAT = 4


def _cache_path(sources: Sequence[str]) -> Path:
    """Return the file of a pattern's tables. Raises `RuntimeError` if the user has no home folder."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not folder.is_absolute():
        folder = Path.home() / ".cache"
    digest = sha256(json.dumps(_key(sources)).encode()).hexdigest()
    return folder / "bpeflow" / "patterns" / f"{digest[:32]}.json"


def _key(sources: Sequence[str]) -> dict[str, Any]:
    """Return all that the tables depend on."""
    return {"format": _FORMAT, "regex": _regex_version(), "byteorder": sys.byteorder, "sources": [*sources]}


@cache
def _regex_version() -> str:
    """Return the version of the `regex` module, if possible without importing it, which takes as long as all else."""
    spec = find_spec("regex")
    folder = Path(spec.origin).parents[1] if spec and spec.origin else Path()
    installed = [path.name for path in folder.glob("regex-*.dist-info")]
    if len(installed) == 1:
        return installed[0]
    import regex

    return str(regex.__version__)


def _read_cached(sources: Sequence[str]) -> CompiledPattern | None:
    """Return the tables of an earlier process; None if there are none, or if they are damaged."""
    from bpeflow._util.atomic import read_json  # only for custom patterns

    try:
        values = read_json(_cache_path(sources))
        steps = values.pop("steps")
        if values != _key(sources):
            return None
        return tuple(CompiledStep(**{name: _loaded(one) for name, one in step.items()}) for step in steps)
    except (OSError, RuntimeError, ImportError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_cached(sources: Sequence[str], compiled: CompiledPattern) -> None:
    """Keep the tables for later processes, if there is a folder to write to."""
    from bpeflow._util.atomic import write_json

    steps = [{name: _dumped(one) for name, one in asdict(step).items()} for step in compiled]
    with suppress(OSError, RuntimeError, ImportError, FormatError):
        load_library("count")  # without it, the tables were not compared with the `regex` module
        write_json(_cache_path(sources), {**_key(sources), "steps": steps}, indent=None)


def _dumped(value: Any) -> Any:
    return b64encode(value).decode() if isinstance(value, bytes) else value


def _loaded(value: Any) -> Any:
    return b64decode(value) if isinstance(value, str) else value
