from __future__ import annotations

import importlib
import re
from itertools import pairwise

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from bpeflow.pretokenize import NAMED_PATTERNS, load_pretokenizer

NAMES = list(NAMED_PATTERNS)

# As published for GPT-2 itself; tiktoken's pattern claims to be the same, only faster.
GPT2_ORIGINAL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

SAMPLE = "I'LL pay $1234.56,\r\n\r\n  y'all's café—naïve x²!\n"

# What each pattern makes of SAMPLE, worked out by hand.
SPLITTINGS = {
    "gpt2": "I|'|LL| pay| $|1234|.|56|,|\r\n\r\n | y|'|all|'s| café|—|naïve| x|²|!|\n",
    "cl100k": "I|'LL| pay| $|123|4|.|56|,\r\n\r\n| | y|'all|'s| café|—naïve| x|²|!\n",
    "o200k": "I'LL| pay| $|123|4|.|56|,\r\n\r\n| | y|'all's| café|—naïve| x|²|!\n",
    "llama3": "I|'LL| pay| $|123|4|.|56|,\r\n\r\n| | y|'all|'s| café|—naïve| x|²|!\n",
    "qwen2": "I|'LL| pay| $|1|2|3|4|.|5|6|,\r\n\r\n| | y|'all|'s| café|—naïve| x|²|!\n",
}

# Parts that patterns treat specially, put together at random: contractions of both cases (and ſ, which folds to s),
# every kind of white space, marks, letters and digits of several scripts and cases, unassigned code points.
PARTS = [
    *["'s", "'S", "'ll", "'LL", "'lL", "'re", "'ve", "'m", "'d", "'t", "'ſ", "'l", "'r", "'", "’s", "''"],
    *[" ", "  ", "\n", "\r\n", "\r", "\n\n", "\t", "\v", "\f", " \n ", "\n ", " \r\n"],
    *["\x1c", "\x1f", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u3000", "\u200b", "\ufeff"],
    *["a", "Z", "word", "CamelCase", "ABC", "aB", "é", "e\u0301", "\u0301", "ß", "ǅ", "ʰ", "д", "Д", "ا", "日本", "한"],
    *["0", "7", "123", "1234", "12345", "²", "½", "٣", "५", "Ⅷ", "〇"],
    *["!", "...", "/", "//", "/\n", "$", "-", "_", "<|", "—", "😀", "\u200d", "\u20dd", "\u0378", "\U000e0fff", "\x00"],
]  # fmt: skip
adversarial_text = st.lists(st.sampled_from(PARTS) | st.characters(exclude_categories=["Cs"]), max_size=24).map("".join)


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_is_split_as_worked_out_by_hand(name: str) -> None:
    assert load_pretokenizer(name).pretokens(SAMPLE) == SPLITTINGS[name].split("|")


@pytest.mark.parametrize(("name", "tokens"), [("cl100k", ["a", "\n  "]), ("llama3", ["a", "\n", "  "])])
def test_white_space_that_ends_a_text_is_one_token_for_cl100k_but_not_for_llama3(name: str, tokens: list[str]) -> None:
    assert load_pretokenizer(name).pretokens("a\n  ") == tokens


@pytest.mark.parametrize("ours, theirs", [("gpt2", "gpt2"), ("cl100k", "cl100k_base"), ("o200k", "o200k_base")])
def test_patterns_are_those_of_tiktoken(ours: str, theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    openai_public = pytest.importorskip("tiktoken_ext.openai_public", reason="tiktoken is not installed")
    # Only the patterns are wanted: no vocabulary is to be fetched from the network.
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
    monkeypatch.setattr(openai_public, "data_gym_to_mergeable_bpe_ranks", lambda *_, **__: {})
    assert NAMED_PATTERNS[ours].regex == getattr(openai_public, theirs)()["pat_str"]


@given(text=adversarial_text)
def test_gpt2_splits_like_the_pattern_published_with_gpt2(text: str) -> None:
    assert load_pretokenizer("gpt2").pretokens(text) == regex.findall(GPT2_ORIGINAL, text)


@given(text=adversarial_text)
def test_cl100k_splits_like_llama3_up_to_the_white_space_at_the_end(text: str) -> None:
    text = regex.sub(r"\s+$", "", text)
    assert load_pretokenizer("cl100k").pretokens(text) == load_pretokenizer("llama3").pretokens(text)


@pytest.mark.parametrize(
    "name", ["gpt2", "o200k", "llama3", "qwen2"]
)  # cl100k: Oniguruma reads `{1,3}+` and `$` otherwise
@given(text=st.text(st.sampled_from("aZé日д07²٣' \n\r\t\xa0\u3000!/-sStTlLdD"), max_size=30))
def test_another_regex_engine_splits_alike(name: str, text: str) -> None:
    """HuggingFace's Oniguruma, on long-assigned characters, for which versions of Unicode agree."""
    tokenizers = importlib.import_module("tokenizers")
    source = GPT2_ORIGINAL if name == "gpt2" else NAMED_PATTERNS[name].regex
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(source), behavior="isolated")
    assert load_pretokenizer(name).pretokens(text) == [token for token, _ in split.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", NAMES)
@given(text=adversarial_text)
def test_pretokens_tile_the_text(name: str, text: str) -> None:
    assert "".join(load_pretokenizer(name).pretokens(text)) == text


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=300)
@given(text=adversarial_text)
def test_every_safe_cut_divides_the_pretokens(name: str, text: str) -> None:
    pretokenizer = load_pretokenizer(name)
    whole, data = pretokenizer.pretokens(text), text.encode()
    for cut in _cuts(name, data):
        left, right = data[:cut].decode(), data[cut:].decode()
        assert pretokenizer.pretokens(left) + pretokenizer.pretokens(right) == whole


@pytest.mark.parametrize("name", NAMES)
@given(text=adversarial_text)
def test_all_safe_cuts_at_once_divide_the_pretokens(name: str, text: str) -> None:
    pretokenizer, data = load_pretokenizer(name), text.encode()
    edges = [0, *_cuts(name, data), len(data)]
    parts = [data[start:end].decode() for start, end in pairwise(edges)]
    assert [token for part in parts for token in pretokenizer.pretokens(part)] == pretokenizer.pretokens(text)


@pytest.mark.parametrize("name", NAMES)
@given(
    data=st.lists(st.binary(max_size=3) | st.sampled_from([b"a b", b"! ", b"1\n", b"\xe6\x97", b"\xf0"])).map(b"".join)
)
def test_a_safe_cut_divides_invalid_bytes_alike(name: str, data: bytes) -> None:
    for cut in _cuts(name, data):
        left, right = data[:cut].decode(errors="replace"), data[cut:].decode(errors="replace")
        assert left + right == data.decode(errors="replace")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("before", ["a", "Z", "0", "9"])
@pytest.mark.parametrize("after", [" ", "\n", "\r"])
def test_words_may_be_cut_off_before_spaces_and_line_ends(name: str, before: str, after: str) -> None:
    assert _cuts(name, f"{before}{after}x".encode()) == [1]


@pytest.mark.parametrize(
    ("name", "cuts"), [("gpt2", [1]), ("cl100k", []), ("o200k", []), ("llama3", []), ("qwen2", [])]
)
def test_only_gpt2_may_cut_a_line_end_off_from_punctuation(name: str, cuts: list[int]) -> None:
    assert _cuts(name, b"!\nx") == cuts


def _cuts(name: str, data: bytes) -> list[int]:
    return [match.start() for match in re.finditer(NAMED_PATTERNS[name].cut, data)]
