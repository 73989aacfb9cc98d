"""What several test modules share: the backends at hand."""

from __future__ import annotations

import os

import pytest

from bpeflow.backends.base import MergeBackend
from bpeflow.backends.choice import BACKENDS

#: Names, with commas between them, the backends that must not be skipped: what CI has built must be tested.
REQUIRED_BACKENDS = "BPEFLOW_REQUIRE_BACKENDS"


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> MergeBackend:
    """Every backend in turn; one that was not built here is skipped with its reason."""
    candidate: MergeBackend = request.param
    reason = candidate.unavailable()
    if reason is not None:
        if candidate.name in os.environ.get(REQUIRED_BACKENDS, "").split(","):
            pytest.fail(f"{REQUIRED_BACKENDS} names {candidate.name}, which is not here: {reason}")
        pytest.skip(f"backend {candidate.name}: {reason}")
    return candidate
