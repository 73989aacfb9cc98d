"""Encoding a corpus uses bounded memory, because the number of chunks in flight is bounded."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from available import skip_missing
from token_corpora import CUSTOM, EOT, make_tokenizer, write_files

from bpeflow.corpus.chunk import Chunk
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.documents import ChunkBuffer
from bpeflow.dataset import encode
from bpeflow.dataset.chunk_encoder import CHUNKS_PER_THREAD, ChunkEncoder, EncodedChunk, NumberedChunk
from bpeflow.dataset.encode import encode_file


@pytest.mark.threads
def test_the_number_of_chunks_in_flight_is_bounded(tmp_path: Path) -> None:
    [path] = write_files(tmp_path, [b"hello"])
    taken = 0

    def chunks() -> Iterator[NumberedChunk]:
        nonlocal taken
        for number in range(50):
            taken += 1
            yield NumberedChunk(number, Chunk(str(path), 0, 5, True))

    encoder = ChunkEncoder(make_tokenizer(), Delimiters(EOT), None, "error", threads=3)
    for done, encoded in enumerate(encoder(chunks())):
        assert encoded.number == done
        assert taken - done <= 3 * CHUNKS_PER_THREAD
    assert taken == 50


@pytest.mark.threads
def test_a_failure_in_a_thread_ends_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [path] = write_files(tmp_path, [b"hello"])
    encode_chunk = ChunkEncoder.encode

    def fail_on_the_fourth(self: ChunkEncoder, chunk: NumberedChunk, buffer: ChunkBuffer) -> EncodedChunk:
        if chunk.number == 3:
            raise MemoryError
        return encode_chunk(self, chunk, buffer)

    monkeypatch.setattr(ChunkEncoder, "encode", fail_on_the_fourth)
    encoder = ChunkEncoder(make_tokenizer(), Delimiters(EOT), None, "error", threads=2)
    before = threading.active_count()
    chunks = (NumberedChunk(number, Chunk(str(path), 0, 5, True)) for number in range(50))
    results = encoder(chunks)
    assert [next(results).number for _ in range(3)] == [0, 1, 2]
    with pytest.raises(MemoryError):
        next(results)
    assert threading.active_count() == before
    assert next(chunks).chunk  # some chunks are left


@pytest.mark.threads
def test_threads_start_no_chunk_after_the_results_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [path] = write_files(tmp_path, [b"hello"])
    encode_chunk = ChunkEncoder.encode
    started: list[int] = []
    may_continue = threading.Event()

    def wait_from_the_second_chunk_on(self: ChunkEncoder, chunk: NumberedChunk, buffer: ChunkBuffer) -> EncodedChunk:
        started.append(chunk.number)
        if chunk.number > 0:
            may_continue.wait(10)
        return encode_chunk(self, chunk, buffer)

    monkeypatch.setattr(ChunkEncoder, "encode", wait_from_the_second_chunk_on)
    encoder = ChunkEncoder(make_tokenizer(), Delimiters(EOT), None, "error", threads=2)
    results = encoder(NumberedChunk(number, Chunk(str(path), 0, 5, True)) for number in range(50))
    assert next(results).number == 0
    while len(started) < 3:
        time.sleep(0.01)
    threading.Timer(0.2, may_continue.set).start()
    results.close()  # type: ignore[attr-defined]
    assert sorted(started) == [0, 1, 2]


def test_a_slow_process_holds_the_others_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A custom pattern never cuts a document, so the first chunk is long. A bounded number of others wait for it."""
    monkeypatch.setattr(encode, "SMALL_INPUT", 0)
    [path] = write_files(tmp_path, [b"hello there " * 300_000 + EOT.encode() + (b"hello" + EOT.encode()) * 1000])
    arrived: list[int] = []
    in_order = encode._in_order

    def spy(chunks: Iterable[EncodedChunk]) -> Iterator[EncodedChunk]:
        return in_order(arrived.append(chunk.number) or chunk for chunk in chunks)  # type: ignore[func-returns-value]

    monkeypatch.setattr(encode, "_in_order", spy)
    encode_file(make_tokenizer(CUSTOM), path, tmp_path / "train.bin", threads=2, chunk_size=1)
    assert len(arrived) == 1001
    assert 0 < arrived.index(0) <= 2 * 3


_MEASURE = """
import sys
from bpeflow.flow import peak_memory
from bpeflow.dataset.facade import Tokenizer
from bpeflow.dataset.decode import decode_file
from bpeflow.dataset.encode import encode_file
small, large, out, text = sys.argv[1:]
tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
def both(source):
    encode_file(tokenizer, source, out, index=True, threads=2, chunk_size=1_000_000)
    decode_file(tokenizer, out, text)
    return peak_memory()
before = both(small)
print(both(large) - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    skip_missing(
        "encode",
        None
        if tokenizer.encoder == "native"
        else "the native encoder is not available, and the Python encoder is too slow",
    )
    small, large = write_files(tmp_path, [b"hello there, world\n" * 500_000, b"hello there, world\n" * 5_000_000])
    files = [small, large, tmp_path / "train.bin", tmp_path / "text.txt"]
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, *map(str, files)], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) < 20_000_000
    assert (tmp_path / "text.txt").stat().st_size == large.stat().st_size
