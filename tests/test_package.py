"""Importing the package: its public names, and the modules that workers import."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import bpeflow
from bpeflow import errors


def test_all_public_names_can_be_imported() -> None:
    for name in bpeflow.__all__:
        assert name == "__version__" or getattr(bpeflow, name).__name__ == name
        assert name in dir(bpeflow)


def test_every_exception_is_a_public_name() -> None:
    for name in errors.__all__:
        assert name in bpeflow.__all__
        assert getattr(bpeflow, name) is getattr(errors, name)


def test_the_version_is_that_of_the_installed_package() -> None:
    assert bpeflow.__version__ == version("bpeflow")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tokenise'"):
        bpeflow.tokenise  # noqa: B018


def test_workers_import_neither_settings_nor_the_command_line() -> None:
    """Every worker process pays the import time of the counting stages' modules."""
    code = "import sys, bpeflow.corpus.reader, bpeflow.counting.counter, bpeflow.counting.merger; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "pydantic", "yaml", "rich", "bpeflow.training.train"} & set(modules)
