"""Validation errors of pydantic as one-line messages that suggest the nearest known key."""

from __future__ import annotations

import difflib
from typing import Any, get_args

from pydantic import BaseModel

from bpeflow._util.text import format_size

#: Least lower bound that is a size in bytes.
_LEAST_SIZE = 1_000_000


def explain(model: type[BaseModel], details: Any) -> str:
    """Explain one entry of `ValidationError.errors` for a model of settings."""
    location = [str(part) for part in details["loc"]]
    key = ".".join(location)
    if details["type"] == "extra_forbidden":
        return f"unknown setting {key}" + _nearest(model, location)
    if details["type"] == "missing":
        return f"{key} is missing"
    message = details["msg"].removeprefix("Value error, ")
    if details["type"] == "greater_than_equal" and details["ctx"]["ge"] >= _LEAST_SIZE:
        message = f"need at least {format_size(details['ctx']['ge'])}"
    return f"{key}: {message}, found {details['input']!r}" if key else message


def _nearest(model: type[BaseModel], location: list[str]) -> str:
    """Suggest the known key that is most like the unknown one at the end of `location`."""
    for section in location[:-1]:
        if section.isdigit():  # an index
            continue
        inner = _model_in(model.model_fields[section].annotation)
        if inner is None:
            return ""
        model = inner
    known = list(model.model_fields)
    close = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
    return f" (did you mean {'.'.join([*location[:-1], close[0]])}?)" if close else f" (there are: {', '.join(known)})"


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field holds, itself or in a tuple."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for inner in get_args(annotation) if (model := _model_in(inner))), None)
