"""What a setting's field is made of: its description, and the types that accept what users write."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ByteSize, Field

#: Placeholder in `input` and `exclude` for the folder of Python's standard library: real text on every machine.
STDLIB_PLACEHOLDER = "{stdlib}"


def setting(
    default: Any, description: str, details: str = "", *, example: Any, unset: str = "", group: str = "", **options: Any
) -> Any:
    """Return a field with everything that users read about it; nothing is described anywhere else.

    Args:
        default: the default.
        description: one line, a noun phrase, without the default; the help of a flag.
        details: sentences that configs and the settings page add to it.
        example: a value worth showing, as YAML would have it.
        unset: what a default of None means.
        group: the heading under which the setting is listed.
        options: as for `pydantic.Field`.
    """
    extra = {"details": details, "example": example, "unset": unset, "group": group}
    return Field(default=default, description=description, json_schema_extra=extra, **options)


def as_tuple(value: object) -> object:
    """Accept one value in place of a list. A set is refused, as the order of special tokens matters."""
    if isinstance(value, set | frozenset):
        raise ValueError("a set has no order, which is needed here; give a list")
    return (value,) if isinstance(value, str | int | Path | Mapping) and not isinstance(value, bool) else value


def as_pattern(value: object) -> object:
    """Accept a list of patterns, and one in a list."""
    steps = value if isinstance(value, list | tuple) else [value]
    if not steps or not all(isinstance(step, str) and step for step in steps):
        raise ValueError("need a name, a regular expression, or a list of them")
    return tuple(steps) if len(steps) > 1 else steps[0]


def _as_paths(value: object) -> object:
    values = as_tuple(value)
    if not isinstance(values, list | tuple):
        return values
    if "" in values:
        raise ValueError("an empty string is not a path")
    stdlib = sysconfig.get_paths()["stdlib"]
    return tuple(os.fspath(v).replace(STDLIB_PLACEHOLDER, stdlib) if isinstance(v, str | Path) else v for v in values)


def _as_folder(value: object) -> object:
    if isinstance(value, str | Path):
        if not str(value) or "\0" in str(value):
            raise ValueError("need the name of a file or a folder")
        return Path(value).expanduser()
    return value


def as_number(value: object) -> object:
    """Return strings such as ``32k`` as numbers, and other values as they are. Raises `ValueError`."""
    if not isinstance(value, str):
        return value
    if match := re.fullmatch(r"([0-9]{1,15})([km]?)", value.strip().replace("_", "").lower()):
        return int(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[match[2]]
    raise ValueError("need a number such as 32000, 32k or 1m")


NonEmpty = Annotated[str, Field(min_length=1)]

#: The names of a nested field, joined by dots.
FieldPath = Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)*$")]
Paths = Annotated[tuple[str, ...], BeforeValidator(_as_paths)]
Folder = Annotated[Path, BeforeValidator(_as_folder)]

#: Within the range of ids in native code. ``32k`` is 32,000, and ``1m`` a million.
VocabSize = Annotated[int, Field(ge=256, lt=2**32 - 1), BeforeValidator(as_number)]

#: A number of bytes: ``8mb`` (10^6), ``8MiB`` (2^20) or a plain number.
Size = Annotated[ByteSize, Field(ge=1)]

#: With less, files would take more time than counting.
MemoryLimit = Annotated[ByteSize, Field(ge=16_000_000)]
