"""Corpora become token files: what `Tokenizer.encode` makes of each document, however the work is divided."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.dataset import encode as corpus_encoder
from bpeflow.dataset import encode as dataset
from bpeflow.dataset.decode import decode_file
from bpeflow.dataset.encode import encode_file, find_in_order
from bpeflow.dataset.facade import Tokenizer
from bpeflow.dataset.identity import tokenizer_hash
from bpeflow.dataset.token_file import index_path, load_document_offsets, load_tokens, sidecar_path
from bpeflow.errors import ConfigError, CorpusError, FormatError, InvalidUtf8Error

EOT, PAD = "<|endoftext|>", "<pad>"
MERGES = [(b"h", b"e"), (b"l", b"l"), (b"he", b"ll"), (b"hell", b"o"), (b" ", b"t"), (b"\xc3", b"\xa9"), (b"a", b"a")]
CUSTOM = r"[a-z]+| ?é|\s+"  # which does not match everything
PATTERNS = ["gpt2", "cl100k", CUSTOM]

PIECES = [b"hello", b" there", b"\r\n", b"\n", b" ", b"h\xc3\xa9", b"123", b"!", b"aaaa", b"\xe4\xb8\xad"]
PIECES += [EOT.encode(), PAD.encode()]
VALID = st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)
BROKEN = st.lists(st.sampled_from([*PIECES, b"\xc3", b"\xff", b"\xe4\xb8"]), max_size=30).map(b"".join)


def make_tokenizer(
    pattern: str = "gpt2", encoder: str = "auto", special_tokens: tuple[str, ...] = (EOT, PAD)
) -> Tokenizer:
    tokens = [*(bytes([byte]) for byte in range(256)), *(left + right for left, right in MERGES)]
    return Tokenizer(dict(enumerate(tokens)), MERGES, special_tokens, pattern, encoder=encoder)


TOKENIZERS = {(p, encoder): make_tokenizer(p, encoder) for p in PATTERNS for encoder in ("auto", "python")}


def expected(
    tokenizer: Tokenizer,
    contents: list[bytes],
    separator: str | None = EOT,
    end: int | None = None,
    as_text: bool = False,
    policy: str = "error",
) -> list[list[int]]:
    """The definition: the ids of each document, its end token included. (For delimiters that do not overlap.)"""
    documents: list[bytes] = []
    for content in contents:
        parts = content.split(separator.encode()) if separator else [content]
        documents += parts if parts[-1] else parts[:-1]
    texts = [document.decode(errors="replace") for document in documents if policy != "skip" or is_utf8(document)]
    ids = [tokenizer.encode(text, allowed_special=() if as_text else "all") for text in texts]
    return [[*document, *([] if end is None else [end])] for document in ids]


def is_utf8(data: bytes) -> bool:
    return data.decode(errors="ignore").encode() == data


def read_documents(path: Path) -> list[list[int]]:
    tokens, offsets = load_tokens(path), load_document_offsets(path)
    return [tokens[start:end].tolist() for start, end in pairwise(offsets)]


def write_files(folder: Path, contents: list[bytes]) -> list[Path]:
    paths = [folder / f"{number}.txt" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


@pytest.fixture(params=["one after another", "in threads"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks one after another, or several at once in threads of this process, whatever the encoder."""
    monkeypatch.setattr(corpus_encoder, "_leaves_interpreter", lambda tokenizer: request.param == "in threads")


@pytest.mark.slow
@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("encoder", ["auto", "python"])
@given(
    contents=st.lists(VALID, min_size=1, max_size=3),
    chunk_size=st.integers(1, 60),
    threads=st.integers(1, 3),
    separator=st.sampled_from([None, "", PAD, "\n", "lo"]),
    end_token=st.sampled_from([None, "", PAD]),
    as_text=st.booleans(),
)
def test_tokens_are_those_of_the_documents_one_after_another(
    pattern: str,
    encoder: str,
    contents: list[bytes],
    chunk_size: int,
    threads: int,
    separator: str | None,
    end_token: str | None,
    as_text: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = Path(mkdtemp(dir=tmp_path_factory.getbasetemp()))
    tokenizer = TOKENIZERS[pattern, encoder]
    done = encode_file(
        tokenizer, write_files(folder, contents), folder / "train.bin", separator=separator, end_token=end_token,
        special_tokens_as_text=as_text, index=True, threads=threads, chunk_size=chunk_size,
    )  # fmt: skip
    ends_with = EOT if separator is None else separator
    end = tokenizer.special_tokens.get(ends_with if end_token is None else end_token)
    documents = expected(tokenizer, contents, ends_with, end, as_text)
    assert read_documents(folder / "train.bin") == documents
    assert (done.documents, done.skipped_documents, done.bytes) == (len(documents), 0, sum(map(len, contents)))
    assert done.tokens == sum(map(len, documents))


@pytest.mark.slow
@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM])
@pytest.mark.parametrize("policy", ["replace", "skip"])
@given(contents=st.lists(BROKEN, min_size=1, max_size=3), chunk_size=st.integers(1, 60), threads=st.integers(1, 3))
def test_what_is_not_utf8_is_replaced_or_skipped(
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
        threads=threads, chunk_size=chunk_size,
    )  # fmt: skip
    end = tokenizer.special_tokens[EOT]
    documents = expected(tokenizer, contents, end=end, policy=policy)
    assert read_documents(folder / "train.bin") == documents
    assert done.skipped_documents == len(expected(tokenizer, contents, policy="replace")) - len(documents)


@pytest.mark.parametrize(("pattern", "encoder"), [("gpt2", "python"), (CUSTOM, "auto")])
@pytest.mark.parametrize("threads", [2, 3])
def test_processes_keep_the_order(
    pattern: str, encoder: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_encoder, "SMALL_INPUT", 0)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    contents = [b"".join(choose.choices(PIECES, k=choose.choice([0, 10, 3000]))) for _ in range(4)]
    tokenizer = TOKENIZERS[pattern, encoder]
    encode_file(
        tokenizer, write_files(tmp_path, contents), tmp_path / "train.bin", index=True, threads=threads, chunk_size=500
    )
    assert read_documents(tmp_path / "train.bin") == expected(tokenizer, contents, end=tokenizer.special_tokens[EOT])


def test_a_document_cut_into_chunks_is_one(tmp_path: Path) -> None:
    [path] = write_files(tmp_path, [b"hello there " * 1000])
    done = encode_file(make_tokenizer(), path, tmp_path / "train.bin", index=True, chunk_size=100)
    assert done.documents == 1
    assert load_document_offsets(tmp_path / "train.bin").tolist() == [0, done.tokens]


def test_a_text_that_the_pattern_does_not_match_is_a_document_all_the_same(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(CUSTOM)
    encode_file(tokenizer, write_files(tmp_path, [b"123"]), tmp_path / "train.bin", index=True)
    assert read_documents(tmp_path / "train.bin") == [[tokenizer.special_tokens[EOT]]]


def test_a_separator_may_overlap_with_special_tokens(tmp_path: Path) -> None:
    """What is leftmost, and longest there, counts, as in training."""
    tokenizer = make_tokenizer(special_tokens=("<a>", "<a>b"))
    encode_file(tokenizer, write_files(tmp_path, [b"x<a>by<a>z"]), tmp_path / "train.bin", index=True)
    first, second = tokenizer.special_tokens.values()
    assert read_documents(tmp_path / "train.bin") == [[ord("x"), second, ord("y"), first], [ord("z"), first]]


def test_a_tokenizer_without_special_tokens_ends_nothing(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(special_tokens=())
    encode_file(tokenizer, write_files(tmp_path, [b"a" + EOT.encode(), b"b"]), tmp_path / "train.bin", index=True)
    assert read_documents(tmp_path / "train.bin") == [tokenizer.encode("a" + EOT), [ord("b")]]


def test_files_come_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    a, b, c = write_files(tmp_path, [b"a", b"b", b"c"])
    (link := tmp_path / "link.txt").symlink_to(a)
    assert [file.path for file in find_in_order([c, link, str(tmp_path / "*.txt")])] == [c, link, b]
    encode_file(make_tokenizer(), [c, a, b], tmp_path / "train.bin", end_token="")
    assert load_tokens(tmp_path / "train.bin").tolist() == [*b"cab"]


def test_the_sidecar_tells_where_the_tokens_are_from(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    [path] = write_files(tmp_path, [b"hello\xff<pad>" + EOT.encode() + b"!"])
    done = encode_file(tokenizer, path, tmp_path / "train.bin", invalid_utf8="skip", special_tokens_as_text=True)
    facts = json.loads(sidecar_path(tmp_path / "train.bin").read_text(encoding="utf-8"))
    assert facts.pop("bpeflow")
    end_id = tokenizer.special_tokens[EOT]
    assert facts == {
        "format": "bpeflow tokens", "version": 1, "dtype": "uint16", "byte_order": "little", "tokens": 2,
        "documents": 1, "index": False, "skipped_documents": 1,
        "tokenizer": {"sha256": tokenizer_hash(tokenizer.to_spec()), "vocab_size": 265, "pattern": "gpt2"},
        "separator": EOT, "end_token": {"text": EOT, "id": end_id}, "special_tokens": "as text",
        "invalid_utf8": "skip", "bytes": 25, "input": [{"path": str(path), "bytes": 25}],
    }  # fmt: skip
    assert done.written == (tmp_path / "train.bin", tmp_path / "train.bin.json")


def test_progress_ends_at_the_size_of_the_corpus(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    paths = write_files(tmp_path, [b"hello there " * 100, b"", b"hello"])
    encode_file(make_tokenizer(), paths, tmp_path / "train.bin", chunk_size=100, progress=lambda *at: told.append(at))
    assert len(told) > 10
    assert told == sorted(told)
    assert told[-1] == (1205, 1205)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM])
def test_broken_utf8_is_named_with_its_place_and_nothing_is_left(pattern: str, tmp_path: Path) -> None:
    paths = write_files(tmp_path, [b"hello " * 20, b"hello " * 20 + EOT.encode() + b"hell\xff"])
    with pytest.raises(InvalidUtf8Error, match=r"1.txt is not UTF-8 at byte 137 "):
        encode_file(make_tokenizer(pattern), paths, tmp_path / "train.bin", threads=2, chunk_size=30, index=True)
    assert sorted(tmp_path.iterdir()) == paths


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"dtype": "uint8"}, "dtype: 'uint8' is none of auto, uint16, uint32"),
        ({"end_token": "<end>"}, "end_token: '<end>' is no special token of the tokenizer, which has '<|endoftext|>'"),
        ({"invalid_utf8": "ignore"}, "invalid_utf8: 'ignore' is none of error, replace, skip"),
        ({"threads": 0}, "threads is 0"),
        ({"chunk_size": 0}, "chunk_size: must be at least 1 byte"),
    ],
)
def test_what_is_wrong_is_said_before_any_work(options: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    paths = write_files(tmp_path, [b"hello\xff"])
    with pytest.raises(ConfigError, match=complaint):
        encode_file(make_tokenizer(), paths, tmp_path / "train.bin", **options)
    with pytest.raises(CorpusError, match="no input is given"):
        encode_file(make_tokenizer(), [], tmp_path / "train.bin")


def test_a_dtype_too_small_is_refused_before_any_work(tmp_path: Path) -> None:
    tokens = {number: bytes([number]) for number in range(256)} | {70_000: b"zz"}
    with pytest.raises(ConfigError, match="the vocabulary has 70,001; use uint32"):
        encode_file(Tokenizer(tokens, []), write_files(tmp_path, [b"\xff"]), tmp_path / "train.bin", dtype="uint16")
    done = encode_file(Tokenizer(tokens, []), write_files(tmp_path, [b"zz"]), tmp_path / "train.bin")
    assert done.dtype == "uint32"
    assert load_tokens(tmp_path / "train.bin").tolist() == [122, 122]


def test_a_full_uint16_vocabulary_has_room_for_documents(tmp_path: Path) -> None:
    """Inside, ends of documents are marked by an id that is not in the vocabulary."""
    tokens = {number: bytes([number]) for number in range(256)} | {65_534: b"zz"}
    tokenizer = Tokenizer(tokens, [(b"z", b"z")], [EOT])
    assert tokenizer.vocab_size == 65_536
    done = encode_file(tokenizer, write_files(tmp_path, [b"zz" + EOT.encode() + b"a"]), tmp_path / "train.bin")
    assert done.dtype == "uint16"
    assert load_tokens(tmp_path / "train.bin").tolist() == [65_534, 65_535, 97, 65_535]


def test_output_never_takes_the_place_of_input(tmp_path: Path) -> None:
    [path] = write_files(tmp_path, [b"hello"])
    (tmp_path / "link.bin").symlink_to(path)
    for out in (path, tmp_path / "link.bin"):
        with pytest.raises(ConfigError, match="is one of the input files"):
            encode_file(make_tokenizer(), path, out)
    encode_file(make_tokenizer(), path, tmp_path / "train.bin", index=True)
    for name in ("train.bin", "train.bin.json", "train.bin.idx"):
        with pytest.raises(ConfigError, match="is one of the input files"):
            decode_file(make_tokenizer(), tmp_path / "train.bin", tmp_path / name)


# ---- decoding ----


@pytest.mark.slow
@given(contents=st.lists(VALID, min_size=1, max_size=3), at_once=st.integers(1, 20))
def test_decoding_gives_back_files_that_end_with_the_separator(
    contents: list[bytes], at_once: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Path(mkdtemp(dir=tmp_path_factory.getbasetemp()))
    contents = [content + EOT.encode() for content in contents]
    out = folder / "train.bin"
    encoded = encode_file(make_tokenizer(), write_files(folder, contents), out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "DECODED_AT_ONCE", at_once)
        done = decode_file(make_tokenizer(), out, folder / "text.txt")
    text = b"".join(contents)
    assert (folder / "text.txt").read_bytes() == text
    assert (done.tokens, done.bytes) == (encoded.tokens, len(text))


def test_another_tokenizer_is_refused_unless_told(tmp_path: Path) -> None:
    encode_file(make_tokenizer(), write_files(tmp_path, [b"hello"]), tmp_path / "train.bin")
    with pytest.raises(FormatError, match=r"train.bin: was made by another tokenizer.*--any_tokenizer"):
        decode_file(make_tokenizer("cl100k"), tmp_path / "train.bin", tmp_path / "text.txt")
    assert not (tmp_path / "text.txt").exists()
    decode_file(make_tokenizer("cl100k"), tmp_path / "train.bin", tmp_path / "text.txt", any_tokenizer=True)
    assert (tmp_path / "text.txt").read_bytes() == b"hello" + EOT.encode()


def test_an_unknown_id_is_named_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "train.bin"
    encode_file(make_tokenizer(), write_files(tmp_path, [b"123456"]), out)
    out.write_bytes(out.read_bytes()[:-4] + b"\xff\xff\0\0")
    monkeypatch.setattr(dataset, "DECODED_AT_ONCE", 4)
    with pytest.raises(FormatError, match=r"train.bin: behind its first 4 tokens: unknown id 65535 at index 1"):
        decode_file(make_tokenizer(), out, tmp_path / "text.txt")
    assert not (tmp_path / "text.txt").exists()


def test_a_token_file_cut_short_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "train.bin"
    encode_file(make_tokenizer(), write_files(tmp_path, [b"hello"]), out, index=True)
    index_path(out).unlink()
    with pytest.raises(FormatError, match=r"train.bin.idx: is missing"):
        decode_file(make_tokenizer(), out, tmp_path / "text.txt")
    out.write_bytes(b"\0")
    with pytest.raises(FormatError, match=r"train.bin: cut short"):
        decode_file(make_tokenizer(), out, tmp_path / "text.txt")
