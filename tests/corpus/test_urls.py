"""URLs of a server in this process and of fsspec's memory. No network is needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from corpus_forms import COMPRESSORS, SEPARATOR, jsonl_bytes, pieces, text_bytes, write

import bpeflow
from bpeflow.errors import ConfigError, CorpusError

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed (extra fsspec)")

DOCUMENTS = [f"document number {number}, and it's é {'long ' * (number % 50)}" for number in range(300)]
IN_PROCESSES = {"executor": "processes", "num_counter": 2, "chunk_size": 2000}


def count(paths: object, **options: object) -> bpeflow.PretokenCounts:
    return bpeflow.count(paths, special_tokens=[SEPARATOR], **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def expected() -> bpeflow.PretokenCounts:
    return count(iter(DOCUMENTS))


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed (extra fsspec)")
    (tmp_path / "www").mkdir()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(tmp_path / "www")))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()
        httpd.server_close()


@pytest.mark.parametrize("form", ["txt", "txt.gz", "txt.zst", "jsonl", "jsonl.xz", "parquet"])
def test_a_file_on_a_server_is_counted(
    tmp_path: Path, server: str, expected: bpeflow.PretokenCounts, form: str
) -> None:
    write(tmp_path / "www" / f"corpus.{form}", DOCUMENTS)
    assert count(f"{server}/corpus.{form}", chunk_size=5000) == expected


@pytest.mark.slow
def test_files_on_a_server_are_counted_in_processes(
    tmp_path: Path, server: str, expected: bpeflow.PretokenCounts
) -> None:
    for form, part in zip(("txt", "jsonl.xz", "parquet"), pieces(DOCUMENTS, 3), strict=True):
        write(tmp_path / "www" / f"corpus.{form}", part)
    urls = [f"{server}/corpus.{form}" for form in ("txt", "jsonl.xz", "parquet")]
    assert count(urls, **IN_PROCESSES) == expected


def test_a_file_missing_on_the_server_is_an_error(server: str) -> None:
    with pytest.raises(CorpusError, match=r"http://127.*missing\.txt does not exist"):
        count(f"{server}/missing.txt")


def test_an_unreachable_server_is_an_error(server: str) -> None:
    with pytest.raises(CorpusError, match=r"http://127\.0\.0\.1:9/corpus\.txt does not exist \(.*connect"):
        count("http://127.0.0.1:9/corpus.txt")


@pytest.fixture
def memory() -> Iterator[str]:
    """Put files into fsspec's memory, which only this process can read."""
    system = fsspec.filesystem("memory")
    parts = list(pieces(DOCUMENTS, 4))
    system.pipe("/lab/a.txt", text_bytes(parts[0]))
    system.pipe("/lab/b.jsonl", jsonl_bytes(parts[1]))
    system.pipe("/lab/deep/c.txt.gz", COMPRESSORS["gz"](text_bytes(parts[2])))
    system.pipe("/lab/deep/d.jsonl.bz2", COMPRESSORS["bz2"](jsonl_bytes(parts[3])))
    system.pipe("/lab/.hidden", b"not to be counted")
    try:
        yield "memory://lab"
    finally:
        system.rm("/lab", recursive=True)


def test_folders_and_globs_are_expanded(memory: str, expected: bpeflow.PretokenCounts) -> None:
    assert count(memory) == expected
    assert count([f"{memory}/*.txt", f"{memory}/b.jsonl", f"{memory}/deep/*"]) == expected
    assert count(f"{memory}/**", executor="processes") == expected
    assert count(memory, exclude=["*/deep/*", "*.jsonl"]) == count(iter(DOCUMENTS[:75]))


def test_progress_has_the_size_of_files_in_memory(memory: str) -> None:
    calls: list[tuple[int, int | None]] = []

    class Recorder(bpeflow.Observer):
        def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
            calls.append((counted_bytes, total_bytes))

    count(memory, observer=Recorder())
    size = sum(file["size"] for file in fsspec.filesystem("memory").find("/lab", detail=True).values())
    size -= len(b"not to be counted")
    assert calls[0] == (0, size)
    assert calls[-1] == (size, size)


def test_a_source_of_urls_is_sampled(memory: str) -> None:
    counts = count([{"name": "lab", "path": memory, "max_bytes": 5000}])
    assert 2500 < counts.total_bytes <= 5000


def test_urls_without_files_are_errors(memory: str) -> None:
    with pytest.raises(CorpusError, match="memory://nowhere does not exist"):
        count("memory://nowhere")
    with pytest.raises(CorpusError, match="contains or matches no files"):
        count(f"{memory}/*.parquet")
    with pytest.raises(CorpusError, match="excluded"):
        count(memory, exclude=["*"])


def test_an_unknown_protocol_is_an_error() -> None:
    with pytest.raises((CorpusError, ConfigError), match="cannot read nonsense://x"):
        count("nonsense://x")
