"""Encoding a corpus uses bounded memory, because the number of chunks in flight is bounded."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from available import skip_missing
from token_corpora import CUSTOM, EOT, make_tokenizer, write_files

from bpeflow.corpus.documents import Chunk
from bpeflow.corpus.open_chunk import ChunkBuffer
from bpeflow.dataset import corpus_encoder
from bpeflow.dataset.corpus_encoder import ChunkEncoder, EncodedChunk
from bpeflow.dataset.encode import encode_file
from bpeflow.errors import OutOfMemoryError
from bpeflow.flow import in_order
from bpeflow.tokenizer.tokenizer import Tokenizer

Numbered = tuple[int, EncodedChunk]


@pytest.mark.threads
def test_a_failure_in_a_thread_ends_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [path] = write_files(tmp_path, [b"hello " * 50])
    encode_chunk = ChunkEncoder.encode
    started: list[Chunk] = []

    def fail_on_the_fourth(self: ChunkEncoder, chunk: Chunk, buffer: ChunkBuffer) -> EncodedChunk:
        started.append(chunk)
        if len(started) == 4:
            raise MemoryError
        return encode_chunk(self, chunk, buffer)

    monkeypatch.setattr(ChunkEncoder, "encode", fail_on_the_fourth)
    before = threading.active_count()
    with pytest.raises(OutOfMemoryError, match="encoding"):
        encode_file(make_tokenizer(), path, tmp_path / "train.bin", num_threads=2, chunk_size=1)
    assert threading.active_count() == before
    assert len(started) < 50
    assert not (tmp_path / "train.bin").exists()


@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM], ids=["threads", "processes"])
def test_a_slow_encoder_holds_the_others_back(pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first chunk takes long (a single word is never cut). A bounded number of others wait for it."""
    monkeypatch.setattr(corpus_encoder, "_CHUNKS_PER_WORKER", 2)
    monkeypatch.setattr(corpus_encoder, "SMALL_INPUT", 0)
    encode_chunk = ChunkEncoder.encode

    def slow_at_first(self: ChunkEncoder, chunk: Chunk, buffer: ChunkBuffer) -> EncodedChunk:
        if chunk.offset == 0:
            assert another_arrived.wait(20)
        return encode_chunk(self, chunk, buffer)

    monkeypatch.setattr(ChunkEncoder, "encode", slow_at_first)  # in threads; processes have the long document
    first = b"hello" * (120_000 if pattern == CUSTOM else 12)
    [path] = write_files(tmp_path, [first + EOT.encode() + (b"hello" * 12 + EOT.encode()) * 200])
    arrived: list[int] = []
    another_arrived = threading.Event()

    def note(number: int) -> None:
        arrived.append(number)
        another_arrived.set()

    def spy(chunks: Iterable[Numbered], number: Callable[[Numbered], int]) -> Iterator[Numbered]:
        return in_order((note(number(chunk)) or chunk for chunk in chunks), number)  # type: ignore[func-returns-value]

    monkeypatch.setattr(corpus_encoder, "in_order", spy)
    encode_file(make_tokenizer(pattern), path, tmp_path / "train.bin", num_threads=2, chunk_size=70)  # one document
    assert len(arrived) > 200
    assert 0 < arrived.index(0) <= 2 * 3


_MEASURE = """
import sys
from bpeflow.flow import peak_memory
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.dataset.decode import decode_file
from bpeflow.dataset.encode import encode_file
from bpeflow.errors import OutOfMemoryError
from bpeflow.flow import in_order
from bpeflow.tokenizer.tokenizer import Tokenizer
small, large, out, text, options = sys.argv[1:]
tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
def both(source):
    encode_file(tokenizer, source, out, num_threads=2, chunk_size=100_000, overwrite=True, **eval(options))
    decode_file(tokenizer, out, text)
    return peak_memory()
before = both(small)
print(both(large) - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"index": True}, {"shard_tokens": 30_000_000, "format": "megatron"}])
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, options: dict[str, Any]) -> None:
    # Small chunks: how many of them wait for an earlier one depends on how the machine schedules.
    tokenizer = make_tokenizer()
    skip_missing(
        "encode",
        None
        if tokenizer.encoder == "native"
        else "the native encoder is not available, and the Python encoder is too slow",
    )
    small, large = write_files(tmp_path, [b"hello there, world\n" * 500_000, b"hello there, world\n" * 2_500_000])
    files = [small, large, tmp_path / "train.bin", tmp_path / "text.txt"]
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, *map(str, files), repr(options)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert int(done.stdout) < 20_000_000
    assert (tmp_path / "text.txt").stat().st_size == large.stat().st_size


@pytest.mark.parametrize(
    ("options", "warned"),
    [({"separator": ""}, True), ({"separator": "", "end_token": ""}, False), ({"separator": "", "index": True}, False),
     ({"separator": "", "end_token": "<|endoftext|>"}, False), ({}, False)],
)  # fmt: skip
def test_documents_that_cannot_be_told_apart_are_reported(
    options: dict[str, Any], warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [json.dumps({"text": text}) for text in ("ab", "c")]
    (tmp_path / "a.jsonl").write_text("\n".join(texts), encoding="utf-8")
    tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|endoftext|>"])
    encode_file(tokenizer, tmp_path / "a.jsonl", tmp_path / "train.bin", **options)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert (
        any("nothing separates its 2 documents; give end_token, or add an index" in message for message in said)
        == warned
    )
