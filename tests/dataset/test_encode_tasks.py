"""Encoding in tasks: on any engine, and in any number of shards, the ids are those of one token file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizer import save_tokenizer
from task_engines import ChangedEngine, InlineEngine, dying
from token_corpora import EOT, EncodingRecorder, contents_utf8, make_tokenizer, write_files

import bpeflow
from bpeflow.cli.main import main
from bpeflow.dataset import encode_tasks
from bpeflow.dataset.encode import encode_file
from bpeflow.dataset.token_file import load_document_offsets, load_shards, load_tokens
from bpeflow.engines import coordinator
from bpeflow.engines.engine import Call
from bpeflow.errors import ConfigError, InvalidUtf8Error, SettingsError, TaskLostError

TASKS: dict[str, Any] = {"kind": "processes", "workers": 2}
TOKENIZER = make_tokenizer()


def losing(tasks: set[int]) -> ChangedEngine:
    """An engine in this process that loses tasks after their work."""
    gone = TaskLostError("its worker died")
    return ChangedEngine(InlineEngine(), outcome=lambda number, outcome: gone if number in tasks else outcome)


@pytest.fixture(autouse=True, scope="module")
def _without_flushing() -> Iterator[None]:
    """Flushing hundreds of small files to disk takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> ChangedEngine:
    """An engine in this process that loses two tasks, with many small parts."""
    engine = losing({0, 2})
    _use(monkeypatch, engine)
    return engine


def _use(patch: pytest.MonkeyPatch, engine: ChangedEngine) -> None:
    patch.setattr(encode_tasks, "start_engine", lambda settings: engine)
    patch.setattr(encode_tasks, "_MIN_PART", 7)
    patch.setattr(encode_tasks, "_MAX_PART", 7)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@given(
    contents=st.lists(contents_utf8, min_size=1, max_size=4),
    shards=st.integers(1, 6),
    options=st.fixed_dictionaries(
        {}, optional={"end_token": st.sampled_from([EOT, ""]), "separator": st.just("\n"), "index": st.just(True)}
    ),
)
@settings(max_examples=25, deadline=None)
def test_shards_joined_are_the_ids_of_one_file(
    contents: list[bytes], shards: int, options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    files = write_files(folder, contents)
    if options.get("separator"):
        options.setdefault("end_token", EOT)
    whole = encode_file(TOKENIZER, files, folder / "whole.bin", **options)
    encoded = encode_file(TOKENIZER, files, folder / "train.bin", shards=shards, **options)
    arrays = load_shards(folder / "train.bin")
    assert len(arrays) == shards
    assert np.concatenate(arrays).tolist() == load_tokens(folder / "whole.bin").tolist()
    assert (encoded.tokens, encoded.documents) == (whole.tokens, whole.documents)
    assert (encoded.bytes, encoded.input_bytes, encoded.files) == (whole.bytes, whole.input_bytes, whole.files)
    if options.get("index"):
        start, joined = 0, [0]
        for path in encoded.written[::3]:
            offsets = load_document_offsets(path).astype(int)
            joined += [start + int(offset) for offset in offsets[1:]]
            start += int(offsets[-1])
        assert joined == load_document_offsets(folder / "whole.bin").tolist()


@given(
    contents=st.lists(contents_utf8, min_size=1, max_size=3),
    options=st.fixed_dictionaries(
        {},
        optional={
            "shards": st.integers(1, 4), "index": st.just(True), "dtype": st.just("uint32"),
            "format": st.sampled_from(["bin", "megatron"]),
        },
    ) | st.fixed_dictionaries({"shard_tokens": st.integers(1, 30), "val_fraction": st.sampled_from([0, 0.4])}),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_an_engine_writes_the_same_files(
    contents: list[bytes], options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("engine")
    files = write_files(folder, contents)
    local, remote = folder / "local", folder / "remote"
    local.mkdir()
    remote.mkdir()
    encode_file(TOKENIZER, files, local / "train.bin", **options)
    engine = losing({1, 2})
    with pytest.MonkeyPatch.context() as patch:
        _use(patch, engine)
        encode_file(TOKENIZER, files, remote / "train.bin", engine=TASKS, **options)
    assert engine.submitted
    assert names(local) == names(remote)
    for name in names(local):
        assert (local / name).read_bytes() == (remote / name).read_bytes(), name


@pytest.mark.slow
def test_formats_and_streams_in_processes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"hello there{EOT}hello\n" * 50)
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": f"hello {number}"}) + "\n" for number in range(50)))
    inputs = [tmp_path / "a.txt", tmp_path / "b.jsonl"]
    encode_file(TOKENIZER, inputs, tmp_path / "whole.npy")
    recorder = EncodingRecorder()
    encode_file(TOKENIZER, inputs, tmp_path / "train.npy", shards=3, engine=TASKS, observer=recorder)
    shards = load_shards(tmp_path / "train.npy")
    assert np.concatenate(shards).tolist() == load_tokens(tmp_path / "whole.npy").tolist()
    assert [len(shard) > 0 for shard in shards] == [True, True, False], "a stream is not divided"
    assert recorder.reports[-1][0] == recorder.reports[-1][1]


def test_white_space_after_the_last_separator_stays_with_its_document(tmp_path: Path) -> None:
    corpus = tmp_path / "a.txt"
    corpus.write_text(f"a{EOT}{' ' * 100}")
    encoded = encode_file(TOKENIZER, corpus, tmp_path / "train.bin", shards=4)
    assert encoded.documents == 1
    assert [len(shard) > 0 for shard in load_shards(tmp_path / "train.bin")].count(True) == 1


def test_sidecars_describe_their_place(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"hello{EOT}" * 10)
    encode_file(TOKENIZER, tmp_path / "a.txt", tmp_path / "train.bin", shards=2)
    sidecars = [json.loads((tmp_path / f"train_00000{number}.bin.json").read_text()) for number in range(2)]
    assert [sidecar["set"] for sidecar in sidecars] == [
        {"first": "train_000000.bin", "shard": number, "shards": 2} for number in range(2)
    ]
    assert [sidecar["documents"] for sidecar in sidecars] == [5, 5]
    assert [("input" in sidecar) for sidecar in sidecars] == [True, False]


def test_fewer_shards_replace_more(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"hello{EOT}" * 10)
    encode_file(TOKENIZER, tmp_path / "a.txt", tmp_path / "train.bin", shards=4)
    encode_file(TOKENIZER, tmp_path / "a.txt", tmp_path / "train.bin", shards=2, overwrite=True)
    assert len(list(tmp_path.glob("train_*.bin"))) == 2
    encode_file(TOKENIZER, tmp_path / "a.txt", tmp_path / "train.bin", shard_tokens=5, overwrite=True)
    assert len(load_shards(tmp_path / "train.bin")) == 5, "two documents of two ids in each"


def test_a_bad_file_leaves_nothing(inline: ChangedEngine, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"hello" * 10 + b"\xff")
    for options in ({}, {"shards": 2}):
        with pytest.raises(InvalidUtf8Error, match=r"on node .*a\.txt.*byte 50"):
            encode_file(TOKENIZER, tmp_path / "a.txt", tmp_path / "train.bin", engine=TASKS, **options)
    assert names(tmp_path) == ["a.txt"]


def test_the_folder_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    dead = tmp_path / ".train.bin.abc.tasks"
    dead.mkdir()
    (dead / "lock").touch()
    encode_file(TOKENIZER, tmp_path / "a.txt", tmp_path / "train.bin", shards=1)
    assert names(tmp_path) == ["a.txt", "train_000000.bin", "train_000000.bin.json"]


@pytest.mark.slow
def test_a_killed_worker_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = tmp_path / "a.txt"
    corpus.write_text(f"hello there{EOT}" * 20)
    encode_file(TOKENIZER, corpus, tmp_path / "whole.bin")
    start = coordinator.start_engine

    def change(number: int, call: Call) -> Call:
        return dying(call, "begin", tmp_path / "died") if number == 0 else call

    monkeypatch.setattr(encode_tasks, "start_engine", lambda settings: ChangedEngine(start(settings), change))
    encode_file(TOKENIZER, corpus, tmp_path / "train.bin", engine=TASKS)
    assert (tmp_path / "train.bin").read_bytes() == (tmp_path / "whole.bin").read_bytes()
    assert "encode 1 of 1 was lost and is repeated" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 0}, "shards: must be an integer from 1"),
        ({"shards": 2, "shard_tokens": 5}, "shards: not together with shard_tokens"),
        ({"shards": 2, "val_fraction": 0.5}, "shards: not together with val_fraction"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(ConfigError, match=message):
        encode_file(TOKENIZER, tmp_path / "a.txt", tmp_path / "train.bin", **options)


def test_what_only_this_process_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="engine processes: standard input and iterables"):
        encode_file(TOKENIZER, iter(["hello"]), tmp_path / "train.bin", engine=TASKS)
    with pytest.raises(ConfigError, match="shards: standard input and iterables"):
        encode_file(TOKENIZER, iter(["hello"]), tmp_path / "train.bin", shards=2)
    with pytest.raises(SettingsError, match="kind"):
        encode_file(TOKENIZER, iter(["hello"]), tmp_path / "train.bin", engine={"kind": "slurm"})  # type: ignore[typeddict-item]


def test_the_command(tmp_path: Path, inline: ChangedEngine, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = save_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "a.txt").write_text(f"lowest{EOT}" * 20)
    (tmp_path / "c.yaml").write_text("input: a.txt\nengine: {kind: local, retries: 2}\n")
    command = ["encode", "--tokenizer", str(tokenizer), "--out", str(tmp_path / "train.bin"), "--shards", "2"]
    assert main([*command, "--input", str(tmp_path / "a.txt"), "--engine", "processes"]) == 0
    assert inline.submitted == 2 + 2
    whole = bpeflow.Tokenizer.load(tokenizer).encode((tmp_path / "a.txt").read_text(), allowed_special="all")
    assert np.concatenate(load_shards(tmp_path / "train.bin")).tolist() == whole
    assert (
        main([*command, "--config", str(tmp_path / "c.yaml"), "--input", str(tmp_path / "a.txt"), "--overwrite"]) == 0
    )
    assert inline.submitted == 2 + 2, "the config's section says local"
