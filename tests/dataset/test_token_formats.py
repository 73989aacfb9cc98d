"""Token files for numpy and Megatron-LM are what these read themselves."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_corpora import EOT, make_tokenizer, token_set

from bpeflow.dataset import megatron
from bpeflow.dataset.decode import decode_file
from bpeflow.dataset.encode import encode_documents, encode_file
from bpeflow.dataset.token_file import load_document_offsets, load_tokens, open_token_file
from bpeflow.dataset.token_set import TokenSet
from bpeflow.dataset.token_writer import new_token_set
from bpeflow.errors import ConfigError, FormatError

FACTS = {"tokenizer": {"sha256": "abc"}}
TEXTS = ["hello there", "", "héhé", "aaaa" * 9]


def write(tokens: TokenSet, documents: list[list[int]]) -> None:
    with new_token_set(tokens, FACTS) as writer:
        for document in documents:
            writer.write(np.array(document, tokens.dtype), np.array([len(document)]))


# ---- numpy ----


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("documents", [[], [[]], [[1, 2], [3]], [[7]] * 1000])
def test_numpy_reads_its_format(dtype: Any, documents: list[list[int]], tmp_path: Path) -> None:
    path = tmp_path / "train.npy"
    write(token_set(path, "npy", dtype, index=True), documents)
    ids = np.load(path)
    expected = [i for document in documents for i in document]
    assert (ids.dtype, ids.ndim, ids.tolist()) == (np.dtype(dtype).newbyteorder("<"), 1, expected)
    tokens = load_tokens(path)
    assert (tokens.dtype, tokens.tolist()) == (ids.dtype, ids.tolist())
    assert len(load_document_offsets(path)) == len(documents) + 1


def test_numpy_maps_its_format(tmp_path: Path) -> None:
    encode_documents(make_tokenizer(), TEXTS, tmp_path / "a.npy")
    encode_documents(make_tokenizer(), TEXTS, tmp_path / "a.bin")
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert mapped.tolist() == load_tokens(tmp_path / "a.bin").tolist()


def test_a_truncated_file_of_numpy_is_rejected(tmp_path: Path) -> None:
    encode_documents(make_tokenizer(), TEXTS, tmp_path / "a.npy")
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    with pytest.raises(FormatError, match=r"a.npy: cut short"):
        load_tokens(tmp_path / "a.npy")


# ---- Megatron-LM ----


def read_as_megatron(prefix: Path) -> tuple[np.dtype[Any], list[list[int]]]:
    """Read documents by the description of the format, as Megatron-LM does, without the package's own code."""
    index, ids = prefix.with_suffix(".idx").read_bytes(), prefix.with_suffix(".bin").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, entries = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    dtype = np.dtype({4: "<i4", 8: "<u2"}[code])
    lengths = struct.unpack_from(f"<{sequences}i", index, 34)
    pointers = struct.unpack_from(f"<{sequences}q", index, 34 + 4 * sequences)
    firsts = struct.unpack_from(f"<{entries}q", index, 34 + 12 * sequences)
    assert len(index) == 34 + 12 * sequences + 8 * entries
    assert firsts[-1] == sequences  # as its reader asserts
    parts = [
        np.frombuffer(ids, dtype, length, pointer).tolist() for length, pointer in zip(lengths, pointers, strict=True)
    ]
    return dtype, [[i for part in parts[first:last] for i in part] for first, last in pairwise(firsts)]


@given(
    documents=st.lists(st.lists(st.integers(0, 300), max_size=4), max_size=8),
    dtype=st.sampled_from(["uint16", "uint32"]), pieces=st.integers(1, 5),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_megatron_reads_its_format(
    documents: list[list[int]], dtype: Any, pieces: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("megatron") / "train.bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        patch.setattr(megatron, "_AT_A_TIME", pieces)
        write(token_set(path, "megatron", dtype), documents)
    assert read_as_megatron(path.with_suffix("")) == ({"uint16": "<u2", "uint32": "<i4"}[dtype], documents)
    assert open_token_file(path).index
    offsets = np.cumsum([0, *map(len, documents)])
    assert load_document_offsets(path).tolist() == offsets.tolist()
    assert load_document_offsets(path).dtype == np.uint64
    assert load_tokens(path).tolist() == [i for document in documents for i in document]


def test_each_document_for_megatron_ends_with_an_end_token(tmp_path: Path) -> None:
    texts = [f"hello{EOT}there{EOT}\n", f"{EOT}a{EOT} \n\n", "b", f"c{EOT}", "\n"]
    paths = [tmp_path / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    tokenizer = make_tokenizer()
    encode_file(tokenizer, paths, tmp_path / "a.bin", format="megatron")
    documents = [tokenizer.decode(ids) for ids in read_as_megatron(tmp_path / "a")[1]]
    assert documents == [text + EOT for text in ("hello", "there", "\n", "", "a", " \n\n", "b", "c", "\n")]


def test_a_corpus_for_megatron(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    done = encode_documents(tokenizer, TEXTS, tmp_path / "a.bin", format="megatron", shard_tokens=30, val_fraction=0.5)
    assert {path.suffix for path in done.written} == {".bin", ".idx", ".json"}
    found = [
        tokenizer.decode(document)
        for split in ("train", "val")
        for path in sorted(tmp_path.glob(f"a_{split}_*.bin"))
        for document in read_as_megatron(path.with_suffix(""))[1]
    ]
    assert sorted(found) == sorted(text + EOT for text in TEXTS)
    with pytest.raises(ConfigError, match=r"a.tokens: is not a name for format megatron: name it a.bin"):
        encode_documents(tokenizer, TEXTS, tmp_path / "a.tokens", format="megatron")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of megatron.core
def test_its_own_reader_agrees(tmp_path: Path) -> None:
    reader = pytest.importorskip(
        "megatron.core.datasets.indexed_dataset",
        reason="megatron-core and PyTorch are not installed",
        exc_type=ImportError,
    )
    encode_documents(make_tokenizer(), TEXTS, tmp_path / "a.bin", format="megatron", dtype="uint32")
    found = reader.IndexedDataset(str(tmp_path / "a"))
    assert [found[i].tolist() for i in range(len(found))] == read_as_megatron(tmp_path / "a")[1]
    assert found.document_indices.tolist() == [0, 1, 2, 3, 4]


def test_a_document_too_long_for_megatron_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(megatron, "LONGEST", 5)
    with pytest.raises(FormatError, match=r"a.idx: a document has 9 tokens, and .* allows 5; give shard_tokens"):
        encode_documents(make_tokenizer(), ["x" * 8], tmp_path / "a.bin", format="megatron")
    assert not [*tmp_path.iterdir()]
    encode_documents(make_tokenizer(), ["x" * 8], tmp_path / "a.bin", format="megatron", shard_tokens=5)


def test_a_damaged_index_of_megatron_is_rejected(tmp_path: Path) -> None:
    encode_documents(make_tokenizer(), TEXTS, tmp_path / "a.bin", format="megatron")
    index = tmp_path / "a.idx"
    good = index.read_bytes()
    for damaged in (b"", good[:20], good[:-1], good + b"x", b"X" + good[1:]):
        index.write_bytes(damaged)
        with pytest.raises(FormatError, match=r"a.idx: not an index of Megatron-LM for the 4 documents of the sidecar"):
            load_document_offsets(tmp_path / "a.bin")
    index.write_bytes(good[:34] + bytes([good[34] + 1]) + good[35:])
    with pytest.raises(FormatError, match=r"a.idx: goes from 0 to .* it belongs to another token file"):
        load_document_offsets(tmp_path / "a.bin")
    index.unlink()
    with pytest.raises(FormatError, match=r"a.idx: is missing"):
        load_document_offsets(tmp_path / "a.bin")


@pytest.mark.parametrize("name", ["a.npy", "a.bin"])
def test_every_format_is_decoded(name: str, tmp_path: Path) -> None:
    layout = "npy" if name == "a.npy" else "megatron"
    encode_documents(make_tokenizer(), TEXTS, tmp_path / name, format=layout)
    decode_file(make_tokenizer(), tmp_path / name, tmp_path / "text")
    assert (tmp_path / "text").read_text(encoding="utf-8") == "".join(text + EOT for text in TEXTS)
    with pytest.raises(ConfigError, match=r"is one of the input files"):
        decode_file(make_tokenizer(), tmp_path / name, tmp_path / ("a.npy.json" if layout == "npy" else "a.idx"))


@pytest.mark.parametrize("name", ["q.parquet", "s.txt", "x.jsonl", "x.json", "x.gz", "x.bin.zst", "X.TXT", "train.idx"])
@pytest.mark.parametrize("options", [{}, {"format": "bin"}, {"shard_tokens": 5}])
def test_names_of_other_formats_are_refused(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{name}: files of tokens end in .bin, or in .npy"):
        encode_documents(make_tokenizer(), TEXTS, tmp_path / name, **options)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["train", "train.tokens", "train.u16", "train.2024", "v1.5"])
def test_other_names_are_accepted(name: str, tmp_path: Path) -> None:
    encode_documents(make_tokenizer(), ["hello"], tmp_path / name)
    assert load_tokens(tmp_path / name).tolist()
