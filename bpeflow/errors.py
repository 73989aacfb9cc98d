"""All exceptions that bpeflow raises on purpose, and which of others mean that memory ran out.

They derive from `BpeflowError`, except `FlowError` and `WorkerDiedError`: these belong to the flow framework, which
does not depend on the rest of bpeflow, and are only re-exported here. Each also derives from the built-in exception for
the same thing: `ValueError` (settings, files and text with wrong content), `TypeError` (arguments), `OSError`,
`OverflowError`, `ImportError`, `MemoryError`, or else `RuntimeError`. Those that are an `OSError` have no `errno`: code
that catches errors of the operating system to explain them lets these pass.

Each exception takes a single message, so that it can be pickled and sent between processes. The message says what went
wrong, where, and what to do about it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from bpeflow.flow.errors import FlowError, WorkerDiedError

__all__ = [
    "AlreadyExistsError",
    "BackendUnavailableError",
    "BackendsDifferError",
    "BadRecordError",
    "BpeflowError",
    "ConfigError",
    "ConfigNotFoundError",
    "CorpusError",
    "CorpusNotFoundError",
    "CountOverflowError",
    "EngineError",
    "EngineUnavailableError",
    "FlowError",
    "FolderInUseError",
    "FormatError",
    "InputTypeError",
    "InvalidTextError",
    "InvalidUtf8Error",
    "MissingLibraryError",
    "NativeError",
    "NativeMemoryError",
    "NativeUnavailableError",
    "OutOfMemoryError",
    "OutputError",
    "PatternError",
    "PatternTimeoutError",
    "ResumeError",
    "ScratchError",
    "SettingsError",
    "SpecialTokenError",
    "TaskLostError",
    "TokenFileNotFoundError",
    "TokenizerNotFoundError",
    "UnknownSettingError",
    "UnknownTokenError",
    "UnmatchedTextError",
    "WorkerDiedError",
]


class BpeflowError(Exception):
    """Base class of bpeflow's own exceptions."""


class ConfigError(BpeflowError, ValueError):
    """A missing, unknown or out-of-range setting. Raised before any work is done."""


class ConfigNotFoundError(ConfigError, FileNotFoundError):
    """A config file that does not exist."""


class SettingsError(ConfigError):
    """Invalid settings, each on a line of the message."""


class UnknownSettingError(SettingsError, TypeError):
    """An unknown setting, such as a misspelled keyword argument, with the nearest known one."""


class PatternError(ConfigError):
    """A pre-token pattern that is neither a known name nor a valid regular expression."""


class PatternTimeoutError(BpeflowError, ValueError):
    """Text on which a pattern takes too long in the `regex` module. Either may come from an untrusted file."""


class AlreadyExistsError(ConfigError, FileExistsError):
    """A finished run, another tokenizer or a token file is in the way, and `overwrite` was not given."""


class ResumeError(ConfigError):
    """An interrupted run that cannot be resumed as requested, with what has changed and what the options are."""


class FolderInUseError(BpeflowError, OSError):
    """A run folder, or token files, that another process is using."""


class CorpusError(BpeflowError, ValueError):
    """An input file that is missing or unreadable, or that changed while it was read."""


class CorpusNotFoundError(CorpusError, FileNotFoundError):
    """An input file or folder that does not exist."""


class InvalidUtf8Error(CorpusError):
    """Input that is not UTF-8, with its file and byte offset. Raised under ``invalid_utf8="error"``."""


class BadRecordError(CorpusError):
    """A line that is not a JSON object, or a record without text. Raised under ``bad_records="error"``."""


class CountOverflowError(BpeflowError, OverflowError):
    """A count, or a sum of counts, that does not fit 64 bits."""


class ScratchError(BpeflowError, OSError):
    """Counts that cannot be written to the scratch folder or read back, usually because the disk is full."""


class FormatError(BpeflowError, ValueError):
    """A file that violates its format, or content that a format cannot represent."""


class TokenFileNotFoundError(FormatError, FileNotFoundError):
    """A token file that does not exist."""


class TokenizerNotFoundError(FormatError, FileNotFoundError):
    """A tokenizer that is missing: no such file or folder, no tokenizer in the folder, or none of this name."""


class InputTypeError(BpeflowError, TypeError):
    """An argument of the wrong type, such as bytes instead of text."""


class InvalidTextError(BpeflowError, ValueError):
    """A `str` that cannot be encoded as UTF-8 (one with a lone surrogate, for example), or bytes that are not UTF-8."""


class UnmatchedTextError(InvalidTextError):
    """Text that the split pattern does not match, with its position. Raised under ``unmatched="error"``."""


class SpecialTokenError(BpeflowError, ValueError):
    """A special token in a text where the call does not allow it, or a name that is not a special token."""


class UnknownTokenError(BpeflowError, ValueError):
    """An id that is not in the vocabulary, with its position."""


class BackendUnavailableError(BpeflowError, RuntimeError):
    """A backend that was requested by name but is not available, with the reason and the remedy."""


class EngineError(BpeflowError, RuntimeError):
    """A cluster that is not there or not fit for the work, or a failure of one of its nodes, with the remedy."""


class EngineUnavailableError(EngineError, ImportError):
    """An engine whose library is not installed or too old, with the remedy."""


class TaskLostError(EngineError):
    """A task whose worker or node died, or was killed because memory ran out."""


class BackendsDifferError(BpeflowError, RuntimeError):
    """Backends that learned different merges from the same counts: a bug, which `bpeflow compare` looks for."""


class MissingLibraryError(BpeflowError, ImportError):
    """An optional library that is needed but not installed, with the command that installs it."""


class NativeUnavailableError(BpeflowError, RuntimeError):
    """A native library that is missing or incompatible, with the reason and the remedy."""


class NativeError(BpeflowError, RuntimeError):
    """A failure of native code: out of memory, or an input beyond its documented limits."""


class NativeMemoryError(NativeError, MemoryError):
    """A failed memory allocation in native code."""


class OutputError(BpeflowError, RuntimeError):  # no OSError: argparse ignores those when it prints help
    """Standard output that was closed by its reader, or that cannot be written to."""


class OutOfMemoryError(BpeflowError, MemoryError):
    """Insufficient memory. The message says what the memory was needed for and what helps."""


@contextmanager
def explain_memory_error(what: str, remedy: str) -> Iterator[None]:
    """Turn out-of-memory errors in the block, or in workers that it waits for, into `OutOfMemoryError`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OutOfMemoryError) or not is_memory_error(error):
            raise
        raise OutOfMemoryError(f"{what}: {out_of_memory(error)}: {remedy}") from error


def is_memory_error(error: BaseException) -> bool:
    """Return whether an exception means that memory ran out, in any of the forms that this takes in Python."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and str(error).startswith("can't start new thread")
    )


def out_of_memory(error: BaseException) -> str:
    """Return ``"out of memory"``, with the message of `error` if it has one."""
    return f"out of memory ({error})" if str(error) else "out of memory"
