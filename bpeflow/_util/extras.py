"""Optional libraries of Python, which extras of this package install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bpeflow.errors import CorpusError


def load_extra(module: str, extra: str, needed_by: str, error: type[Exception] = CorpusError) -> Any:
    """Import an optional library.

    Args:
        module: the module to import.
        extra: the extra of this package that installs it.
        needed_by: what needs it, in the plural, for the message.
        error: the exception to raise.

    Raises:
        CorpusError: or `error`: the library is not installed. The message names the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        raise error(f"{needed_by} need {module}: pip install 'bpeflow[{extra}]' ({missing})") from missing
