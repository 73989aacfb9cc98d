"""Decoding a token file restores the text of its corpus, or names what is wrong."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_corpora import CUSTOM, TOKENIZERS, contents_utf8, expected, make_tokenizer, read_documents, write_files

from bpeflow.dataset import decode
from bpeflow.dataset.decode import decode_file
from bpeflow.dataset.encode import encode_file
from bpeflow.dataset.token_file import index_path, load_tokens
from bpeflow.errors import FormatError
from bpeflow.tokenizer.tokenizer import Tokenizer


@settings(max_examples=10)
@given(
    content=contents_utf8,
    tokenizer=st.sampled_from([TOKENIZERS[pattern, encoder] for pattern, encoder in TOKENIZERS if pattern != CUSTOM]),
    chunk_size=st.integers(1, 60),
    threads=st.integers(1, 3),
    ids_at_a_time=st.integers(1, 20),
)
def test_a_file_has_the_ids_of_its_text_and_decoding_restores_it(
    content: bytes,
    tokenizer: Tokenizer,
    chunk_size: int,
    threads: int,
    ids_at_a_time: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = Path(mkdtemp(dir=tmp_path_factory.getbasetemp()))
    out = folder / "train.bin"
    paths = write_files(folder, [content])
    encoded = encode_file(tokenizer, paths, out, index=True, num_threads=threads, chunk_size=chunk_size)
    assert load_tokens(out).tolist() == tokenizer.encode(content.decode())
    assert read_documents(out) == expected(tokenizer, [content])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "IDS_AT_A_TIME", ids_at_a_time)
        done = decode_file(tokenizer, out, folder / "text.txt")
    assert (folder / "text.txt").read_bytes() == content
    assert (done.tokens, done.bytes) == (encoded.tokens, len(content))


def test_another_tokenizer_is_rejected_unless_any_is_allowed(tmp_path: Path) -> None:
    encode_file(make_tokenizer(), write_files(tmp_path, [b"hello"]), tmp_path / "train.bin")
    with pytest.raises(
        FormatError, match=r"another tokenizer, with 265 entries and the pattern 'gpt2'; .*any_tokenizer=True"
    ):
        decode_file(make_tokenizer("cl100k"), tmp_path / "train.bin", tmp_path / "text.txt")
    assert not (tmp_path / "text.txt").exists()
    decode_file(make_tokenizer("cl100k"), tmp_path / "train.bin", tmp_path / "text.txt", any_tokenizer=True)
    assert (tmp_path / "text.txt").read_bytes() == b"hello"


def test_an_unknown_id_is_named_with_its_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "train.bin"
    encode_file(make_tokenizer(), write_files(tmp_path, [b"1234567"]), out)
    out.write_bytes(out.read_bytes()[:-4] + b"\xff\xff\0\0")
    monkeypatch.setattr(decode, "IDS_AT_A_TIME", 4)
    with pytest.raises(FormatError, match=r"train.bin: from index 4 on: unknown id 65535 at index 1: .* damaged"):
        decode_file(make_tokenizer(), out, tmp_path / "text.txt")
    assert not (tmp_path / "text.txt").exists()


def test_an_incomplete_token_file_is_rejected(tmp_path: Path) -> None:
    out = tmp_path / "train.bin"
    encode_file(make_tokenizer(), write_files(tmp_path, [b"hello"]), out, index=True)
    index_path(out).unlink()
    with pytest.raises(FormatError, match=r"train.bin.idx: is missing"):
        decode_file(make_tokenizer(), out, tmp_path / "text.txt")
    out.write_bytes(b"\0")
    with pytest.raises(FormatError, match=r"train.bin: cut short"):
        decode_file(make_tokenizer(), out, tmp_path / "text.txt")
