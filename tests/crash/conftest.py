"""Fixtures of the crash tests: corpora, finished runs to compare with, and commands."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from crash_run import Fault, Run, Train, arguments, tokenizer
from distinct_words import distinct_words

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Limit the time of each test, so that a hang fails; every test starts programs."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(150))


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents as text and as compressed lines of JSON: four files each, 0.8 MB."""
    folder = tmp_path_factory.mktemp("corpora")
    for name in ("text", "streams"):
        (folder / name).mkdir()
    for number in range(4):
        documents = [distinct_words(100 * number + seed, 1000) for seed in range(25)]
        (folder / "text" / f"{number}.txt").write_text("<|endoftext|>".join(documents), encoding="utf-8")
        lines = "".join(json.dumps({"text": document}) + "\n" for document in documents)
        (folder / "streams" / f"{number}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return folder


@pytest.fixture(scope="session")
def finished(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an undisturbed run: the result that the others must reach, in spite of everything."""
    folder = tmp_path_factory.mktemp("finished")
    run = Run(arguments(corpora / "text", folder / "run"), folder).start().end()
    assert run.status == 0, run.err
    run.assert_clean()
    return folder / "run"


@pytest.fixture(scope="session")
def expected(finished: Path) -> dict[str, bytes]:
    return tokenizer(finished)


@pytest.fixture(scope="session")
def earlier(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with other settings, which precedes the one that fails."""
    folder = tmp_path_factory.mktemp("earlier")
    run = Run(arguments(corpora / "text" / "0.txt", folder / "run", vocab_size=300), folder).start().end()
    assert run.status == 0, run.err
    run.assert_clean()
    return folder / "run"


@pytest.fixture
def out(earlier: Path, tmp_path: Path) -> Path:
    """Return a run folder with the results of an earlier run."""
    return Path(shutil.copytree(earlier, tmp_path / "run"))


@pytest.fixture
def train(corpora: Path, out: Path, tmp_path: Path) -> Train:
    """Run a training into the folder, with a fault, to its end."""

    def run(fault: Fault | None, corpus: str = "text", *flags: str, segment_size: str = "1gb") -> Run:
        return Run(arguments(corpora / corpus, out, *flags, segment_size=segment_size), tmp_path, fault).start()

    return run
