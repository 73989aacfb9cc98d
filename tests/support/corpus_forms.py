"""The same documents in every file format and compression that a corpus can have."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from bpeflow.corpus.compression import ZSTD_MODULE

SEPARATOR = "<|endoftext|>"


def zstd(data: bytes) -> bytes:
    zstd = pytest.importorskip(ZSTD_MODULE, reason="zstd is not installed (extra zstd)")
    compressed: bytes = zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})
    return compressed


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gz": partial(gzip.compress, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}


def text_bytes(documents: Sequence[str]) -> bytes:
    return "".join(document + SEPARATOR for document in documents).encode()


def jsonl_bytes(documents: Sequence[str]) -> bytes:
    return "".join(
        json.dumps({"id": number, "text": document}, ensure_ascii=number % 2 == 0) + "\n"
        for number, document in enumerate(documents)
    ).encode()


def write_parquet(path: Path, documents: Sequence[str], row_group_size: int = 100) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra parquet)")
    from pyarrow import parquet

    table = pyarrow.table({"id": pyarrow.array(range(len(documents))), "text": pyarrow.array(documents, "string")})
    parquet.write_table(table, path, row_group_size=row_group_size)


FORMS = ["txt", "jsonl", "parquet", *(f"{form}.{suffix}" for form in ("txt", "jsonl") for suffix in COMPRESSORS)]


def write(path: Path, documents: Sequence[str]) -> Path:
    """Write documents in the format and compression that the extensions of the file name ask for."""
    form, *compressed = path.name.split(".")[1:]
    if form == "parquet":
        write_parquet(path, documents)
        return path
    data = text_bytes(documents) if form == "txt" else jsonl_bytes(documents)
    for suffix in compressed:
        data = COMPRESSORS[suffix](data)
    path.write_bytes(data)
    return path


def pieces(items: Sequence[str], parts: int) -> Iterator[Sequence[str]]:
    """Divide the items into this many consecutive parts."""
    for part in range(parts):
        yield items[len(items) * part // parts : len(items) * (part + 1) // parts]
