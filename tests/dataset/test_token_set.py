"""Splits and shards: which document goes where depends on nothing else, and all files appear, or none."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupting import interrupting
from token_corpora import CUSTOM, EOT, contents_utf8, make_tokenizer, token_set, write_files

import bpeflow
from bpeflow.dataset.decode import decode_file
from bpeflow.dataset.encode import encode_documents, encode_file
from bpeflow.dataset.token_file import (
    index_path,
    load_document_offsets,
    load_shards,
    load_tokens,
    sidecar_path,
    split_path,
)
from bpeflow.dataset.token_set import TokenSet
from bpeflow.dataset.token_writer import new_token_set
from bpeflow.errors import AlreadyExistsError, FormatError, TokenFileNotFoundError

FACTS = {"tokenizer": {"sha256": "abc"}, "input": []}
documents_of_ids = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=9)


@pytest.fixture(autouse=True, scope="module")
def _without_flushing() -> Iterator[None]:
    """Flushing hundreds of small files to disk takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def read(path: Path) -> list[list[int]]:
    """Return the documents of a token file."""
    tokens, offsets = load_tokens(path), load_document_offsets(path)
    return [tokens[start:end].tolist() for start, end in pairwise(offsets.tolist())]


def write(tokens: TokenSet, documents: list[list[int]], cuts: list[int]) -> list[Path]:
    """Write documents in pieces that end at `cuts`. An end at a cut is written before it or after it, in turns."""
    ids = np.array([i for document in documents for i in document], np.uint16)
    ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
    done = 0
    with new_token_set(tokens, FACTS) as writer:
        for number, (start, end) in enumerate(pairwise([0, *sorted(cuts), len(ids)])):
            last = len(ends) if end == len(ids) else int(np.searchsorted(ends, end, "left" if number % 2 else "right"))
            writer.write(ids[start:end], ends[done : max(last, done)] - start)
            done = max(last, done)
        writer.write(ids[:0], ends[done:] - len(ids))
    return [part.path for split in writer.splits.values() for part in split.parts]


def shards_by_definition(documents: list[list[int]], limit: int) -> list[list[list[int]]]:
    shards: list[list[list[int]]] = [[]]
    for document in documents:
        if (length := sum(map(len, shards[-1]))) > 0 and length + len(document) > limit:
            shards.append([])
        while len(document) > limit:
            shards[-1].append(document[:limit])
            shards.append([])
            document = document[limit:]
        shards[-1].append(document)
    return shards


@given(
    documents=documents_of_ids, limit=st.integers(1, 12), data=st.data(), layout=st.sampled_from(["bin", "megatron"])
)
@settings(max_examples=20, deadline=None)
def test_shards_end_where_documents_end(
    documents: list[list[int]], limit: int, data: st.DataObject, layout: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cuts = data.draw(st.lists(st.integers(0, sum(map(len, documents))), max_size=8))
    folder = tmp_path_factory.mktemp("shards")
    paths = write(token_set(folder / "a.bin", layout, index=True, shard_tokens=limit), documents, cuts)
    assert [read(path) for path in paths] == shards_by_definition(documents, limit)
    assert [path.name for path in paths] == [f"a_{number:06d}.bin" for number in range(len(paths))]
    shards = load_shards(folder / "a.bin")
    assert [i for shard in shards for i in shard.tolist()] == [i for document in documents for i in document]
    assert all(len(shard) <= limit for shard in shards)


def chosen(seed: int, fraction: float, documents: int) -> list[bool]:
    """Return whether each document is for validation, by the definition."""
    numbers = np.random.PCG64(seed).random_raw(documents).tolist()
    return [number / 2**64 < fraction for number in numbers]


@given(
    documents=documents_of_ids, fraction=st.sampled_from([0.01, 0.3, 0.99]), seed=st.integers(0, 2**70), data=st.data()
)
@settings(max_examples=20, deadline=None)
def test_documents_are_split_by_their_numbers(
    documents: list[list[int]],
    fraction: float,
    seed: int,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cuts = data.draw(st.lists(st.integers(0, sum(map(len, documents))), max_size=8))
    folder = tmp_path_factory.mktemp("split")
    write(token_set(folder / "train.bin", index=True, val_fraction=fraction, seed=seed), documents, cuts)
    in_val = chosen(seed, fraction, len(documents))
    for name, wanted in (("train.bin", False), ("val.bin", True)):
        assert read(folder / name) == [ids for ids, val in zip(documents, in_val, strict=True) if val == wanted]


def test_the_choice_never_changes(tmp_path: Path) -> None:
    write(token_set(tmp_path / "train.bin", index=True, val_fraction=0.1), [[number] for number in range(50)], [])
    assert load_tokens(tmp_path / "val.bin").tolist() == [2, 3, 11, 13, 20, 48]
    write(token_set(tmp_path / "1_train.bin", val_fraction=0.1, seed=1), [[number] for number in range(50)], [])
    assert load_tokens(tmp_path / "1_val.bin").tolist() != [2, 3, 11, 13, 20, 48]


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".json"}


@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM])
def test_chunks_threads_and_forms_of_the_corpus_do_not_matter(pattern: str, tmp_path: Path) -> None:
    tokenizer = make_tokenizer(pattern)
    texts = [f"hello there {number} " * (number % 7) + "hé\n" * (number % 3) for number in range(24)]
    (tmp_path / "a.txt").write_text("".join(text + EOT for text in texts), encoding="utf-8")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    options: dict[str, Any] = {"index": True, "shard_tokens": 1e2, "val_fraction": 0.2, "seed": 3}
    written = []
    for number, (chunk_size, threads) in enumerate([(10, 1), (100, 3), (1 << 20, 1)]):
        out = tmp_path / str(number) / "train.bin"
        out.parent.mkdir()
        done = encode_file(tokenizer, tmp_path / "a.txt", out, chunk_size=chunk_size, num_threads=threads, **options)
        written.append(files_in(out.parent))
    assert written[0] == written[1] == written[2]
    assert len(written[0]) > 8
    assert (done.documents, done.val_documents) == (24, sum(chosen(3, 0.2, 24)))
    assert done.tokens == sum(map(len, load_shards(tmp_path / "0" / "train.bin"))) + done.val_tokens
    for name, source in (("lines", tmp_path / "a.jsonl"), ("iterable", iter(texts))):
        (tmp_path / name).mkdir()
        encode_file(tokenizer, source, tmp_path / name / "val_train.bin", index=True, val_fraction=0.2, seed=3)
        val = read(tmp_path / name / "val_val.bin")
        assert [tokenizer.decode(ids) for ids in val] == [
            text + EOT for text, val in zip(texts, chosen(3, 0.2, 24), strict=True) if val
        ]


@given(
    contents=st.lists(contents_utf8, min_size=1, max_size=4), chunk_size=st.integers(1, 40), limit=st.integers(1, 20)
)
@settings(max_examples=10, deadline=None)
def test_a_document_has_the_same_ids_in_any_division(
    contents: list[bytes], chunk_size: int, limit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, tokenizer = tmp_path_factory.mktemp("same"), make_tokenizer()
    paths = write_files(folder, contents)
    encode_file(tokenizer, paths, folder / "whole.bin", index=True)
    documents = read(folder / "whole.bin")
    encode_file(tokenizer, paths, folder / "train.bin", index=True, val_fraction=0.4, chunk_size=chunk_size)
    in_val = chosen(0, 0.4, len(documents))
    assert read(folder / "val.bin") == [ids for ids, val in zip(documents, in_val, strict=True) if val]
    assert read(folder / "train.bin") == [ids for ids, val in zip(documents, in_val, strict=True) if not val]
    encode_file(tokenizer, paths, folder / "s.bin", shard_tokens=limit, index=True, chunk_size=chunk_size)
    shards = shards_by_definition(documents, limit)
    assert [read(folder / f"s_{number:06d}.bin") for number in range(len(shards))] == shards


@pytest.mark.parametrize(("fraction", "empty", "full"), [(1e-9, "val", "train"), (1 - 1e-9, "train", "val")])
def test_a_split_without_documents_is_named(
    fraction: float, empty: str, full: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encode_documents(make_tokenizer(), ["a"] * 1200, tmp_path / "train.bin", val_fraction=fraction)
    assert f"{empty}.bin: has none of the 1,200 documents: give another val_fraction or seed" in caplog.text
    assert f"{full}.bin: has none" not in caplog.text
    assert load_tokens(tmp_path / f"{empty}.bin").tolist() == []


# ---- names and sidecars ----


def test_the_names_of_splits() -> None:
    names = ["train.bin", "owt_train.bin", "owt-train.npy", "owt.bin", "strain.bin", "train2.bin", "ids"]
    assert [split_path(Path("a/b.c", name), "val").name for name in names] == [
        "val.bin", "owt_val.bin", "owt-val.npy", "owt_val.bin", "strain_val.bin", "train2_val.bin", "ids_val",
    ]  # fmt: skip
    assert split_path(Path("owt.bin"), "train").name == "owt_train.bin"
    assert split_path(Path("owt_train.bin"), "train").name == "owt_train.bin"


def test_a_shard_is_a_token_file_that_knows_its_place(tmp_path: Path) -> None:
    tokenizer, out = make_tokenizer(), tmp_path / "owt.bin"
    done = encode_documents(tokenizer, ["hello"] * 9, out, shard_tokens=4, val_fraction=0.3, seed=5)
    names = [f"owt_train_{number:06d}.bin" for number in range(3)] + [
        f"owt_val_{number:06d}.bin" for number in range(2)
    ]
    assert [path.name for path in done.written] == [name + ending for name in names for ending in ("", ".json")]
    facts = json.loads(sidecar_path(tmp_path / names[1]).read_text(encoding="utf-8"))
    assert (facts["tokens"], facts["documents"], "input" in facts) == (4, 2, False)
    assert facts["set"] == {
        "first": names[0], "split": "train", "val_fraction": 0.3, "seed": 5, "shard": 1, "shards": 3, "shard_tokens": 4,
    }  # fmt: skip
    facts = json.loads(sidecar_path(tmp_path / names[0]).read_text(encoding="utf-8"))
    assert facts["input"] == [{"path": "<documents>", "bytes": None}]


# ---- reading ----


@pytest.mark.parametrize("name", ["train.bin", "train.npy", "train_m.bin"])
def test_shards_are_read_and_decoded_under_the_name_of_the_set(name: str, tmp_path: Path) -> None:
    tokenizer, out = make_tokenizer(), tmp_path / name
    layout = "megatron" if "_m" in name else None
    texts = ["hello there", "", "aaaa" * 9, "h\u00e9"]
    encode_documents(tokenizer, texts, out, shard_tokens=5, format=layout)
    assert len(load_shards(out)) == len([*tmp_path.glob(f"*{out.suffix}")]) == 7
    decoded = decode_file(tokenizer, out, tmp_path / "text")
    assert (tmp_path / "text").read_text(encoding="utf-8") == "".join(text + EOT for text in texts)
    assert (decoded.tokens, decoded.bytes) == (sum(map(len, load_shards(out))), (tmp_path / "text").stat().st_size)
    one = out.with_name(out.stem + "_000001" + out.suffix)
    assert [shard.tolist() for shard in load_shards(one)] == [load_tokens(one).tolist()]
    with pytest.raises(FormatError, match=r"there is train.*_000000.*, up to train.*_000006.* load_shards"):
        load_tokens(out)
    one.unlink()
    with pytest.raises(FileNotFoundError, match="_000001"):
        bpeflow.load_shards(out)


def test_a_damaged_place_in_the_set_is_rejected(tmp_path: Path) -> None:
    encode_documents(make_tokenizer(), ["hello"] * 3, tmp_path / "a.bin", shard_tokens=2)
    sidecar = sidecar_path(tmp_path / "a_000000.bin")
    facts = json.loads(sidecar.read_text(encoding="utf-8"))
    for damaged in ({"set": []}, {"set": {"shards": -1}}, {"layout": "csv"}):
        sidecar.write_text(json.dumps({**facts, **damaged}), encoding="utf-8")
        with pytest.raises(FormatError, match=r"a_000000.bin.json: (set.shards|layout) is missing or damaged"):
            load_shards(tmp_path / "a.bin")


# ---- all files, or none ----


def encode_set(folder: Path, documents: int = 9, **options: Any) -> None:
    options = {"shard_tokens": 4, "val_fraction": 0.3, "index": True, **options}
    encode_documents(make_tokenizer(), ["hello"] * documents, folder / "train.bin", **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_existing_files_are_not_replaced_unasked(tmp_path: Path) -> None:
    encode_set(tmp_path, 20)
    before = contents(tmp_path)
    for options in ({}, {"val_fraction": 0.0}, {"shard_tokens": 1000}, {"index": False}):
        with pytest.raises(AlreadyExistsError, match=r"train_000000.bin: already exists; .*overwrite=True"):
            encode_set(tmp_path, **options)
    assert contents(tmp_path) == before
    encode_set(tmp_path, 3, overwrite=True)
    after = contents(tmp_path)
    assert {name for name in after if name.startswith("train")} < {name for name in before if name.startswith("train")}
    assert sum(map(len, load_shards(tmp_path / "train.bin"))) + sum(map(len, load_shards(tmp_path / "val.bin"))) == 6
    (tmp_path / "new").mkdir()
    encode_set(tmp_path / "new", 3)
    assert contents(tmp_path / "new") == {name: data for name, data in after.items() if name != "new"}


def test_shards_replace_an_undivided_file_of_their_name_only_if_asked(tmp_path: Path) -> None:
    """It is what the readers would find under that name."""
    encode_set(tmp_path, 9, shard_tokens=None)
    before = contents(tmp_path)
    with pytest.raises(AlreadyExistsError, match=r"train.bin: already exists; .*overwrite=True"):
        encode_set(tmp_path, 3)
    assert contents(tmp_path) == before
    encode_set(tmp_path, 3, overwrite=True)
    assert not before.keys() & contents(tmp_path).keys()
    assert sum(map(len, load_shards(tmp_path / "train.bin"))) + sum(map(len, load_shards(tmp_path / "val.bin"))) == 6


def test_an_undivided_file_replaces_the_shards_of_its_name_only_if_asked(tmp_path: Path) -> None:
    encode_set(tmp_path, 3)
    encode_documents(make_tokenizer(), ["mine"], tmp_path / "train_000099.bin")  # not a shard
    mine = {"train_000099.bin", "train_000099.bin.json"}
    before = contents(tmp_path)
    with pytest.raises(AlreadyExistsError, match=r"_000000.bin: already exists; .*overwrite=True"):
        encode_set(tmp_path, 9, shard_tokens=None)
    assert contents(tmp_path) == before
    encode_set(tmp_path, 9, shard_tokens=None, overwrite=True)
    assert before.keys() & contents(tmp_path).keys() == mine
    assert load_tokens(tmp_path / "train.bin").size


@pytest.mark.parametrize("name", ["val.bin", "train.bin.json", "val.bin.idx"])
def test_foreign_files_are_not_replaced_unasked(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine", encoding="utf-8")
    with pytest.raises(AlreadyExistsError, match=f"{name}: already exists"):
        encode_set(tmp_path, shard_tokens=None)
    assert contents(tmp_path) == {name: b"mine"}


def test_a_token_file_of_the_name_of_a_split_is_not_replaced_unasked(tmp_path: Path) -> None:
    encode_documents(make_tokenizer(), ["hello"], tmp_path / "val.bin")
    with pytest.raises(AlreadyExistsError, match=r"val.bin: already exists"):
        encode_set(tmp_path, shard_tokens=None)


def test_the_index_of_an_earlier_layout_is_removed(tmp_path: Path) -> None:
    encode_set(tmp_path, format="megatron", val_fraction=0, shard_tokens=None)
    assert sorted(contents(tmp_path)) == ["train.bin", "train.bin.json", "train.idx"]
    encode_set(tmp_path, val_fraction=0, shard_tokens=None, overwrite=True)
    assert sorted(contents(tmp_path)) == ["train.bin", "train.bin.idx", "train.bin.json"]


class Killed(BaseException):
    """The end of the process."""


@pytest.mark.parametrize("overwrite", [False, True])
def test_at_any_moment_the_set_is_complete_or_has_no_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """If the process is killed between two steps, the next encoding completes the set, whatever it is told to do."""
    states = []
    if overwrite:
        encode_set(tmp_path, 8, shard_tokens=2)

    def spy(step: Any) -> Any:
        def before(path: Path, *arguments: Any, **options: Any) -> Any:
            if any(".ckpt." in name for name in contents(tmp_path)):
                states.append(contents(tmp_path))
            return step(path, *arguments, **options)

        return before

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", spy(Path.replace))
        patch.setattr(Path, "unlink", spy(Path.unlink))
        encode_set(tmp_path, 5, overwrite=overwrite)
    complete = contents(tmp_path)
    assert len(states) > 9
    for state in states[1:]:
        for name in contents(tmp_path):
            (tmp_path / name).unlink()
        for name, content in state.items():
            (tmp_path / name).write_bytes(content)
        with pytest.raises(AlreadyExistsError):
            encode_set(tmp_path, 7)
        assert contents(tmp_path) == complete


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_interrupt_while_files_get_their_names_leaves_all_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    encode_set(tmp_path / "whole", 5)
    whole = contents(tmp_path / "whole")
    for stop in range(1, len(whole) + 1):
        folder = tmp_path / str(stop)
        if overwrite:
            encode_set(folder, 8)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Path, "replace", interrupting(Path.replace, stop, KeyboardInterrupt))
            encode_set(folder, 5, overwrite=overwrite)
        assert contents(folder) == whole


def test_a_failure_leaves_the_earlier_set(tmp_path: Path) -> None:
    encode_set(tmp_path, 20)
    before = contents(tmp_path)

    def documents() -> Any:
        yield from ["hello"] * 30
        raise Killed

    with pytest.raises(Killed):
        encode_documents(make_tokenizer(), documents(), tmp_path / "train.bin", shard_tokens=2, overwrite=True)
    assert contents(tmp_path) == before


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    def documents() -> Iterator[str]:
        names = [name for name in contents(tmp_path) if name.endswith(".part")]
        for name in [*names, names[0].replace("train", "train_000007"), names[0].replace("train", "val")]:
            (tmp_path / name).write_bytes((tmp_path / name).read_bytes() if name in names else b"")
        left.update(contents(tmp_path))
        yield "hello"

    left: dict[str, bytes] = {}
    encode_documents(make_tokenizer(), documents(), tmp_path / "train.bin", index=True)
    (tmp_path / "train.bin").unlink()
    for name in (*left, ".other.bin.123.part"):
        (tmp_path / name).write_bytes(left.get(name, b""))
    encode_set(tmp_path, overwrite=True)
    assert len(left) > 4
    assert [name for name in contents(tmp_path) if name.endswith(".part")] == [".other.bin.123.part"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs the list of open files in /proc")
def test_finished_shards_are_closed(tmp_path: Path) -> None:
    with new_token_set(token_set(tmp_path / "a.bin", index=True, shard_tokens=1), FACTS) as writer:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        writer.write(np.zeros(30, np.uint16), np.arange(1, 31))
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert len([*tmp_path.glob("*.bin")]) == 30


def test_an_input_among_the_shards_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a_000003.bin").write_text("hello", encoding="utf-8")
    with pytest.raises(bpeflow.ConfigError, match=r"a_000003.bin: is one of the input files"):
        encode_file(make_tokenizer(), tmp_path / "a_000003.bin", tmp_path / "a.bin", shard_tokens=9, overwrite=True)
    assert index_path(tmp_path / "a.bin").exists() is False


def test_a_name_that_is_too_long_for_a_sidecar_fails_before_the_work(tmp_path: Path) -> None:
    def documents() -> Iterator[str]:
        raise AssertionError("work has begun")
        yield

    tokenizer = bpeflow.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
    path = tmp_path / ("a" * 232 + ".bin")  # its sidecar's temporary name has more than 255 bytes
    with pytest.raises(OSError, match="File name too long") as error:
        tokenizer.encode_documents(documents(), path)
    assert error.value.filename == f"{path}.json"
    assert not list(tmp_path.iterdir())


def test_the_files_of_a_split_are_named(tmp_path: Path) -> None:
    encode_documents(make_tokenizer(), iter(["a b"] * 50), tmp_path / "ids.bin", val_fraction=0.2)
    for load in (load_tokens, load_shards):
        with pytest.raises(TokenFileNotFoundError, match=r"there is ids_train\.bin, up to ids_val\.bin: load"):
            load(tmp_path / "ids.bin")
