"""The choice of an engine."""

from __future__ import annotations

import sys

import pytest

from bpeflow.config import EngineSettings
from bpeflow.engines.registry import start_engine
from bpeflow.errors import EngineUnavailableError


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "bpeflow.engines.ray", raising=False)
    with pytest.raises(EngineUnavailableError, match=r"pip install 'bpeflow\[ray\]'"):
        start_engine(EngineSettings(kind="ray"))
