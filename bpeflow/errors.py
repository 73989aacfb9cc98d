"""Every exception that users of bpeflow can meet.

All are subclasses of `BpeflowError`, except those of the flow framework, which stands on its own and is only
re-exported here (`FlowError`, `WorkerDiedError`). Each takes one message, so that it survives the pickling between
processes; the message says what went wrong, where, and what to do about it.
"""

from __future__ import annotations

from bpeflow.flow.errors import FlowError, WorkerDiedError

__all__ = [
    "BackendUnavailableError",
    "BackendsDifferError",
    "BpeflowError",
    "ConfigError",
    "CorpusError",
    "CountOverflowError",
    "FlowError",
    "FolderInUseError",
    "FormatError",
    "InputTypeError",
    "InvalidTextError",
    "InvalidUtf8Error",
    "NativeError",
    "NativeMemoryError",
    "NativeUnavailableError",
    "OutOfMemoryError",
    "PatternError",
    "ResumeError",
    "ScratchError",
    "SpecialTokenError",
    "UnknownTokenError",
    "WorkerDiedError",
]


class BpeflowError(Exception):
    """Base of bpeflow's own errors."""


class ConfigError(BpeflowError):
    """A setting that is missing, unknown or out of range. Raised before any work is done."""


class PatternError(ConfigError):
    """A pre-token pattern that is neither a known name nor a valid regular expression."""


class ResumeError(ConfigError):
    """An unfinished run that cannot be gone on with as asked, with what has changed and the ways out."""


class FolderInUseError(BpeflowError):
    """A run folder in which another run is at work."""


class CorpusError(BpeflowError):
    """An input file that is missing, unreadable or changed while it was read."""


class InvalidUtf8Error(CorpusError):
    """Input that is not UTF-8, with the file and the byte offset, under ``invalid_utf8: error``."""


class CountOverflowError(BpeflowError):
    """A count, or a sum of counts, that does not fit 64 bits."""


class ScratchError(BpeflowError):
    """Counts that cannot be written to the scratch folder, or read again from there: a full disk, as a rule."""


class FormatError(BpeflowError):
    """A file that is not what its format says, or content that a format cannot hold."""


class InputTypeError(BpeflowError, TypeError):
    """An argument of a wrong type, such as bytes where text belongs."""


class InvalidTextError(BpeflowError, ValueError):
    """Text that has no UTF-8 form, such as a `str` with a lone surrogate, or bytes that are not UTF-8."""


class SpecialTokenError(BpeflowError, ValueError):
    """A special token in a text that the call refuses, or a name that is no special token."""


class UnknownTokenError(BpeflowError, ValueError):
    """An id that is not in the vocabulary, with its place."""


class BackendUnavailableError(BpeflowError):
    """A merge backend that was asked for by name and is not there, with the reason and the remedy."""


class BackendsDifferError(BpeflowError):
    """Backends that learned different merges from the same counts: a defect, which `compare` looks for."""


class NativeUnavailableError(BpeflowError):
    """A native library that is not there or does not fit, with the reason and the remedy."""


class NativeError(BpeflowError):
    """Native code that failed: out of memory, or an input beyond its documented limits."""


class NativeMemoryError(NativeError, MemoryError):
    """Native code that got no memory."""


class OutOfMemoryError(BpeflowError, MemoryError):
    """MemoryBudget that was not enough, with what it was for and what helps."""
