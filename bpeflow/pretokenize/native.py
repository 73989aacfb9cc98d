"""The native scanner: patterns in native memory, the vector instructions that it uses, and whether it is available."""

from __future__ import annotations

import os
from typing import Literal

from bpeflow._util.native import Handle, load_library
from bpeflow.errors import ConfigError, NativeUnavailableError
from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.pretokenize.tables import UnsupportedPattern, new_compiled_pattern

Scanner = Literal["native", "regex"]

#: The environment variable that makes native code use other vector instructions than the best that the processor has.
#: With "regex" the `regex` module finds the pre-tokens of counting instead.
INSTRUCTIONS_VARIABLE = "BPEFLOW_INSTRUCTIONS"
_REGEX = "regex"

#: The numbers of the named patterns, as in `enum bpeflow_named_pattern` of the header.
NATIVE_PATTERNS = {"gpt2": 0, "cl100k": 1, "o200k": 2, "llama3": 3, "qwen2": 4}


def why_not_compiled(pretokenizer: Pretokenizer) -> str | None:
    """Return the construct for which a custom pattern needs the `regex` module; None if it can be compiled."""
    if not pretokenizer.custom:
        return None
    try:
        pretokenizer.tables()
    except UnsupportedPattern as error:
        return str(error)
    return None


def new_pattern(library: str, pretokenizer: Pretokenizer) -> Handle | None:
    """Return a pattern for the functions of a library; None for a custom one that cannot be compiled."""
    loaded = load_library(library)
    if not pretokenizer.custom:
        return Handle(loaded, "pattern", NATIVE_PATTERNS[pretokenizer.name], create="named")
    try:
        return new_compiled_pattern(library, pretokenizer.tables(), pretokenizer.unmatched)
    except UnsupportedPattern:
        return None


def why_regex(pretokenizer: Pretokenizer) -> str | None:
    """Return the reason why only the `regex` module can find the pre-tokens; None if the native scanner can."""
    if os.environ.get(INSTRUCTIONS_VARIABLE) == _REGEX:
        return f"{INSTRUCTIONS_VARIABLE} is {_REGEX}"
    try:
        load_library("count")
    except NativeUnavailableError as error:
        return str(error)
    reason = why_not_compiled(pretokenizer)
    return reason and f"the pattern cannot be compiled: {reason}"


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
