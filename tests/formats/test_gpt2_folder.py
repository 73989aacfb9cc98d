"""A folder with bpeflow.json and GPT-2's two files: tokenizers survive it, and broken files are refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_data import real_data

import bpeflow
from bpeflow.errors import FormatError
from bpeflow.formats import any_format, gpt2
from bpeflow.formats.any_format import load
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.vocab import Merge, Vocab

FILES = ["vocab.json", "merges.txt", "bpeflow.json"]
MERGES = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (b"\xc3", b"\xa9")]
SPECIALS = ["<|endoftext|>", "<pad token>", "ab", "Ġa", "aa", " b", "éa", "aba", "a", "Ġ"]
KNOWN = [b"a", b"b", b" ", b"\xc3", b"\xa9"]


@st.composite
def tokenizers(draw: st.DrawFn) -> TokenizerSpec:
    """Draw tokenizers with any merges, which may make a string twice or make the string of a special token."""
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
@given(spec=tokenizers())
def test_a_tokenizer_survives_saving_and_loading(tmp_path: Path, spec: TokenizerSpec) -> None:
    tokens = [token for i, token in enumerate(spec.vocab.tokens) if i not in spec.vocab.special_tokens.values()]
    if len({*tokens}) < len(tokens):
        with pytest.raises(FormatError, match=r"vocab.json: b'.*' has the ids \d+ and \d+; the file can hold only one"):
            gpt2.save(spec, tmp_path)
        return
    paths = gpt2.save(spec, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == FILES
    loaded = gpt2.load(tmp_path / "new" / "folder")
    assert loaded == spec
    assert list(loaded.vocab.special_tokens) == list(spec.vocab.special_tokens)
    assert loaded.vocab.merge_ids.tolist() == spec.vocab.merge_ids.tolist()


def test_unused_ids_survive_saving_and_loading(tmp_path: Path) -> None:
    tokens = (*(bytes([byte]) for byte in range(256)), *[b""] * 44, b"<s>")
    spec = TokenizerSpec(Vocab(tokens, {"<s>": 300}, ()))
    gpt2.save(spec, tmp_path)
    assert gpt2.load(tmp_path) == spec


def test_bpeflow_json_has_what_the_other_files_cannot_hold(tmp_path: Path) -> None:
    gpt2.save(TokenizerSpec(Vocab.build(MERGES, ["<s>"]), "o200k"), tmp_path)
    assert json.loads((tmp_path / "bpeflow.json").read_text(encoding="utf-8")) == {
        "format": 1,
        "pattern": "o200k",
        "special_tokens": {"<s>": 256},
        "whole_tokens": False,
        "merges": 4,
    }


def test_a_special_token_of_the_form_of_another_is_only_in_bpeflow_json(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vocab = Vocab.build(MERGES, ["Ġthe", "a"])
    gpt2.save(TokenizerSpec(vocab), tmp_path)
    assert [record.args[1] for record in caplog.records] == ["Ġthe", "a"]  # type: ignore[index]
    ids = json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))
    assert (ids["Ġthe"], ids["a"]) == (260, 97)
    assert gpt2.load(tmp_path).vocab == vocab


def test_gpt2s_two_files_alone_mean_gpt2s_pattern(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    vocab = Vocab.build(MERGES, ["<s>"])
    gpt2.save(TokenizerSpec(vocab, "o200k", whole_tokens=True), tmp_path)
    (tmp_path / "bpeflow.json").unlink()
    assert load(tmp_path, "cl100k") == TokenizerSpec(vocab, "cl100k")
    assert not caplog.messages
    assert load(tmp_path, known="r50k_base").pattern == "gpt2"
    assert "it may be another tokenizer" in caplog.text
    caplog.clear()
    assert load(tmp_path) == TokenizerSpec(vocab, "gpt2")
    [message] = caplog.messages
    assert "no bpeflow.json here, so text is split by GPT-2's pattern" in message
    assert "pattern='gpt2'" in message


def test_the_pattern_of_gpt2s_own_files_is_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, file in (("vocab.json", "encoder.json"), ("merges.txt", "vocab.bpe")):
        (tmp_path / name).write_bytes(real_data(f"vocabs/gpt2.{file}").read_bytes())
    assert load(tmp_path).pattern == "gpt2"
    assert not caplog.messages


def test_a_run_writes_bpeflow_json_for_every_size(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("low lower lowest<|endoftext|>newer wider", encoding="utf-8")
    run = tmp_path / "run"
    settings = {"input": str(corpus), "out_dir": run, "pattern": "qwen2"}
    bpeflow.train({**settings, "vocab_sizes": [260, 265]})
    assert gpt2.load(run).pattern == gpt2.load(run / "vocab_260").pattern == "qwen2"
    assert len(gpt2.load(run / "vocab_260").vocab) == 260
    report = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert {"bpeflow.json", "vocab_260/bpeflow.json"} <= set(report["files"])
    bpeflow.train({**settings, "vocab_size": 262, "pattern": "gpt2", "overwrite": True})
    assert not (run / "vocab_260").exists()
    assert gpt2.load(run).pattern == "gpt2"


@pytest.mark.parametrize("name", FILES[:2])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    gpt2.save(TokenizerSpec(Vocab.build(MERGES)), tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FormatError, match=f"{name}: cannot be read: No such file"):
        gpt2.load(tmp_path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_a_truncated_file_is_refused(tmp_path: Path, name: str, share: float) -> None:
    """This includes ``merges.txt`` cut between two lines."""
    gpt2.save(TokenizerSpec(Vocab.build(MERGES, ["<s>"])), tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: int(len(data) * share)])
    with pytest.raises(FormatError):
        _ = gpt2.load(tmp_path).vocab.merge_ids


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2, but this version of bpeflow reads format 1; the file may"),
        ({"format": None}, "format None"),
        ({"pattern": 7}, "pattern: need a string"),
        ({"whole_tokens": 1}, "whole_tokens: need true or false"),
        ({"special_tokens": ["<s>"]}, "special_tokens: need an object of text: id"),
        ({"special_tokens": {"<s>": "256"}}, "special_tokens: need an object of text: id"),
        ({"special_tokens": {"<s>": 257}}, "two tokens have id 257: b'th' and b'<s>'"),
        ({"special_tokens": {"<t>": 256}}, "two tokens have id 256: b'<s>' and b'<t>'"),
        ({"special_tokens": {"<s>": 256, "<t>": 9999999}}, "ids from 0 to 9999999, but only 262 tokens"),
        ({"hidden_tokens": {"259": "x"}}, "unknown key 'hidden_tokens'"),
    ],
)
def test_wrong_content_of_bpeflow_json_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    gpt2.save(TokenizerSpec(Vocab.build(MERGES, ["<s>"])), tmp_path)
    path = tmp_path / "bpeflow.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(FormatError, match=message) as error:
        gpt2.load(tmp_path)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"7", b'{"format": 1}'])
def test_other_files_in_the_place_of_bpeflow_json_are_refused(tmp_path: Path, content: bytes) -> None:
    gpt2.save(TokenizerSpec(Vocab.build(MERGES)), tmp_path)
    (tmp_path / "bpeflow.json").write_bytes(content)
    with pytest.raises(FormatError, match=r"bpeflow\.json"):
        gpt2.load(tmp_path)


def test_gpt2s_files_are_found_under_openais_names(tmp_path: Path) -> None:
    spec = TokenizerSpec(Vocab.build(MERGES, ["<|endoftext|>"]))
    gpt2.save(spec, tmp_path)
    (tmp_path / "vocab.json").rename(tmp_path / "encoder.json")
    (tmp_path / "merges.txt").rename(tmp_path / "vocab.bpe")
    (tmp_path / "bpeflow.json").unlink()
    assert bpeflow.Tokenizer.load(tmp_path).to_spec() == spec


def test_the_pattern_is_read_from_bpeflow_json_beside_the_files(tmp_path: Path) -> None:
    gpt2.save(TokenizerSpec(Vocab.build(MERGES), "cl100k"), tmp_path)
    paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
    assert bpeflow.Tokenizer.from_files(*paths).pattern == "cl100k"
    assert bpeflow.Tokenizer.from_files(*paths, pattern="o200k").pattern == "o200k"
    (tmp_path / "bpeflow.json").unlink()
    assert bpeflow.Tokenizer.from_files(*paths).pattern == "gpt2"


def test_a_pattern_other_than_the_files_own_is_used_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = TokenizerSpec(Vocab.build(MERGES), "gpt2")
    for path in (tmp_path / "folder", tmp_path / "tokenizer.json", tmp_path / "mine.tiktoken"):
        any_format.save(spec, path)
        with caplog.at_level(logging.WARNING):
            assert bpeflow.Tokenizer.load(path, pattern="gpt2") == bpeflow.Tokenizer.load(path)
            assert not caplog.records  # its own
            assert bpeflow.Tokenizer.load(path, pattern="cl100k").pattern == "cl100k"
        assert f"{path} has the pattern gpt2, and text is split by cl100k instead" in caplog.text
        caplog.clear()
    for without in (tmp_path / "folder" / "bpeflow.json", tmp_path / "mine.tiktoken.json"):
        without.unlink()
        with caplog.at_level(logging.WARNING):
            source = without.parent if without.name == "bpeflow.json" else without.with_suffix("")
            assert bpeflow.Tokenizer.load(source, pattern="cl100k").pattern == "cl100k"
            assert not caplog.records  # as nothing says which pattern is its own
