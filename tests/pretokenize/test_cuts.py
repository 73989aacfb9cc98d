from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import pairwise, product
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
import regex
from adversarial import adversarial_text
from available import skip_missing
from characters import CHARACTERS, edges
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import real_text

from bpeflow.counting.table import NativeTable
from bpeflow.pretokenize import patterns as cuts
from bpeflow.pretokenize.cutter import LOOK_AHEAD, LOOK_BEHIND, load_cutter
from bpeflow.pretokenize.native import why_regex
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer

NAMES = list(NAMED_PATTERNS)
every_pattern = pytest.mark.parametrize("name", NAMES)
# o200k and llama3 have the rules of cl100k (test_three_patterns_have_the_same_rules).
every_rule = pytest.mark.parametrize("name", ["gpt2", "cl100k", "qwen2"])

# One character of each kind that the rules or the patterns distinguish, so that every transition occurs.
KINDS = "asStlreZ1²'/!-.<\t\n\r \x00\x1c\x85\xa0\u2028\u3000éД\u0301\u093e\u200b字のー・한。「，’…—５😀ქế"
some_kinds = st.text(st.sampled_from(KINDS), max_size=40)
some_bytes = st.lists(
    st.sampled_from([character.encode() for character in KINDS])
    | st.sampled_from([b"a", b"1", b" ", b"\n", b"/", b"\x80", b"\x9a", b"\x82", b"\xbf", b"\xa0"])
    | st.sampled_from([b"\xc2", b"\xe1", b"\xe2", b"\xe2\x80", b"\xe3", b"\xe3\x80", b"\xe6\x97", b"\xef\xbc"])
    | st.sampled_from([b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x90", b"\xf0\x9f\x98", b"\xf5", b"\xff", b"\xc0\x80"])
    | st.binary(max_size=4),
    max_size=24,
).map(b"".join)


@cache
def _find_cut(name: str) -> Callable[[bytes, int], int | None]:
    cutter = load_cutter(load_pretokenizer(name))
    assert cutter is not None
    return cutter.find_cut


def _cuts(name: str, data: bytes) -> list[int]:
    return [match.start() for match in re.finditer(NAMED_PATTERNS[name].cut, data)]


def _pieces(name: str, data: bytes) -> list[bytes]:
    return [data[start:end] for start, end in pairwise([0, *_cuts(name, data), len(data)])]


def _assert_each_cut_keeps_the_pretokens(name: str, data: bytes) -> None:
    pretokens = load_pretokenizer(name).pretokens
    whole = pretokens(data.decode(errors="replace"))
    for cut in _cuts(name, data):
        left, right = data[:cut].decode(errors="replace"), data[cut:].decode(errors="replace")
        assert pretokens(left) + pretokens(right) == whole, cut


def _assert_all_cuts_keep_the_pretokens(name: str, data: bytes) -> None:
    pretokens = load_pretokenizer(name).pretokens
    parts = [token for piece in _pieces(name, data) for token in pretokens(piece.decode(errors="replace"))]
    assert parts == pretokens(data.decode(errors="replace"))


@pytest.mark.slow
@every_pattern
@settings(max_examples=150)
@given(text=adversarial_text | some_kinds)
def test_every_single_cut_keeps_the_pretokens(name: str, text: str) -> None:
    _assert_each_cut_keeps_the_pretokens(name, text.encode())


@pytest.mark.slow
@every_pattern
@settings(max_examples=150)
@given(text=adversarial_text | some_kinds)
def test_all_cuts_together_keep_the_pretokens(name: str, text: str) -> None:
    _assert_all_cuts_keep_the_pretokens(name, text.encode())


@pytest.mark.slow
@every_pattern
@settings(max_examples=150)
@given(data=some_bytes)
def test_cuts_keep_the_pretokens_of_invalid_bytes(name: str, data: bytes) -> None:
    whole = data.decode(errors="replace")
    for cut in _cuts(name, data):
        assert data[:cut].decode(errors="replace") + data[cut:].decode(errors="replace") == whole
    _assert_each_cut_keeps_the_pretokens(name, data)
    _assert_all_cuts_keep_the_pretokens(name, data)


@pytest.mark.slow
@every_pattern
def test_cuts_at_every_transition_keep_the_pretokens_in_every_context(name: str) -> None:
    """A third of the 121 contexts at each transition, the next third at the next one."""
    contexts = [*product(["", "a", "'", "1", "!", " ", "\n", "/", "\u0301", "字", "\u3000"], repeat=2)]
    for number, (x, w) in enumerate(product(KINDS, KINDS)):
        if len(x.encode()) not in _cuts(name, (x + w).encode()):
            continue
        for before, after in contexts[number % 3 :: 3]:
            _assert_each_cut_keeps_the_pretokens(name, (before + x + w + after).encode())


@every_rule
@given(data=adversarial_text.map(str.encode) | some_kinds.map(str.encode) | some_bytes)
def test_a_cut_depends_only_on_the_documented_number_of_bytes(name: str, data: bytes) -> None:
    allowed = set(_cuts(name, data))
    for position in range(1, len(data)):
        start = max(position - LOOK_BEHIND, 0)
        window = data[start : position + LOOK_AHEAD]
        assert (_find_cut(name)(window, position - start) == position - start) == (position in allowed)


@every_rule
@given(data=adversarial_text.map(str.encode) | some_bytes, times=st.integers(1, 4), stretch=st.integers(3, 12))
def test_the_first_cut_is_found_whatever_is_skipped(name: str, data: bytes, times: int, stretch: int) -> None:
    data *= times
    allowed = _cuts(name, data)
    with patch.object(cuts, "_STRETCH", stretch):
        for start in range(len(data) + 1):
            first = next((cut for cut in allowed if cut >= start), None)
            assert _find_cut(name)(data, start) == first


@every_rule
@pytest.mark.parametrize("run", ["1", "=", " ", "\n", "a", "字", "の", "'", "-a'", "\x80"])
def test_a_cut_after_a_long_run_is_found(name: str, run: str) -> None:
    for length in (505, 1020, 1024, 5000):
        data = f"a{run * length}a 字。".encode()
        assert _find_cut(name)(data, 2) == next(cut for cut in _cuts(name, data) if cut >= 2)


# The claims of the rules about characters, compared with the `regex` module for all characters that may differ.

SIZES = np.repeat([1, 2, 3, 4], np.diff([0, 0x80, 0x800, 0x10000 - 0x800, len(CHARACTERS)]))
LETTER, MARK, NUMBER, SPACE = r"\p{L}", r"\p{M}", r"\p{N}", r"\s"
DIGITS = set("0123456789")


@cache
def _all(expression: str) -> frozenset[str]:
    return frozenset(regex.findall(expression, CHARACTERS))


def _with_a_cut(name: str, before: str, after: str, skipped: int) -> set[str]:
    """Return the characters for which ``before + character + after`` may be cut.

    The cut is after `before` if `skipped` is 0, and after the character if it is 1. The texts are separated by NUL,
    which allows no cut on either side.
    """
    data, starts = _lined_up(before, after)
    allowed = np.zeros(len(data) + 1, dtype=bool)
    allowed[_cuts(name, data)] = True
    positions = starts + len(before.encode()) + skipped * SIZES
    return {CHARACTERS[index] for index in np.flatnonzero(allowed[positions])}


@lru_cache(maxsize=1)
def _lined_up(before: str, after: str) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Return the joined texts and the position of each. They are cached because each pattern uses them in turn."""
    data = "".join(f"{before}{character}{after}\0" for character in CHARACTERS).encode()
    sizes = SIZES + len(before.encode()) + len(after.encode()) + 1
    return data, np.cumsum(sizes) - sizes


def _cut_before(name: str, w: str) -> set[str]:
    return _with_a_cut(name, "", w, 1)


def _cut_after(name: str, x: str) -> set[str]:
    return _with_a_cut(name, x, "", 0)


def test_three_patterns_have_the_same_rules() -> None:
    assert NAMED_PATTERNS["cl100k"].cut == NAMED_PATTERNS["o200k"].cut == NAMED_PATTERNS["llama3"].cut


@pytest.mark.slow
@every_rule
@pytest.mark.parametrize("w", ["!", "1", "。", "\u3000", "！", "—"])
def test_before_punctuation_and_digits_only_words_allow_a_cut(name: str, w: str) -> None:
    found = _cut_before(name, w)
    if w == "1" and name != "qwen2":
        assert not found & _all(NUMBER)
    if w not in "!1\u3000" and name != "gpt2":
        found -= {*"\r\n"}  # the start of a line
    assert found <= _all(LETTER) | DIGITS
    assert found >= {*"azAZぁんァヺー一龥\u9fff가힣"}


@pytest.mark.slow
@every_rule
@pytest.mark.parametrize("w", [" ", "\t", "\n", "\r"])
def test_before_white_space_everything_else_allows_a_cut(name: str, w: str) -> None:
    found = _cut_before(name, w)
    if w in "\n\r" and name != "gpt2":
        assert found <= _all(LETTER) | DIGITS
        assert found >= {*"azAZ09ぁんァヺー一龥\u9fff가힣"}
    else:
        assert found == _all(r"\S") - _all(r"[\x00-\x1f\x7f]")


@pytest.mark.slow
@every_rule
@pytest.mark.parametrize("x", ["a", "字"])
def test_after_a_letter_neither_letters_nor_marks_nor_apostrophes_allow_a_cut(name: str, x: str) -> None:
    found = _cut_after(name, x)
    assert not found & (_all(LETTER) | _all(MARK) | {"'"})
    assert found >= {*' \t\r\n!"#$%&()*+,-./09:;<=>?@[]^_`{|}~、。「」，！？：；（）“”‘’…—・\u3000'}


@pytest.mark.slow
@every_rule
def test_after_a_digit_a_number_allows_a_cut_only_in_qwen2(name: str) -> None:
    found = _cut_after(name, "1")
    assert bool(found & _all(NUMBER)) == (name == "qwen2")
    assert found >= {*" \n!/、。"}


@pytest.mark.slow
@every_rule
def test_after_a_line_end_only_characters_outside_ascii_and_white_space_allow_a_cut(name: str) -> None:
    found = _cut_after(name, "\n")
    if name == "gpt2":
        assert not found
    else:
        assert not found & _all(SPACE)
        assert min(found) > "\x7f"
        assert found >= {*"éдאا字の가ქế「！😀"}


@pytest.mark.slow
@every_rule
@pytest.mark.parametrize("x", ["'", "é", "\u0301", "。"])
def test_after_anything_else_only_white_space_allows_a_cut(name: str, x: str) -> None:
    assert _cut_after(name, x) == set(" \t\n\r" if name == "gpt2" else " \t")


@pytest.mark.slow
@every_rule
@pytest.mark.parametrize("x", [" ", "\u3000", "\xa0", "\u1680"])
def test_after_other_white_space_nothing_allows_a_cut(name: str, x: str) -> None:
    assert not _cut_after(name, x)


@pytest.mark.slow
@every_pattern
def test_the_native_scanner_agrees_on_every_character_at_a_cut(name: str) -> None:
    text = "".join(f"a{c}!{c}1{c} {c}。{c}\n{c}字{c}" for c in edges())
    _assert_native_counts_agree(name, text.encode())


def _assert_native_counts_agree(name: str, data: bytes) -> None:
    skip_missing("count", why_regex(load_pretokenizer(name)))
    whole, parts = NativeTable(name), NativeTable(name)
    whole.count(data)
    for piece in _pieces(name, data):
        parts.count(piece)
    assert parts.shard() == whole.shard()


@cache
def _slices(corpus: str) -> bytes:
    text = real_text(corpus)
    data = b"".join(text[start : start + 40_000] for start in range(0, len(text), len(text) // 10))
    return data.decode(errors="ignore").encode()  # without the characters that the slices broke


@pytest.mark.slow
@every_pattern
@pytest.mark.parametrize("corpus", ["multilingual_20MB", "code_20MB"])
def test_real_text_cut_at_every_safe_cut_has_the_same_pretokens(name: str, corpus: str) -> None:
    data = _slices(corpus)
    _assert_all_cuts_keep_the_pretokens(name, data)
    _assert_native_counts_agree(name, data)
    sizes = [len(piece) for piece in _pieces(name, data)]
    assert sum(sizes) / len(sizes) < 10
    assert max(sizes) < 2000


@every_pattern
@pytest.mark.parametrize(
    "text",  # | marks each cut
    [
        "var| a|=b|;c|(d|.e|,f|[0|]);if|(!g|&&h|!=1|){return| 'i'}",
        "f|0a|1b|2c",
        "今日|、東京は|「晴|」だった|。今日|！",
        "西暦|5月",
        "ソフト|・ウェア|\u3000開発|（株|）",
        "그는| 갔다|.",
        "été| дом| की| 😀| ქა| x",
        "don't| it's| 'quoted'",
        "a|\tb|\r\n",
    ],
)
def test_positions_of_cuts(name: str, text: str) -> None:
    if name == "qwen2":  # where anything may follow a digit, and the search looks at letters outside ASCII
        text = text.replace("5月", "5|月")
    assert "|".join(piece.decode() for piece in _pieces(name, text.replace("|", "").encode())) == text


@every_pattern
def test_only_qwen2_cuts_between_digits(name: str) -> None:
    assert _cuts(name, b"12345") == ([1, 2, 3, 4] if name == "qwen2" else [])


@every_pattern
@pytest.mark.parametrize("before", ["a", "Z", "0", "9", "字"])
@pytest.mark.parametrize("after", [" ", "\n", "\r", "\t"])
def test_words_are_cut_off_before_white_space(name: str, before: str, after: str) -> None:
    assert _cuts(name, f"{before}{after}x".encode()) == [len(before.encode())]


@every_pattern
def test_only_gpt2_cuts_between_punctuation_and_a_line_end_and_only_the_others_after_it(name: str) -> None:
    assert _cuts(name, b"!\nx") == ([1] if name == "gpt2" else [])
    assert _cuts(name, "!\né".encode()) == ([1] if name == "gpt2" else [2])
    assert _cuts(name, "の。\nの".encode()) == ([3, 6] if name == "gpt2" else [3, 7])


@every_pattern
@pytest.mark.parametrize("run", ["a", "字", "=", "'", " ", "\n", "é", "\u3000", "。", "1\u0663", "\x80"])
def test_runs_that_cannot_be_cut(name: str, run: str) -> None:
    if not (name == "qwen2" and run.startswith("1")):
        assert _cuts(name, (run * 100).encode()) == []
