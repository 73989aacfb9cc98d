from __future__ import annotations

import pickle

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.errors import PatternError
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer, unicode_version


@pytest.mark.parametrize("name", NAMED_PATTERNS)
def test_a_name_loads_its_pattern(name: str) -> None:
    pretokenizer = load_pretokenizer(name)
    assert (pretokenizer.name, pretokenizer.regex) == (name, NAMED_PATTERNS[name].regex)
    assert not pretokenizer.custom
    assert pretokenizer.unicode_version == unicode_version()


def test_a_pattern_that_is_not_a_name_is_a_regular_expression() -> None:
    pretokenizer = load_pretokenizer(r"\w+")
    assert (pretokenizer.name, pretokenizer.regex, pretokenizer.custom) == ("custom", r"\w+", True)
    assert pretokenizer.pretokens("one, two") == ["one", "two"]


def test_capture_groups_do_not_change_the_pretokens() -> None:
    assert load_pretokenizer(r"(\w)(\w*)| ").pretokens("one two") == ["one", " ", "two"]


@pytest.mark.parametrize("pattern", [r"\w*", r"(\w*)"])
def test_empty_matches_are_dropped(pattern: str) -> None:
    assert load_pretokenizer(pattern).pretokens("one, two") == ["one", "two"]


@pytest.mark.parametrize(
    ("mistyped", "nearest"),
    [("gtp2", "gpt2"), ("GPT2", "gpt2"), ("gpt-2", "gpt2"), ("cl100k_base", "cl100k"), ("llama-3", "llama3")],
)
def test_the_error_for_a_mistyped_name_suggests_the_nearest(mistyped: str, nearest: str) -> None:
    with pytest.raises(PatternError, match=f"did you mean '{nearest}'"):
        load_pretokenizer(mistyped)


def test_the_error_for_a_single_word_that_is_not_a_name_lists_the_names() -> None:
    with pytest.raises(PatternError, match="unknown pattern 'word'; the named patterns are gpt2, cl100k"):
        load_pretokenizer("word")


@pytest.mark.parametrize("pattern", ["gpt.", ".", "[a-z]+"])
def test_a_pattern_with_other_than_word_characters_is_never_mistaken_for_a_name(pattern: str) -> None:
    assert load_pretokenizer(pattern).custom


def test_the_error_for_an_invalid_regular_expression_gives_the_position() -> None:
    with pytest.raises(PatternError, match=r"missing \) at position 4"):
        load_pretokenizer(r"a|(b")


@pytest.mark.parametrize("pattern", ["", "(?V0)(?V1)a", "(" * 5000 + ")" * 5000, r"\p{Foo}"])
def test_other_refusals_of_the_regex_module_are_pattern_errors_too(pattern: str) -> None:
    with pytest.raises(PatternError):
        load_pretokenizer(pattern)


@pytest.mark.parametrize("pattern", [*NAMED_PATTERNS, r"(\w)+|\s"])
def test_a_pickled_copy_behaves_the_same(pattern: str) -> None:
    pretokenizer = load_pretokenizer(pattern)
    data = pickle.dumps(pretokenizer)
    copy = pickle.loads(data)
    assert len(data) < 200  # the source, not the compiled tables
    assert (copy.name, copy.regex, copy.custom) == (pretokenizer.name, pretokenizer.regex, pretokenizer.custom)
    assert copy.pretokens("It's 12 o'clock\n") == pretokenizer.pretokens("It's 12 o'clock\n")
    assert copy.find_cut(b"one two", 0) == pretokenizer.find_cut(b"one two", 0)


@pytest.mark.parametrize(("start", "cut"), [(0, 3), (3, 3), (4, 7), (7, 7), (8, None)])
def test_find_cut_returns_the_first_cut_at_or_after_the_start(start: int, cut: int | None) -> None:
    assert load_pretokenizer("cl100k").find_cut(b"one two three", start) == cut


@pytest.mark.parametrize("window", [b"", b" ", b" a", b"a", b"one"])
def test_the_edges_of_a_window_are_not_cuts(window: bytes) -> None:
    assert load_pretokenizer("gpt2").find_cut(window, 0) is None


@given(window=st.binary(max_size=30) | st.text("a1! \n\r").map(str.encode), start=st.integers(0, 30))
def test_a_custom_pattern_is_never_cut_even_if_it_equals_a_named_one(window: bytes, start: int) -> None:
    assert load_pretokenizer(NAMED_PATTERNS["gpt2"].regex).find_cut(window, start) is None


@given(text=st.text())
def test_pretokens_are_the_matches_of_the_regex_module(text: str) -> None:
    pretokenizer = load_pretokenizer("o200k")
    assert pretokenizer.pretokens(text) == [match[0] for match in regex.finditer(pretokenizer.regex, text)]
