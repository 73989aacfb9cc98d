"""Choice of the implementations to test, and skipping of tests whose native library is missing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")

#: Environment variable: the implementations to test, separated by commas, where there are several, such as `c,native`.
#: By default all are tested.
ONLY = "BPEFLOW_TEST_ONLY"

#: Environment variable: the native libraries that must be available, separated by commas. CI sets it, so that tests of
#: the libraries that it has built fail instead of being skipped.
REQUIRED_LIBRARIES = "BPEFLOW_REQUIRE"


def skip_missing(library: str, reason: str | None) -> None:
    """Skip the test if the library is missing (`reason` says why), or fail it if the library is required."""
    if reason is None:
        return
    fail_if_required(library, reason)
    pytest.skip(f"{library}: {reason}")


def fail_if_required(library: str, reason: str) -> None:
    """Fail the test if this missing library is required."""
    if library in os.environ.get(REQUIRED_LIBRARIES, "").split(","):
        pytest.fail(f"{REQUIRED_LIBRARIES} requires {library}, which is missing: {reason}")


def chosen(implementations: Iterable[T]) -> list[T]:
    """Return the implementations named in `BPEFLOW_TEST_ONLY`. Sanitizer runs leave out the Python ones this way."""
    only = os.environ.get(ONLY)
    return [each for each in implementations if only is None or getattr(each, "name", each) in only.split(",")]
