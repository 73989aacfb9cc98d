"""The native scanner: its pattern numbers, the vector instructions that it uses, and whether it is available."""

from __future__ import annotations

import os
from typing import Literal

from bpeflow._util.native import load_library
from bpeflow.errors import ConfigError, NativeUnavailableError
from bpeflow.pretokenize.regex import Pretokenizer

Scanner = Literal["native", "regex"]

#: The environment variable that makes native code use other vector instructions than the best that the processor has.
#: With "regex" the `regex` module finds the pre-tokens of counting instead.
INSTRUCTIONS_VARIABLE = "BPEFLOW_INSTRUCTIONS"
_REGEX = "regex"

#: The numbers of the named patterns, as in `enum bpeflow_pattern` of the header.
NATIVE_PATTERNS = {"gpt2": 0, "cl100k": 1, "o200k": 2, "llama3": 3, "qwen2": 4}


def why_regex(pretokenizer: Pretokenizer) -> str | None:
    """Return the reason why only the `regex` module can find the pre-tokens; None if the native scanner can."""
    if pretokenizer.custom:
        return "the pattern is a custom regular expression"
    if os.environ.get(INSTRUCTIONS_VARIABLE) == _REGEX:
        return f"{INSTRUCTIONS_VARIABLE} is {_REGEX}"
    try:
        load_library("count")
    except NativeUnavailableError as error:
        return str(error)
    return None


def native_unicode_version() -> str:
    """Return the Unicode version of the native scanner's tables. Raises `NativeUnavailableError`."""
    version: bytes = load_library("count").bpeflow_unicode_version()
    return version.decode()


def native_instructions() -> tuple[str, ...]:
    """Return the vector instructions available on this processor, best first. Raises `NativeUnavailableError`."""
    names: bytes = load_library("count").bpeflow_instructions()
    return tuple(names.decode().split())


def chosen_instructions() -> str:
    """Return the vector instructions to use: the best, or the choice in `INSTRUCTIONS_VARIABLE`.

    Raises:
        ConfigError: the variable names instructions that this processor does not have.
        NativeUnavailableError: the native library is not available.
    """
    available = native_instructions()
    chosen = os.environ.get(INSTRUCTIONS_VARIABLE) or available[0]
    if chosen == _REGEX:  # which concerns counting only
        return available[0]
    if chosen not in available:
        raise ConfigError(f"{INSTRUCTIONS_VARIABLE}={chosen} is not available; choose from {', '.join(available)}")
    return chosen
