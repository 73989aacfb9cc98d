"""Special tokens: how they are found, and which a call allows or disallows."""

from __future__ import annotations

import time
import weakref
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import small_spec, special_text

from bpeflow._util.delimiters import Literals
from bpeflow.errors import ConfigError, InputTypeError, SpecialTokenError
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokenControl, SpecialTokens
from bpeflow.tokenizer.tokenizer import Tokenizer

IDS = {"<a>": 300, "<a><b>": 301, "<b>": 302}


@pytest.fixture
def tokenizer(encoder: str) -> Tokenizer:
    return Tokenizer.from_spec(small_spec(), encoder=encoder)


def ids(*tokens: str) -> list[int]:
    return [small_spec().vocab.special_tokens[token] for token in tokens]


def test_overlaps_are_resolved_leftmost_longest() -> None:
    specials = SpecialTokens.of(IDS)
    assert list(specials.ids) == [b"<a><b>", b"<a>", b"<b>"]
    found = [special_id for _, special_id in specials.split(b"<a><a><b><b><a><") if special_id]
    assert found == [300, 301, 302, 300]
    assert specials.longest == 6


def test_the_empty_set_matches_nothing() -> None:
    assert not NO_SPECIAL_TOKENS
    assert list(NO_SPECIAL_TOKENS.split(b"<a>")) == [(b"<a>", None)]
    assert NO_SPECIAL_TOKENS.longest == 0


def test_regex_characters_are_escaped() -> None:
    specials = SpecialTokens.of({"a.c": 1, "[x]+": 2, "\\": 3})
    assert [special_id for _, special_id in specials.split(b"abc a.c xx [x]+ \\") if special_id] == [1, 2, 3]


def test_a_token_that_is_not_found_can_span_a_position() -> None:
    specials = SpecialTokens.of({"ab": 1, "bc": 2})
    assert [position for position in range(6) if specials.spans(b"xabcx", position)] == [2, 3]


def test_all_are_allowed_by_default(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("<|endoftext|><a>") == ids("<|endoftext|>", "<a>")


def test_those_not_allowed_are_ordinary_text(tokenizer: Tokenizer) -> None:
    ordinary = tokenizer.encode_ordinary("<|endoftext|>")
    assert not set(ordinary) & set(tokenizer.special_tokens.values())
    assert tokenizer.decode(ordinary) == "<|endoftext|>"
    assert tokenizer.encode("<|endoftext|><a>", allowed_special={"<a>"}) == [*ordinary, *ids("<a>")]
    assert tokenizer.encode("<a><b>", allowed_special=["<a>"]) == [*ids("<a>"), *tokenizer.encode_ordinary("<b>")]
    assert tokenizer.encode("<|endoftext|>", allowed_special=set()) == ordinary


@given(text=special_text)
def test_untrusted_text_cannot_yield_special_tokens(encoder: str, text: str) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(), encoder=encoder)
    for found in (tokenizer.encode_ordinary(text), list(tokenizer.encode_iterable([text], allowed_special=()))):
        assert not set(found) & set(tokenizer.special_tokens.values())
        assert tokenizer.decode(found) == text


def every_method(tokenizer: Tokenizer, text: str, **choice: Any) -> list[Any]:
    return [
        lambda: tokenizer.encode(text, **choice),
        lambda: tokenizer.encode_to_numpy(text, **choice),
        lambda: tokenizer.encode_batch(["é", text], **choice),
        lambda: tokenizer.count_tokens(text, **choice),
        lambda: tokenizer.encode_with_offsets(text, **choice),
        lambda: list(tokenizer.encode_iterable([text], **choice)),
    ]


def test_a_disallowed_token_is_an_error_with_its_position(tokenizer: Tokenizer) -> None:
    text = "ü<a> ü<|endoftext|>"
    for call in every_method(tokenizer, text, allowed_special={"<a>"}, disallowed_special="all"):
        with pytest.raises(SpecialTokenError, match=r"'<\|endoftext\|>' at character 6, .* allowed_special"):
            call()
    for call in every_method(tokenizer, text, disallowed_special=("<a>",)):
        with pytest.raises(SpecialTokenError, match="'<a>' at character 1"):
            call()
    for call in every_method(tokenizer, text, disallowed_special="all"):
        call()  # because all are allowed


def test_the_error_is_a_value_error_as_in_tiktoken(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="<a>"):
        tokenizer.encode("<a>", allowed_special=(), disallowed_special="all")


def test_texts_of_a_batch_are_checked_separately(tokenizer: Tokenizer) -> None:
    batch = ["<", "a>"]
    assert tokenizer.encode_batch(batch, allowed_special=(), disallowed_special="all") == [[60], [97, 62]]


def test_a_name_that_is_not_a_special_token_is_an_error(tokenizer: Tokenizer) -> None:
    for call in every_method(tokenizer, "text", allowed_special={"<|endoftxt|>"}):
        with pytest.raises(SpecialTokenError, match=r"allowed_special: '<\|endoftxt\|>' .* mean '<\|endoftext\|>'"):
            call()
    with pytest.raises(SpecialTokenError, match="disallowed_special: 'word' is not a special token"):
        tokenizer.encode("text", disallowed_special=["word"])


@pytest.mark.parametrize("choice", ["<a>", b"all", 7, None])
def test_a_choice_is_all_or_a_collection(tokenizer: Tokenizer, choice: Any) -> None:
    with pytest.raises(InputTypeError, match=r'allowed_special is .*; it must be "all" or a collection'):
        tokenizer.encode("text", allowed_special=choice)
    if choice is not None:
        with pytest.raises(InputTypeError, match="disallowed_special is"):
            tokenizer.encode("text", disallowed_special=choice)


def test_sets_are_reused() -> None:
    control = SpecialTokenControl(IDS)
    assert control.allowed({"<a>", "<b>"}) is control.allowed(["<b>", "<a>"])
    assert control.allowed("all") is control.allowed(list(IDS)) is control.every
    assert control.allowed(()) is NO_SPECIAL_TOKENS
    assert control.disallowed({"<a>"}, "all") is control.allowed({"<b>", "<a><b>"})
    assert control.disallowed("all", "all") is NO_SPECIAL_TOKENS


def test_the_cache_of_sets_is_bounded() -> None:
    control = SpecialTokenControl({f"<{i}>": i for i in range(1000)})
    kept = [weakref.ref(control.allowed([f"<{i}>"])) for i in range(1000)]
    assert sum(ref() is not None for ref in kept) < 100
    assert control.allowed("all") is control.allowed([f"<{i}>" for i in range(1000)]) is control.every


def test_invalid_special_tokens_are_rejected() -> None:
    with pytest.raises(ConfigError, match="empty"):
        SpecialTokens.of({"": 1})
    with pytest.raises(ConfigError, match="not valid Unicode"):
        SpecialTokens.of({"\ud800": 1})
    with pytest.raises(InputTypeError, match="b'x' is bytes"):
        SpecialTokens.of({b"x": 1})  # type: ignore[dict-item]


def alike(count: int) -> list[str]:
    return [f"<|reserved_special_token_of_this_model_{number}|>" for number in range(count)]


@pytest.mark.parametrize(
    "tokens",
    [alike(1000), ["<|" + "x" * 10_000_000], ["a" * 10_000_000], ["a" * length for length in range(1, 1000)]],
    ids=["1000", "10 MB", "10 MB of a letter", "1000 of a letter"],
)
def test_many_or_long_special_tokens_cost_little_time(encoder: str, tokens: list[str]) -> None:
    base = {byte: bytes([byte]) for byte in range(256)}
    ids = {256 + number: token.encode() for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(base | ids, [], special_tokens=tokens, encoder=encoder)
    text = f"<p>a <|a|> text with{tokens[len(tokens) // 2][:2000]}, among a</p>\n" * 20
    started = time.process_time()
    expected = tokenizer.encode(text)
    assert [*tokenizer.encode_iterable([text[:50], text[50:]])] == expected
    assert tokenizer.encode_with_offsets(text)[0] == expected
    assert tokenizer.decode(expected) == text
    assert str(tokenizer.explain(text[:100]))
    assert time.process_time() - started < 5


@given(
    text=st.text("abc", max_size=12), position=st.integers(0, 12), names=st.sets(st.text("abc", min_size=1, max_size=4))
)
def test_a_special_token_spans_a_position_if_one_begins_before_it_and_ends_behind(
    text: str, position: int, names: set[str]
) -> None:
    specials = SpecialTokens.of({name: 300 + number for number, name in enumerate(sorted(names))})
    position = min(position, len(text))
    starts = [(start, name) for name in names for start in range(len(text)) if text.startswith(name, start)]
    expected = any(start < position < start + len(name) for start, name in starts)
    for given_text in (text.encode(), memoryview(text.encode())):
        assert specials.spans(given_text, position) == expected


def test_text_far_from_a_cut_is_not_searched_for_special_tokens() -> None:
    """Otherwise cutting a large text without any takes a time that grows with its square."""
    specials = SpecialTokens.of({"<|endoftext|>": 300, "<s>": 301})
    with patch.object(Literals, "find", autospec=True, side_effect=Literals.find) as find:
        assert not specials.spans(b"a" * 10_000, 5000)
    assert max(len(call.args[1]) for call in find.call_args_list) < 50
