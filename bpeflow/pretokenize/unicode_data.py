"""Which version of Unicode the installed `regex` module knows: ``\\p{L}`` and its kin change with it."""

from __future__ import annotations

from functools import cache

# One character that each version of Unicode was the first to assign, newest version first.
_FIRST_ASSIGNED = (
    ("18.0.0", "\U0003d000"),  # Seal
    ("17.0.0", "\U00011db0"),  # Tolong Siki
    ("16.0.0", "\U000105c0"),  # Todhri
    ("15.1.0", "\U0002ebf0"),  # CJK unified ideographs extension I
)


@cache
def unicode_version() -> str:
    """The Unicode version of the `regex` module, such as ``"17.0.0"``.

    The module has no attribute that says it, so this looks which characters it takes for assigned. A module newer than
    the table above is reported as the table's newest version (a test compares it with the module's own release notes
    and fails when a row is missing), one older than the table as ``"15.0.0 or older"``.
    """
    import regex

    for version, character in _FIRST_ASSIGNED:
        if regex.match(r"\P{Cn}", character):
            return version
    return "15.0.0 or older"
