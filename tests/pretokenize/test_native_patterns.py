"""Native code and the `regex` module agree on compiled patterns: published ones and random ones, on every text."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import thread_time

import numpy as np
import pytest
from available import skip_missing
from characters import CHARACTERS
from how_many import one_in
from matcher import Matcher
from real_data import real_text_start
from split_patterns import HOT, SPLIT_PATTERNS, ascii_text, nasty_text, random_pattern

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.corpus.documents import Delimiters
from bpeflow.counting.table import NativeTable, RegexTable
from bpeflow.errors import NativeError, PatternTimeoutError, UnmatchedTextError
from bpeflow.pretokenize.compiled import compile_pattern, compile_step
from bpeflow.pretokenize.native import (
    native_instructions,
    native_unicode_version,
    new_pattern,
    why_not_compiled,
    why_regex,
)
from bpeflow.pretokenize.patterns import NAMED_PATTERNS, PUBLISHED_PATTERNS
from bpeflow.pretokenize.regex import Pretokenizer, load_pretokenizer, unicode_version
from bpeflow.pretokenize.tables import CompiledStep, new_compiled_pattern

SEQUENCES: dict[str, Sequence[str]] = {
    **{name: source for name, source in PUBLISHED_PATTERNS.items() if not isinstance(source, str)},
    "falcon": [SPLIT_PATTERNS[name] for name in ("falcon_punctuation", "gpt2_original", "falcon_three_digits")],
    "letters_digits": ["[a-z]+", "[0-9]", " "],
    "without_gaps": [r"\p{N}|\P{N}+", r"[\p{Han}a-e]+|[^\p{Han}a-e]{1,40}", "gpt2"],
    "joined_after_gaps": [r"\p{N}{1,3}", r"\S+|\s+", "gpt2"],
    "matched_again_in_gaps": [r"[^\S\n]+|\n", r"[,.]*\p{L}"],
    "matched_again_in_matches": [r"\p{N}|\P{N}+", "cl100k"],
}
PATTERNS = SPLIT_PATTERNS | SEQUENCES


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables share the native pattern, which takes longer to make than a short text to count."""
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    monkeypatch.setattr("bpeflow.counting.table.new_pattern", cache(new_pattern))


@pytest.fixture(params=PATTERNS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@cache
def pretokenizer(name: str, unmatched: UnmatchedPolicy = "isolate") -> Pretokenizer:
    """Return the pre-tokenizer of a pattern; a named one is compiled as well."""
    source = PATTERNS[name]
    return load_pretokenizer(f"{source}|(?!.)." if name in NAMED_PATTERNS else source, unmatched)


def assert_same(splitter: Pretokenizer, text: str) -> None:
    data = text.encode()
    reference = RegexTable(splitter)
    reference.count(data)
    expected = reference.shard()
    for instructions in native_instructions():
        native = NativeTable(splitter, instructions)
        native.count(data)
        assert native.shard() == expected, f"{instructions}: {text[:200]!r}"
        assert native.statistics == reference.statistics, f"{instructions}: {text[:200]!r}"


def randomness() -> random.Random:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    return random.Random(seed)


POLICIES: tuple[UnmatchedPolicy, ...] = ("isolate", "drop")


@pytest.mark.parametrize("unmatched", POLICIES)
def test_texts_are_cut_as_by_regex(name: str, unmatched: UnmatchedPolicy) -> None:
    chance = randomness()
    splitter = pretokenizer(name, unmatched)
    for _ in range(one_in(40)):
        assert_same(splitter, nasty_text(chance, chance.randrange(40)))
    assert_same(splitter, nasty_text(chance, 4000, 90))


def test_every_prefix_at_every_distance_from_words_of_8_bytes_is_cut_as_by_regex(name: str) -> None:
    """The end of the text and any character can be anywhere in the 8 bytes that the matcher reads at a time."""
    chance = randomness()
    splitter = pretokenizer(name, "drop")
    for _ in range(one_in(3)):
        text = nasty_text(chance, 12)
        for shift in range(8):
            for end in range(len(text) + 1):
                assert_same(splitter, "x" * shift + text[:end])


def test_more_pieces_than_a_batch_are_cut_as_by_regex(name: str) -> None:
    """Batches have 4096 pieces. Short pieces, gaps and matches follow each other at their borders."""
    chance = randomness()
    for unit in ("a ", "a1", "a1 ", ". ", "  \n", "'s", "12", "é中 ", "".join(chance.choices(HOT, k=3))):
        for unmatched in chance.sample(POLICIES, one_in(2)):
            before = "z" * chance.choice((0, 1, 3))
            text = before + unit * chance.choice((2048, 2049, 4096, 4097, 9000))
            assert_same(pretokenizer(name, unmatched), text)


@pytest.mark.parametrize("unmatched", POLICIES)
def test_blocks_of_ascii_are_cut_as_by_regex(name: str, unmatched: UnmatchedPolicy) -> None:
    """Vector instructions find the boundaries in blocks of 64 bytes, where a few characters before each settle them."""
    chance = randomness()
    splitter = pretokenizer(name, unmatched)
    for _ in range(one_in(15)):
        assert_same(splitter, ascii_text(chance, chance.randrange(400)))
    assert_same(splitter, ascii_text(chance, 5000))


def test_what_a_block_leaves_open_is_decided_by_the_text_before_it() -> None:
    """Whether the line end belongs to the match depends on the first of more than 64 letters without boundaries."""
    splitter = load_pretokenizer(r"q[^\n]*+\n?|[^q\n]+|\n")
    for length in range(50, 300, 7):
        assert_same(splitter, f"q{'a' * length}\n{'a' * length}\nq{'a' * length}\n")


def test_matching_again_at_the_borders_of_words_and_batches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the transducer loses track, the automaton matches again: anywhere in 8 bytes, and at the end of a batch."""
    matcher = Matcher(pretokenizer(name).tables()[-1])
    attempts: list[int] = []
    match_end = Matcher._match_end

    def counted(self: Matcher, read: list[int], position: int) -> int | None:
        attempts.append(position)
        return match_end(self, read, position)

    monkeypatch.setattr(Matcher, "_match_end", counted)
    chance = randomness()
    for text in (nasty_text(chance, 6) for _ in range(300)):
        matcher.boundaries(text)
        if attempts:
            splitter = pretokenizer(name, chance.choice(POLICIES))
            for more in range(9):
                assert_same(splitter, "x\n" * (4090 // 2) + "." * more + text * 3)
            return


def test_matching_again_within_blocks(name: str) -> None:
    """Blocks are read on from where a match was sought again, which indented lines need with most patterns."""
    chance = randomness()
    starts = ("\n", "\n  ", "\n\t\t\t", "\n        ", " \n \n   ", "...\n\n/", " ---", "12 345", "ABC", " a.b")
    for unmatched in POLICIES:
        text = "".join(chance.choice(starts) + "x" * chance.choice((0, 1, 2, 5, 9, 30, 70)) for _ in range(400))
        assert_same(pretokenizer(name, unmatched), text)


@cache
def all_characters() -> str:
    """Half of them are in order, among those of their script, and half in any order."""
    chance = randomness()
    mixed = set(chance.sample(CHARACTERS, len(CHARACTERS) // 2))
    in_order = [character for character in CHARACTERS if character not in mixed]
    return "".join((*in_order, *chance.sample(sorted(mixed), len(mixed))))


@pytest.mark.slow
@pytest.mark.not_sanitized
def test_every_character_is_cut_as_by_regex(name: str) -> None:
    assert_same(pretokenizer(name), all_characters())


@cache
def start_of(corpus: str) -> str:
    return real_text_start(corpus, 1_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["wikitext2_2MB", "code_20MB", "multilingual_20MB"])
def test_real_text_is_cut_as_by_regex(name: str, corpus: str) -> None:
    """Another part of it each time."""
    text, size = start_of(corpus), one_in(100_000)
    start = randomness().randrange(len(text) - size)
    assert_same(pretokenizer(name), text[start : start + size])


@pytest.mark.slow
def test_random_patterns_cut_texts_as_regex_does() -> None:
    chance = randomness()
    compiled = 0
    while compiled < one_in(40):
        steps = [random_pattern(chance) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        try:
            splitter = load_pretokenizer(steps, chance.choice(POLICIES))
            compiled += why_not_compiled(splitter) is None
        except Exception:
            continue
        if why_not_compiled(splitter) is None:
            for make_text, most in ((nasty_text, 60), (ascii_text, 400)) * 4:
                text = make_text(chance, chance.randrange(most))
                try:
                    splitter.compiled[0].findall(text, timeout=0.2) if len(steps) == 1 else None
                except TimeoutError:
                    break
                with suppress(PatternTimeoutError):
                    assert_same(splitter, text)


def test_a_gap_may_begin_and_end_in_one_transition() -> None:
    """After an attempt has failed at the third character, the second one is a match, so the first one is a gap."""
    for unmatched in POLICIES:
        assert_same(load_pretokenizer(r"\s(?!')|\P{L}++中+", unmatched), "\x00\nR,GGGG\x00\nR,GGGG")


@pytest.mark.parametrize(
    "stops", ["0-9", "\0", "\x7f", "\0-\x0f", "p-\x7f", "a", "a-p", "a-q", "ac-e", "\0\x7f", "é"], ids=ascii
)
def test_runs_of_ascii_are_cut_as_by_regex(stops: str) -> None:
    """Words of 8 bytes that change nothing are passed over, but none with one of the characters that matter."""
    chance = randomness()
    near = ["\0", "\x7f", "é", "中"] + [chr(ord(one) + by) for one in stops for by in (-1, 0, 1) if ord(one) + by >= 0]
    rests = ["", f"|[^{stops}]+", "|é", "+", f"{{2}}|[^{stops}]"]
    for unmatched in POLICIES:
        source = f"[{stops}]{chance.choice(rests)}"
        splitter, steps = load_pretokenizer(source, unmatched), load_pretokenizer([source, "[a-z]+"], unmatched)
        assert why_not_compiled(splitter) is None
        for _ in range(one_in(20)):
            text = "".join(chance.choice("oz~ \x1f") * chance.randrange(30) + chance.choice(near) for _ in range(6))
            assert_same(splitter, text)
            assert_same(steps, text)


# ---- patterns that read the same text again and again


READING_AHEAD = (
    "a+b|.", "(?:a|é)+b", "a*?b|a", "[ab]+c|[ab]{2}c|.", "(?:aa)+b|a", f"(?:{'a' * 31})+b|.", "a+b|a+c|aa|.",
)  # fmt: skip


@pytest.mark.parametrize("source", READING_AHEAD)
def test_patterns_that_read_ahead_cut_texts_as_regex_does(source: str) -> None:
    chance = randomness()
    splitter = load_pretokenizer(source)
    for _ in range(one_in(30)):
        text = "".join(chance.choice("aaaabcé") * chance.choice((1, 1, 2, 20, 300)) for _ in range(12))
        assert_same(splitter, text)


@pytest.mark.parametrize("source", READING_AHEAD)
@pytest.mark.parametrize("unit", ["a", "ab", "aaé"])
def test_reading_ahead_takes_linear_time(source: str, unit: str) -> None:
    """Each `a` of a run would be read up to the end, 5 * 10^11 characters in all."""
    table = NativeTable(load_pretokenizer(source))
    text = (unit * 1_000_000).encode()[:1_000_000]
    begun = thread_time()
    table.count(text)
    assert thread_time() - begun < 20  # a second with AddressSanitizer
    assert len(table)


def test_only_what_an_attempt_has_read_is_a_dead_end() -> None:
    """After where an attempt has failed, its 64 states are those of 64 bytes before: here of an earlier match."""
    splitter = load_pretokenizer("qa*z|a+b+c|.")
    unit = f"q{'a' * 30}{'b' * 20}c"
    for length in range(64):
        assert_same(splitter, unit + "x" * length + unit)


# ---- unmatched text


def test_unmatched_text_can_be_an_error() -> None:
    splitter = load_pretokenizer("[a-z]+", "error")
    table = NativeTable(splitter)
    table.count(b"abc")
    with pytest.raises(UnmatchedTextError):
        table.count(b"abc, d")
    counted = NativeTable(splitter).count_documents(memoryview(bytearray(b"a\nb c\nd\n")), Delimiters("\n"))
    assert (counted.bytes, counted.documents) == (2, 1)


@pytest.mark.parametrize(
    "text", ["é" * 200 + "1" * 3, "1" * 300 + "é", "a" + "é" * 100, "é1", "中" * 33 + "a" + "中" * 90]
)
def test_the_example_of_unmatched_text_is_the_same(text: str) -> None:
    for source in ("[a-z]", r"\d+", "[a-z]|é"):
        assert_same(load_pretokenizer(source), text)


# ---- tables


def test_damaged_tables_are_refused() -> None:
    step = compile_step(SPLIT_PATTERNS["superbpe"])
    ranges = np.frombuffer(step.first, np.uint32)
    damaged: list[CompiledStep] = [
        replace(step, first=(ranges + 1).astype(np.uint32).tobytes()),
        replace(step, first=ranges[::-1].tobytes()),
        replace(step, first=np.append(ranges[:-1], 0x110000).astype(np.uint32).tobytes()),
        replace(step, range_class=bytes([step.classes]) + step.range_class[1:]),
        replace(step, classes=0),
        replace(step, next=b"\xff" * len(step.next)),
        replace(step, next=b"\x01" + step.next[1:]),
        replace(step, moves=b"\xff" * len(step.moves)),
        replace(step, gap_start=len(step.info)),
    ]
    assert new_compiled_pattern("count", (step,), "isolate")
    for each in damaged:
        with pytest.raises(NativeError):
            new_compiled_pattern("count", (each,), "isolate")
    with pytest.raises(NativeError):
        new_compiled_pattern("count", (), "isolate")


def test_a_pattern_without_a_transducer_is_cut_by_the_automaton_alone() -> None:
    chance = randomness()
    source = r"(?:a?b|c)(?:[ab]{1,180}c|[^x]{1,150}y)|."
    assert not compile_pattern((source,))[0].moves
    for _ in range(30):
        assert_same(
            load_pretokenizer(source), "".join(chance.choice("abcxy\n") * chance.choice((1, 9)) for _ in range(60))
        )


@pytest.mark.slow
@pytest.mark.not_sanitized
def test_the_tables_of_named_patterns_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    if native_unicode_version() != unicode_version():
        pytest.skip("the native tables have another version of Unicode")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))
    import make_unicode_tables  # type: ignore[import-not-found]

    monkeypatch.setattr(sys, "argv", ["make_unicode_tables", "--check"])
    assert make_unicode_tables.main() == 0
