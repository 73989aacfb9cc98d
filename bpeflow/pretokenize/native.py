"""The native scanner: which patterns it knows, which vector instructions it uses, and whether it is available."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_char_p
from functools import cache
from typing import Literal

from bpeflow._util.library import Signature, load_library
from bpeflow.errors import ConfigError, NativeUnavailableError
from bpeflow.pretokenize.regex import Pretokenizer

Scanner = Literal["auto", "native", "regex"]

#: Names the kind of instructions that the native scanner uses, in place of the best that the processor has.
INSTRUCTIONS_VARIABLE = "BPEFLOW_INSTRUCTIONS"

#: The numbers of the named patterns: enum bpeflow_pattern of the header.
NATIVE_PATTERNS = {"gpt2": 0, "cl100k": 1, "o200k": 2, "llama3": 3, "qwen2": 4}

_SIGNATURES: dict[str, Signature] = {
    "bpeflow_unicode_version": (c_char_p, [], None),
    "bpeflow_instructions": (c_char_p, [], None),
}


@cache
def _library() -> ctypes.CDLL:
    return load_library("count", _SIGNATURES)


def why_regex(pretokenizer: Pretokenizer) -> str | None:
    """Say why pre-tokens must be found by the `regex` module; None where the native scanner can do it."""
    if pretokenizer.custom:
        return "the pattern is a regular expression of your own"
    try:
        _library()
    except NativeUnavailableError as error:
        return str(error)
    return None


def choose_scanner(scanner: Scanner, pretokenizer: Pretokenizer) -> Literal["native", "regex"]:
    """Settle what ``auto`` means. Raises `ConfigError` where the native scanner was asked for and cannot be used."""
    if scanner == "regex":
        return "regex"
    reason = why_regex(pretokenizer)
    if reason is not None and scanner == "native":
        raise ConfigError(f"scanner: native cannot be used: {reason}")
    return "native" if reason is None else "regex"


def native_unicode_version() -> str:
    """The version of Unicode that the native scanner's tables have. Raises `NativeUnavailableError`."""
    version: bytes = _library().bpeflow_unicode_version()
    return version.decode()


def native_instructions() -> tuple[str, ...]:
    """The kinds of instructions that the native scanner can use here, best first. Raises `NativeUnavailableError`."""
    names: bytes = _library().bpeflow_instructions()
    return tuple(names.decode().split())


def chosen_instructions() -> str:
    """The kind that the native scanner uses: the best, or what `INSTRUCTIONS_VARIABLE` names.

    Raises `ConfigError` if that is not one of those that are here; `NativeUnavailableError`.
    """
    available = native_instructions()
    wanted = os.environ.get(INSTRUCTIONS_VARIABLE) or available[0]
    if wanted not in available:
        raise ConfigError(f"{INSTRUCTIONS_VARIABLE}={wanted}: this processor has {', '.join(available)}")
    return wanted
