"""Encoding in tasks: the files are those that one process writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_ray import InlineRay
from small_tokenizer import save_tokenizer
from token_corpora import EOT, EncodingRecorder, contents_utf8, make_tokenizer, write_files

import bpeflow
from bpeflow.cli.main import main
from bpeflow.dataset import encode_tasks
from bpeflow.dataset.encode import encode_file
from bpeflow.dataset.token_file import load_shards
from bpeflow.errors import ConfigError, InvalidUtf8Error, SettingsError

TASKS: Any = {"kind": "ray"}
TOKENIZER = make_tokenizer()


@pytest.fixture(autouse=True, scope="module")
def _without_flushing() -> Iterator[None]:
    """Flushing hundreds of small files to disk takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> InlineRay:
    """A cluster in this process that runs some tasks twice, with many small parts."""
    inline = InlineRay(repeated={0, 2})
    use(monkeypatch, inline)
    return inline


def use(patch: pytest.MonkeyPatch, inline: InlineRay) -> None:
    inline.use(patch)
    patch.setattr(encode_tasks, "_MIN_PART", 7)
    patch.setattr(encode_tasks, "_MAX_PART", 7)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@given(
    contents=st.lists(contents_utf8, min_size=1, max_size=3),
    options=st.fixed_dictionaries(
        {},
        optional={
            "index": st.just(True), "dtype": st.just("uint32"),
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
    inline = InlineRay(repeated={1, 2})
    with pytest.MonkeyPatch.context() as patch:
        use(patch, inline)
        encode_file(TOKENIZER, files, remote / "train.bin", engine=TASKS, **options)
    assert inline.names
    assert names(local) == names(remote)
    for name in names(local):
        assert (local / name).read_bytes() == (remote / name).read_bytes(), name


def test_formats_and_streams(ray: InlineRay, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"hello there{EOT}hello\n" * 50)
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": f"hello {number}"}) + "\n" for number in range(50)))
    inputs = [tmp_path / "a.txt", tmp_path / "b.jsonl"]
    if find_spec("pyarrow"):
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        table = pyarrow.table({"text": [f"hello {number}" for number in range(50)]})
        parquet.write_table(table, tmp_path / "c.parquet", row_group_size=9)
        inputs.append(tmp_path / "c.parquet")
    encode_file(TOKENIZER, inputs, tmp_path / "whole.npy", index=True)
    recorder = EncodingRecorder()
    encode_file(TOKENIZER, inputs, tmp_path / "train.npy", index=True, engine=TASKS, observer=recorder)
    for suffix in (".npy", ".npy.json", ".npy.idx"):
        assert (tmp_path / f"train{suffix}").read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()
    assert recorder.reports[-1][0] == recorder.reports[-1][1]


def test_a_bad_file_leaves_nothing(ray: InlineRay, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"hello" * 10 + b"\xff")
    with pytest.raises(InvalidUtf8Error, match=r"on node .*a\.txt.*byte 50"):
        encode_file(TOKENIZER, tmp_path / "a.txt", tmp_path / "train.bin", engine=TASKS)
    assert names(tmp_path) == ["a.txt"]


def test_the_folder_of_a_killed_run_is_removed(ray: InlineRay, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    dead = tmp_path / ".train.bin.abc.tasks"
    dead.mkdir()
    (dead / "lock").touch()
    encode_file(TOKENIZER, tmp_path / "a.txt", tmp_path / "train.bin", engine=TASKS)
    assert names(tmp_path) == ["a.txt", "train.bin", "train.bin.json"]


def test_what_only_this_process_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"standard input, iterables .* cannot be read by other processes"):
        encode_file(TOKENIZER, iter(["hello"]), tmp_path / "train.bin", engine=TASKS)
    with pytest.raises(SettingsError, match="kind"):
        encode_file(TOKENIZER, iter(["hello"]), tmp_path / "train.bin", engine={"kind": "slurm"})  # type: ignore[typeddict-item]


def test_the_command(tmp_path: Path, ray: InlineRay, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = save_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "a.txt").write_text(f"lowest{EOT}" * 20)
    (tmp_path / "c.yaml").write_text("input: a.txt\nengine: {kind: local, retries: 2}\n")
    command = ["encode", "--tokenizer", str(tokenizer), "--out", str(tmp_path / "train.bin"), "--shard_tokens", "9"]
    assert main([*command, "--input", str(tmp_path / "a.txt"), "--engine", "ray"]) == 0
    submitted = len(ray.names)
    assert submitted > 2
    whole = bpeflow.Tokenizer.load(tokenizer).encode((tmp_path / "a.txt").read_text(), allowed_special="all")
    assert np.concatenate(load_shards(tmp_path / "train.bin")).tolist() == whole
    assert (
        main([*command, "--config", str(tmp_path / "c.yaml"), "--input", str(tmp_path / "a.txt"), "--overwrite"]) == 0
    )
    assert len(ray.names) == submitted, "the config's section says local"
