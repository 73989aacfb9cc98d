"""Optional libraries of Python."""

from __future__ import annotations

import pytest

from bpeflow._util import machine
from bpeflow._util.machine import load_extra
from bpeflow.errors import MissingLibraryError


def test_a_missing_library_is_named_with_its_extra() -> None:
    with pytest.raises(MissingLibraryError, match=r"URLs need no_such_module: pip install 'bpeflow\[fsspec\]'"):
        load_extra("no_such_module", "fsspec", "URLs")


def test_a_library_that_cannot_be_loaded_is_not_reported_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> None:
        raise ImportError("failed to map segment from shared object")

    monkeypatch.setattr(machine, "import_module", import_module)
    with pytest.raises(ImportError, match="failed to map segment"):
        load_extra("pyarrow", "parquet", "Parquet files")
