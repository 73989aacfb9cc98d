"""Published patterns by name: what they do, and that a name is only another way to write its expressions."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers import CHARACTERS, open_huggingface

import bpeflow
from bpeflow import Tokenizer
from bpeflow.config import Settings
from bpeflow.errors import FormatError, PatternError
from bpeflow.formats import any_format as formats
from bpeflow.pretokenize.patterns import BLOOM_PUBLISHED, KIMI_PUBLISHED, NAMED_PATTERNS, PUBLISHED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer, simplest_pattern

NAMES = [*NAMED_PATTERNS, *PUBLISHED_PATTERNS]
#: Texts that show what a pattern does to digits, case, contractions, and Chinese, Japanese and Hindi.
SAMPLES = ["12345", "camelCase", "I'LL", "汉字かなabc。", "हिन्दी"]
CHOOSING = Path(__file__).parents[2] / "docs" / "choosing.md"
TEXT = " camelCase XMLHttp I'LL don't 12345 ½² 汉字かなカナ한국 हिन्दी é e\u0301 …!! a/b\r\n\n  \t x = y_z; ſ K'ſ\n"


def table_row(name: str) -> str:
    splits = (" ".join(f"`{piece}`" for piece in load_pretokenizer(name).pretokens(sample)) for sample in SAMPLES)
    return f"| `{name}` | {' | '.join(splits)} |"


@pytest.mark.parametrize("name", NAMES)
def test_the_documentation_shows_how_a_pattern_splits(name: str) -> None:
    assert table_row(name) in CHOOSING.read_text(encoding="utf-8").splitlines()


def test_the_documentation_groups_the_patterns_by_how_they_split() -> None:
    """The patterns named in the paragraphs below the table are those whose rows show what the paragraphs say."""
    page = CHOOSING.read_text(encoding="utf-8")
    named = {
        title: re.findall(r"`(\w+)`", text)
        for title, text in re.findall(r"^\* \*(\w+)\.\* (.*?)(?=^\S|^$)", page, re.M | re.S)
    }
    pieces = {name: [load_pretokenizer(name).pretokens(sample) for sample in SAMPLES] for name in NAMES}
    assert sorted(named["Digits"]) == sorted(NAMES)
    assert sorted(named["Case"]) == sorted(name for name in NAMES if len(pieces[name][1]) > 1)
    assert sorted(named["Marks"]) == sorted(name for name in NAMES if len(pieces[name][4]) > 1)


def test_the_setting_names_every_pattern() -> None:
    description = str(Settings.model_fields["pattern"].description)
    assert description.startswith(f"split pattern, one of {', '.join(NAMES)}, ")


@pytest.mark.parametrize("name", PUBLISHED_PATTERNS)
def test_a_name_is_replaced_by_its_expressions(name: str, tmp_path: Path) -> None:
    expressions = PUBLISHED_PATTERNS[name]
    path = tmp_path / "text.txt"
    path.write_text(TEXT * 20, encoding="utf-8")
    by_name = Tokenizer.train(path, vocab_size=300, pattern=name, special_tokens=["<|endoftext|>"])
    by_expressions = Tokenizer.train(path, vocab_size=300, pattern=expressions, special_tokens=["<|endoftext|>"])
    assert by_name.pattern == expressions
    assert by_name.to_spec() == by_expressions.to_spec()
    assert Tokenizer(dict(enumerate(by_name.vocab.tokens)), by_name.merges, pattern=name).pattern == expressions
    counts = bpeflow.count(path, pattern=name)
    assert (counts.pattern, counts) == (expressions, bpeflow.count(path, pattern=expressions))


@pytest.mark.parametrize("format_", ["gpt2", "huggingface", "tiktoken"])
@pytest.mark.parametrize("name", PUBLISHED_PATTERNS)
def test_a_tokenizer_with_a_named_pattern_survives_every_format(
    name: str, format_: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT * 20, encoding="utf-8")
    tokenizer = Tokenizer.train(path, vocab_size=300, pattern=name)
    if format_ == "tiktoken" and not isinstance(tokenizer.pattern, str):
        with pytest.raises(FormatError, match="one regular expression"):
            formats.write(tokenizer.to_spec(), tmp_path, format_)
        return
    formats.write(tokenizer.to_spec(), tmp_path, format_)
    again = Tokenizer.load(tmp_path)
    assert again.pattern == tokenizer.pattern
    assert again.encode(TEXT) == tokenizer.encode(TEXT)
    assert "differently" not in caplog.text
    if format_ == "huggingface":
        theirs = open_huggingface(tmp_path / "tokenizer.json")
        assert theirs.encode(TEXT, add_special_tokens=False).ids == tokenizer.encode(TEXT)
    if format_ == "gpt2":  # which versions without this name can read
        content = json.loads((tmp_path / "bpeflow.json").read_text(encoding="utf-8"))
        assert content["pattern"] == (list(expressions) if isinstance(expressions := tokenizer.pattern, tuple)
                                      else expressions)  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED_PATTERNS)
@given(text=st.text(st.sampled_from(CHARACTERS + "汉字かなカナ한국हिन्दी।،(|)KſAaÉé\u0301½²/…"), max_size=24))
def test_huggingface_splits_in_the_same_way(name: str, text: str) -> None:
    """So no warning is needed when such a tokenizer is saved or loaded."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    pieces = [text]
    published = {"kimi_k2": KIMI_PUBLISHED, "bloom": BLOOM_PUBLISHED}.get(name, simplest_pattern(name))
    for step in (published,) if isinstance(published, str) else published:
        expression = NAMED_PATTERNS.get(step, step)
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(expression), "isolated")
        pieces = [new for piece in pieces for new, _ in split.pre_tokenize_str(piece)]
    assert load_pretokenizer(name).pretokens(text) == pieces


@pytest.mark.parametrize("name", ["tekken", "qwen3_5", "bloom", "nanochat"])
def test_huggingface_splits_every_character_in_the_same_way(name: str) -> None:
    """Those that Python knows: the Unicode versions of the two differ in newer ones."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    characters = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs", "Co")]
    published = BLOOM_PUBLISHED if name == "bloom" else str(simplest_pattern(name))
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(published), "isolated")
    pretokenizer = load_pretokenizer(name)
    for first in range(0, len(characters), 1_000):
        text = "".join(f"a{c}A{c}1 {c}\n" for c in characters[first : first + 1_000])
        assert pretokenizer.pretokens(text) == [piece for piece, _ in split.pre_tokenize_str(text)]


def test_a_list_may_have_names() -> None:
    assert simplest_pattern(["deepseek_v3", r"\d"]) == (*PUBLISHED_PATTERNS["deepseek_v3"], r"\d")
    assert simplest_pattern(["tekken"]) == PUBLISHED_PATTERNS["tekken"]


def test_a_mistyped_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(PatternError, match="did you mean 'tekken'"):
        load_pretokenizer("teken")
