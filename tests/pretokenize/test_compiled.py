"""Compiled patterns split every text as the `regex` module does."""

from __future__ import annotations

import logging
import pickle
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
from characters import CHARACTERS
from how_many import one_in
from hypothesis import given
from hypothesis import strategies as st
from matcher import Matcher
from split_patterns import HOT, SPLIT_PATTERNS, nasty_text, random_pattern

from bpeflow.pretokenize import compiled, tables
from bpeflow.pretokenize.automaton import MAX_CLASSES
from bpeflow.pretokenize.compiled import compile_pattern, compile_step
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.pretokenize.tables import STRONG, UNSAFE, WEAK, CompiledPattern, CompiledStep, UnsupportedPattern
from bpeflow.pretokenize.transducer import SPECIAL

every_pattern = pytest.mark.parametrize("name", SPLIT_PATTERNS)
nasty_texts = st.text(st.sampled_from(HOT), max_size=30)


@cache
def matcher(source: str) -> Matcher:
    return Matcher(compile_step(source))


def spans(source: str, text: str) -> list[tuple[int, int]]:
    return [match.span() for match in regex.finditer(source, text, timeout=5)]


def assert_same(source: str, text: str) -> None:
    """Compare the DFA's matches and the transducer's boundaries with those of the `regex` module."""
    expected = spans(source, text)
    assert matcher(source).match_spans(text) == expected
    if matcher(source).step.moves:
        ends = {0, len(text), *(position for span in expected for position in span)}
        assert matcher(source).boundaries(text) == sorted(ends)[1:]


@every_pattern
@given(text=nasty_texts)
def test_short_texts_are_split_as_by_regex(name: str, text: str) -> None:
    assert_same(SPLIT_PATTERNS[name], text)


@every_pattern
def test_every_prefix_of_a_text_is_split_as_by_regex(name: str) -> None:
    text = nasty_text(random.Random(name), 60, run=3)
    for end in range(len(text) + 1):
        assert_same(SPLIT_PATTERNS[name], text[:end])


@pytest.mark.slow
@every_pattern
def test_longer_texts_are_split_as_by_regex(name: str) -> None:
    assert_same(SPLIT_PATTERNS[name], nasty_text(random.Random(name), 20_000, run=9))


def _half(codes: Sequence[int], shuffled: bool) -> str:
    """Return the characters of half of all codes: with the other order, all."""
    half = [*codes[shuffled::2]]
    if shuffled:
        random.Random(7).shuffle(half)
    return "".join(map(chr, half))


@pytest.mark.slow
@pytest.mark.not_sanitized
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("name", ["o200k", "kimi_k2", "deepseek_v3_3", "superbpe", "camel_case"])
def test_every_character_is_split_as_by_regex(name: str, shuffled: bool) -> None:
    """One pattern on all of them, and the others on those that may differ from their neighbours."""
    codes = [*range(0xD800), *range(0xE000, 0x110000)] if name == "o200k" else [*map(ord, CHARACTERS)]
    assert_same(SPLIT_PATTERNS[name], _half(codes, shuffled))


def _random_patterns(seed: int, count: int) -> None:
    print("seed", seed)  # noqa: T201
    chance = random.Random(seed)
    compiled_ones = 0
    while compiled_ones < count:
        source = random_pattern(chance)
        try:
            pattern = regex.compile(source)
            found = Matcher(compile_step(source))
        except (regex.error, UnsupportedPattern):
            continue
        compiled_ones += 1
        texts = [nasty_text(chance, chance.randrange(12), run=3) for _ in range(30)] + [nasty_text(chance, 150)]
        for text in texts:
            try:
                expected = [match.span() for match in pattern.finditer(text, timeout=0.5)]
            except TimeoutError:  # exponential there
                break
            assert found.match_spans(text) == expected, (source, text)
            if found.step.moves:
                ends = {0, len(text), *(position for span in expected for position in span)}
                assert found.boundaries(text) == sorted(ends)[1:], (source, text)
            for position in range(1, len(text)):
                _assert_cut(found, pattern, text, position, source)


def _assert_cut(found: Matcher, pattern: Any, text: str, position: int, source: str) -> None:
    """Compare the matches of a text that is cut with those of the whole, if the cut is safe."""
    cuts = np.frombuffer(found.step.cuts, np.uint8).reshape(found.step.classes, -1)
    kind = cuts[found.step.class_of(text[position - 1]), found.step.class_of(text[position])]
    if kind == UNSAFE or len(text) > 50:
        return
    whole = [match.span() for match in pattern.finditer(text, timeout=5)]
    left = [match.span() for match in pattern.finditer(text[:position], timeout=5)]
    right = [match.span() for match in pattern.finditer(text[position:], timeout=5)]
    assert whole == left + [(start + position, end + position) for start, end in right], (source, text, position)
    if kind == STRONG:
        assert any(position in span for span in whole), (source, text, position)


def test_random_patterns_split_and_cut_texts_as_regex_does() -> None:
    _random_patterns(random.randrange(2**32), one_in(25))


@pytest.mark.slow
@pytest.mark.not_sanitized
def test_many_random_patterns_split_and_cut_texts_as_regex_does() -> None:
    _random_patterns(random.randrange(2**32), one_in(400))


@every_pattern
@given(text=nasty_texts)
def test_safe_cuts_keep_the_matches(name: str, text: str) -> None:
    source = SPLIT_PATTERNS[name]
    for position in range(1, len(text)):
        _assert_cut(matcher(source), regex.compile(source), text, position, source)


def _kinds(name: str) -> set[int]:
    return set(matcher(SPLIT_PATTERNS[name]).step.cuts)


def test_patterns_without_gaps_have_strong_cuts_only() -> None:
    for name in SPLIT_PATTERNS:
        assert STRONG in _kinds(name) or WEAK in _kinds(name)
        assert matcher(SPLIT_PATTERNS[name]).step.has_gaps or WEAK not in _kinds(name)


@pytest.mark.parametrize(("source", "has_gaps"), [(r"(?s:.)", False), (r"(?s:.)*?b|(?s:.)", False), (".", True)])
def test_gaps(source: str, has_gaps: bool) -> None:
    assert compile_step(source).has_gaps == has_gaps


def test_gaps_that_only_the_end_of_a_text_leaves() -> None:
    assert compile_step(r"(?s:.)(?s:.)").has_gaps
    assert compile_step(r"(?s:.)+?(?=a|b)").has_gaps
    assert not compile_step(r"(?s:.)+?(?=a|b)|(?s:.)").has_gaps


@pytest.mark.parametrize("source", [r" ?[a-z]+", r" ?[a-z]+ ?", r" ?[a-z]"])
def test_a_match_after_a_gap_and_a_space_is_not_sought_again(source: str) -> None:
    """The gap's end, two characters back when the match is seen, is noted while it is one character back."""
    step = compile_step(source)
    first = np.frombuffer(step.first, np.uint32)
    moves = np.frombuffer(step.moves, np.uint16).reshape(-1, step.classes + 1)
    flags = np.frombuffer(step.flags, np.uint8).reshape(moves.shape)
    config = 0
    for character in ",, ab,, c  ":
        read = step.range_class[np.searchsorted(first, ord(character), "right") - 1]
        assert not flags[config, read] & SPECIAL
        config = moves[config, read]


def test_a_transducer_that_were_too_large_is_left_out() -> None:
    source = r"(?:a?b|c)(?:[ab]{1,180}c|[^x]{1,150}y)|."
    step = compile_step(source)
    assert (step.moves, step.flags, step.info) == (b"", b"", b"")
    chance = random.Random(1)
    for _ in range(50):
        text = "".join(chance.choice("abcxy") * chance.choice((1, 1, 9)) for _ in range(30))
        assert Matcher(step).match_spans(text) == spans(source, text)


@pytest.mark.parametrize(
    "sources",
    [
        tuple(SPLIT_PATTERNS[f"deepseek_v3_{number}"] for number in (1, 2, 3)),
        (SPLIT_PATTERNS["starcoder_digits"], SPLIT_PATTERNS["gpt2"]),
        (SPLIT_PATTERNS["falcon_punctuation"], SPLIT_PATTERNS["gpt2"], SPLIT_PATTERNS["falcon_three_digits"]),
    ],
)
def test_a_sequence_has_the_tables_of_its_steps(sources: tuple[str, ...], tmp_path: Path) -> None:
    assert compile_pattern(sources) == tuple(map(compile_step, sources))


def test_tables_are_small_and_can_be_pickled() -> None:
    pattern = compile_pattern((SPLIT_PATTERNS["o200k"],))
    assert pickle.loads(pickle.dumps(pattern)) == pattern
    assert len(pickle.dumps(pattern)) < 30_000
    (step,) = pattern
    first = np.frombuffer(step.first, np.uint32)
    assert first[0] == 0
    assert (np.diff(first.astype(np.int64)) > 0).all()
    assert len(step.range_class) == len(first)
    assert max(step.range_class) + 1 == step.classes <= MAX_CLASSES
    assert not set(range(0xD800, 0xE000)) & {*first.tolist()}  # surrogates need no class of their own


# ---- what is compiled


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (r"a*", "it can match the empty string"),
        (r"a|", "it can match the empty string"),
        (r"\bfoo\b|.", r"it has `\b`, a word border, at character 0: '\\bfoo\\b|.'"),
        (r"(?<=a)b", "it has a lookbehind, at character 0"),
        (r"^a", "it has `^`, the start of the text"),
        (r"a$", "it has `$`, which also matches before a line end at the end of the text; write \\Z"),
        (r"[\s\S]+$\s", "it has `$`"),
        (r"[\s\S]+?$", "it has `$`"),
        (r"a(?=bc)", "it has a lookahead at more than one character, at character 1: '(?=bc)'"),
        (r"a(?!b*)", "it has a lookahead at more than one character"),
        (r"(?>ab)", "it has an atomic group of more than one set of characters"),
        (r"(?:ab)++", "it has a possessive repetition of more than one set of characters"),
        (r"(?:a?)+b", "it has a repetition of something that can be empty"),
        (r"(a)\1", r"it has `\1`, a back-reference"),
        (r"(?<x>a(?&x)?)+b", "it has a recursion"),
        (r"\X", r"it has `\X`, a grapheme"),
        (r"\R", r"it has `\R`, a line end"),
        (r"[[:alpha:]]+", "it has a POSIX class in a set"),
        (r"[\N{SPACE}]", "it has a set of characters without an end, or with an escape that is not supported, at"),
        (r"(?V1)[a]", "it has flags other than i and s"),
        (r"(?m)a", "it has flags other than i and s"),
        (r"(?x)a b", "it has flags other than i and s"),
        (r"(?r)a", "it has flags other than i and s"),
        (r"(?x:a b)c", "it has a group of this kind, or flags other than i and s"),
        (r"a(?i)b", "it has a group of this kind, or flags other than i and s"),
        (r"(?:a){e<=1}", r"it has a brace without a number of repetitions; write \{ for a brace"),
        (r"(?!a)?b", "it has a repetition of a lookahead"),
        (r"(?#comment)a", "it has a comment"),
        (r"(?|a|b)", "it has a branch reset"),
        ("(" * 60 + "a" + ")" * 60, "it has more than 50 groups inside each other"),
        ("".join(chr(0x4E00 + number) for number in range(130)), "more than 120 classes"),
        (r"(?:a{1,200}){1,200}", "it is too long, or its numbers of repetitions are too large"),
        (r"(?:a|b)*a(?:a|b){16}", "its automaton is too large"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_the_construct(source: str, reason: str) -> None:
    regex.compile(source)  # valid
    with pytest.raises(UnsupportedPattern) as raised:
        compile_pattern((source,))
    assert reason in str(raised.value)


def test_the_refusal_of_a_sequence_gives_the_expression() -> None:
    with pytest.raises(UnsupportedPattern, match="of expression 2, it has a lookbehind"):
        compile_pattern((r"\d", r"(?<=a)b"))


@pytest.mark.parametrize(
    "source",
    [
        *[r"\s++$|\s", r"\s+$|\s", r"[\s\S]++$|a", r"(\s+)$|.", r"x\Z|.", r"x(?=\s|\Z)|.", r"x(?!\s+)|.", "a{,}b|a"],
        *[
            "(?i)straße|ss|k",
            r"(?is)s.|.",
            "(?i:s(?-i:s))|.",
            "(?P<one>a)b|.",
            r"[a\]]+",
            "[]a]+",
            "[^]a]+",
            r"\{",
            "}",
        ],
        *[
            r"[[a]+",
            r"[\\\]]",
            "[a-]b",
            r"(?:a?)?b",
            r"(?:a??b??)??c",
            r"(?>a{2,3})a|.",
            r"(?>a)b",
            r"a?+a|.",
            "a{2}+a|.",
        ],
        *[
            r"\pLx|\pN",
            "(?:a|ab)(?:c|bcd)|.",
            "(?:a|ab)+?c|.",
            r"(?=a)\w(?!b)|.",
            r"(?:x(?=y)|y(?=x))+|.",
            r"(?:a|b)*c|.",
        ],
    ],
)
@given(text=st.text(st.sampled_from("aabcdxyß\n \tsSſkK.[]\\{}-1ş"), max_size=14))
def test_constructs_mean_what_they_mean_to_regex(source: str, text: str) -> None:
    assert_same(source, text)


@pytest.mark.not_sanitized
def test_hostile_patterns_are_compiled_or_refused_soon() -> None:
    from time import thread_time

    for source in [
        "[" + r"\p{Lu}\p{Ll}\p{Han}\p{N}" * 400 + "]",
        "|".join(f"[{chr(0x4E00 + number)}{chr(0x5E00 + number)}\\p{{L}}]" for number in range(200)),
        "(?:a|a)*b|.",
        r"(?:\w{1,90}\s){1,90}",
        "|".join("(?:a|b)*" + "c" * number for number in range(100, 130)) + "|d",
        "a{1,5000}b",
    ]:
        begun = thread_time()
        try:
            compile_pattern((source,))
        except UnsupportedPattern as refused:
            assert len(str(refused)) < 200
        assert thread_time() < begun + 20, source[:40]  # each takes less than 5 s, without sanitizers and tracing


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "bpeflow" / "patterns"


# ---- the comparison with the `regex` module


def test_an_automaton_that_differs_is_not_used(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = r"[^\s]+|\s+\s"
    wrong = compile_step(r"[^\s]+|\s+")
    monkeypatch.setattr(compiled, "compile_step", lambda _: wrong)
    with caplog.at_level(logging.WARNING), pytest.raises(UnsupportedPattern, match="differs from the regex module"):
        tables_of(source)
    assert "please report it" in caplog.text
    assert not cache_folder.exists()


@pytest.mark.parametrize("table", ["next", "moves", "flags"])
def test_the_comparison_notices_wrong_tables(table: str) -> None:
    source = SPLIT_PATTERNS["words_and_spaces"]
    step = compile_step(source)
    compiled._compare(step, source)
    with pytest.raises(UnsupportedPattern):
        compiled._compare(replace(step, **{table: bytes(len(getattr(step, table)))}), source)


# ---- the cache


def tables_of(*sources: str) -> CompiledPattern:
    """Return the tables of a pattern as a new process does."""
    tables._KNOWN.clear()
    return load_pretokenizer(sources).tables()


def _fail(*_: object) -> CompiledStep:
    raise AssertionError("it was compiled again")


def test_a_later_process_reads_the_tables(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = (r"\w+|\s", r"\d")
    first = tables_of(*sources)
    assert len([*cache_folder.iterdir()]) == 1
    monkeypatch.setattr(compiled, "compile_step", _fail)
    monkeypatch.setattr("bpeflow.pretokenize.regex._compile", _fail)  # with the `regex` module
    assert tables_of(*sources) == first


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b"damaged"])
def test_a_damaged_file_is_replaced(cache_folder: Path, content: bytes) -> None:
    first = tables_of(r"\w+|\s")
    (file,) = cache_folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(content if content != b"damaged" else whole.replace(b'"classes": 3', b'"classes": 2'))
    assert file.read_bytes() != whole
    assert tables_of(r"\w+|\s") == first
    assert file.read_bytes() == whole


@pytest.mark.parametrize("change", ["regex", "format", "sources"])
def test_tables_of_another_version_are_not_used(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    tables_of(r"\w+")
    (file,) = cache_folder.iterdir()
    monkeypatch.setattr(compiled, "compile_step", _fail)
    sources = (r"\w+",)
    if change == "regex":
        monkeypatch.setattr(tables, "_regex_version", lambda: "0")
    elif change == "format":
        monkeypatch.setattr(tables, "_FORMAT", 0)
    else:  # two patterns whose names are the same
        sources = (r"\w",)
        monkeypatch.setattr(tables, "_cache_path", lambda _: file)
    with pytest.raises(AssertionError, match="compiled again"):
        tables_of(*sources)


@pytest.mark.parametrize("obstacle", ["file", "folder", "home"])
def test_the_cache_is_never_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if obstacle == "file":  # where the folder would be
        (tmp_path / "cache").write_text("")
    elif obstacle == "folder":  # where the file would be
        tables._cache_path((r"\w+|\s",)).mkdir(parents=True)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", "relative/paths/are/ignored")
        monkeypatch.setattr(Path, "home", classmethod(_no_home))
    assert tables_of(r"\w+|\s")


def _no_home(_: type[Path]) -> Path:
    raise RuntimeError("could not determine the home directory")
