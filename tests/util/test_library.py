"""Where the native libraries are searched, and optional libraries, which are needed for some corpora only."""

from __future__ import annotations

from pathlib import Path

import pytest

import bpeflow
from bpeflow._util import library
from bpeflow._util.library import LIBRARY_PATH_VARIABLE, library_folders, load_extra
from bpeflow.errors import CorpusError


def test_the_package_is_searched_before_its_installed_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIBRARY_PATH_VARIABLE, raising=False)
    assert next(library_folders()) == Path(bpeflow.__file__).parent / "_native"


def test_the_folder_of_the_environment_variable_is_searched_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIBRARY_PATH_VARIABLE, str(tmp_path))
    assert next(library_folders()) == tmp_path


def test_a_missing_library_is_named_with_its_extra() -> None:
    with pytest.raises(CorpusError, match=r"URLs need no_such_module: pip install 'bpeflow\[fsspec\]'"):
        load_extra("no_such_module", "fsspec", "URLs")


def test_a_library_that_cannot_be_loaded_is_not_reported_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> None:
        raise ImportError("failed to map segment from shared object")

    monkeypatch.setattr(library, "import_module", import_module)
    with pytest.raises(ImportError, match="failed to map segment"):
        load_extra("pyarrow", "parquet", "Parquet files")
