"""What to do with tests of native libraries that are not here."""

from __future__ import annotations

import os

import pytest

#: Names, with commas between them, the native libraries that must be there: what CI has built must be tested.
REQUIRED_LIBRARIES = "BPEFLOW_REQUIRE"


def skip_missing(library: str, reason: str | None) -> None:
    """Skip the test if there is a reason why the library is missing; fail it if the library is required."""
    if reason is None:
        return
    if library in os.environ.get(REQUIRED_LIBRARIES, "").split(","):
        pytest.fail(f"{REQUIRED_LIBRARIES} names {library}, which is not here: {reason}")
    pytest.skip(f"{library}: {reason}")
