"""The crash matrix of files: input that changes while it is read, and a disk that fills up, at every stage."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus_forms import write
from crash_run import Fault, Run, arguments, contents, finished_files, tokenizer, unfinished_files
from distinct_words import distinct_words
from places import MAIN, Place

COUNTER = "bpeflow.counting.counter:ChunkCounter._count"
READER = "bpeflow.corpus.reader:CorpusReader._planned"
BLOCKS = "bpeflow.corpus.files:Blocks._read"

#: The format of the corpus; the change of its last file, where and when; and the message.
CHANGES = {
    "text cut short before it is planned": (
        "txt",
        "truncate",
        READER,
        4,
        r"shrank from [\d,]+ to [\d,]+ bytes; run again",
    ),
    "text cut short before it is counted": (
        "txt",
        "truncate",
        COUNTER,
        1,
        r"(shrank|became shorter|changed while it was read)",
    ),
    "text replaced": ("txt", "replace", COUNTER, 1, r"was changed while it was read.*; run again when it is complete"),
    "text removed": ("txt", "remove", READER, 4, "cannot read .*No such file"),
    "gzip cut short": (
        "jsonl.gz",
        "truncate",
        BLOCKS,
        5,  # after a look at the start of each file, to find its format
        r"(shrank from .* bytes|was changed.*); run again",
    ),
    "gzip replaced": ("jsonl.gz", "replace", BLOCKS, 6, "(was changed while it was read|not UTF-8|JSON|gzip)"),
    "gzip removed": ("jsonl.gz", "remove", BLOCKS, 5, "cannot read .*No such file"),
    "Parquet cut short": (
        "parquet",
        "truncate",
        "bpeflow.corpus.records:parquet_texts",
        1,
        "not Parquet, or damaged",
    ),
    "Parquet replaced": (
        "parquet",
        "replace",
        "bpeflow.corpus.records:parquet_texts",
        1,
        "not Parquet, or damaged",
    ),
}


@pytest.fixture
def corpus(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return four files of a format, to be damaged."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(4):
        write(folder / f"{number}.{request.param}", [distinct_words(100 * number + seed, 1000) for seed in range(25)])
    return folder


@pytest.mark.parametrize(
    ("corpus", "action", "where", "call", "said"), CHANGES.values(), ids=[*CHANGES], indirect=["corpus"]
)
def test_input_that_changes_while_it_is_read(
    corpus: Path, action: str, where: str, call: int, said: str, tmp_path: Path, out: Path, earlier: Path
) -> None:
    [last] = corpus.glob("3.*")
    run = Run(arguments(corpus, out), tmp_path, Fault(where, action, call, last)).start().end()
    assert run.status == 2
    [line] = [line for line in run.err.splitlines() if line.startswith("bpeflow: ")]
    assert str(last) in line
    assert re.search(said, line)
    assert "Traceback" not in run.err
    run.assert_clean()
    assert contents(out) == contents(earlier)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path | None]:
    """Yield a disk of 8 MB, or None if this user may not mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    )
    yield folder if mounted else None
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)


#: The place where the disk fills up, and the message.
FULL = {
    "segment": (
        MAIN["segment"],
        r"cannot write .*/segments/000001.shard: {}. Make room on its disk, then resume: finished segments",
    ),
    "record": (
        Place("bpeflow.counting.segments:SegmentRecord.save", 2, segment_size="300kb"),
        r"cannot write .*/segments/000001.json: {}. Make room on its disk, then resume: finished segments",
    ),
    "writing counts": (MAIN["writing counts"], r".*/unfinished/counts.npz: {}; .*write elsewhere"),
    "writing the report": (
        Place("bpeflow.run_dir.run_dir:RunDir.write_report"),
        r".*/run.json: {}; .*write elsewhere",
    ),
    "writing the last report": (
        Place("bpeflow.run_dir.run_dir:RunDir.write_report", 2, counted=True),
        r".*/done.json: {}; .*write elsewhere",
    ),
    "writing": (MAIN["writing"], r".*/(vocab.json|merges.txt|bpeflow.json): {}; .*write elsewhere"),
}


@pytest.mark.parametrize("stage", FULL)
def test_a_disk_that_fills_up(
    stage: str, disk: Path | None, corpora: Path, earlier: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """On a real disk if one can be mounted; else the kernel lets no file grow, which gives another error number."""
    place, said = FULL[stage]
    out = (disk or tmp_path) / "run"
    shutil.copytree(earlier, out)
    room = disk and disk / "filled"
    command = arguments(corpora / "text", out, segment_size=place.segment_size)
    run = Run(command, tmp_path, Fault(place.where, "fill", place.call, room)).start().end()
    assert run.status == 1, run.err
    reason = "No space left on device" if disk else "File too large"
    assert re.search("bpeflow: " + said.format(reason), run.err), run.err
    if stage in ("segment", "record"):
        assert f"to continue: bpeflow --resume --out_dir {out}" in run.err
    assert "Traceback" not in run.err
    run.assert_clean()
    assert finished_files(out) == contents(earlier)
    assert unfinished_files(out) == ({"counts.npz", "run.json"} if place.counted else set())
    if not (place.counted or stage in ("segment", "record")):
        return  # nothing was finished that the next run could take over
    if room:
        room.unlink()
    again = Run([*command, "--resume"], tmp_path).start().end()
    assert again.status == 0, again.err
    again.assert_clean()
    assert tokenizer(out) == expected
