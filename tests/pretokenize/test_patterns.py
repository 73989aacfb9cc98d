from __future__ import annotations

import importlib

import pytest
import regex
from adversarial import adversarial_text
from hypothesis import given, settings
from hypothesis import strategies as st

from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer

NAMES = list(NAMED_PATTERNS)

# As published with GPT-2. According to tiktoken, its pattern is equivalent, only faster.
GPT2_ORIGINAL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

SAMPLE = "I'LL pay $1234.56,\r\n\r\n  y'all's café—naïve x²!\n"

# The pre-tokens of SAMPLE for each pattern, worked out by hand.
SPLITTINGS = {
    "gpt2": "I|'|LL| pay| $|1234|.|56|,|\r\n\r\n | y|'|all|'s| café|—|naïve| x|²|!|\n",
    "cl100k": "I|'LL| pay| $|123|4|.|56|,\r\n\r\n| | y|'all|'s| café|—naïve| x|²|!\n",
    "o200k": "I'LL| pay| $|123|4|.|56|,\r\n\r\n| | y|'all's| café|—naïve| x|²|!\n",
    "llama3": "I|'LL| pay| $|123|4|.|56|,\r\n\r\n| | y|'all|'s| café|—naïve| x|²|!\n",
    "qwen2": "I|'LL| pay| $|1|2|3|4|.|5|6|,\r\n\r\n| | y|'all|'s| café|—naïve| x|²|!\n",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_is_split_as_worked_out_by_hand(name: str) -> None:
    assert load_pretokenizer(name).pretokens(SAMPLE) == SPLITTINGS[name].split("|")


@pytest.mark.parametrize(("name", "tokens"), [("cl100k", ["a", "\n  "]), ("llama3", ["a", "\n", "  "])])
def test_white_space_at_the_end_of_a_text_is_one_token_for_cl100k_but_not_for_llama3(
    name: str, tokens: list[str]
) -> None:
    assert load_pretokenizer(name).pretokens("a\n  ") == tokens


@pytest.mark.parametrize("ours, theirs", [("gpt2", "gpt2"), ("cl100k", "cl100k_base"), ("o200k", "o200k_base")])
def test_patterns_are_those_of_tiktoken(ours: str, theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    openai_public = pytest.importorskip("tiktoken_ext.openai_public", reason="tiktoken is not installed")
    # Only the patterns are needed; do not fetch vocabularies from the network.
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
    monkeypatch.setattr(openai_public, "data_gym_to_mergeable_bpe_ranks", lambda *_, **__: {})
    assert NAMED_PATTERNS[ours] == getattr(openai_public, theirs)()["pat_str"]


@given(text=adversarial_text)
def test_gpt2_splits_like_the_pattern_published_with_gpt2(text: str) -> None:
    assert load_pretokenizer("gpt2").pretokens(text) == regex.findall(GPT2_ORIGINAL, text)


@given(text=adversarial_text)
def test_cl100k_splits_like_llama3_except_white_space_at_the_end(text: str) -> None:
    text = regex.sub(r"\s+$", "", text)
    assert load_pretokenizer("cl100k").pretokens(text) == load_pretokenizer("llama3").pretokens(text)


# Not cl100k: Oniguruma interprets `{1,3}+` and `$` differently.
@pytest.mark.parametrize("name", ["gpt2", "o200k", "llama3", "qwen2"])
@given(text=st.text(st.sampled_from("aZé日д07²٣' \n\r\t\xa0\u3000!/-sStTlLdD"), max_size=30))
def test_another_regex_engine_splits_in_the_same_way(name: str, text: str) -> None:
    """The engine is HuggingFace's Oniguruma. All versions of Unicode agree on the characters used here."""
    tokenizers = importlib.import_module("tokenizers")
    source = GPT2_ORIGINAL if name == "gpt2" else NAMED_PATTERNS[name]
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(source), behavior="isolated")
    assert load_pretokenizer(name).pretokens(text) == [token for token, _ in split.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30)
@given(text=adversarial_text)
def test_pretokens_tile_the_text(name: str, text: str) -> None:
    assert "".join(load_pretokenizer(name).pretokens(text)) == text
