"""Safe cuts keep the pre-tokens of texts, with every pattern and policy, natively and in Python."""

from __future__ import annotations

import random
import unicodedata
from functools import cache
from itertools import pairwise, product

import pytest
from adversarial import adversarial_text
from available import skip_missing
from characters import CHARACTERS
from how_many import one_in
from hypothesis import given
from hypothesis import strategies as st
from normalized_text import NORMALIZERS, changed_text
from real_data import real_text_start
from split_patterns import HOT, SPLIT_PATTERNS, nasty_text, random_pattern

from bpeflow._util.text import Pattern, UnmatchedPolicy
from bpeflow.errors import NativeUnavailableError, PatternError
from bpeflow.pretokenize import cutter as cutters
from bpeflow.pretokenize.cutter import LOOK_AHEAD, LOOK_BEHIND, Cutter, NativeCutter, PythonCutter, load_cutter
from bpeflow.pretokenize.native import why_not_compiled, why_regex
from bpeflow.pretokenize.normalizer import load_normalizer
from bpeflow.pretokenize.patterns import DEEPSEEK_V3, NAMED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer

SEQUENCES: list[Pattern] = [
    DEEPSEEK_V3,
    (SPLIT_PATTERNS["starcoder_digits"], "gpt2"),
    (SPLIT_PATTERNS["falcon_punctuation"], "gpt2", "[0-9][0-9][0-9]"),
    (r"\p{N}{1,3}", SPLIT_PATTERNS["superbpe"]),
    (r"\s", r"[\s\S]"),
]
PATTERNS: list[Pattern] = [*NAMED_PATTERNS, *SPLIT_PATTERNS.values(), *SEQUENCES]
any_pattern = st.sampled_from(PATTERNS)
policies = st.sampled_from(["isolate", "drop"])

#: Complete and incomplete characters, and bytes that are no UTF-8.
some_bytes = st.lists(
    st.sampled_from([character.encode() for character in HOT])
    | st.sampled_from([b"\x80", b"\xbf", b"\xc2", b"\xe1", b"\xe2\x80", b"\xe3\x80", b"\xe6\x97", b"\xf0\x90", b"\xff"])
    | st.sampled_from([b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80"])
    | st.sampled_from([b"\xf5", b"\xc0\x80", b"\xc3\xa9\x80", b"a\x80", b"\xf8\x80\x80\x80\x80"]),
    max_size=24,
).map(b"".join)


class BothCutters:
    """The native cutter and the reference, which must agree."""

    def __init__(self, pattern: Pattern, unmatched: UnmatchedPolicy, normalizer: tuple[str, ...]) -> None:
        pretokenizer = load_pretokenizer(pattern, unmatched, normalizer)
        self._reference = PythonCutter(pretokenizer)
        self._native: Cutter = NativeCutter(pretokenizer) if why_regex(pretokenizer) is None else self._reference

    def find_cut(self, window: bytes, start: int) -> int | None:
        found = self._reference.find_cut(window, start)
        assert self._native.find_cut(window, start) == found, (window, start)
        return found

    def find_last_cut(self, window: bytes) -> int | None:
        found = self._reference.find_cut(window, 0, last=True)
        assert self._native.find_cut(window, 0, last=True) == found, window
        return found

    def cuts(self, data: bytes) -> list[int]:
        cuts, start = [], 0
        while (cut := self.find_cut(data, start)) is not None:
            cuts.append(cut)
            start = cut + 1
        assert self.find_last_cut(data) == (cuts[-1] if cuts else None)
        return cuts

    def marked(self, text: str) -> str:
        """Return the text with | at each cut."""
        data = text.encode()
        return "|".join(data[start:end].decode() for start, end in pairwise([0, *self.cuts(data), len(data)]))


@cache
def both(pattern: Pattern, unmatched: UnmatchedPolicy = "isolate", normalizer: tuple[str, ...] = ()) -> BothCutters:
    return BothCutters(pattern, unmatched, normalizer)


def assert_cuts_keep_the_pretokens(
    pattern: Pattern, unmatched: UnmatchedPolicy, data: bytes, normalizer: tuple[str, ...] = ()
) -> None:
    pretokens = load_pretokenizer(pattern, unmatched).pretokens
    normalize = load_normalizer(normalizer)
    text = data.decode(errors="replace")
    whole = pretokens(normalize(text))
    for cut in both(pattern, unmatched, normalizer).cuts(data):
        left, right = data[:cut].decode(errors="replace"), data[cut:].decode(errors="replace")
        assert left + right == text
        assert normalize(left) + normalize(right) == normalize(text)
        assert pretokens(normalize(left)) + pretokens(normalize(right)) == whole, (pattern, cut)


@given(
    pattern=any_pattern,
    unmatched=policies,
    data=(adversarial_text | st.text(st.sampled_from(HOT), max_size=25)).map(str.encode) | some_bytes,
)
def test_every_cut_keeps_the_pretokens(pattern: Pattern, unmatched: UnmatchedPolicy, data: bytes) -> None:
    assert_cuts_keep_the_pretokens(pattern, unmatched, data)


@given(pattern=any_pattern, normalizer=st.sampled_from(NORMALIZERS), unmatched=policies, data=st.data())
def test_every_cut_keeps_the_pretokens_of_normalized_text(
    pattern: Pattern, normalizer: tuple[str, ...], unmatched: UnmatchedPolicy, data: st.DataObject
) -> None:
    texts = (adversarial_text | changed_text | st.text(st.sampled_from(HOT), max_size=25)).map(str.encode)
    assert_cuts_keep_the_pretokens(pattern, unmatched, data.draw(texts | some_bytes), normalizer)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["gpt2", "o200k", DEEPSEEK_V3, SPLIT_PATTERNS["superbpe"]], ids=str)
def test_cuts_between_characters_of_all_kinds_keep_the_pretokens_in_every_context(pattern: Pattern) -> None:
    """Some of 121 contexts at each transition, the next ones at the next one."""
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    chance, apart = random.Random(seed), 121 // one_in(4)
    contexts = [*product(["", "a", "'", "1", "!", " ", "\n", "/", "\u0301", "字", "\u3000"], repeat=2)]
    for number, (x, w) in enumerate(product(dict.fromkeys(HOT), repeat=2), chance.randrange(apart)):
        if both(pattern).find_cut((x + w).encode(), len(x.encode())) is not None:
            for before, after in contexts[number % apart :: apart]:
                assert_cuts_keep_the_pretokens(pattern, "isolate", (before + x + w + after).encode())


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["gpt2", "o200k", DEEPSEEK_V3, SPLIT_PATTERNS["superbpe"]], ids=str)
@pytest.mark.parametrize("corpus", ["multilingual_20MB", "code_20MB"])
def test_real_text_cut_at_every_safe_cut_has_the_same_pretokens(pattern: Pattern, corpus: str) -> None:
    pretokenizer = load_pretokenizer(pattern)
    text = real_text_start(corpus, 60_000)
    pieces = both(pattern).marked(text.replace("|", " ")).split("|")
    parts = [token for piece in pieces for token in pretokenizer.pretokens(piece)]
    assert parts == pretokenizer.pretokens(text.replace("|", " "))
    assert max(map(len, pieces)) < 20_000


@pytest.mark.slow
def test_cuts_of_random_sequences_keep_the_pretokens() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    chance = random.Random(seed)
    tried = 0
    while tried < one_in(12):
        steps = tuple(random_pattern(chance, 1) for _ in range(chance.choice((2, 3))))
        try:
            if why_not_compiled(load_pretokenizer(steps)) is not None:
                continue
        except PatternError:
            continue
        tried += 1
        for _ in range(12):
            for unmatched in ("isolate", "drop"):
                assert_cuts_keep_the_pretokens(steps, unmatched, nasty_text(chance, chance.randrange(12)).encode())


@given(pattern=any_pattern, data=some_bytes)
def test_a_cut_depends_only_on_the_documented_number_of_bytes(pattern: Pattern, data: bytes) -> None:
    allowed = both(pattern).cuts(data)
    for position in range(1, len(data)):
        start = max(position - LOOK_BEHIND, 0)
        window = data[start : position + LOOK_AHEAD]
        assert (both(pattern).find_cut(window, position - start) == position - start) == (position in allowed)


@pytest.mark.parametrize(
    ("pattern", "unmatched", "text"),  # | marks each cut
    [
        (r"\w+|\W", "isolate", "one| |two|,| |3"),
        (r"\w+", "isolate", "one| |two|, |3"),
        (r"\w+", "drop", "one| |two|,| |3"),
        (SPLIT_PATTERNS["kimi_k2"], "isolate", "中文|abc| def|,| x|\n|y"),
        ((r"\d", r"\w+"), "isolate", "ab|1|2|cd|, |x"),
        ("[a-z]+|[A-Z]+|.", "isolate", "ab|CD|.|.|é|e"),
        ("gpt2", "isolate", "var| a|=|b|;|c|(|d|,|f|[|0|]);|if|(!|g|&&|h|){|return| '|i|'}| été| дом|\n\n\r"),
        ("cl100k", "isolate", "don|'t| it|'s| f|0|a|1|b| 今日|、東京は|「晴|」だった|。今日|！\n|é"),
        ("qwen2", "isolate", "1|2|3|a|\tb|\r\n\n|ქა"),
    ],
)
def test_positions_of_cuts(pattern: Pattern, unmatched: UnmatchedPolicy, text: str) -> None:
    assert both(pattern, unmatched).marked(text.replace("|", "")) == text


@pytest.mark.parametrize("name", NAMED_PATTERNS)
@pytest.mark.parametrize("run", ["a", "字", "=", "'", " ", "é", "\u3000", "。"])
def test_runs_that_cannot_be_cut(name: str, run: str) -> None:
    assert both(name).cuts((run * 100).encode()) == []


@pytest.mark.parametrize("window", [b"", b" ", b" a", b"a", b"one", b"\xc3", b"\xa9a"])
def test_the_edges_of_a_window_are_not_cuts(window: bytes) -> None:
    assert both("gpt2").find_cut(window, 0) is None
    assert both("gpt2").find_cut(window, 50) is None
    assert both("gpt2").find_last_cut(window) is None


def test_windows_of_all_types() -> None:
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    cutter = NativeCutter(load_pretokenizer("gpt2"))
    for window in (bytearray(b"one two"), memoryview(b"zero one two")[5:]):
        assert (cutter.find_cut(window, 1), cutter.find_cut(window, 0, last=True)) == (3, 3)


# ---- which cutter there is


def test_a_pattern_that_is_not_compiled_has_no_cutter() -> None:
    assert load_cutter(load_pretokenizer(r"\b\w+|\W|\w")) is None


@pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W"])
def test_cuts_are_found_without_a_compiler(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise NativeUnavailableError("not built")

    monkeypatch.setattr(cutters, "new_pattern", lambda library, _: missing(library))
    found = load_cutter(load_pretokenizer(pattern))
    assert isinstance(found, PythonCutter)
    assert found.find_cut(b"one two", 1) == 3


# ---- normalized text: the facts of the proof in `cuts`


STABLE = [*map(chr, range(128)), "\u4e00", "\u5b57", "\u9fff"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_nothing_is_composed_or_reordered_with_stable_characters_after_it(form: str) -> None:
    for character in CHARACTERS:
        normalized = unicodedata.normalize(form, character)
        for w in STABLE if character < "\u3400" or normalized != character else STABLE[:1]:
            assert unicodedata.normalize(form, character + w) == normalized + w


@pytest.mark.slow
@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_only_letters_and_three_signs_are_composed_with_marks(form: str) -> None:
    composed = {
        w
        for after in CHARACTERS
        if unicodedata.combining(after) or unicodedata.normalize("NFC", "e" + after)[0] != "e"
        for w in STABLE
        if unicodedata.normalize(form, w + after)[0] != w
    }
    assert all((w.isalpha() and w.isascii()) or w in "<=>" for w in composed)
    assert bool(composed) == (form in ("NFC", "NFKC"))


@pytest.mark.parametrize("name", NAMED_PATTERNS)
@pytest.mark.parametrize(
    "text", ["two words", "end. Start", "да, нет", "x = 12;", "पाठ, x", "(a)\t{b}", "2024年 中文 四"]
)
def test_ordinary_text_can_be_cut(name: str, text: str) -> None:
    assert both(name, "isolate", ("nfc",)).cuts(text.encode())


def test_a_letter_that_can_be_composed_is_not_cut_off() -> None:
    pattern = "[ae]+|[é-]+"  # normalizing may make é of the e
    assert both(pattern).cuts(b"-e") == [1]
    assert both(pattern, "isolate", ("nfc",)).cuts(b"-e") == []


def test_the_pattern_sees_lower_case() -> None:
    pattern = "[a,]+|[A-Z]+"
    assert both(pattern).cuts(b"A,") == [1]
    assert both(pattern, "isolate", ("nfc",)).cuts(b"A,") == [1]
    assert both(pattern, "isolate", ("lowercase",)).cuts(b"A,") == []
