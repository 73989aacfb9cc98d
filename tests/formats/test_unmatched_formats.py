"""Text that a custom pattern does not match, in each format: kept or dropped as by bpeflow, or refused."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import export

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.errors import FormatError
from bpeflow.formats import any_format, gpt2, huggingface, tiktoken
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab

MERGES = [(b"a", b"b"), (b",", b" "), (b"ab", b","), (b" ", b"a"), (b"1", b"2"), (b"b", b"1"), (b"\xc3", b"\xa9")]
PATTERNS = [r"\p{L}+", r" ?[ab]+|\d", r"\d{2}", r"(?i:A)(?=b)|,", r"[^\s\d]+?", r"(a|(b)+)", "ß", "1(?!2)"]


def make_spec(pattern: str, unmatched: UnmatchedPolicy) -> TokenizerSpec:
    return TokenizerSpec(Vocab.build(MERGES, ["<s>"]), pattern, unmatched=unmatched)


@cache
def all_encoders(pattern: str, unmatched: UnmatchedPolicy) -> tuple[Tokenizer, Any, Any]:
    spec = make_spec(pattern, unmatched)
    return Tokenizer.from_spec(spec), *export(spec)


@pytest.mark.parametrize("unmatched", ["isolate", "drop"])
@settings(max_examples=50)
@given(pattern=st.sampled_from(PATTERNS), text=st.lists(st.sampled_from([*"abA, 12é\nß日", "<s>"])).map("".join))
def test_tiktoken_and_huggingface_give_the_same_ids(unmatched: UnmatchedPolicy, pattern: str, text: str) -> None:
    ours, openai, huggingface = all_encoders(pattern, unmatched)
    ids = ours.encode(text)
    assert openai.encode(text, allowed_special="all") == ids
    assert huggingface.encode(text).ids == ids
    if unmatched == "isolate":
        assert openai.decode(ids) == text


@pytest.mark.parametrize("unmatched", ["isolate", "drop"])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", ["gpt2", "huggingface", "tiktoken"])
def test_the_policy_survives_saving_and_loading(
    name: str, pattern: str, unmatched: UnmatchedPolicy, tmp_path: Path
) -> None:
    spec = make_spec(pattern, unmatched)
    any_format.save(spec, tmp_path, name)
    again = any_format.load(tmp_path)
    assert again == spec
    assert (again.vocab.pattern, again.vocab.unmatched) == (pattern, unmatched)


def test_an_error_cannot_be_represented_by_other_tools(tmp_path: Path) -> None:
    spec = make_spec(r"\p{L}+", "error")
    gpt2.save(spec, tmp_path)
    assert gpt2.load(tmp_path) == spec
    with pytest.raises(FormatError, match=r"tokenizer\.json cannot refuse text .* \(unmatched='error'\); use"):
        huggingface.save(spec, tmp_path / "tokenizer.json")
    with pytest.raises(FormatError, match=r"tiktoken cannot refuse text"):
        tiktoken.save(spec, tmp_path / "x.tiktoken")
    for save, name in ((huggingface.save, "tokenizer.json"), (tiktoken.save, "x.tiktoken")):
        save(make_spec("o200k", "error"), tmp_path / name)  # matches all text


@pytest.mark.parametrize("pattern", [r"(a)\1|b", r"(?P<n>a)|b", r"(?<n>a)|b", r"a\Kb", r"(a)?b(?(1)c|d)"])
def test_a_pattern_that_cannot_be_extended_for_tiktoken_is_refused(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"or \\K cannot be extended .* matches all text, and use unmatched='drop'"):
        tiktoken.save(make_spec(pattern, "isolate"), tmp_path / "x.tiktoken")
    tiktoken.save(make_spec(pattern, "drop"), tmp_path / "x.tiktoken")


def test_a_custom_pattern_of_tiktoken_drops_text(tmp_path: Path) -> None:
    path, sidecar = tiktoken.save(make_spec(r"\p{L}+", "drop"), tmp_path / "x.tiktoken")
    assert json.loads(sidecar.read_text(encoding="utf-8"))["pat_str"] == r"\p{L}+"
    assert tiktoken.load(path).unmatched == "drop"


def test_a_bpeflow_json_of_version_0_1_drops_text(tmp_path: Path) -> None:
    *_, path = gpt2.save(make_spec(r"\p{L}+", "isolate"), tmp_path)
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content | {"unmatched": "keep"}), encoding="utf-8")
    with pytest.raises(FormatError, match=r"bpeflow\.json: unmatched: need one of error, isolate, drop"):
        gpt2.load(tmp_path)
    del content["unmatched"]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert gpt2.load(tmp_path).unmatched == "drop"
    paths = (tmp_path / "vocab.json", tmp_path / "merges.txt")
    assert Tokenizer.from_files(*paths).unmatched == "drop"
    assert Tokenizer.from_files(*paths, pattern=r"\w+").unmatched == "isolate"
