"""What the commands' flags have in common: how their parsers look, and the types of their values."""

from __future__ import annotations

import argparse


def new_parser(prog: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """A parser for the flags of a command."""
    return argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=epilog,
        usage=f"{prog} [options]",
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=100),
        allow_abbrev=False,
    )


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",")]


def numbers(text: str) -> list[int]:
    """Numbers of threads, with commas between them."""
    return [number(name) for name in names(text)]


def size(text: str) -> int:
    """A number of bytes, such as 8mb."""
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise argparse.ArgumentTypeError(f"need a size such as 8mb, found {text!r}") from None


def number(text: str) -> int:
    """A number of threads or rounds."""
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"need a number from 1 to 4096, found {text!r}")
    return int(text)
