"""What `tools/soak.py` is made of: random corpora and settings, troubled runs, and judging what came of them."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_TESTS = str(Path(__file__).parents[2] / "tests" / "support")


def from_tests(module: str) -> Any:
    """A module of the tests, for what they and the soak have in common."""
    if _TESTS not in sys.path:
        sys.path.append(_TESTS)
    return import_module(module)
