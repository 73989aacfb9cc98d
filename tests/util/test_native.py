"""Where the native libraries are searched."""

from __future__ import annotations

from pathlib import Path

import pytest

import bpeflow
from bpeflow._util.native import LIBRARY_PATH_VARIABLE, library_folders


def test_the_package_is_searched_before_its_installed_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIBRARY_PATH_VARIABLE, raising=False)
    assert next(library_folders()) == Path(bpeflow.__file__).parent / "_native"


def test_the_folder_of_the_environment_variable_is_searched_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIBRARY_PATH_VARIABLE, str(tmp_path))
    assert next(library_folders()) == tmp_path
