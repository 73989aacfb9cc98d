"""Libraries that only some corpora need, imported when one of those comes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bpeflow._util.memory import is_memory_error
from bpeflow.errors import CorpusError


def load_extra(module: str, extra: str, what: str) -> Any:
    """Import an optional library. Raises `CorpusError`, which names the extra that brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        if is_memory_error(error):  # it is there
            raise
        raise CorpusError(f"{what} need {module}: pip install 'bpeflow[{extra}]' ({error})") from error
