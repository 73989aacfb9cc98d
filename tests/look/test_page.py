"""The Python of docs/inspecting.md has the output that it shows."""

from __future__ import annotations

import doctest
from pathlib import Path


def test_the_examples_of_the_page_are_right() -> None:
    path = Path(__file__).parents[2] / "docs" / "inspecting.md"
    failed, tried = doctest.testfile(str(path), module_relative=False)
    assert failed == 0
    assert tried > 5
