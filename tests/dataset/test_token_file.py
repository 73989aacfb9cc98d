"""Token files: they are written completely or not at all, and damage is an error that names the file."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from interrupting import interrupting
from token_corpora import token_set

import bpeflow
from bpeflow import Tokenizer
from bpeflow._util.text import UnmatchedPolicy
from bpeflow.dataset import token_writer
from bpeflow.dataset.decode import decode_file
from bpeflow.dataset.journal import finish_publishing
from bpeflow.dataset.token_file import (
    choose_dtype,
    index_path,
    load_document_offsets,
    load_shards,
    load_tokens,
    sidecar_path,
)
from bpeflow.dataset.token_writer import new_token_set
from bpeflow.errors import ConfigError, FormatError
from bpeflow.formats import gpt2
from bpeflow.formats.tokenizer_spec import TokenizerSpec, tokenizer_hash
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.vocab import Vocab

FACTS = {"tokenizer": {"sha256": "abc"}, "input": []}


def write(path: Path, documents: list[list[int]], dtype: Any = "uint16", index: bool = True) -> None:
    with new_token_set(token_set(path, "bin", dtype, index=index), FACTS) as writer:
        for ids in documents:
            writer.write(np.array(ids, dtype), np.array([len(ids)]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "train.bin"
    write(path, [[1, 2, 3], [], [65535]])
    return path


def test_the_ids_are_a_flat_array_with_everything_else_in_other_files(path: Path) -> None:
    assert path.read_bytes() == bytes([1, 0, 2, 0, 3, 0, 255, 255])
    assert index_path(path).read_bytes() == b"".join(number.to_bytes(8, "little") for number in (0, 3, 3, 4))
    facts = json.loads(sidecar_path(path).read_text(encoding="utf-8"))
    assert facts == {
        "format": "bpeflow tokens", "version": 1, "dtype": "uint16", "byte_order": "little", "tokens": 4,
        "crc32": f"{crc32(path.read_bytes()):08x}", "documents": 3, "index": True, **FACTS,
    }  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="a system without this advice")
def test_a_long_file_is_written_back_while_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_writer, "_WRITE_BACK", 6)
    ranges: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, begin, size, __: ranges.append((begin, size)))
    write(tmp_path / "train.bin", [[1], [2, 3, 4], [5], [6, 7], [8]], index=False)
    assert ranges == [(0, 8), (8, 6)]
    assert bpeflow.load_tokens(tmp_path / "train.bin").tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_tokens_are_mapped_read_only(path: Path) -> None:
    tokens = bpeflow.load_tokens(path)
    assert isinstance(tokens, np.memmap)
    assert (tokens.dtype, tokens.tolist()) == (np.dtype("<u2"), [1, 2, 3, 65535])
    assert bpeflow.load_document_offsets(str(path)).tolist() == [0, 3, 3, 4]
    with pytest.raises(ValueError, match="read-only"):
        tokens[0] = 7  # type: ignore[index]


def test_uint32_ids_and_empty_files(tmp_path: Path) -> None:
    write(tmp_path / "large.bin", [[70_000]], "uint32")
    assert (load_tokens(tmp_path / "large.bin").tolist(), (tmp_path / "large.bin").stat().st_size) == ([70_000], 4)
    write(tmp_path / "empty.bin", [])
    tokens = load_tokens(tmp_path / "empty.bin")
    assert (tokens.tolist(), tokens.dtype, tokens.flags.writeable) == ([], np.dtype("<u2"), False)
    assert load_document_offsets(tmp_path / "empty.bin").tolist() == [0]


@pytest.mark.parametrize("content", [b"\1\0\2\0\3\0", b"\1\0\2\0\3\0\4\0\5\0", b"\1\0\2\0\3\0\4"])
def test_a_file_of_the_wrong_size_is_rejected(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(
        FormatError, match=rf"train.bin: (cut short|too long): {len(content)} bytes.*4 numbers of 2 bytes"
    ):
        load_tokens(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none.bin"):
        load_tokens(tmp_path / "none.bin")


def test_a_missing_sidecar_is_named(path: Path) -> None:
    sidecar_path(path).unlink()
    with pytest.raises(FormatError, match=r"not a token file, or without train.bin.json"):
        load_tokens(path)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda facts: facts | {"dtype": "int8"}, "dtype is missing or damaged"),
        (lambda facts: facts | {"tokens": -1}, "tokens is missing or damaged"),
        (lambda facts: facts | {"tokens": True}, "tokens is missing or damaged"),
        (lambda facts: facts | {"documents": None}, "documents is missing or damaged"),
        (lambda facts: facts | {"index": 1}, "index is missing or damaged"),
        (lambda facts: facts | {"tokenizer": []}, "tokenizer.sha256 is missing or damaged"),
        (lambda facts: facts | {"version": 2}, "has version 2"),
        (lambda facts: {"some": "thing"}, "not the sidecar of a token file"),
        (lambda facts: [], "not the sidecar of a token file"),
    ],
)
def test_a_damaged_sidecar_is_rejected(path: Path, damage: Any, complaint: str) -> None:
    sidecar = sidecar_path(path)
    facts = json.loads(sidecar.read_text(encoding="utf-8"))
    sidecar.write_text(json.dumps(damage(facts)), encoding="utf-8")
    with pytest.raises(FormatError, match=f"train.bin.json: .*{complaint}"):
        load_tokens(path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_sidecar_that_is_not_json_is_rejected(path: Path, content: bytes) -> None:
    sidecar_path(path).write_bytes(content)
    with pytest.raises(FormatError, match=r"train.bin.json: not JSON"):
        load_tokens(path)


def test_a_missing_truncated_or_foreign_index_is_rejected(path: Path) -> None:
    index = index_path(path)
    index.write_bytes(b"".join(number.to_bytes(8, "little") for number in (0, 3, 3, 9)))
    with pytest.raises(FormatError, match=r"train.bin.idx: goes from 0 to 9, but there are 4 tokens"):
        load_document_offsets(path)
    index.write_bytes(bytes(8))
    with pytest.raises(FormatError, match=r"train.bin.idx: cut short"):
        load_document_offsets(path)
    index.unlink()
    with pytest.raises(FormatError, match=r"train.bin.idx: is missing"):
        load_document_offsets(path)


def test_writing_without_an_index_removes_an_earlier_index(path: Path) -> None:
    write(path, [[5]], index=False)
    assert sorted(file.name for file in path.parent.iterdir()) == ["train.bin", "train.bin.json"]
    with pytest.raises(FormatError, match="has no index of its documents; encode again with index=True"):
        load_document_offsets(path)
    index_path(path).write_text("a foreign file", encoding="utf-8")
    write(path, [[5]], index=False)
    assert index_path(path).exists()


def test_an_earlier_index_is_removed_before_the_earlier_sidecar(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, if the process were killed in between, nothing would show that the index may be removed."""
    rename = Path.replace

    def spy(self: Path, target: Path) -> Path:
        assert not index_path(path).exists()
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", spy)
    write(path, [[5]], index=False)
    assert not index_path(path).exists()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_a_failed_block_leaves_the_earlier_files(path: Path, error: BaseException) -> None:
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(type(error)), new_token_set(token_set(path, index=True), FACTS) as writer:
        writer.write(np.array([9], np.uint16), np.array([1]))
        raise error
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_disk_that_is_full_at_the_end_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems allocate space only when the file is flushed."""

    def no_room(descriptor: int) -> None:
        if os.fstat(descriptor).st_size == 2:  # the ids
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(OSError, match=r"No space left on device: '.*train.bin'"):
        write(tmp_path / "train.bin", [[1]])
    assert list(tmp_path.iterdir()) == []


def test_the_sidecar_is_renamed_first_and_the_ids_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed_files: list[str] = []
    rename = Path.replace

    def spy(self: Path, target: Path) -> Path:
        renamed_files.append(Path(target).name)
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", spy)
    write(tmp_path / "train.bin", [[1]])
    assert renamed_files == ["train.bin.json", "train.bin.idx", "train.bin"]


@pytest.mark.parametrize("renamed", [1, 2, 3])
def test_an_interrupt_during_the_renaming_leaves_all_new_files(
    path: Path, monkeypatch: pytest.MonkeyPatch, renamed: int
) -> None:
    """Earlier files are gone by then."""
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", interrupting(Path.replace, renamed, KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write(path, [[1]])
    assert sorted(file.name for file in path.parent.iterdir()) == ["train.bin", "train.bin.idx", "train.bin.json"]
    assert load_tokens(path).tolist() == [1]


def test_files_that_cannot_be_renamed_are_renamed_by_the_next_encoding(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", interrupting(Path.replace, 2, OSError))
        with pytest.raises(OSError):
            write(path, [[1]])
    assert not path.exists()
    finish_publishing(token_set(path, index=True))
    assert sorted(file.name for file in path.parent.iterdir()) == ["train.bin", "train.bin.idx", "train.bin.json"]
    assert load_tokens(path).tolist() == [1]


def test_an_interrupt_after_the_renaming_leaves_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        renamed = rename(self, target)
        if Path(target).name == "train.bin":
            raise KeyboardInterrupt
        return renamed

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "train.bin", [[1]])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.bin", "train.bin.idx", "train.bin.json"]


def test_the_dtype_fits_the_vocabulary() -> None:
    assert [choose_dtype("auto", size) for size in (256, 65_536, 65_537)] == ["uint16", "uint16", "uint32"]
    assert choose_dtype("uint32", 256) == "uint32"
    with pytest.raises(ConfigError, match="uint16 holds ids up to 65,535, and the vocabulary has 65,537; use uint32"):
        choose_dtype("uint16", 65_537)


#: Must not change, because old token files would no longer match their tokenizer.
HASH = "036d3d6322ffd12809e4d15a23c027d02ff54fd59f50cd81b2f09dfd9f7d48ca"
SPEC = TokenizerSpec(Vocab.build([(b"a", b"b"), (b"c", b"d")], ["<s>", "<p>"]))


def test_the_hash_never_changes() -> None:
    assert tokenizer_hash(SPEC) == HASH
    source = load_pretokenizer("gpt2").regex
    assert tokenizer_hash(replace(SPEC, pattern=source)) == HASH
    dropping = replace(SPEC, pattern=r"\w+", unmatched="drop")  # as all custom patterns did in version 0.1.0
    assert tokenizer_hash(dropping) == "ee1913b1399cd4ed8dccbf5aa330c30c7c9b095d670581b6987a3380cfd630ef"


@pytest.mark.parametrize(
    "merges", [[], [(b"t", b"h"), (b"i", b"n"), (b"th", b"in"), (b"h", b"in"), (b"t", b"hin"), (b"th", b"e")]]
)
@pytest.mark.parametrize("specials", [[], ["<s>", "th"]])
@pytest.mark.parametrize("shared", [False, True])
def test_the_hash_does_not_depend_on_how_a_vocabulary_is_held(
    merges: list[tuple[bytes, bytes]], specials: list[str], shared: bool, tmp_path: Path
) -> None:
    if not shared:
        merges = merges[:4]  # no format takes two ids with the same bytes
    spec = TokenizerSpec(Vocab.build(merges, specials, reuse_tokens=shared))
    gpt2.save(spec, tmp_path)
    loaded = gpt2.load(tmp_path)  # tokens in one piece, merges as ids
    assert tokenizer_hash(loaded) == tokenizer_hash(spec)
    assert (loaded.vocab.tokens, loaded.vocab.merges) == (spec.vocab.tokens, spec.vocab.merges)


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, pattern="cl100k"),
        replace(SPEC, whole_tokens=True),
        replace(SPEC, vocab=SPEC.vocab.replaced(merges=SPEC.vocab.merges[:1])),
        replace(SPEC, vocab=SPEC.vocab.replaced(merges=((b"a", b"b"), (b"", b"cd")))),
        replace(SPEC, vocab=SPEC.vocab.replaced(special_tokens={"<s>": 256})),
        replace(SPEC, vocab=SPEC.vocab.replaced(special_tokens={"<s>": 257, "<p>": 256})),
        replace(SPEC, vocab=SPEC.vocab.replaced(tokens=(*SPEC.vocab.tokens, b""))),
    ],
)
def test_everything_that_determines_the_ids_is_in_the_hash(other: TokenizerSpec) -> None:
    assert tokenizer_hash(other) != tokenizer_hash(SPEC)


def test_what_happens_to_unmatched_text_is_in_the_hash() -> None:
    policies: list[UnmatchedPolicy] = ["isolate", "drop", "error"]
    assert len({tokenizer_hash(replace(SPEC, unmatched=policy)) for policy in policies}) == 1
    assert len({tokenizer_hash(replace(SPEC, pattern=r"\w+", unmatched=policy)) for policy in policies}) == 3


@pytest.mark.parametrize("layout", ["bin", "npy", "megatron"])
@pytest.mark.parametrize("shard_tokens", [None, 7])
def test_a_flipped_bit_is_no_text(tmp_path: Path, layout: Any, shard_tokens: int | None) -> None:
    tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<s>"])
    out = tmp_path / ("train.npy" if layout == "npy" else "train.bin")
    documents = ["one", "three or more", "", "four", "five"]
    tokenizer.encode_documents(documents, out, format=layout, shard_tokens=shard_tokens)
    shards = load_shards(out, verify=True)
    assert tokenizer.decode(np.concatenate(shards)) == "<s>".join([*documents, ""])
    path = out if shard_tokens is None else tmp_path / f"train_000001{out.suffix}"
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(content)
    load_tokens(path)
    with pytest.raises(FormatError, match=rf"{path.name}: damaged: its ids have the checksum"):
        load_tokens(path, verify=True)
    with pytest.raises(FormatError, match=rf"{path.name}: damaged: its ids have the checksum"):
        decode_file(tokenizer, out, tmp_path / "text.txt")
    assert not (tmp_path / "text.txt").exists()
