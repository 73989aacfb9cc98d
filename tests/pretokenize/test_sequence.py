"""Several expressions, one after another, split as a sequence of HuggingFace's Split does."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.errors import PatternError, UnmatchedTextError
from bpeflow.pretokenize.patterns import DEEPSEEK_V3
from bpeflow.pretokenize.regex import Pretokenizer, Unmatched, load_pretokenizer

#: Expressions that look ahead, have groups, match the empty string, or match most text.
STEPS = [r"\p{N}{1,2}", r"[\p{L}\p{N}]+", r"a(?!b)", r"\s+(?!\S)|\s+", r"(a|(b)+)c?", r"[^\S\n]+|\n", r"x*", r"(?=b)"]
texts = st.text(st.sampled_from("abcx1²日 \n,"), max_size=16)


@cache
def both(steps: tuple[str, ...], unmatched: UnmatchedPolicy) -> tuple[Pretokenizer, Any]:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    behavior = {"isolate": ("isolated", False), "drop": ("removed", True)}[unmatched]
    splits = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(step), *behavior) for step in steps]
    return load_pretokenizer(steps, unmatched), tokenizers.pre_tokenizers.Sequence(splits)


@pytest.mark.parametrize("unmatched", ["isolate", "drop"])
@given(steps=st.lists(st.sampled_from(STEPS[:6]), min_size=2, max_size=3), text=texts)
def test_pre_tokens_are_those_of_huggingface(unmatched: UnmatchedPolicy, steps: list[str], text: str) -> None:
    ours, theirs = both(tuple(steps), unmatched)
    assert ours.pretokens(text) == [piece for piece, _ in theirs.pre_tokenize_str(text)]


@given(steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=3), text=texts)
def test_nothing_is_lost_and_spans_are_those_of_the_pre_tokens(steps: list[str], text: str) -> None:
    pretokenizer = load_pretokenizer(steps)
    pieces = pretokenizer.pretokens(text)
    assert "".join(pieces) == text
    if len(steps) > 1:
        assert [text[start:end] for start, end in pretokenizer.match_spans(text)] == pieces
    assert all(pieces)


def test_each_expression_splits_the_pieces_of_the_one_before() -> None:
    assert load_pretokenizer(DEEPSEEK_V3).pretokens("Costs12345円です。 ok") == [
        "Costs", "123", "45", "円です", "。", " ok",
    ]  # fmt: skip
    assert load_pretokenizer([r"\d", "gpt2"]).pretokens("it's  1st") == ["it", "'s", "  ", "1", "st"]
    assert load_pretokenizer("gpt2").pretokens("it's  1st") == ["it", "'s", " ", " 1", "st"]  # it sees the digit


@pytest.mark.parametrize(
    ("unmatched", "pieces", "gaps"),
    [("isolate", ["ab", "12", ", ", "c"], [", "]), ("drop", ["12"], ["ab", ", c"])],
)
def test_unmatched_text(unmatched: UnmatchedPolicy, pieces: list[str], gaps: list[str]) -> None:
    pretokenizer = load_pretokenizer([r"\d+", r"\w+"], unmatched)
    assert pretokenizer.split("ab12, c") == (pieces, gaps)
    assert pretokenizer.find_unmatched("ab12, c") == Unmatched(
        *((4, "', ' in 'ab12, c'") if pieces[1:] else (0, "'ab' in 'ab12, c'"))
    )
    assert pretokenizer.find_unmatched("12") is None


def test_text_that_no_expression_matches_is_an_error_if_asked() -> None:
    pretokenizer = load_pretokenizer([r"\d+", r"\w+"], "error")
    assert pretokenizer.pretokens("ab12c") == ["ab", "12", "c"]
    with pytest.raises(UnmatchedTextError, match=r"does not match ', ' in 'ab12, c', at character 4"):
        pretokenizer.pretokens("ab12, c")


@pytest.mark.parametrize("unmatched", ["isolate", "drop"])
def test_whether_anything_is_found(unmatched: UnmatchedPolicy) -> None:
    pretokenizer = load_pretokenizer([r"\w+", r"\d+"], unmatched)
    assert pretokenizer.finds_anything("a1")
    assert not pretokenizer.finds_anything(", ")
    assert not pretokenizer.finds_anything("")


def test_it_is_custom_and_pickled_as_its_source() -> None:
    pretokenizer = load_pretokenizer(["gpt2", r"\d"], "drop")
    assert pretokenizer.custom
    again = pickle.loads(pickle.dumps(pretokenizer))
    assert (again.regex, again.unmatched) == (pretokenizer.regex, "drop")
    assert again.pretokens("a 1b") == pretokenizer.pretokens("a 1b") == ["1"]
    assert "load_pretokenizer(" in repr(pretokenizer)


def test_one_in_a_list_is_that_one() -> None:
    assert load_pretokenizer(["cl100k"]).name == "cl100k"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ([], "the pattern is empty"),
        ([r"\d", ""], "the pattern is empty"),
        ([r"\d", 5], "a str .* or a list of them, not list"),
        ([r"\d", "("], "invalid regular expression"),
        ([r"\d", "gtp2"], "did you mean 'gpt2'"),
        (b"ab", "not bytes"),
    ],
)
def test_invalid_lists_are_refused(pattern: Any, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        load_pretokenizer(pattern)
