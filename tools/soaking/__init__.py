"""The parts of `tools/soak.py`: random corpora and settings, disturbed runs, and judging their results."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_TESTS = str(Path(__file__).parents[2] / "tests" / "support")


def from_tests(module: str) -> Any:
    """Import a module of tests/support that the soak also uses."""
    if _TESTS not in sys.path:
        sys.path.append(_TESTS)
    return import_module(module)
