"""Interrupted encodings: resumed, they give the same bytes; what changed meanwhile is found."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from interrupting import interrupting

from bpeflow import Tokenizer
from bpeflow.dataset import journal
from bpeflow.dataset.encode import encode_file
from bpeflow.dataset.token_writer import TokenSetWriter
from bpeflow.errors import AlreadyExistsError, ConfigError, FolderInUseError, ResumeError

LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "index": {"index": True},
    "split": {"val_fraction": 0.3, "index": True},
    "parts": {"shard_tokens": 300, "index": True},
    "parts of a split": {"shard_tokens": 300, "val_fraction": 0.3},
    "megatron": {"format": "megatron"},
    "megatron in parts": {"format": "megatron", "shard_tokens": 700},
    "npy": {"format": "npy"},
    "npy in parts": {"format": "npy", "shard_tokens": 300, "index": True},
}


class Stopped(Exception):
    """The injected failure."""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(iter(["the lower lowest other words of a text"] * 5), vocab_size=300, special_tokens="<|e|>")


@pytest.fixture(autouse=True)
def _checkpoints_after_every_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "INTERVAL", 0.0)


def make_corpus(folder: Path, form: str, choose: random.Random) -> list[Path]:
    """Make three files. Some documents are longer than a part, and some files end with white space."""
    paths = []
    for number in range(3):
        texts = ["the lower words " * choose.choice([0, 1, 5, 60]) for _ in range(choose.randrange(1, 30))]
        path = folder / f"{number}.{form}"
        if form == "txt":
            path.write_text("<|e|>".join(texts) + choose.choice(["", "<|e|>", "<|e|>\n\n"]), encoding="utf-8")
        elif form == "jsonl.gz":
            path.write_bytes(gzip.compress("".join(json.dumps({"text": text}) + "\n" for text in texts).encode()))
        else:
            pq.write_table(pa.table({"text": texts}), path, row_group_size=7)
        paths.append(path)
    return paths


def stop_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail at one of the next calls that write ids."""
    numbers = count(1)

    def write(self: TokenSetWriter, *arguments: Any) -> None:
        if next(numbers) > writes:
            raise Stopped
        original(self, *arguments)

    original = TokenSetWriter.write
    monkeypatch.setattr(TokenSetWriter, "write", write)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("form", ["txt", "jsonl.gz", "parquet"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_resumed_encoding_gives_the_same_bytes(
    layout: str, form: str, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    paths = make_corpus(tmp_path, form, choose)
    name = "c.npy" if "npy" in layout else "c.bin"
    options = {**LAYOUTS[layout], "chunk_size": 400}
    whole = encode_file(tokenizer, paths, tmp_path / "whole" / name, **options)
    out = tmp_path / "out" / name
    for _ in range(200):
        with monkeypatch.context() as patched:
            stop_after(choose.randrange(1, 9), patched)
            try:
                options |= {"chunk_size": choose.choice([100, 400, 700]), "num_threads": choose.choice([1, 2])}
                encoded = encode_file(tokenizer, paths, out, resume=True, **options)
                break
            except Stopped:
                assert not out.exists()
    assert contents(out.parent) == contents(tmp_path / "whole")
    for field in ("dtype", "tokens", "documents", "val_tokens", "val_documents", "bytes", "input_bytes", "files"):
        assert getattr(encoded, field) == getattr(whole, field), field
    assert encode_file(tokenizer, paths, out, resume=True, **options) == replace(encoded, seconds=0.0)
    assert contents(out.parent) == contents(tmp_path / "whole")
    damaged = choose.choice([*out.parent.iterdir()])
    print("cut short or missing", damaged)  # noqa: T201
    if choose.random() < 0.5 and damaged.stat().st_size:
        os.truncate(damaged, damaged.stat().st_size // 2)
    else:
        damaged.unlink()
    with suppress(AlreadyExistsError):  # or encoded again
        assert encode_file(tokenizer, paths, out, resume=True, **options).seconds > 0


@pytest.fixture
def interrupted(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """Return a corpus and the output of an interrupted encoding."""
    corpus, out = tmp_path / "c.txt", tmp_path / "out" / "c.bin"
    corpus.write_text("the lower words<|e|>" * 300, encoding="utf-8")
    with monkeypatch.context() as patched:
        stop_after(6, patched)
        with pytest.raises(Stopped) as raised:
            encode_file(tokenizer, corpus, out, chunk_size=400)
    assert raised.value.__notes__ == [f"{out}: to continue, repeat this with resume=True"]
    return corpus, out


def test_a_new_encoding_does_not_replace_an_interrupted_one(
    interrupted: tuple[Path, Path], tokenizer: Tokenizer
) -> None:
    corpus, out = interrupted
    with pytest.raises(
        AlreadyExistsError, match=r"c.bin: an encoding was interrupted after [\d,]+ tokens; give resume"
    ):
        encode_file(tokenizer, corpus, out)
    encode_file(tokenizer, corpus, out, overwrite=True)
    assert [*contents(out.parent)] == ["c.bin", "c.bin.json"] or len(contents(out.parent)) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"index": True}, "index: false → true"),
        ({"val_fraction": 0.5, "chunk_size": 500}, r"\(val_fraction: 0.0 → 0.5\)"),
        ({"end_token": ""}, r"\(end_token: '<\|e\|>' → null\)"),
        ({"dtype": "uint32"}, "dtype: 'uint16' → 'uint32'"),
    ],
)
def test_changed_settings_are_refused(
    change: dict[str, Any], said: str, interrupted: tuple[Path, Path], tokenizer: Tokenizer
) -> None:
    corpus, out = interrupted
    before = contents(out.parent)
    with pytest.raises(ResumeError, match=said):
        encode_file(tokenizer, corpus, out, resume=True, **{"chunk_size": 400, **change})
    assert contents(out.parent) == before


def test_another_tokenizer_is_refused(interrupted: tuple[Path, Path]) -> None:
    corpus, out = interrupted
    other = Tokenizer.train(iter(["other"] * 5), vocab_size=300, special_tokens="<|e|>")
    with pytest.raises(ResumeError, match=r"\(tokenizer: '280 tokens, sha256 \w{16}' → '261 tokens, sha256 \w{16}'\)"):
        encode_file(other, corpus, out, resume=True, chunk_size=400)


def test_a_changed_corpus_is_refused(interrupted: tuple[Path, Path], tokenizer: Tokenizer) -> None:
    corpus, out = interrupted
    corpus.write_text("the lower words<|e|>" * 301, encoding="utf-8")
    with pytest.raises(ResumeError, match=r"c.txt had 6,000 bytes and has 6,020\). Undo the change"):
        encode_file(tokenizer, corpus, out, resume=True, chunk_size=400)


def test_another_input_is_named(interrupted: tuple[Path, Path], tokenizer: Tokenizer, tmp_path: Path) -> None:
    corpus, out = interrupted
    other = Path(shutil.copy(corpus, tmp_path / "other.txt"))
    with pytest.raises(ResumeError, match=r"/c.txt is not among the inputs now; .*/other.txt is new\)"):
        encode_file(tokenizer, other, out, resume=True)
    corpus.unlink()
    with pytest.raises(ResumeError, match=r"/c.txt is gone; .*/other.txt is new\)"):
        encode_file(tokenizer, other, out, resume=True)


def test_chunks_keep_their_size(
    interrupted: tuple[Path, Path], tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus, out = interrupted
    encode_file(tokenizer, corpus, out, resume=True, chunk_size=5000)
    assert "chunk_size: has no effect when resuming, as the chunks so far were of 400 bytes" in caplog.text
    encode_file(tokenizer, corpus, tmp_path / "whole" / "c.bin")
    assert contents(out.parent) == contents(tmp_path / "whole")


def test_a_missing_file_is_refused(interrupted: tuple[Path, Path], tokenizer: Tokenizer) -> None:
    corpus, out = interrupted
    [part] = out.parent.glob(".c.bin.[0-9]*.part")
    part.write_bytes(b"")
    with pytest.raises(ResumeError, match="is gone, cut short or damaged") as raised:
        encode_file(tokenizer, corpus, out, resume=True, chunk_size=400)
    assert not hasattr(raised.value, "__notes__")  # which would say how to resume


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_flipped_byte_is_found_or_has_no_effect(
    layout: str, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    corpus, name = tmp_path / "c.txt", "c.npy" if "npy" in layout else "c.bin"
    corpus.write_text("the lower words<|e|>" * 300, encoding="utf-8")
    options = {**LAYOUTS[layout], "chunk_size": 400}
    encode_file(tokenizer, corpus, tmp_path / "whole" / name, **options)
    out = tmp_path / "out" / name
    with monkeypatch.context() as patched, pytest.raises(Stopped):
        stop_after(9, patched)
        encode_file(tokenizer, corpus, out, **options)
    interrupted, found = contents(out.parent), 0
    for damaged, content in interrupted.items():
        for _ in range(0 if ".ckpt." in damaged else 2):
            position = choose.randrange(len(content))
            flipped = bytes([content[position] ^ 1 << choose.randrange(8)])
            for file in out.parent.iterdir():
                file.unlink()
            for file, data in interrupted.items():
                (out.parent / file).write_bytes(data)
            (out.parent / damaged).write_bytes(content[:position] + flipped + content[position + 1 :])
            try:
                encode_file(tokenizer, corpus, out, resume=True, **options)
                assert contents(out.parent) == contents(tmp_path / "whole"), (damaged, position)
            except ResumeError as error:
                assert f"{damaged}: is gone, cut short or damaged" in str(error)
                found += 1
    assert found


def test_any_tokenizer_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = iter(["the lower lowest other words of a text"] * 5)
    tokenizer = Tokenizer.train(texts, vocab_size=280, normalizer=["nfc"], pattern=[r"\d{3}", r"(\w)\1+|\w+|\W"])
    paths, out = make_corpus(tmp_path, "txt", random.Random(2)), tmp_path / "out.bin"
    with monkeypatch.context() as patched, pytest.raises(Stopped):
        stop_after(3, patched)
        encode_file(tokenizer, paths, out, chunk_size=400)
    encode_file(tokenizer, paths, out, chunk_size=400, resume=True)
    encode_file(tokenizer, paths, tmp_path / "whole.bin", chunk_size=400)
    assert out.read_bytes() == (tmp_path / "whole.bin").read_bytes()


def test_a_torn_checkpoint_is_ignored(interrupted: tuple[Path, Path], tokenizer: Tokenizer, tmp_path: Path) -> None:
    corpus, out = interrupted
    [path] = out.parent.glob(".c.bin.ckpt.*.part")
    path.write_bytes(path.read_bytes()[:-20])
    encode_file(tokenizer, corpus, out, resume=True, chunk_size=400)
    encode_file(tokenizer, corpus, tmp_path / "whole" / "c.bin", chunk_size=400)
    assert contents(out.parent) == contents(tmp_path / "whole")


@pytest.mark.parametrize("resume", [False, True])
def test_only_one_process_writes_the_token_files(
    resume: bool, interrupted: tuple[Path, Path], tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another encoding is refused before any work, even if its files have other names."""
    corpus, out = interrupted
    refused = 0

    def write(self: TokenSetWriter, *arguments: Any) -> None:
        nonlocal refused
        others: list[dict[str, Any]] = [{}, {"resume": True}, {"overwrite": True}]
        others += [{"overwrite": True, **other} for other in LAYOUTS.values() if other.get("format") != "npy"]
        for options in others:
            with pytest.raises(FolderInUseError, match=r"c\.bin: another process is writing these token files"):
                encode_file(tokenizer, corpus, out, chunk_size=400, **options)
            refused += 1
        original(self, *arguments)

    original = TokenSetWriter.write
    with monkeypatch.context() as patched:
        patched.setattr(TokenSetWriter, "write", write)
        encode_file(tokenizer, corpus, out, resume=resume, overwrite=not resume, chunk_size=400)
    assert refused
    assert sorted(contents(out.parent)) == ["c.bin", "c.bin.json"]
    encode_file(tokenizer, corpus, out.parent / "alone.bin", chunk_size=400)
    assert out.read_bytes() == (out.parent / "alone.bin").read_bytes()


def test_with_nothing_to_resume_it_starts(tokenizer: Tokenizer, tmp_path: Path) -> None:
    corpus = tmp_path / "c.txt"
    corpus.write_text("the lower words", encoding="utf-8")
    encode_file(tokenizer, corpus, tmp_path / "c.bin", resume=True)
    assert (tmp_path / "c.bin").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"text_field": "other"}, "text_field: 'text' → 'other'"),
        ({"end_token": ""}, r"end_token: '<\|e\|>' → null"),
        ({"shard_tokens": 10}, "shard_tokens: null → 10"),
        ({"dtype": "uint32"}, "dtype: 'uint16' → 'uint32'"),
    ],
)
def test_finished_token_files_with_other_settings_are_refused(
    changes: dict[str, Any], said: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    corpus, out = tmp_path / "c.jsonl", tmp_path / "c.bin"
    corpus.write_text('{"text": "the lower words", "other": "the"}\n' * 20, encoding="utf-8")
    encode_file(tokenizer, corpus, out)
    assert encode_file(tokenizer, corpus, out, resume=True, num_threads=1, chunk_size=100).describe()
    with pytest.raises(
        AlreadyExistsError, match=rf"^{out}: already exists, and is of something else \({said}\); write"
    ):
        encode_file(tokenizer, corpus, out, resume=True, chunk_size=200, **changes)
    with pytest.raises(AlreadyExistsError, match=r"c.bin: already exists; write"):
        encode_file(tokenizer, corpus, out, **changes)


def test_overwrite_replaces_finished_token_files_unless_they_are_what_a_resumed_encoding_gives(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """So an encoding that replaces others may be killed and repeated with the same flags."""
    corpus, out = tmp_path / "c.txt", tmp_path / "c.bin"
    corpus.write_text("the lower words", encoding="utf-8")
    encode = partial(encode_file, tokenizer, corpus, out, overwrite=True, resume=True)
    encode_file(tokenizer, corpus, out)
    assert encode().seconds == 0.0
    assert encode(dtype="uint32").seconds > 0
    assert encode(dtype="uint32").seconds == 0.0
    assert encode(dtype="uint32", resume=False).seconds > 0


def test_finished_token_files_of_something_else_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    corpus, out = tmp_path / "c.jsonl", tmp_path / "c.bin"
    corpus.write_text('{"text": "the lower words"}\n', encoding="utf-8")
    encode_file(tokenizer, corpus, out)

    def refusal(tokenizer: Tokenizer, corpus: Path) -> str:
        with pytest.raises(AlreadyExistsError, match="already exists") as raised:
            encode_file(tokenizer, corpus, out, resume=True)
        return str(raised.value)

    other = Tokenizer.train(iter(["other words"]), vocab_size=262, special_tokens="<|e|>")
    assert refusal(other, corpus).startswith(
        f"{out}: already exists, and is of something else (tokenizer: '280 tokens, sha256 "
    )
    copy = Path(shutil.copy(corpus, tmp_path / "d.jsonl"))
    assert f"({corpus} is not among the inputs now; {copy} is new)" in refusal(tokenizer, copy)
    os.utime(corpus)
    assert f"({corpus} has been modified since)" in refusal(tokenizer, corpus)


def test_without_its_sidecar_a_token_file_is_not_resumed(tokenizer: Tokenizer, tmp_path: Path) -> None:
    corpus, out = tmp_path / "c.txt", tmp_path / "c.bin"
    corpus.write_text("the lower words", encoding="utf-8")
    encode_file(tokenizer, corpus, out)
    sidecar = tmp_path / "c.bin.json"
    sidecar.write_text(json.dumps({**json.loads(sidecar.read_text()), "settings": None}), encoding="utf-8")
    with pytest.raises(AlreadyExistsError, match=r"exists, and c.bin.json does not say how it was encoded; write"):
        encode_file(tokenizer, corpus, out, resume=True)
    sidecar.unlink()
    with pytest.raises(AlreadyExistsError, match=r"exists, but is not complete \(.*without c.bin.json"):
        encode_file(tokenizer, corpus, out, resume=True)


def test_a_document_in_several_files_is_counted_once(tokenizer: Tokenizer, tmp_path: Path) -> None:
    encode = partial(encode_file, tokenizer, tmp_path / "c.txt", tmp_path / "c.bin", shard_tokens=5, resume=True)
    (tmp_path / "c.txt").write_text("lower " * 20 + "<|e|>the", encoding="utf-8")
    assert (encode().documents, encode().documents) == (2, 2)


def test_a_file_that_another_process_has_written_meanwhile_stays(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, out = tmp_path / "c.txt", tmp_path / "out" / "c.bin"
    corpus.write_text("the lower words", encoding="utf-8")

    def write_both(self: TokenSetWriter, *arguments: Any) -> None:
        out.write_bytes(b"mine")
        write(self, *arguments)

    write = TokenSetWriter.write
    monkeypatch.setattr(TokenSetWriter, "write", write_both)
    with pytest.raises(AlreadyExistsError, match="already exists"):
        encode_file(tokenizer, corpus, out)
    assert contents(out.parent)["c.bin"] == b"mine"


def test_what_can_be_read_once_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="resume: standard input and iterables can be read only once"):
        encode_file(tokenizer, iter(["a"]), tmp_path / "c.bin", resume=True)
    with pytest.raises(ConfigError, match="resume: engine ray encodes in tasks"):
        corpus = tmp_path / "c.txt"
        corpus.write_text("a", encoding="utf-8")
        encode_file(tokenizer, corpus, tmp_path / "c.bin", resume=True, engine={"kind": "ray"})


def test_a_document_that_moves_to_the_next_part_is_not_lost(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "c.txt"
    corpus.write_text("a<|e|>" * 3 + "the lower " * 300, encoding="utf-8")
    options: dict[str, Any] = {"chunk_size": 100, "shard_tokens": 150}
    encode_file(tokenizer, corpus, tmp_path / "whole" / "c.bin", **options)
    out = tmp_path / "out" / "c.bin"
    for writes in range(2, 40):
        with monkeypatch.context() as patched:
            patched.setattr(journal.Journal, "is_due", property(lambda self: self.checkpoint is None))
            stop_after(writes, patched)
            try:
                encode_file(tokenizer, corpus, out, resume=True, **options)
                break
            except Stopped:
                pass
    assert contents(out.parent) == contents(tmp_path / "whole")
    assert len(contents(out.parent)) > 8
    assert np.fromfile(tmp_path / "out" / "c_000000.bin", np.uint16).size < 150


def test_ctrl_c_while_the_journal_is_made_leaves_nothing(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", interrupting(fcntl.flock, 1, KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        encode_file(tokenizer, make_corpus(tmp_path, "txt", random.Random(1)), tmp_path / "new" / "out.bin")
    assert not (tmp_path / "new").exists()


def test_ctrl_c_before_the_journal_is_removed_leaves_nothing(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr(journal.Journal, "resume", stop)
    monkeypatch.setattr(Path, "unlink", interrupting(Path.unlink, 1, KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        encode_file(tokenizer, make_corpus(tmp_path, "txt", random.Random(1)), tmp_path / "new" / "out.bin")
    assert not (tmp_path / "new").exists()


def test_an_output_that_cannot_be_made_is_named_as_given(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    (tmp_path / "a.txt").write_text("lower", encoding="utf-8")
    monkeypatch.setattr(journal, "open_locked", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="Read-only") as caught:
        encode_file(tokenizer, tmp_path / "a.txt", tmp_path / "ids.bin")
    assert caught.value.filename == str(tmp_path / "ids.bin")


def test_a_setting_without_effect_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("lower", encoding="utf-8")
    with pytest.raises(ConfigError, match="seed: has no effect without val_fraction"):
        encode_file(tokenizer, tmp_path / "a.txt", tmp_path / "ids.bin", seed=3)
    with pytest.raises(ConfigError, match="sampled: has no effect without a source with max_bytes; leave it out"):
        encode_file(tokenizer, tmp_path / "a.txt", tmp_path / "ids.bin", sampled=True)
