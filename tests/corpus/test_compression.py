"""Compression is recognised by the first bytes of a file, and undone in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from collections.abc import Callable, Iterator

import pytest
from corpus_forms import COMPRESSORS, zstd

from bpeflow.corpus import compression
from bpeflow.corpus.compression import MAGIC_BYTES, decompress, detect_compression, without_compression_suffix
from bpeflow.errors import CorpusError, MissingLibraryError

KINDS = pytest.mark.parametrize("suffix", COMPRESSORS)
BLOCKS = pytest.mark.parametrize("block", [1, 13, 1000, 1 << 20])
DATA = random.Random(5).randbytes(3000) + b"some text " * 2_000


def decompress_all(data: bytes, block: int = 1000) -> bytes:
    def blocks() -> Iterator[bytes]:
        for start in range(0, len(data), block):
            yield data[start : start + block]

    kind = detect_compression(data[:MAGIC_BYTES])
    assert kind is not None
    return b"".join(decompress(blocks(), kind, "file"))


@KINDS
@BLOCKS
def test_all_members_are_decompressed(suffix: str, block: int) -> None:
    compress = COMPRESSORS[suffix]
    assert decompress_all(compress(DATA), block) == DATA
    assert decompress_all(compress(DATA) + compress(b"") + compress(b"x") + compress(DATA), block) == DATA + b"x" + DATA
    assert decompress_all(compress(b""), block) == b""


@KINDS
@BLOCKS
@pytest.mark.parametrize("missing", [1, 5, 100])
def test_truncated_data_is_an_error(suffix: str, block: int, missing: int) -> None:
    compress = COMPRESSORS[suffix]
    for data in (compress(DATA), compress(b"first") + compress(DATA)):
        with pytest.raises(CorpusError, match=r"file: the \w+ data ends too early, at byte [\d,]+"):
            decompress_all(data[:-missing], block)


@KINDS
@BLOCKS
@pytest.mark.parametrize("garbage", [b"x", b"some text after the end", bytes(3) + b"x"])
def test_trailing_data_is_an_error(suffix: str, block: int, garbage: bytes) -> None:
    data = COMPRESSORS[suffix](DATA)
    padding = 3 if suffix in ("gz", "xz") and garbage.startswith(b"\0") else 0
    message = f"file: unexpected data at byte {len(data) + padding:,}, after the end of the "
    with pytest.raises(CorpusError, match=message):
        decompress_all(data + garbage, block)


@KINDS
def test_damaged_data_is_an_error(suffix: str) -> None:
    data = bytearray(COMPRESSORS[suffix](DATA))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(CorpusError, match=r"file: (damaged|the \w+ data ends too early)"):
        decompress_all(bytes(data))


@BLOCKS
@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_members_of_gzip_and_xz_may_be_padded_with_zeros(compress: Callable[[bytes], bytes], block: int) -> None:
    assert decompress_all(compress(DATA) + bytes(1024), block) == DATA
    assert decompress_all(compress(b"x") + bytes(1024) + compress(DATA), block) == b"x" + DATA


def test_a_skippable_frame_of_zstandard_is_skipped() -> None:
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00size"
    assert decompress_all(skippable + zstd(DATA) + skippable + zstd(b"x")) == DATA + b"x"


@pytest.mark.slow
@KINDS
def test_a_bomb_is_decompressed_in_small_pieces(suffix: str) -> None:
    data = COMPRESSORS[suffix](bytes(20_000_000))
    kind = detect_compression(data[:MAGIC_BYTES])
    assert kind is not None
    sizes = [len(piece) for piece in decompress(iter([data]), kind, "bomb")]
    assert sum(sizes) == 20_000_000
    assert max(sizes) <= 1 << 20


def test_an_xz_file_that_needs_gigabytes_is_an_error() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 29}]
    data = lzma.compress(DATA, filters=filters)
    with pytest.raises(CorpusError, match=r"damaged xz data .*[Mm]emory"):
        decompress_all(data)


def test_a_zstandard_file_that_needs_gigabytes_is_an_error() -> None:
    with pytest.raises(CorpusError, match=r"damaged zstandard data .*memory"):
        decompress_all(b"\x28\xb5\x2f\xfd\x00\xa0" + bytes(20))  # its window has 1 GB


def test_an_error_of_the_file_is_no_damage() -> None:
    def blocks() -> Iterator[bytes]:
        yield bz2.compress(DATA)[:1000]
        raise OSError("input/output error")

    with pytest.raises(OSError, match="input/output error"):
        list(decompress(blocks(), compression.COMPRESSIONS[1], "file"))


@pytest.mark.parametrize("data", [b"", b"\x1f", b"BZh and more text", b"plain text", "naïve".encode(), b"(\xb5"])
def test_text_is_not_mistaken_for_compressed_data(data: bytes) -> None:
    assert detect_compression(data[:MAGIC_BYTES]) is None


def test_an_empty_bzip2_file_is_detected() -> None:
    assert detect_compression(bz2.compress(b"")[:MAGIC_BYTES]) is not None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.jsonl.gz", "a.jsonl"), ("a.txt", "a.txt"), ("b.parquet.ZST", "b.parquet"), ("gz", "gz"), (".gz", ".gz")],
)
def test_the_suffix_of_a_compression_is_removed(name: str, expected: str) -> None:
    assert without_compression_suffix(name) == expected


def test_the_error_for_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}")

    monkeypatch.setattr("bpeflow._util.machine.import_module", missing)
    with pytest.raises(MissingLibraryError, match=r"need [a-z]+\.zstd: pip install 'bpeflow\[zstd\]'"):
        list(decompress(iter([b"\x28\xb5\x2f\xfd"]), compression.COMPRESSIONS[3], "file.zst"))
