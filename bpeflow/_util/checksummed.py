"""JSON with its own checksum: a run that goes on with what another one has left can tell whether it is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

_SEAL = "sha256"


def checksummed(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return `body` with its checksum."""
    return {**body, _SEAL: _digest(json.loads(json.dumps(body)))}


def verified(values: dict[str, Any]) -> dict[str, Any]:
    """Return what was checksummed. Raises `ValueError` if it has no checksum or another one."""
    body = {key: value for key, value in values.items() if key != _SEAL}
    if values.get(_SEAL) != _digest(body):
        raise ValueError("its checksum does not fit")
    return body


def has_checksum(values: object) -> bool:
    """Whether there is a checksum."""
    return isinstance(values, dict) and _SEAL in values


def _digest(body: Mapping[str, Any]) -> str:
    return sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
