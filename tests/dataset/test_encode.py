"""Token files hold the ids that `Tokenizer.encode` returns for each document."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_corpora import (
    CUSTOM,
    EOT,
    PAD,
    PATTERNS,
    PIECES,
    TOKENIZERS,
    EncodingRecorder,
    contents_utf8,
    expected,
    is_utf8,
    make_tokenizer,
    read_documents,
    write_files,
)

from bpeflow.corpus.find import InputRules, find_inputs
from bpeflow.dataset import corpus_encoder
from bpeflow.dataset.corpus_encoder import CorpusEncoder
from bpeflow.dataset.decode import decode_file
from bpeflow.dataset.encode import encode_documents, encode_file
from bpeflow.dataset.token_file import load_document_offsets, load_tokens, sidecar_path
from bpeflow.errors import ConfigError, InvalidUtf8Error
from bpeflow.formats.tokenizer_spec import tokenizer_hash
from bpeflow.tokenizer.tokenizer import Tokenizer

#: Contents of files, some of them not UTF-8.
contents_any = st.lists(st.sampled_from([*PIECES, b"\xc3", b"\xff", b"\xe4\xb8"]), max_size=30).map(b"".join)


@pytest.fixture(params=["one at a time", "in threads"])
def _each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encode chunks one at a time, or in several threads of this process, with any encoder."""
    monkeypatch.setattr(CorpusEncoder, "_releases_lock", request.param == "in threads")


@pytest.mark.slow
@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("encoder", ["auto", "python"])
@settings(max_examples=40)
@given(
    contents=st.lists(contents_utf8, min_size=1, max_size=3),
    chunk_size=st.integers(1, 60),
    threads=st.integers(1, 3),
    separator_and_end=st.sampled_from(
        [*product([None, "", PAD], [None, "", PAD, EOT]), *product(["\n", "lo"], ["", PAD])]
    ),
    as_text=st.booleans(),
)
def test_the_tokens_are_the_concatenated_documents(
    pattern: str,
    encoder: str,
    contents: list[bytes],
    chunk_size: int,
    threads: int,
    separator_and_end: tuple[str | None, str | None],
    as_text: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = Path(mkdtemp(dir=tmp_path_factory.getbasetemp()))
    tokenizer = TOKENIZERS[pattern, encoder]
    separator, end_token = separator_and_end
    done = encode_file(
        tokenizer, write_files(folder, contents), folder / "train.bin", separator=separator, end_token=end_token,
        special_tokens_as_text=as_text, index=True, num_threads=threads, chunk_size=chunk_size,
    )  # fmt: skip
    documents = expected(tokenizer, contents, EOT if separator is None else separator, end_token, as_text)
    assert read_documents(folder / "train.bin") == documents
    assert (done.documents, done.skipped_documents, done.bytes) == (len(documents), 0, sum(map(len, contents)))
    assert done.tokens == sum(map(len, documents))


@pytest.mark.slow
@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM])
@pytest.mark.parametrize("policy", ["replace", "skip"])
@settings(max_examples=40)
@given(
    contents=st.lists(contents_any, min_size=1, max_size=3), chunk_size=st.integers(1, 60), threads=st.integers(1, 3)
)
def test_documents_that_are_not_utf8_are_replaced_or_skipped(
    pattern: str,
    policy: Any,
    contents: list[bytes],
    chunk_size: int,
    threads: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = Path(mkdtemp(dir=tmp_path_factory.getbasetemp()))
    tokenizer = TOKENIZERS[pattern, "auto"]
    done = encode_file(
        tokenizer, write_files(folder, contents), folder / "train.bin", invalid_utf8=policy, index=True,
        num_threads=threads, chunk_size=chunk_size,
    )  # fmt: skip
    documents = expected(tokenizer, contents, policy=policy)
    assert read_documents(folder / "train.bin") == documents
    invalid = [text for content in contents for text in content.split(EOT.encode()) if not is_utf8(text)]
    assert done.skipped_documents == (len(invalid) if policy == "skip" else 0)


@pytest.mark.parametrize(("pattern", "encoder"), [("gpt2", "python"), (CUSTOM, "auto")])
@pytest.mark.parametrize("threads", [2, 3])
def test_processes_keep_the_order(
    pattern: str, encoder: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_encoder, "SMALL_INPUT", 0)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    choose = random.Random(seed)
    contents = [b"".join(choose.choices(PIECES, k=choose.choice([0, 10, 3000]))) for _ in range(4)]
    tokenizer = TOKENIZERS[pattern, encoder]
    encode_file(
        tokenizer,
        write_files(tmp_path, contents),
        tmp_path / "train.bin",
        index=True,
        num_threads=threads,
        chunk_size=500,
    )
    assert read_documents(tmp_path / "train.bin") == expected(tokenizer, contents)


def test_a_document_cut_into_chunks_is_one(tmp_path: Path) -> None:
    [path] = write_files(tmp_path, [b"hello there " * 1000])
    done = encode_file(make_tokenizer(), path, tmp_path / "train.bin", index=True, chunk_size=100)
    assert done.documents == 1
    assert load_document_offsets(tmp_path / "train.bin").tolist() == [0, done.tokens]


def test_a_text_without_matches_of_the_pattern_is_still_a_document(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(CUSTOM, unmatched="drop")
    encode_file(tokenizer, write_files(tmp_path, [b"123", b"123"]), tmp_path / "train.bin", index=True)
    assert read_documents(tmp_path / "train.bin") == [[tokenizer.special_tokens[EOT]], []]


@pytest.mark.parametrize("chunk_size", [1, 1000])
@pytest.mark.parametrize(
    ("contents", "end_token", "documents"),
    [
        (["a"], None, ["a"]),
        (["a"], EOT, ["a<|endoftext|>"]),
        (["a"], PAD, ["a<pad>"]),
        (["a<|endoftext|>b"], "", ["a", "b"]),
        (["a<|endoftext|>b"], PAD, ["a<pad>", "b<pad>"]),
        (["a<|endoftext|>"], EOT, ["a<|endoftext|>"]),
        (["a<|endoftext|> \r\n\n"], None, ["a<|endoftext|>", " \r\n\n"]),
        (["a<|endoftext|>\n"], EOT, ["a<|endoftext|>", "\n<|endoftext|>"]),
        (["a<|endoftext|>\n", "b"], None, ["a<|endoftext|>", "\n<|endoftext|>", "b"]),
        (["a<|endoftext|>\n", "b"], "", ["a", "\n", "b"]),
        (["a\n", "", "b\n"], None, ["a\n<|endoftext|>", "b\n"]),
        (["a", "b"], "", ["a", "b"]),
        ([" \n"], None, [" \n"]),
        (["a", " \n", "b"], None, ["a<|endoftext|>", " \n<|endoftext|>", "b"]),
        (["<|endoftext|><|endoftext|>"], None, ["<|endoftext|>", "<|endoftext|>"]),
        (["", ""], EOT, []),
    ],
    ids=str,
)
def test_end_tokens_are_where_documents_end(
    contents: list[str], end_token: str | None, documents: list[str], chunk_size: int, tmp_path: Path
) -> None:
    tokenizer, out = make_tokenizer(), tmp_path / "train.bin"
    paths = write_files(tmp_path, [content.encode() for content in contents])
    done = encode_file(tokenizer, paths, out, end_token=end_token, index=True, chunk_size=chunk_size)
    assert [tokenizer.decode(ids) for ids in read_documents(out)] == documents
    assert done.documents == len(documents)


def test_a_separator_may_overlap_with_special_tokens(tmp_path: Path) -> None:
    """Overlaps are resolved leftmost-longest, as in training."""
    tokenizer = make_tokenizer(special_tokens=("<a>", "<a>b"))
    encode_file(tokenizer, write_files(tmp_path, [b"x<a>by<a>z"]), tmp_path / "train.bin", index=True)
    first, second = tokenizer.special_tokens.values()
    assert read_documents(tmp_path / "train.bin") == [[ord("x"), second, ord("y"), first], [ord("z")]]


def test_without_special_tokens_there_are_no_end_tokens(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(special_tokens=())
    encode_file(tokenizer, write_files(tmp_path, [b"a" + EOT.encode(), b"b"]), tmp_path / "train.bin", index=True)
    assert read_documents(tmp_path / "train.bin") == [tokenizer.encode("a" + EOT), [ord("b")]]


def test_documents_that_nothing_separates_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer, paths = make_tokenizer(special_tokens=()), write_files(tmp_path, [b"a", b"b"])
    encode_file(tokenizer, paths[0], tmp_path / "1.bin")
    encode_file(tokenizer, paths, tmp_path / "2.bin", index=True)
    encode_file(tokenizer, paths, tmp_path / "3.bin", end_token="")
    assert not caplog.records
    encode_file(tokenizer, paths, tmp_path / "train.bin")
    assert "train.bin: nothing separates its 2 documents" in caplog.text
    encode_file(tokenizer, paths, tmp_path / "4.bin", format="megatron")  # despite its index
    assert "4.bin: nothing separates its 2 documents" in caplog.text


def test_the_end_token_is_chosen_by_name_and_shown(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(special_tokens=["<|pad|>", EOT])
    encoded = encode_documents(tokenizer, ["a", "b"], tmp_path / "train.bin")
    end = tokenizer.special_tokens[EOT]
    assert (load_tokens(tmp_path / "train.bin").tolist(), encoded.end_token) == ([ord("a"), end, ord("b"), end], EOT)
    assert f"documents end with {EOT}" in str(encoded)
    assert "documents end" not in str(encode_documents(tokenizer, ["a"], tmp_path / "none.bin", end_token=""))


@pytest.mark.parametrize("options", [{}, {"end_token": ""}], ids=str)
def test_megatron_gets_an_end_token_after_the_last_document_too(options: dict[str, Any], tmp_path: Path) -> None:
    tokenizer, [path] = make_tokenizer(), write_files(tmp_path, [f"a{EOT}b".encode()])
    encode_file(tokenizer, path, tmp_path / "train.bin", format="megatron", **options)
    text = "ab" if options else f"a{EOT}b{EOT}"
    assert load_tokens(tmp_path / "train.bin").tolist() == tokenizer.encode(text)


def test_files_are_in_the_given_order(tmp_path: Path) -> None:
    a, b, c = write_files(tmp_path, [b"a", b"b", b"c"])
    (link := tmp_path / "link.txt").symlink_to(a)
    found = find_inputs([c, link, str(tmp_path / "*.txt")], InputRules(in_order=True))
    assert [entry.files[0].name for entry in found] == [*map(str, [c, link, b])]
    encode_file(make_tokenizer(), [c, a, b], tmp_path / "train.bin", end_token="")
    assert load_tokens(tmp_path / "train.bin").tolist() == [*b"cab"]


def test_the_sidecar_describes_the_origin_of_the_tokens(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    [path] = write_files(tmp_path, [b"hello\xff<pad>" + EOT.encode() + b"!"])
    done = encode_file(tokenizer, path, tmp_path / "train.bin", invalid_utf8="skip", special_tokens_as_text=True)
    facts = json.loads(sidecar_path(tmp_path / "train.bin").read_text(encoding="utf-8"))
    assert facts.pop("bpeflow")
    settings = {"bad_records": "error", "invalid_utf8": "skip", "separator": EOT, "special_tokens_as_text": True}
    assert settings.items() <= facts.pop("settings").items()
    assert facts.pop("text_bytes") == done.bytes
    assert facts.pop("split_documents") == {"train": done.documents}
    assert facts.pop("crc32") == f"{crc32((tmp_path / 'train.bin').read_bytes()):08x}"
    end_id = tokenizer.special_tokens[EOT]
    assert facts == {
        "format": "bpeflow tokens", "version": 1, "dtype": "uint16", "byte_order": "little", "tokens": 1,
        "documents": 1, "index": False, "skipped_documents": 1, "bad_records": 0,
        "tokenizer": {"sha256": tokenizer_hash(tokenizer.to_spec()), "vocab_size": 265, "pattern": "gpt2"},
        "end_token": {"text": EOT, "id": end_id}, "input": [{"path": str(path), "bytes": 25}],
    }  # fmt: skip
    assert done.written == (tmp_path / "train.bin", tmp_path / "train.bin.json")


def test_progress_ends_at_the_size_of_the_corpus(tmp_path: Path) -> None:
    progress = EncodingRecorder()
    paths = write_files(tmp_path, [b"hello there " * 100, b"", b"hello"])
    encode_file(make_tokenizer(), paths, tmp_path / "train.bin", chunk_size=100, observer=progress)
    assert len(progress.reports) > 10
    assert progress.reports == sorted(progress.reports)
    assert progress.reports[-1] == (1205, 1205)


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM])
def test_invalid_utf8_is_named_with_its_position_and_no_files_are_left(pattern: str, tmp_path: Path) -> None:
    paths = write_files(tmp_path, [b"hello " * 20, b"hello " * 20 + EOT.encode() + b"hell\xff"])
    with pytest.raises(InvalidUtf8Error, match=r"1.txt is not UTF-8 at byte 137 "):
        encode_file(make_tokenizer(pattern), paths, tmp_path / "train.bin", num_threads=2, chunk_size=30, index=True)
    assert sorted(tmp_path.iterdir()) == paths


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"dtype": "uint8"}, "dtype: must be 'auto', 'uint16' or 'uint32', found 'uint8'"),
        (
            {"end_token": "<end>"},
            "end_token: '<end>' is not a special token of the tokenizer, which has '<|endoftext|>'",
        ),
        ({"invalid_utf8": "ignore"}, "invalid_utf8: .* 'error', 'replace' or 'skip', found 'ignore'"),
        ({"bad_records": "ignore"}, "bad_records: .* 'error' or 'skip', found 'ignore'"),
        ({"separator": "||"}, "separator: '||' is not a special token of the tokenizer, .* give end_token"),
        ({"num_threads": 0}, "num_threads: must be at least 1, found 0"),
        ({"format": "numpy"}, "format: must be 'bin', 'npy' or 'megatron', found 'numpy'"),
        (
            {"format": "npy"},
            r"train.bin: is not a name for format npy: name it train.npy, or leave out format",
        ),
        ({"shard_tokens": 0}, "shard_tokens: must be at least 1, found 0"),
        (
            {"shard_tokens": 1.5},
            "shard_tokens: must be a valid integer, got a number with a fractional part, found 1.5",
        ),
        ({"val_fraction": 1.0}, "val_fraction: must be less than 1, found 1.0"),
        ({"val_fraction": float("nan")}, "val_fraction: .*finite number, found nan"),
        ({"seed": -1}, "seed: must be at least 0, found -1"),
        ({"chunk_size": 0}, "chunk_size: must be at least 1, found 0"),
        ({"shard_token": 5}, r"unknown setting shard_token \(did you mean shard_tokens\?\)"),
    ],
)
def test_invalid_options_are_rejected_before_any_work(options: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    paths = write_files(tmp_path, [b"hello\xff"])
    with pytest.raises(ConfigError, match=complaint.replace("||", r"\|\|")):
        encode_file(make_tokenizer(), paths, tmp_path / "train.bin", **options)
    with pytest.raises(ConfigError, match="input is missing"):
        encode_file(make_tokenizer(), [], tmp_path / "train.bin")


def test_a_dtype_too_small_is_rejected_before_any_work(tmp_path: Path) -> None:
    tokens = {number: bytes([number]) for number in range(256)} | {70_000: b"zz"}
    with pytest.raises(ConfigError, match="the vocabulary has 70,001; use uint32"):
        encode_file(Tokenizer(tokens, []), write_files(tmp_path, [b"\xff"]), tmp_path / "train.bin", dtype="uint16")
    done = encode_file(Tokenizer(tokens, []), write_files(tmp_path, [b"zz"]), tmp_path / "train.bin")
    assert done.dtype == "uint32"
    assert load_tokens(tmp_path / "train.bin").tolist() == [122, 122]


def test_a_full_uint16_vocabulary_has_room_for_documents(tmp_path: Path) -> None:
    """Internally, the ends of documents are marked by an id outside the vocabulary."""
    tokens = {number: bytes([number]) for number in range(256)} | {65_534: b"zz"}
    tokenizer = Tokenizer(tokens, [(b"z", b"z")], [EOT])
    assert tokenizer.vocab_size == 65_536
    done = encode_file(tokenizer, write_files(tmp_path, [b"zz" + EOT.encode() + b"a"]), tmp_path / "train.bin")
    assert done.dtype == "uint16"
    assert load_tokens(tmp_path / "train.bin").tolist() == [65_534, 65_535, 97]


def test_output_never_replaces_input(tmp_path: Path) -> None:
    path = tmp_path / "text.bin"
    path.write_bytes(b"hello")
    (tmp_path / "link.bin").symlink_to(path)
    for out in (path, tmp_path / "link.bin"):
        with pytest.raises(ConfigError, match="is one of the input files and would be overwritten"):
            encode_file(make_tokenizer(), path, out)
    encode_file(make_tokenizer(), path, tmp_path / "train.bin", index=True)
    for name in ("train.bin", "train.bin.json", "train.bin.idx"):
        with pytest.raises(ConfigError, match="is one of the input files and would be overwritten"):
            decode_file(make_tokenizer(), tmp_path / "train.bin", tmp_path / name)
