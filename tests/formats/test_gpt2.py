"""GPT-2's two files: bpeflow and HuggingFace tokenizers read what is written; broken files are refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from gpt2_files import save_files
from real_data import real_data

import bpeflow
from bpeflow.errors import FormatError
from bpeflow.formats import gpt2
from bpeflow.vocab import Vocab

WORDS = {" the": 90, " then": 30, "\n": 20, " naïve": 9, "日本": 5, " \xa0": 4, "hen": 12}


@pytest.fixture
def vocab() -> Vocab:
    merges = bpeflow.learn_merges(WORDS, vocab_size=280, special_tokens=["<|endoftext|>", "<pad token>"])
    return Vocab.build(merges, ["<|endoftext|>", "<pad token>"])


def test_a_vocabulary_survives_saving_and_loading(tmp_path: Path, vocab: Vocab) -> None:
    paths = save_files(vocab, tmp_path)
    assert [path.name for path in paths] == ["vocab.json", "merges.txt"]
    assert gpt2.load_files(*paths) == vocab


def test_files_are_in_gpt2s_format(tmp_path: Path, vocab: Vocab) -> None:
    save_files(vocab, tmp_path)
    lines = (tmp_path / "merges.txt").read_text(encoding="utf-8").splitlines()
    assert lines[:4] == ["#version: 0.2", "h e", "t he", "Ġ the"]
    ids = json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))
    assert ids["Ġthe"] == vocab.tokens.index(b" the")
    assert ids["<pad token>"] == 257


def test_huggingface_tokenizers_reads_the_files_and_merges_identically(tmp_path: Path, vocab: Vocab) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="HuggingFace tokenizers is not installed")
    vocab_path, merges_path = save_files(vocab, tmp_path)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(vocab_path), str(merges_path)))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    ids = tokenizer.encode(" then the").ids
    assert [vocab.tokens[i] for i in ids] == [b" then", b" the"]
    assert tokenizer.get_vocab_size() == len(vocab)


def test_published_gpt2_files_are_read() -> None:
    vocab = gpt2.load_files(real_data("vocabs/gpt2.encoder.json"), real_data("vocabs/gpt2.vocab.bpe"))
    assert (len(vocab), len(vocab.merges)) == (50257, 50000)
    assert vocab.special_tokens == {"<|endoftext|>": 50256}
    assert vocab.tokens[262] == b" the"


def test_unused_ids_are_left_out_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """cl100k_base has sixteen unused ids before its last special token."""
    vocab = Vocab((*(bytes([byte]) for byte in range(256)), b"", b"", b"<s>"), {"<s>": 258}, ())
    with caplog.at_level(logging.WARNING):
        assert gpt2.load_files(*save_files(vocab, tmp_path)) == vocab
    assert not caplog.records


@pytest.mark.parametrize("special", ["Ġ", "a", "é"])
def test_a_special_token_that_shares_an_id_with_a_byte_survives_saving_and_loading(
    tmp_path: Path, special: str
) -> None:
    vocab = Vocab.build([(b" ", b"a")], ["<s>", special], special_tokens_first=True, reuse_tokens=True)
    again = gpt2.load_files(*save_files(vocab, tmp_path), special_tokens=vocab.special_tokens)
    assert again == vocab
    assert again.byte_ids == vocab.byte_ids


@pytest.mark.parametrize(
    ("vocab_text", "merges_text", "message"),
    [
        ("{", "", r"vocab\.json: not JSON"),
        ("[]", "", r"vocab\.json: need one JSON object"),
        ('{"a": "0"}', "", r"vocab\.json: need an object of token: id"),
        ('{"a": 0, "b": 0}', "", r"vocab\.json: two tokens have id 0: 'a' and 'b'"),
        ('{"a": -1}', "", r"vocab\.json: ids from -1 to -1, but only 1 tokens"),
        ('{"a": 0}', "", "no id for"),
        pytest.param(f'{{"a": {"9" * 5000}}}', "", r"vocab\.json: not JSON", id="5000 digits"),
        ("NO SPACE", "", r"vocab\.json: no id for 'Ġ', as GPT-2's .* of another form \(latin-1, hex, repr\)"),
        ("FULL", "a b c\n", r"merges\.txt, line 1: need two tokens"),
        ("FULL", "a b c\nd\n", r"merges\.txt, line 1: need two tokens"),
        ("FULL", "a b\nt\ne f g\n", r"merges\.txt, line 1: 'ab' is not in the vocabulary"),
        ("FULL", "#version: 0.2\n\na b\n", r"merges\.txt, line 2: need two tokens"),
        ("FULL", "a 日\n", r"merges\.txt, line 1: '日' is not in the vocabulary"),
        ("FULL", "#version: 0.2\na b\n", r"merges\.txt, line 2: 'ab' is not in the vocabulary"),
        ("GAP", "", r"ids from 0 to 1000000000, but only 257 tokens"),
    ],
)
def test_broken_files_are_refused_with_the_position(
    tmp_path: Path, vocab_text: str, merges_text: str, message: str
) -> None:
    paths = save_files(Vocab.build([], []), tmp_path)
    full = paths[0].read_text(encoding="utf-8")
    texts = {"FULL": full, "NO SPACE": full.replace('"Ġ": 32, ', ""), "GAP": full.rstrip("\n}") + ', "zz": 1000000000}'}
    paths[0].write_text(texts.get(vocab_text, vocab_text), encoding="utf-8")
    paths[1].write_text(merges_text, encoding="utf-8")
    with pytest.raises(FormatError, match=message):
        gpt2.load_files(*paths)


def test_files_that_are_not_utf8_are_refused(tmp_path: Path, vocab: Vocab) -> None:
    vocab_path, merges_path = save_files(vocab, tmp_path)
    merges_path.write_bytes(b"\xff")
    with pytest.raises(FormatError, match=r"merges\.txt: not UTF-8"):
        gpt2.load_files(vocab_path, merges_path)
