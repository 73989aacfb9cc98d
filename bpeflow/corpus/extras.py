"""Libraries that only some corpora need, imported when one of those comes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bpeflow.errors import CorpusError
from bpeflow.out_of_memory import is_lack_of_memory


def load_extra(module: str, extra: str, what: str) -> Any:
    """Import an optional library. Raises `CorpusError`, which names the extra that brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        if is_lack_of_memory(error):  # it is there
            raise
        raise CorpusError(f"{what} need {module}: pip install 'bpeflow[{extra}]' ({error})") from error
