"""The crash matrix of encoding: in threads of the main process, and in processes, as with a pattern in `regex`."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from crash_run import Fault, Run, contents
from distinct_words import distinct_words
from small_tokenizer import save_tokenizer

from bpeflow.tokenizer.tokenizer import Tokenizer

READER = "bpeflow.corpus.reader:CorpusReader._planned"
ENCODER = "bpeflow.dataset.corpus_encoder:ChunkEncoder.encode"
WRITER = "bpeflow.dataset.token_writer:TokenWriter.write"
SIDECAR = "bpeflow.dataset.token_writer:TokenSetWriter._write_sidecar"

DEFECT = r"RuntimeError: the injected defect \(a bug in bpeflow: please report it"
MEMORY = "encoding: out of memory.*: use fewer threads .* or add memory"
DIED = r"worker \d of \d \(pid \d+\)"

#: Encoder, place and kind of the fault, exit status, message. The ways in which workers die are those of a training.
CELLS = [
    ("processes", READER, "kill", 1, f"stage 'chunk reader': {DIED} was killed by SIGKILL: .*out-of-memory killer"),
    ("processes", ENCODER, "raise", 1, rf"stage 'encoder', worker \d: {DEFECT}"),
    ("processes", ENCODER, "kill", 1, f"stage 'encoder': {DIED} was killed by SIGKILL: .*out-of-memory killer"),
    ("processes", ENCODER, "memory", 1, rf"stage 'encoder', worker \d: {MEMORY}"),
    ("processes", ENCODER, "unpicklable", 1, r"stage 'encoder', worker \d: TypeError: cannot pickle"),
    ("processes", ENCODER, "truncate", 2, ".*text (became shorter|was changed) while it was read"),
    ("processes", WRITER, "raise", 1, DEFECT),
    ("threads", READER, "raise", 1, DEFECT),
    ("threads", ENCODER, "raise", 1, DEFECT),
    ("threads", ENCODER, "memory", 1, MEMORY),
    ("threads", ENCODER, "truncate", 2, ".*text (became shorter|was changed) while it was read"),
    ("threads", ENCODER, "replace", 2, ".*text was changed while it was read"),
    ("threads", WRITER, "memory", 1, MEMORY),
    ("threads", WRITER, "fill", 1, ".*/train.bin: File too large; "),
    ("threads", SIDECAR, "raise", 1, DEFECT),
    ("threads", SIDECAR, "fill", 1, ".*/train.bin.json: File too large; "),
]
SIGNALS = {
    "Ctrl-C": ([signal.SIGINT], 130),
    "Ctrl-C again and again": ([signal.SIGINT] * 4, 130),
    "SIGTERM": ([signal.SIGTERM], 143),
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return "<|endoftext|>".join(distinct_words(seed, 5000) for seed in range(130))  # 4.2 MB: above SMALL_INPUT


@pytest.fixture
def corpus(text: str, tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text(text, encoding="utf-8")
    assert path.stat().st_size > 4_000_000
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return the output of an earlier run."""
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("train.bin", "train.bin.json", "train.bin.idx"):
        (folder / name).write_bytes(b"from an earlier run")
    return folder / "train.bin"


def encode(way: str, fault: Fault | None, corpus: Path, out: Path) -> Run:
    pattern = "gpt2" if way == "threads" else r"\w+|\W(?!\b)|\W"
    tokenizer = save_tokenizer(corpus.parent / "tokenizer", pattern)
    if way == "threads" and Tokenizer.load(tokenizer).encoder != "native":
        pytest.skip("the native encoder, the only one with threads, is not available")
    paths = ["--tokenizer", tokenizer, "--input", corpus, "--out", out, "--index", "--overwrite"]
    flags = ["--threads", "1" if way == "in turn" else "2", "--chunk_size", "40kb"]
    return Run(["encode", *paths, *flags], corpus.parent, fault).start()


@pytest.mark.parametrize(
    ("way", "where", "action", "status", "said"), CELLS, ids=lambda cell: str(cell).rpartition(".")[2][:20]
)
def test_a_fault(way: str, where: str, action: str, status: int, said: str, corpus: Path, out: Path) -> None:
    before = contents(out.parent)
    call = 1 if where in (READER, SIDECAR) else 2
    file = corpus if action in ("truncate", "replace") else None
    run = encode(way, Fault(where, action, call, file), corpus, out).end()
    assert run.status == status, run.err
    assert re.search(f"^bpeflow: {said}", run.err, re.MULTILINE), run.err
    assert ("Traceback" in run.err) == ("please report" in run.err)
    run.assert_clean()
    assert contents(out.parent) == before


PLACES = {
    "reader": ("processes", READER),
    "encoder": ("processes", ENCODER),
    "writer beside one thread": ("in turn", WRITER),
    "writer": ("processes", WRITER),
    "writer beside threads": ("threads", WRITER),
    "sidecar": ("threads", SIDECAR),
}
#: As in a training: several Ctrl-C everywhere; a single one, and SIGTERM, once per encoder.
SIGNAL_CELLS = [(place, "Ctrl-C again and again") for place in PLACES]
SIGNAL_CELLS += [(place, kind) for place in ("encoder", "sidecar") for kind in ("Ctrl-C", "SIGTERM")]


@pytest.mark.parametrize(("place", "kind"), SIGNAL_CELLS)
def test_a_signal(place: str, kind: str, corpus: Path, out: Path) -> None:
    before = contents(out.parent)
    way, where = PLACES[place]
    numbers, status = SIGNALS[kind]
    run = encode(way, Fault(where, "wait"), corpus, out)
    run.wait_for_fault()
    run.signal(*numbers, pause=0.02 if len(numbers) > 1 else 0)
    run.end()
    said = "interrupted" if status == 130 else "ended by SIGTERM"
    assert (run.status, run.err.splitlines()[-1]) == (status, f"bpeflow: {said}")
    assert "Traceback" not in run.err
    run.assert_clean()
    assert contents(out.parent) == before


def test_a_second_run_to_the_same_files_is_refused(corpus: Path, out: Path) -> None:
    before = contents(out.parent)
    first = encode("threads", Fault(WRITER, "wait"), corpus, out)
    first.wait_for_fault()
    at_work = {*contents(out.parent)}
    second = encode("threads", None, corpus, out).end()
    assert (second.status, "another process is writing these token files" in second.err) == (1, True)
    assert {*contents(out.parent)} == at_work > {*before}
    first.signal(signal.SIGINT)
    assert first.end().status == 130
    for run in (first, second):
        run.assert_clean()
    assert contents(out.parent) == before


def test_workers_follow_a_killed_main_process(corpus: Path, out: Path) -> None:
    before = contents(out.parent)
    run = encode("processes", Fault(ENCODER, "wait"), corpus, out)
    run.wait_for_fault()
    run.kill()
    run.end()
    assert run.status == -signal.SIGKILL
    run.assert_clean()
    assert {name: content for name, content in contents(out.parent).items() if not name.endswith(".part")} == before
    again = encode("threads", None, corpus, out).end()
    assert again.status == 0, again.err
    again.assert_clean()
    assert {path.name for path in out.parent.iterdir()} == {"train.bin", "train.bin.json", "train.bin.idx"}
    text = out.with_name("text")
    decoded = Run(["decode", "--tokenizer", corpus.parent / "tokenizer", "--input", out, "--out", text], corpus.parent)
    assert decoded.start().end().status == 0
    assert text.read_bytes() == corpus.read_bytes()
    decoded.assert_clean()
