"""JSON objects with a checksum of their own, so that a damaged file is detected before a run resumes from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

#: The key of the checksum.
_CHECKSUM = "sha256"


def checksummed(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return `body` with its checksum added."""
    return {**body, _CHECKSUM: _digest(json.loads(json.dumps(body)))}


def verified(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` without the checksum. Raises `ValueError` if it is missing or does not match."""
    body = {key: value for key, value in values.items() if key != _CHECKSUM}
    if values.get(_CHECKSUM) != _digest(body):
        raise ValueError("its checksum does not match")
    return body


def has_checksum(values: object) -> bool:
    """Return whether `values` is an object with a checksum."""
    return isinstance(values, dict) and _CHECKSUM in values


def _digest(body: Mapping[str, Any]) -> str:
    return sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
