"""The package as it is imported: its public names, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bpeflow


def test_public_names_are_there() -> None:
    for name in bpeflow.__all__:
        assert getattr(bpeflow, name).__name__ == name
        assert name in dir(bpeflow)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tokenise'"):
        bpeflow.tokenise


def test_workers_import_neither_settings_nor_terminal() -> None:
    """Every worker process pays for what the modules of the counting stages import."""
    code = "import sys, bpeflow.counting.reader, bpeflow.counting.counter, bpeflow.counting.merger; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "yaml", "rich", "bpeflow.training.train"} & set(modules)
