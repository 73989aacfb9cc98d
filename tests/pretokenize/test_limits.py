"""No pattern and no text takes `regex` more than a few seconds."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bpeflow._util.text import Pattern
from bpeflow.errors import PatternError, PatternTimeoutError
from bpeflow.formats.published import PUBLISHED
from bpeflow.pretokenize import limits
from bpeflow.pretokenize.limits import TimeLimit, check_size
from bpeflow.pretokenize.regex import load_pretokenizer

#: Patterns with texts that take `regex` minutes, or more memory than there is.
SLOW_SEARCHES: dict[str, tuple[Pattern, str]] = {
    "alternatives that match the same": (r"(?:a|a)*b|.", "a" * 60),
    "a repetition in a repetition": (r"(?:a+)+b|.", "a" * 5_000),
    "in an atomic group": (r"(?>(?:a|a)*b)|.", "a" * 60),
    "the longest of all matches": (r"(?p)(?:a|aa)*", "a" * 60),
    "a reference to a group": (r"(a)(?:\1|a)*b", "a" * 60),
    "a recursion": (r"(?<x>a(?&x)?)+b", "a" * 60),
    "a recursion without end": (r"(?R)?a", "a" * 1_000_000),
    "a quadratic search": (r"(?:(?=a+)a)*?b|.", "a" * 100_000),
    "many slow pieces": ((r"a{21}", r"(?:a|a)*b|."), "a" * 210_000),
}
LARGE = {
    "a huge repetition": r"(?:|a){1000000000}b|.",
    "a nested repetition": r"(?:(?:ab){10000}){10000}.",
    "a nested repetition of little": r"(?:(?:|a){600}){600}b|.",
    "a repetition behind a comment": "(?x)a # [\n(?:(?:ab){10000}){10000} # ]",
    "a repetition behind another comment": "(?#[)(?:(?:ab){10000}){10000}(?#])",
    "many repetitions": "a?" * 25_000 + "a" * 25_000,
    "many repeated groups": "(a?)" * 2_500 + "a" * 2_500,
    "many folded letters": f"(?fi:{'ß' * 2_000})",
    "many folded letters in version 1": f"(?V1)(?i:{'ß' * 2_000})",
    "many steps": tuple("[a-z]" * 2_000 for _ in range(20)),
}


@pytest.mark.parametrize("case", SLOW_SEARCHES)
def test_a_slow_search_ends(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with the usual limit, the others with a quarter of it."""
    if case != "a reference to a group":
        monkeypatch.setattr(limits, "_SECONDS", limits._SECONDS / 4)
    pattern, text = SLOW_SEARCHES[case]
    pretokenizer = load_pretokenizer(pattern)
    begin = time.process_time()
    with pytest.raises(PatternTimeoutError) as caught:
        pretokenizer.pretokens(text)
    assert time.process_time() - begin < 2 * TimeLimit(pretokenizer.regex, text).seconds + 1
    assert repr(pattern) in str(caught.value)
    assert f"a text of {len(text):,} characters that begins with 'aaaa" in str(caught.value)


@pytest.mark.parametrize("share", [0.3, 0.8])
@pytest.mark.parametrize("pattern", [r"(?<x>a(?&x)?)+b", "a+b"])
def test_a_recursion_that_ends_late_has_given_up(pattern: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a recursion, `regex` sometimes returns no match in place of the error."""
    monkeypatch.setattr(limits, "_SECONDS", 0.2)
    limit = TimeLimit(pattern, "a")

    def search(text: str, timeout: float) -> list[str]:
        end = time.thread_time() + share * timeout
        while time.thread_time() < end:
            pass
        return [text]

    if "&" in pattern and share > 0.5:
        with pytest.raises(PatternTimeoutError):
            limit.run(search, "a")
    else:
        assert limit.run(search, "a") == ["a"]


@pytest.mark.parametrize("search", ["split", "match_spans", "find_unmatched"])
@pytest.mark.parametrize("case", ["a reference to a group", "many slow pieces"])
def test_every_way_to_search_has_a_limit(case: str, search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_SECONDS", 0.1)
    pattern, text = SLOW_SEARCHES[case]
    with pytest.raises(PatternTimeoutError):
        getattr(load_pretokenizer(pattern), search)(text)


def test_a_search_for_anything_has_a_limit_and_ends_at_the_first_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_SECONDS", 0.1)
    pattern, text = SLOW_SEARCHES["a reference to a group"]
    with pytest.raises(PatternTimeoutError):
        load_pretokenizer(pattern).finds_anything(text)
    pattern, text = SLOW_SEARCHES["many slow pieces"]
    assert load_pretokenizer(pattern).finds_anything(text)


@pytest.mark.parametrize("case", LARGE)
def test_a_pattern_that_is_too_large_is_not_compiled(case: str) -> None:
    with pytest.raises(PatternError, match="is too large"):
        load_pretokenizer(LARGE[case])


HONEST = {
    "descending powers": "|".join(rf"\s{{{2**power}}}(?!\S)" for power in range(9, 0, -1)),
    "a date in verbose style": r"(?x)[0-9]{4}-[0-9]{2}-[0-9]{2} [ ] [0-9]{2}:[0-9]{2}:[0-9]{2} # with a time",
    "ten thousand words": "|".join(f"word{number}" for number in range(10_000)),
    "thousands of characters": f"[{''.join(map(chr, range(0x4E00, 0x9FFF)))}]",
    "a long token": r"\p{L}{1,100000}|\P{L}{1,100000}",
    "braces and brackets": r"\{[0-9]+\}|[{}()\[\]]|\N{DIGIT ONE}|[^\x{61}]",
} | {f"the pattern of {name}": published.pattern for name, published in PUBLISHED.items()}


@pytest.mark.parametrize("case", HONEST)
def test_an_honest_pattern_is_compiled(case: str) -> None:
    check_size(HONEST[case])


def test_a_long_text_takes_longer() -> None:
    assert TimeLimit(r"\w+", "a" * 1_000_000).seconds == 6.0
    assert TimeLimit(r"\w+", "").seconds == 1.0


@pytest.mark.parametrize("recursion", [r"(?R)", r"(?1)", r"(?-1)", r"(?&x)", r"(?P>x)"])
def test_recursion_takes_no_longer_on_a_long_text(recursion: str) -> None:
    assert TimeLimit(rf"(?P<x>a){recursion}", "a" * 1_000_000).seconds == 1.0


def test_other_threads_leave_a_search_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """`regex` measures the time of the process, of which each of eight threads has an eighth."""
    monkeypatch.setattr(limits, "_SECONDS", 0.2)
    pretokenizer = load_pretokenizer(r"(a)(?:\1|a)*b")

    def work(_: int) -> float:
        begin = time.thread_time()
        with pytest.raises(PatternTimeoutError):
            pretokenizer.pretokens("a" * 60)
        return time.thread_time() - begin

    with ThreadPoolExecutor(8) as pool:
        assert min(pool.map(work, range(8))) > 0.09
