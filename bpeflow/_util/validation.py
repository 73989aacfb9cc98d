"""Validation errors of pydantic as one-line messages: the key, its description and an example, or the nearest key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bpeflow._util.text import close_matches, format_size, short_repr

#: Messages for pydantic's errors that name its internal types.
_NEEDED = {"tuple_type": "need a list", "path_type": "need a path"}

#: Least lower bound that is a size in bytes.
_LEAST_SIZE = 1_000_000


def explain(model: type[BaseModel], details: Any) -> str:
    """Explain one entry of `ValidationError.errors` for a model of settings."""
    location = [str(part) for part in details["loc"]]
    key = ".".join(location)
    if details["type"] == "extra_forbidden":
        return f"unknown setting {key}{nearest(model, key)}"
    if details["type"] == "missing":
        return f"{key} is missing"
    message: str = _NEEDED.get(details["type"], details["msg"].removeprefix("Value error, "))
    if not key:
        return message
    if details["type"] == "greater_than_equal" and details["ctx"]["ge"] >= _LEAST_SIZE:
        message = f"need at least {format_size(details['ctx']['ge'])}"
    meaning = "" if details["type"] == "value_error" else _meaning(model, location)
    return f"{key}: {message}, found {short_repr(details['input'])}{meaning}"


def nearest(model: type[BaseModel], key: str) -> str:
    """Suggest the known key that is most like an unknown one, in any section."""
    names = [name for name, _ in _fields(model)]
    section, _, last = key.rpartition(".")
    prefix = "".join(f"{part}." for part in section.split(".") if not part.isdigit())  # without indices
    inside = [name.removeprefix(prefix) for name in names if name.startswith(prefix)] if section else []
    if inside:
        known = {name: f"{section}.{name}" for name in inside}
    else:
        last = key
        known = {name.rpartition(".")[2]: name for name in reversed(names)} | {name: name for name in names}
    close = close_matches(last, known)
    return f" (did you mean {known[close[0]]}?)" if close else " (`bpeflow config` lists all settings)"


def _meaning(model: type[BaseModel], location: list[str]) -> str:
    """Return the description of the setting at `location`, with an example."""
    field = dict(_fields(model)).get(".".join(part for part in location if not part.isdigit()))
    extra = field.json_schema_extra if field else None
    if field is None or not isinstance(extra, dict):
        return ""
    example = extra["example"]
    return f" ({field.description}; for example {example if isinstance(example, str) else json.dumps(example)})"


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the dotted names of all settings of a model, those in sections and in lists of models included."""
    for name, field in model.model_fields.items():
        yield prefix + name, field
        if inner := _model_in(field.annotation):
            yield from _fields(inner, f"{prefix}{name}.")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field holds, itself or in a tuple."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for inner in get_args(annotation) if (model := _model_in(inner))), None)
