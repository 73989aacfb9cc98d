from __future__ import annotations

import pickle

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.errors import ConfigError, PatternError, UnmatchedTextError
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer


@pytest.mark.parametrize("name", NAMED_PATTERNS)
def test_a_name_loads_its_pattern(name: str) -> None:
    pretokenizer = load_pretokenizer(name)
    assert (pretokenizer.name, pretokenizer.regex) == (name, NAMED_PATTERNS[name])
    assert not pretokenizer.custom


def test_a_pattern_that_is_not_a_name_is_a_regular_expression() -> None:
    pretokenizer = load_pretokenizer(r"\w+")
    assert (pretokenizer.name, pretokenizer.regex, pretokenizer.custom) == ("custom", r"\w+", True)
    assert pretokenizer.pretokens("one, two") == ["one", ", ", "two"]


def test_capture_groups_do_not_change_the_pretokens() -> None:
    assert load_pretokenizer(r"(\w)(\w*)| ").pretokens("one two") == ["one", " ", "two"]


@pytest.mark.parametrize("pattern", [r"\w*", r"(\w*)"])
def test_empty_matches_are_dropped(pattern: str) -> None:
    assert load_pretokenizer(pattern, "drop").pretokens("one, two") == ["one", "two"]
    assert load_pretokenizer(pattern).pretokens("one, two") == ["one", ",", " ", "two"]


#: Patterns that leave text unmatched: with and without groups, empty matches, lookarounds, and a search from the end.
PARTIAL = [r"\p{L}+", r"(a)(b)?|\d", r"b*", r"(?=[A-Z])", r"(?<=a)b|\s", r"\b", r"a\Kb", r"(?r)[ab ]{1,2}", "ß"]
texts = st.text(st.sampled_from("abAB1 é日🙂\n,ß"), max_size=15)


def oracle(pattern: str, text: str, unmatched: UnmatchedPolicy) -> list[str]:
    """Split as `Split` of HuggingFace tokenizers does."""
    pieces, end = [], 0
    for start, following in sorted(match.span() for match in regex.finditer(pattern, text)):
        pieces += [text[end:start] if unmatched == "isolate" else "", text[start:following]]
        end = following
    pieces.append(text[end:] if unmatched == "isolate" else "")
    return [piece for piece in pieces if piece]


@given(pattern=st.sampled_from(PARTIAL), text=texts)
def test_unmatched_text_is_isolated_or_dropped(pattern: str, text: str) -> None:
    isolated, dropped = load_pretokenizer(pattern), load_pretokenizer(pattern, "drop")
    assert isolated.pretokens(text) == oracle(pattern, text, "isolate")
    assert dropped.pretokens(text) == oracle(pattern, text, "drop")
    assert "".join(isolated.pretokens(text)) == text
    assert isolated.split(text)[1] == dropped.split(text)[1]
    assert sum(map(len, [*dropped.pretokens(text), *dropped.split(text)[1]])) == len(text)


@given(pattern=st.sampled_from(PARTIAL), text=texts)
def test_unmatched_text_is_refused_with_its_position(pattern: str, text: str) -> None:
    strict = load_pretokenizer(pattern, "error")
    first = strict.find_unmatched(text)
    pieces = oracle(pattern, text, "drop")
    if "".join(pieces) == text:
        assert first is None
        assert strict.pretokens(text) == pieces
        return
    assert first is not None
    assert text.startswith("".join(oracle(pattern, text, "isolate"))[: first.start])
    assert first.start == next(i for i in range(len(text)) if not any(s <= i < e for s, e in strict.match_spans(text)))
    with pytest.raises(UnmatchedTextError, match=f"at character {first.start}; "):
        strict.pretokens(text)


@pytest.mark.parametrize("behavior", ["isolate", "drop"])
@given(pattern=st.sampled_from([r"\p{L}+", r" ?[ab]+", r"(a)(b)?|\d", "ß"]), text=texts)
def test_pretokens_are_those_of_huggingface(behavior: UnmatchedPolicy, pattern: str, text: str) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    theirs = tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(pattern), "isolated" if behavior == "isolate" else "removed", invert=behavior == "drop"
    )
    pieces = [piece for piece, _ in theirs.pre_tokenize_str(text) if piece]
    assert load_pretokenizer(pattern, behavior).pretokens(text) == pieces


def test_the_example_of_unmatched_text_is_short() -> None:
    first = load_pretokenizer("a+").find_unmatched("a" * 50 + "b" * 1000 + "c")
    assert first == (50, repr("b" * 20 + "…") + " in " + repr("a" * 20 + "b" * 40))
    assert load_pretokenizer("a+").find_unmatched("bb") == (0, "'bb'")


def test_an_unknown_policy_is_an_error() -> None:
    with pytest.raises(ConfigError, match="unmatched is 'keep'; it must be one of error, isolate, drop"):
        load_pretokenizer("a+", "keep")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mistyped", "nearest"),
    [("gtp2", "gpt2"), ("GPT2", "gpt2"), ("gpt-2", "gpt2"), ("cl100k_base", "cl100k"), ("llama-3", "llama3")],
)
def test_the_error_for_a_mistyped_name_suggests_the_nearest(mistyped: str, nearest: str) -> None:
    with pytest.raises(PatternError, match=f"did you mean '{nearest}'"):
        load_pretokenizer(mistyped)


def test_the_error_for_a_single_word_that_is_not_a_name_lists_the_names() -> None:
    with pytest.raises(PatternError, match="unknown pattern 'word'; there are: gpt2, cl100k"):
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
    assert len(data) < 200 or pretokenizer.custom  # the source
    assert (copy.name, copy.regex, copy.custom) == (pretokenizer.name, pretokenizer.regex, pretokenizer.custom)
    assert pickle.loads(pickle.dumps(load_pretokenizer(pattern, "drop"))).unmatched == "drop"
    assert copy.pretokens("It's 12 o'clock\n") == pretokenizer.pretokens("It's 12 o'clock\n")


@given(text=st.text())
def test_pretokens_are_the_matches_of_the_regex_module(text: str) -> None:
    pretokenizer = load_pretokenizer("o200k")
    assert pretokenizer.pretokens(text) == [match[0] for match in regex.finditer(pretokenizer.regex, text)]
