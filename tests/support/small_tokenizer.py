"""A small tokenizer in a folder, for tests of the commands that need one."""

from __future__ import annotations

from pathlib import Path

from bpeflow.tokenizer.tokenizer import Tokenizer

EOT = "<|endoftext|>"
MERGES = [(b"l", b"o"), (b"lo", b"w"), (b"e", b"s"), (b"es", b"t"), (b"t", b"h"), (b"th", b"e")]


def save_tokenizer(folder: Path, pattern: str = "gpt2", merges: int = len(MERGES)) -> Path:
    """Save a tokenizer with the first merges in a folder, and return the folder."""
    tokens = [*(bytes([byte]) for byte in range(256)), EOT.encode()]
    tokens += [left + right for left, right in MERGES[:merges]]
    Tokenizer(dict(enumerate(tokens)), MERGES[:merges], [EOT], pattern).save(folder, overwrite=True)
    return folder
