"""Corpora become token files: what `Tokenizer.encode` makes of each document, however the work is divided."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.tokenizer import Tokenizer
from bpeflow.tokenizer.dataset import encode_file
from bpeflow.tokenizer.token_file import load_document_offsets, load_tokens

EOT, PAD = "<|endoftext|>", "<pad>"
MERGES = [(b"h", b"e"), (b"l", b"l"), (b"he", b"ll"), (b"hell", b"o"), (b" ", b"t"), (b"\xc3", b"\xa9"), (b"a", b"a")]
CUSTOM = r"[a-z]+| ?é|\s+"  # which does not match everything


def make_tokenizer(
    pattern: str = "gpt2", encoder: str = "auto", special_tokens: tuple[str, ...] = (EOT, PAD)
) -> Tokenizer:
    vocab = dict(enumerate([*(bytes([byte]) for byte in range(256)), *(left + right for left, right in MERGES)]))
    return Tokenizer(vocab, MERGES, special_tokens, pattern, encoder=encoder)


TOKENIZERS = {
    (pattern, encoder): make_tokenizer(pattern, encoder)
    for pattern in ("gpt2", "cl100k", CUSTOM)
    for encoder in ("auto", "python")
}


def expected(
    tokenizer: Tokenizer, files: list[bytes], separator: str | None, policy: str, end: int | None, as_text: bool
) -> list[list[int]]:
    """The definition: the ids of each document, its end token included. (For delimiters that do not overlap.)"""
    documents = []
    for content in files:
        parts = content.split(separator.encode()) if separator else [content]
        documents += parts if parts[-1] else parts[:-1]
    texts = []
    for document in documents:
        try:
            texts.append(document.decode(errors="replace" if policy == "replace" else "strict"))
        except UnicodeDecodeError:
            assert policy == "skip"
    ids = [tokenizer.encode(text, allowed_special=() if as_text else "all") for text in texts]
    return [[*document, *([] if end is None else [end])] for document in ids]


def written(path: Path) -> list[list[int]]:
    tokens, offsets = load_tokens(path), load_document_offsets(path)
    return [tokens[start:end].tolist() for start, end in zip(offsets[:-1], offsets[1:], strict=True)]


def write_files(folder: Path, contents: list[bytes]) -> list[Path]:
    paths = [folder / f"{number}.txt" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


PIECES = [
    b"hello",
    b" there",
    b"\r\n",
    b"\n",
    b" ",
    b"h\xc3\xa9",
    b"123",
    b"!",
    b"aaaa",
    b"\xe4\xb8\xad",
    EOT.encode(),
    PAD.encode(),
]
valid = st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)
broken = st.lists(st.sampled_from([*PIECES, b"\xc3", b"\xff", b"\xe4\xb8"]), max_size=30).map(b"".join)


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", CUSTOM])
@pytest.mark.parametrize("encoder", ["auto", "python"])
@given(
    contents=st.lists(valid, min_size=1, max_size=3),
    chunk_size=st.integers(1, 60),
    threads=st.integers(1, 3),
    separator=st.sampled_from([None, "", PAD, "\n", "e"]),
    end_token=st.sampled_from([None, "", PAD]),
    as_text=st.booleans(),
)
def test_tokens_are_those_of_the_documents_one_after_another(
    pattern: str, encoder: str, contents: list[bytes], chunk_size: int, threads: int, separator: str | None, end_token: str | None,
    as_text: bool, tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("corpus")
    tokenizer = TOKENIZERS[pattern, encoder]
    out = folder / "train.bin"
    if separator == "e" and not as_text:
        as_text = True  # it overlaps with the special tokens, which `expected` cannot do
    done = encode_file(
        tokenizer, write_files(folder, contents), out, separator=separator, end_token=end_token,
        special_tokens_as_text=as_text, index=True, threads=threads, chunk_size=chunk_size,
    )  # fmt: skip
    ends_with = EOT if separator is None else separator
    end = tokenizer.special_tokens.get(ends_with if end_token is None else end_token)
    documents = expected(tokenizer, contents, ends_with, "error", end, as_text)
    assert written(out) == documents
    assert (done.documents, done.skipped_documents, done.bytes) == (len(documents), 0, sum(map(len, contents)))
    assert done.tokens == sum(map(len, documents))


@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM])
@pytest.mark.parametrize("policy", ["replace", "skip"])
@given(contents=st.lists(broken, min_size=1, max_size=3), chunk_size=st.integers(1, 60), threads=st.integers(1, 3))
def test_what_is_not_utf8_is_replaced_or_skipped(
    pattern: str, policy: str, contents: list[bytes], chunk_size: int, threads: int, tmp_path_factory: pytest.TempPathFactory
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("corpus")
    tokenizer = TOKENIZERS[pattern, "auto"]
    out = folder / "train.bin"
    done = encode_file(
        tokenizer, write_files(folder, contents), out, invalid_utf8=policy, index=True, threads=threads, chunk_size=chunk_size,  # type: ignore[arg-type]
    )  # fmt: skip
    documents = expected(tokenizer, contents, EOT, policy, tokenizer.special_tokens[EOT], False)
    assert written(out) == documents
    every = expected(tokenizer, contents, EOT, "replace", None, False)
    assert done.skipped_documents == len(every) - len(documents)
