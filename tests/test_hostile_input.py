"""Input that could exhaust memory: a correct result or a clear error, in bounded memory."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from corpus_forms import SEPARATOR

from bpeflow.corpus.compression import ZSTD_MODULE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is limited and measured in the Linux way"),
]

#: A script that counts a corpus with a limit on its data memory (its own pages, not those of libraries), set after its
#: imports, and prints the result or the error.
COUNT = """
import json, resource, sys
import bpeflow
from bpeflow.config import CountSettings, make_settings
from bpeflow.counting.count import CorpusCounter
from bpeflow.errors import BpeflowError
values, limit = json.loads(sys.argv[1])
settings = make_settings(CountSettings, {"memory_limit": "16mb", "num_counter": 2, **values})
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    counted = CorpusCounter(settings).count()
    print(counted.documents.documents, counted.counts.total, len(counted.counts))
except BpeflowError as error:
    print(type(error).__name__, error)
"""

#: The memory limit of the process, in bytes: its imports and arenas (about 100 MB, most of which threads only reserve),
#: tables of 16 MB, and the memory of chunks and decompressors.
LIMIT = 300_000_000


def count(path: Path, limit: int = LIMIT, **settings: Any) -> str:
    import json

    arguments = json.dumps([{"input": str(path), **settings}, limit])
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(
        [sys.executable, "-c", COUNT, arguments], capture_output=True, text=True, timeout=200, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def write_gzip(path: Path, blocks: Iterable[bytes]) -> Path:
    compress = zlib.compressobj(1, wbits=31)
    with path.open("wb") as file:
        for block in blocks:
            file.write(compress.compress(block))
        file.write(compress.flush())
    return path


def write_zstd(path: Path, blocks: Iterable[bytes]) -> Path:
    zstd = pytest.importorskip(ZSTD_MODULE, reason="zstd is not installed (extra zstd)")
    with zstd.open(path, "wb") as file:
        for block in blocks:
            file.write(block)
    return path


@pytest.mark.parametrize("write", [write_gzip, write_zstd])
def test_a_decompression_bomb_of_text_is_counted_in_bounded_memory(tmp_path: Path, write: Any) -> None:
    path = write(tmp_path / "bomb", [b"some words again 1234\n" * 50_000] * 300)  # 330 MB
    assert path.stat().st_size < 4_000_000
    assert count(path) == f"1 {5 * 50_000 * 300} 5"


@pytest.mark.parametrize("write", [write_gzip, write_zstd])
def test_a_decompression_bomb_that_cannot_be_divided_is_an_error(tmp_path: Path, write: Any) -> None:
    path = write(tmp_path / "bomb", [b"0" * 1_000_000] * 350)  # 350 MB
    assert "bomb (decompressed): " in (error := count(path)) and "cannot be divided" in error
    assert "A memory_limit for training" in error


@pytest.mark.parametrize("pattern", ["gpt2", r"\S+|\s+"])
def test_a_line_of_4_gb_is_soon_an_error(tmp_path: Path, pattern: str) -> None:
    with (tmp_path / "line").open("wb") as file:
        file.truncate(4_300_000_000)  # zeros, which take no disk space
    assert "cannot be divided" in count(tmp_path / "line", pattern=pattern, chunk_size=1_000_000)
    (tmp_path / "line").unlink()


def test_a_json_line_of_300_mb_is_an_error(tmp_path: Path) -> None:
    blocks = [b'{"text": "fine"}\n{"text": "', *([b"a long line " * 80_000] * 312), b'"}\n']
    path = write_gzip(tmp_path / "line.jsonl.gz", blocks)
    assert re.search(r"more than \d+\.\d MB from byte \d+ on cannot be divided", error := count(path))
    assert "memory_limit" in error


#: A script that trains, or encodes with the tokenizer of an earlier run, and prints its peak memory in MB.
WORK = """
import sys
from pathlib import Path
import bpeflow
from bpeflow.flow.shared import peak_memory
path, folder = Path(sys.argv[1]), sys.argv[2]
if not Path(folder).exists():
    bpeflow.train({"input": path, "vocab_size": 300, "out_dir": folder})
elif path.exists():
    bpeflow.Tokenizer.from_file(folder).encode_file(path, path.with_suffix(".bin"), overwrite=True)
else:
    bpeflow.Tokenizer.from_file(folder).encode_to_numpy("a" * 100_000_000)
print(peak_memory() // 2**20)  # ru_maxrss would begin with that of the process that started this one
"""


def test_a_word_of_megabytes_is_trained_on_and_encoded_in_bounded_memory_or_refused(tmp_path: Path) -> None:
    def work(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", WORK, path, folder], capture_output=True, text=True, timeout=200)

    path = tmp_path / "a.txt"
    path.write_bytes(b"a" * 50_000_000)
    for _ in ("train", "encode"):
        assert int(work(path, tmp_path / "run").stdout) < 1000
    with path.open("ab") as file:
        file.write(b"a" * 50_000_000)
    for folder in (tmp_path / "refused", tmp_path / "run"):
        assert "a.txt: more than 67.1 MB from byte " in work(path, folder).stderr
    path.unlink()
    assert int(work(path, tmp_path / "run").stdout) < 1000


def test_hundreds_of_thousands_of_empty_documents_are_counted(tmp_path: Path) -> None:
    text = write_gzip(tmp_path / "a.txt.gz", [SEPARATOR.encode() * 100_000] * 5 + [b"a"])
    assert count(text) == "500001 1 1"
    lines = write_gzip(tmp_path / "a.jsonl.gz", [b'{"text":""}\n' * 100_000, b'{"text":"a"}'])
    assert count(lines) == "100001 1 1"


def test_a_parquet_column_of_long_equal_strings_is_counted(tmp_path: Path) -> None:
    """Its dictionary expands 1 MB to 300 MB."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra parquet)")
    from pyarrow import parquet

    words = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 300, "int32"), pyarrow.array(["a b " * 250_000]))
    parquet.write_table(pyarrow.table({"text": words}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 2_000_000
    assert count(tmp_path / "a.parquet", limit=600_000_000) == f"300 {300 * 500_001} 4"


def test_a_stream_that_shrank_is_an_error(tmp_path: Path) -> None:
    from bpeflow.corpus.files import InputFile, open_blocks
    from bpeflow.errors import CorpusError

    data = gzip.compress(os.urandom(100_000))
    (tmp_path / "a.gz").write_bytes(data[:50_000])
    with (
        pytest.raises(CorpusError, match=r"a\.gz shrank from [\d,]+ to 50,000 bytes"),
        open_blocks(InputFile(str(tmp_path / "a.gz"), len(data))) as blocks,
    ):
        list(blocks)


def test_data_appended_to_a_stream_is_left_out(tmp_path: Path) -> None:
    from bpeflow.corpus.files import InputFile, open_blocks

    data = gzip.compress(b"text")
    (tmp_path / "a.gz").write_bytes(data + b"appended")
    with open_blocks(InputFile(str(tmp_path / "a.gz"), len(data))) as blocks:
        assert b"".join(blocks) == b"text"
