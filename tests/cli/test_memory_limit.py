"""With any limit of memory (``ulimit -v``) a run ends with the right bytes or an error, never with fewer counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from corpus_forms import write

resource = pytest.importorskip("resource", reason="this platform has no limits of memory")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.not_sanitized,
    pytest.mark.skipif(sys.platform != "linux", reason="not every system keeps to the limit"),
]

DOCUMENTS = [f"low lower lowest w{number:x} " * 50 for number in range(300)]


def train(folder: Path, form: str, executor: str, megabytes: int | None = None) -> tuple[int, bytes | None]:
    """Train in a process of its own. Return its exit status and the counts that it wrote, if any."""

    def limit() -> None:
        if megabytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    corpus, out_dir = write(folder / f"corpus.{form}", DOCUMENTS), folder / f"run{megabytes}"
    arguments = ["--input", corpus, "--out_dir", out_dir, "--vocab_size", "300", "--set", f"executor={executor}"]
    done = subprocess.run(
        [sys.executable, "-m", "bpeflow", *arguments], capture_output=True, check=False, timeout=60, preexec_fn=limit
    )
    counts = out_dir / "counts.npz"
    return done.returncode, counts.read_bytes() if counts.exists() else None


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    status, counts = train(tmp_path_factory.mktemp("unlimited"), "txt", "threads")
    assert status == 0 and counts is not None
    return counts


@pytest.mark.parametrize(
    ("form", "executor", "limits"),
    [("txt", "processes", (100, 250, 400, 2500)), ("txt", "threads", (250, 2500)), ("parquet", "threads", (400, 2500))],
)
def test_the_counts_are_complete_or_the_run_fails(
    tmp_path: Path, expected: bytes, form: str, executor: str, limits: tuple[int, ...]
) -> None:
    """Of the megabytes, 100 are too few for any run, and 2500 enough for all."""
    ends = {megabytes: train(tmp_path, form, executor, megabytes) for megabytes in limits}
    assert all(counts == (expected if status == 0 else None) for status, counts in ends.values())
    assert ends[2500][0] == 0
    assert 100 not in limits or ends[100][0] != 0
