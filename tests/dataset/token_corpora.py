"""A small tokenizer, corpora for it, and a recorder of progress, shared by the tests of token files and evaluation."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.dataset.facade import Tokenizer
from bpeflow.progress import Observer

EOT, PAD = "<|endoftext|>", "<pad>"
MERGES = [(b"h", b"e"), (b"l", b"l"), (b"he", b"ll"), (b"hell", b"o"), (b" ", b"t"), (b"\xc3", b"\xa9"), (b"a", b"a")]

#: A custom pattern that does not match all text.
CUSTOM = r"[a-z]+| ?é|\s+"

PIECES = [b"hello", b" there", b"\r\n", b"\n", b" ", b"h\xc3\xa9", b"123", b"!", b"aaaa", b"\xe4\xb8\xad"]
PIECES += [EOT.encode(), PAD.encode()]

#: Contents of files, in UTF-8.
contents_utf8 = st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)


def make_tokenizer(
    pattern: str = "gpt2",
    encoder: str = "auto",
    special_tokens: tuple[str, ...] = (EOT, PAD),
    unmatched: UnmatchedPolicy = "isolate",
) -> Tokenizer:
    tokens = [*(bytes([byte]) for byte in range(256)), *(left + right for left, right in MERGES)]
    return Tokenizer(dict(enumerate(tokens)), MERGES, special_tokens, pattern, unmatched=unmatched, encoder=encoder)


def write_files(folder: Path, contents: list[bytes]) -> list[Path]:
    paths = [folder / f"{number}.txt" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


class EncodingRecorder(Observer):
    """Records the progress of encoding."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, int | None]] = []

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        self.reports.append((encoded_bytes, total_bytes))
