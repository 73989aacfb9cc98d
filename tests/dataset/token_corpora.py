"""A small tokenizer, corpora for it, and a recorder of progress, shared by the tests of token files and evaluation."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.config.encoding import EncodeSettings
from bpeflow.dataset.token_file import DtypeName, Layout, load_document_offsets, load_tokens
from bpeflow.dataset.token_set import TokenSet
from bpeflow.progress import Observer
from bpeflow.tokenizer.tokenizer import Tokenizer

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


def token_set(path: Path, layout: Layout = "bin", dtype: DtypeName = "uint16", **options: Any) -> TokenSet:
    return TokenSet(path, layout, dtype, EncodeSettings(input=["x"], **options))


def write_files(folder: Path, contents: list[bytes]) -> list[Path]:
    paths = [folder / f"{number}.txt" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


PATTERNS = ["gpt2", "cl100k", CUSTOM]
TOKENIZERS = {(p, encoder): make_tokenizer(p, encoder) for p in PATTERNS for encoder in ("auto", "python")}


def expected(
    tokenizer: Tokenizer,
    contents: list[bytes],
    separator: str = EOT,
    end_token: str | None = None,
    as_text: bool = False,
    policy: str = "error",
) -> list[list[int]]:
    """Return the ids of each document, including its end token, by the definition. Delimiters must not overlap."""
    end = [
        i for token, i in tokenizer.special_tokens.items() if token == (separator if end_token is None else end_token)
    ]
    documents: list[list[int]] = []
    owes_end = False
    for content in contents:
        *closed, rest = content.split(separator.encode()) if separator else [content]
        for text, is_closed in [*((text, True) for text in closed), *([(rest, False)] if rest else [])]:
            if policy == "skip" and not is_utf8(text):
                continue
            ids = tokenizer.encode(text.decode(errors="replace"), allowed_special=() if as_text else "all")
            if owes_end:
                documents[-1] += end
            documents.append(ids + end * is_closed)
            owes_end = not is_closed
    if owes_end and end_token:
        documents[-1] += end
    return documents


def is_utf8(data: bytes) -> bool:
    return data.decode(errors="ignore").encode() == data


def read_documents(path: Path) -> list[list[int]]:
    tokens, offsets = load_tokens(path), load_document_offsets(path)
    return [tokens[start:end].tolist() for start, end in pairwise(offsets)]


class EncodingRecorder(Observer):
    """Records the progress of encoding."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, int | None]] = []

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        self.reports.append((encoded_bytes, total_bytes))
