"""The folder of a tokenizer: all of it comes back, and what is broken is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bpeflow
from bpeflow.errors import FormatError
from bpeflow.formats import gpt2 as folder
from bpeflow.formats.spec import TokenizerSpec
from bpeflow.vocab import Merge, Vocab

FILES = ["vocab.json", "merges.txt", "bpeflow.json"]
MERGES = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (b"\xc3", b"\xa9")]
SPECIALS = ["<|endoftext|>", "<pad token>", "ab", "Ġa", "aa", " b", "éa", "aba"]
KNOWN = [b"a", b"b", b" ", b"\xc3", b"\xa9"]


@st.composite
def tokenizers(draw: st.DrawFn) -> TokenizerSpec:
    """With merges of any order that may make a string twice, and special tokens that may be strings of merges, too."""
    tokens = list(KNOWN)
    merges: list[Merge] = []
    for _ in range(draw(st.integers(0, 12))):
        merge = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        merges.append(merge)
        tokens.append(merge[0] + merge[1])
    specials = draw(st.lists(st.sampled_from(SPECIALS), unique=True))
    huggingface = draw(st.booleans())
    vocab = Vocab.build(merges, specials, special_tokens_first=huggingface, reuse_tokens=huggingface)
    return TokenizerSpec(vocab, draw(st.sampled_from(["gpt2", "o200k", r"\w+|\W"])), draw(st.booleans()))


@pytest.mark.slow
@given(saved=tokenizers())
def test_everything_comes_back(tmp_path: Path, saved: TokenizerSpec) -> None:
    paths = folder.save(saved, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == FILES
    loaded = folder.load(tmp_path / "new" / "folder")
    assert loaded == saved
    assert list(loaded.vocab.special_tokens) == list(saved.vocab.special_tokens)
    assert loaded.vocab.merge_ids.tolist() == saved.vocab.merge_ids.tolist()


def test_gaps_come_back(tmp_path: Path) -> None:
    tokens = (*(bytes([byte]) for byte in range(256)), *[b""] * 44, b"<s>")
    saved = TokenizerSpec(Vocab(tokens, {"<s>": 300}, ()))
    folder.save(saved, tmp_path)
    assert folder.load(tmp_path) == saved


def test_the_file_says_what_gpt2s_cannot(tmp_path: Path) -> None:
    folder.save(TokenizerSpec(Vocab.build(MERGES, ["<s>"]), "o200k"), tmp_path)
    assert json.loads((tmp_path / "bpeflow.json").read_text(encoding="utf-8")) == {
        "format": 1,
        "pattern": "o200k",
        "special_tokens": {"<s>": 256},
        "whole_tokens": False,
        "merges": 4,
    }


def test_tokens_without_a_place_in_vocab_json_are_written_beside_it(tmp_path: Path) -> None:
    folder.save(TokenizerSpec(Vocab.build(MERGES, ["Ġthe"])), tmp_path)
    assert json.loads((tmp_path / "bpeflow.json").read_text(encoding="utf-8"))["hidden_tokens"] == {"259": "Ġthe"}
    assert folder.load(tmp_path).vocab.tokens[259] == b" the"


def test_gpt2s_two_files_have_gpt2s_pattern(tmp_path: Path) -> None:
    vocab = Vocab.build(MERGES, ["<s>"])
    folder.save(TokenizerSpec(vocab, "o200k", whole_tokens=True), tmp_path)
    (tmp_path / "bpeflow.json").unlink()
    assert folder.load(tmp_path) == TokenizerSpec(vocab, "gpt2")


def test_a_training_writes_it_for_every_size(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("low lower lowest<|endoftext|>newer wider", encoding="utf-8")
    run = tmp_path / "run"
    settings = {"input": str(corpus), "out_dir": run, "pattern": "qwen2"}
    bpeflow.train({**settings, "vocab_sizes": [260, 265]})
    assert folder.load(run).pattern == folder.load(run / "vocab_260").pattern == "qwen2"
    assert len(folder.load(run / "vocab_260").vocab) == 260
    report = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert {"bpeflow.json", "vocab_260/bpeflow.json"} <= set(report["files"])
    bpeflow.train({**settings, "vocab_size": 262, "pattern": "gpt2"})
    assert not (run / "vocab_260").exists()
    assert folder.load(run).pattern == "gpt2"


@pytest.mark.parametrize("name", FILES[:2])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder.save(TokenizerSpec(Vocab.build(MERGES)), tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FormatError, match=f"there is no {name} in"):
        folder.load(tmp_path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_a_truncated_file_is_refused(tmp_path: Path, name: str, share: float) -> None:
    """Also ``merges.txt`` cut between two lines."""
    folder.save(TokenizerSpec(Vocab.build(MERGES, ["<s>"])), tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: int(len(data) * share)])
    with pytest.raises(FormatError):
        _ = folder.load(tmp_path).vocab.merge_ids


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2, but this version of bpeflow reads format 1; it may"),
        ({"format": None}, "format None"),
        ({"pattern": 7}, "need 'pattern'"),
        ({"whole_tokens": 1}, "need 'whole_tokens'"),
        ({"special_tokens": ["<s>"]}, "need 'special_tokens'"),
        ({"special_tokens": {"<s>": "256"}}, "special_tokens must be an object of text: id"),
        ({"special_tokens": {"<s>": 257}}, r"differ in special tokens: \[\('<s>', 256\), \('<s>', 257\)\]"),
        ({"special_tokens": {"<t>": 256}}, "no id for '<t>'"),
        ({"hidden_tokens": {"x": "Ġ"}}, "need a printable form for each id of 'hidden_tokens'"),
        ({"hidden_tokens": {"300": 7}}, "need a printable form"),
        ({"hidden_tokens": {"97": "Ġ"}}, "hidden token 'Ġ' with id 97 does not fit vocab.json"),
        ({"hidden_tokens": {"9999": "Ġ"}}, "with id 9999 does not fit"),
        ({"hidden_tokens": {"261": " "}}, "hidden token ' '"),
    ],
)
def test_content_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder.save(TokenizerSpec(Vocab.build(MERGES, ["<s>"])), tmp_path)
    path = tmp_path / "bpeflow.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(FormatError, match=message) as error:
        folder.load(tmp_path)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"7", b'{"format": 1}'])
def test_what_is_not_the_format_at_all_is_refused(tmp_path: Path, content: bytes) -> None:
    folder.save(TokenizerSpec(Vocab.build(MERGES)), tmp_path)
    (tmp_path / "bpeflow.json").write_bytes(content)
    with pytest.raises(FormatError, match=r"bpeflow\.json"):
        folder.load(tmp_path)


def test_gpt2s_files_are_found_under_the_names_that_openai_gave_them(tmp_path: Path) -> None:
    saved = TokenizerSpec(Vocab.build(MERGES, ["<|endoftext|>"]))
    folder.save(saved, tmp_path)
    (tmp_path / "vocab.json").rename(tmp_path / "encoder.json")
    (tmp_path / "merges.txt").rename(tmp_path / "vocab.bpe")
    (tmp_path / "bpeflow.json").unlink()
    assert bpeflow.Tokenizer.load(tmp_path).to_spec() == saved


def test_the_pattern_of_a_run_goes_with_its_files(tmp_path: Path) -> None:
    folder.save(TokenizerSpec(Vocab.build(MERGES), "cl100k"), tmp_path)
    paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
    assert bpeflow.Tokenizer.from_files(*paths).pattern == "cl100k"
    assert bpeflow.Tokenizer.from_files(*paths, pattern="o200k").pattern == "o200k"
    (tmp_path / "bpeflow.json").unlink()
    assert bpeflow.Tokenizer.from_files(*paths).pattern == "gpt2"
