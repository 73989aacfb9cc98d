"""Which implementations are tested, and what to do with tests of native libraries that are not here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")

#: Names, with commas between them, the implementations to test where there are several: `c,native`. All by default.
ONLY = "BPEFLOW_TEST_ONLY"

#: Names, with commas between them, the native libraries that must be there: what CI has built must be tested.
REQUIRED_LIBRARIES = "BPEFLOW_REQUIRE"


def skip_missing(library: str, reason: str | None) -> None:
    """Skip the test if there is a reason why the library is missing; fail it if the library is required."""
    if reason is None:
        return
    fail_if_required(library, reason)
    pytest.skip(f"{library}: {reason}")


def fail_if_required(library: str, reason: str) -> None:
    """Fail the test if the library, which is missing, must be there."""
    if library in os.environ.get(REQUIRED_LIBRARIES, "").split(","):
        pytest.fail(f"{REQUIRED_LIBRARIES} names {library}, which is not here: {reason}")


def chosen(implementations: Iterable[T]) -> list[T]:
    """Leave out those that `BPEFLOW_TEST_ONLY` does not name, for instance Python's under sanitizers."""
    only = os.environ.get(ONLY)
    return [each for each in implementations if only is None or getattr(each, "name", each) in only.split(",")]
