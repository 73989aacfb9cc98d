"""Optional libraries, imported only when a corpus needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bpeflow.errors import CorpusError


def load_extra(module: str, extra: str, needed_by: str) -> Any:
    """Import an optional library.

    Args:
        module: the module to import.
        extra: the extra of this package that installs it.
        needed_by: the inputs that need it, in the plural, for the message.

    Raises:
        CorpusError: the library is not installed. The message names the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise CorpusError(f"{needed_by} need {module}: pip install 'bpeflow[{extra}]' ({error})") from error
