"""The commands, and what is answered without loading any of them: their list and the version."""

from __future__ import annotations

from collections.abc import Sequence

from bpeflow import __version__

#: Each command has a module with `make_parser` and `run`, imported when the command is called.
GROUPS = {
    "Train": {
        "train": "train a tokenizer from a corpus (the default command)",
        "merge": "learn merges again from saved counts",
        "compare": "compare merge backends on saved counts",
        "counts": "convert counts to JSON or TSV, and back",
    },
    "Use tokenizers": {
        "encode": "encode a corpus to a token file",
        "decode": "decode a token file to text",
        "evaluate": "compare tokenizers on corpora",
        "report": "write a page about a run, or about several",
        "convert": "write a tokenizer in another format",
    },
    "Look at tokenizers": {
        "show": "show the tokens of a text, and the merges that made them",
        "inspect": "describe a vocabulary, and how it fits a corpus",
        "diff": "compare two vocabularies",
    },
    "Look up": {
        "config": "print every setting with its description and default",
        "backends": "list the merge backends, and why any is unavailable",
        "completion": "print a completion script for bash, zsh or fish",
        "help": "describe a command and its flags",
    },
}

#: All commands with a module of their own, in the order in which they are listed.
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items() if name != "help"}

_HEAD = """\
Train byte-level BPE tokenizers from corpora of any size, and encode with them.

usage: bpeflow COMMAND [flags]
"""
_TAIL = """\
Examples
  bpeflow train --input 'corpus/*.txt' --vocab_size 32k --out_dir runs/mine
  bpeflow encode --tokenizer runs/mine --input 'corpus/*.txt' --out train.bin

`bpeflow help COMMAND` describes a command and its flags; --version prints the
version, with --verbose also how it was built."""


def answer(argv: Sequence[str]) -> int | None:
    """Print the list of commands or the version if that is all that is asked for, and return the exit status."""
    if not argv or list(argv) in (["-h"], ["--help"], ["help"], ["help", "help"], ["help", "--help"], ["help", "-h"]):
        print(list_commands(), flush=True)  # noqa: T201
        return 0 if argv else 2
    if list(argv) in (["-V"], ["--version"]):
        print(f"bpeflow {__version__}", flush=True)  # noqa: T201
        return 0
    return None


def list_commands() -> str:
    """Return a page with one line per command."""
    lines = [_HEAD]
    for title, commands in GROUPS.items():
        lines += [title, *(f"  {name:<12}{summary}" for name, summary in commands.items()), ""]
    return "\n".join([*lines, _TAIL])
