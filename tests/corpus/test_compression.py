from __future__ import annotations

import bz2
import gzip
import lzma
import random
from collections.abc import Iterator

import pytest
from corpus_forms import COMPRESSORS

from bpeflow.corpus import compression
from bpeflow.corpus.compression import MAGIC_BYTES, compression_of, decompress, without_compression_suffix
from bpeflow.errors import CorpusError

KINDS = pytest.mark.parametrize("suffix", COMPRESSORS)
BLOCKS = pytest.mark.parametrize("block", [1, 13, 1000, 1 << 20])
DATA = random.Random(5).randbytes(3000) + b"some text " * 20_000


def undo(data: bytes, block: int = 1000) -> bytes:
    def blocks() -> Iterator[bytes]:
        for start in range(0, len(data), block):
            yield data[start : start + block]

    kind = compression_of(data[:MAGIC_BYTES])
    assert kind is not None
    return b"".join(decompress(blocks(), kind, "file"))


@KINDS
@BLOCKS
def test_members_follow_one_another(suffix: str, block: int) -> None:
    compress = COMPRESSORS[suffix]
    assert undo(compress(DATA), block) == DATA
    assert undo(compress(DATA) + compress(b"") + compress(b"x") + compress(DATA), block) == DATA + b"x" + DATA
    assert undo(compress(b""), block) == b""


@KINDS
@BLOCKS
@pytest.mark.parametrize("left", [1, 5, 100])
def test_data_that_is_cut_short_is_an_error(suffix: str, block: int, left: int) -> None:
    compress = COMPRESSORS[suffix]
    for data in (compress(DATA), compress(b"first") + compress(DATA)):
        with pytest.raises(CorpusError, match=r"file: the \w+ data ends too early, at byte [\d,]+"):
            undo(data[:-left], block)


@KINDS
@BLOCKS
@pytest.mark.parametrize("garbage", [b"x", b"some text behind the end", bytes(3) + b"x"])
def test_what_stands_behind_the_data_is_an_error(suffix: str, block: int, garbage: bytes) -> None:
    data = COMPRESSORS[suffix](DATA)
    with pytest.raises(CorpusError, match=f"file: at byte {len(data):,}, behind the .* stands something else"):
        undo(data + garbage, block)


@KINDS
def test_damaged_data_is_an_error(suffix: str) -> None:
    data = bytearray(COMPRESSORS[suffix](DATA))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(CorpusError, match=r"file: (damaged|the \w+ data ends too early)"):
        undo(bytes(data))


def test_zeros_may_stand_behind_gzip_and_xz() -> None:
    for compress in (gzip.compress, lzma.compress):
        assert undo(compress(DATA) + bytes(1024)) == DATA


@pytest.mark.slow
@KINDS
def test_a_bomb_comes_in_small_pieces(suffix: str) -> None:
    data = COMPRESSORS[suffix](bytes(100_000_000))
    kind = compression_of(data[:MAGIC_BYTES])
    assert kind is not None
    sizes = [len(piece) for piece in decompress(iter([data]), kind, "bomb")]
    assert sum(sizes) == 100_000_000
    assert max(sizes) <= 40_000_000
    if suffix != "zst":
        assert max(sizes) <= 1 << 20


def test_an_xz_file_that_wants_gigabytes_is_an_error() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 29}]
    data = lzma.compress(DATA, filters=filters)
    with pytest.raises(CorpusError, match=r"damaged xz data .*[Mm]emory"):
        undo(data)


@pytest.mark.parametrize("data", [b"", b"\x1f", b"BZh and more text", b"plain text", "naïve".encode(), b"(\xb5"])
def test_text_is_not_taken_for_compressed(data: bytes) -> None:
    assert compression_of(data[:MAGIC_BYTES]) is None


def test_an_empty_bzip2_file_is_known() -> None:
    assert compression_of(bz2.compress(b"")[:MAGIC_BYTES]) is not None


@pytest.mark.parametrize(
    ("name", "shorter"),
    [("a.jsonl.gz", "a.jsonl"), ("a.txt", "a.txt"), ("b.parquet.ZST", "b.parquet"), ("gz", "gz"), (".gz", ".gz")],
)
def test_the_ending_of_a_compression_is_taken_off(name: str, shorter: str) -> None:
    assert without_compression_suffix(name) == shorter


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> None:
        raise ImportError(f"No module named {module!r}")

    monkeypatch.setattr("bpeflow.corpus.extras.import_module", missing)
    with pytest.raises(CorpusError, match=r"need zstandard: pip install 'bpeflow\[zstd\]'"):
        list(decompress(iter([b"\x28\xb5\x2f\xfd"]), compression.COMPRESSIONS[3], "file.zst"))
