"""Every backend learns the same merges, tokens and counts as the naive recount, for any task."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import naive_merges
from real_data import real_data
from tasks import (
    BYTES,
    assert_equal_to_the_naive_recount,
    colliding,
    learn,
    limits,
    make_task,
    options,
    special_tokens,
    tie_breaks,
    with_specials,
    with_strips,
    words,
)

from bpeflow._util import native
from bpeflow._util.byte_level import from_printable
from bpeflow._util.text import count_words, format_size
from bpeflow.backends import BACKENDS
from bpeflow.backends.base import MergeBackend, MergeTask, lowest_count
from bpeflow.backends.native_backend import NativeBackend, OmpBackend
from bpeflow.config import MergeSettings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import CountOverflowError, NativeError, OutOfMemoryError
from bpeflow.training.learn import learn_merges, memory_needed
from bpeflow.training.task import learning_task

pytestmark = pytest.mark.threads


@settings(max_examples=120)
@given(words=words(), options=options, merges=st.integers(0, 40), step=st.sampled_from([1, 3, 1000]))
def test_merges_equal_the_naive_recount(
    backends: list[MergeBackend], words: dict[bytes, int], options: dict[str, object], merges: int, step: int
) -> None:
    task = make_task(words, merges, **options)
    assert_equal_to_the_naive_recount(backends, task, step)


@pytest.mark.slow
@settings(max_examples=120)
@given(words=words(), options=options, merges=st.integers(0, 40), specials=colliding)
def test_reused_tokens_equal_the_naive_recount(
    backends: list[MergeBackend],
    words: dict[bytes, int],
    options: dict[str, object],
    merges: int,
    specials: tuple[bytes, ...],
) -> None:
    task = with_specials(make_task(words, merges, **options), specials)
    assert_equal_to_the_naive_recount(backends, task)


@settings(max_examples=40)
@given(words=words(), options=options, left=st.integers(-1, 12))
def test_ids_become_wider_during_learning(
    backends: list[MergeBackend], words: dict[bytes, int], options: dict[str, object], left: int
) -> None:
    """Ids of 2 bytes are enough for 65,535 tokens. `left` merges are left before that."""
    task = make_task(words, 20, **options)
    unused = (b"",) * (2**16 - 1 - left - len(BYTES))
    wide = replace(task, tokens=(*BYTES, *unused), max_tokens=task.max_tokens + len(unused))
    assert_equal_to_the_naive_recount(backends, wide)


@pytest.mark.slow
@settings(max_examples=120)
@given(
    words=words(), options=limits, tie_break=tie_breaks, specials=special_tokens, merges=st.integers(0, 40),
    threads=st.sampled_from([1, 2, 3]),
)  # fmt: skip
def test_every_rule_for_ties_equals_the_naive_recount(
    backends: list[MergeBackend],
    words: dict[bytes, int],
    options: dict[str, int | None],
    tie_break: str,
    specials: tuple[str, ...],
    merges: int,
    threads: int,
) -> None:
    """The task is made from settings, with the ids of each rule and special tokens that merges can also yield."""
    size = 256 + len(specials) + merges
    settings = MergeSettings(vocab_size=size, special_tokens=specials, tie_break=tie_break, threads=threads, **options)
    task = learning_task(PretokenCounts.from_mapping(words), settings)
    assert_equal_to_the_naive_recount(backends, task)


@pytest.mark.slow
@pytest.mark.not_sanitized
@settings(max_examples=200)
@given(words=words(), options=options)
def test_no_string_becomes_a_token_twice(words: dict[bytes, int], options: dict[str, object]) -> None:
    """The theorem of backends/python_backend.py, on which all backends rely, holds for the naive recount."""
    tokens = list(BYTES)
    for left, right, _, _ in naive_merges(make_task(words, 60, **options)):
        tokens.append(tokens[left] + tokens[right])
    assert len(set(tokens)) == len(tokens)


@pytest.mark.slow
@pytest.mark.not_sanitized
@settings(max_examples=120)
@given(
    words=st.dictionaries(st.text("abc", min_size=1, max_size=4).map(str.encode), st.integers(1, 30), max_size=60),
    options=options,
    merges=st.integers(0, 20),
    specials=colliding,
)
def test_nothing_is_chosen_below_the_lowest_count(
    words: dict[bytes, int], options: dict[str, object], merges: int, specials: tuple[bytes, ...]
) -> None:
    """The theorem of `lowest_count`, by which backends leave out rare pairs, holds for the naive recount."""
    for task in (make_task(words, merges, **options), with_specials(make_task(words, merges, **options), specials)):
        assert all(count >= lowest_count(task) for _, _, _, count in naive_merges(task))


@pytest.mark.slow
@settings(max_examples=120)
@given(
    words=st.dictionaries(st.text("abc", min_size=1, max_size=4).map(str.encode), st.integers(1, 30), min_size=20),
    options=options,
    merges=st.integers(1, 10),
)
def test_leaving_out_rare_pairs_changes_nothing(
    backends: list[MergeBackend], words: dict[bytes, int], options: dict[str, object], merges: int
) -> None:
    task = make_task(words, merges, **options)
    assert_equal_to_the_naive_recount(backends, task)


def test_the_lowest_count_is_the_count_of_a_pre_token_that_can_become_a_token() -> None:
    words = {b"x": 100, b"abcd": 50, b"ab": 40, b"cd": 30, b"ef": 20}
    assert [lowest_count(make_task(words, merges)) for merges in range(6)] == [50, 50, 40, 30, 20, 1]
    assert lowest_count(make_task(words, 2, max_token_length=3)) == 30
    assert lowest_count(make_task(words, 4, min_frequency=25)) == 25
    words = {b"a b": 50, b"a: ": 40, b"ab": 30, b"cd": 20}
    assert lowest_count(make_task(words, 1, max_words=1)) == 40
    assert lowest_count(make_task(words, 1, max_words=1, colon_rule=True)) == 30


def tokens_of(backend: MergeBackend, task: MergeTask) -> list[bytes]:
    """Return all tokens, the learned ones included."""
    tokens = [*task.tokens]
    for left, right, *_ in learn(backend, task):
        tokens.append(tokens[left] + tokens[right])
    return tokens


def test_limits_of_words_and_colons(backend: MergeBackend) -> None:
    def made(**limit: object) -> list[bytes]:
        return tokens_of(backend, make_task({b"a b: c d": 5}, 20, **limit))

    assert b"a b: c d" in made()
    assert [max(len(token.split()) for token in made(max_words=words)) for words in (1, 2, 3)] == [1, 2, 3]
    assert any(b": " in token for token in made(max_words=1))
    assert not any(b": " in token for token in made(colon_rule=True))


def test_words_are_separated_by_the_white_space_of_unicode(backend: MergeBackend) -> None:
    """Native backends classify characters themselves."""
    near = (range(0x100), range(0x1678, 0x1690), range(0x1FF8, 0x2070), range(0x2FF8, 0x3008), (0xD7FF, 0xE000, 0xFEFF))
    texts = [f"a{chr(number)}b" for number in (*chain(*near), 0xFFFF, 0x10000, 0x10FFFF)]
    made = {*tokens_of(backend, make_task({text.encode(): 1 for text in texts}, 8 * len(texts), max_words=1))}
    for text in texts:
        assert (text.encode() in made) == (len(text.split()) == 1), ascii(text)


white_space = st.sampled_from([" ", "\x1c", "\x85", "\xa0", "\u2003", "\u2028", "\u3000"])
spaced = st.lists(
    st.one_of(st.binary(max_size=3), white_space.map(str.encode), st.sampled_from("aé€😀").map(str.encode)), max_size=12
).map(b"".join)


@given(text=spaced, data=st.data())
def test_a_part_of_a_token_has_no_more_words(text: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    assert count_words(text[start:end]) <= count_words(text)


@given(texts=st.dictionaries(spaced.filter(bool), st.integers(1, 3), max_size=6), limit=st.integers(1, 3))
def test_limits_of_words_with_divided_characters(
    backends: list[MergeBackend], texts: dict[bytes, int], limit: int
) -> None:
    assert_equal_to_the_naive_recount(backends, make_task(texts, 30, max_words=limit))


def test_overlapping_occurrences_all_count_and_merge_from_left_to_right(backend: MergeBackend) -> None:
    assert learn(backend, make_task({b"aaa": 5}, 3)) == [(97, 97, 256, 10), (256, 97, 257, 5)]


def test_no_pre_tokens_or_only_single_bytes_give_no_merges(backend: MergeBackend) -> None:
    assert learn(backend, make_task({}, 10)) == []
    assert learn(backend, make_task({b"a": 3, b"b": 2}, 10)) == []


def test_a_full_vocabulary_gives_no_merges(backend: MergeBackend) -> None:
    assert learn(backend, make_task({b"ab": 3}, 0)) == []


@pytest.mark.parametrize("length", [1000, 65_537])
def test_a_long_repetition_equals_the_naive_recount(backends: list[MergeBackend], length: int) -> None:
    task = make_task({b"a" * length: 1, b"ab" * (length // 2): 1}, 40)
    assert_equal_to_the_naive_recount(backends, task)


def test_a_larger_vocabulary_begins_with_the_smaller_one(backend: MergeBackend) -> None:
    words = {b"the": 9, b"then": 5, b"hen": 5, b"other": 3, b"bother": 2}
    few, many = make_task(words, 4), make_task(words, 12)
    assert learn(backend, many)[:4] == learn(backend, few)


def test_counts_beyond_32_bits_are_exact(backend: MergeBackend) -> None:
    task = make_task({b"ab": 2**33, b"abc": 2**62 - 5, b"cd": 2**31}, 3)
    assert learn(backend, task) == naive_merges(task)
    assert learn(backend, task)[0] == (97, 98, 256, 2**33 + 2**62 - 5)


@pytest.mark.parametrize("bits", [31, 32])
@pytest.mark.parametrize("threads", [1, 2])
def test_sums_that_pass_a_power_of_two_are_exact(backend: MergeBackend, bits: int, threads: int) -> None:
    """No pre-token's count is that high, but the counts of pairs are: initially, after merges, and while they fall."""
    count = 2 ** (bits - 2) - 1
    words = {bytes([letter]) + b"abcabc": count + letter for letter in range(97, 105)}
    task = make_task(words, 30, threads=threads)
    learned = learn(backend, task)
    assert learned == naive_merges(task)
    assert learned[0][3] > 2 ** (bits + 1)
    assert learned[-1][3] < 2**bits


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "words",
    [{b"ab": 2**62, b"abc": 2**62}, {b"aaa": 2**62}, {b"xy": 2**63 - 1, b"xyz": 1}, {b"ab" * 40: 2**58}],
    ids=str,
)
def test_a_pair_count_beyond_64_bits_raises(backend: MergeBackend, words: dict[bytes, int], threads: int) -> None:
    with pytest.raises(CountOverflowError, match="64 bits"):
        learn(backend, make_task(words, 3, threads=threads))


@pytest.mark.not_sanitized
def test_learning_without_enough_memory_says_how_much_it_takes_and_what_helps() -> None:
    """The counts claim a petabyte of text, which a broadcast array of one byte simulates."""
    sizes = np.arange(0, 2**50 + 1, 2**31, dtype=np.int64)
    counts = PretokenCounts(np.broadcast_to(np.uint8(97), 2**50), sizes, np.ones(len(sizes) - 1, dtype=np.int64))
    for backend in BACKENDS:
        if backend.unavailable() is None and backend.name != "python":
            with pytest.raises(
                OutOfMemoryError, match=r"524,288 distinct pre-tokens of 1,125,899\.9 GB in total"
            ) as caught:
                learn_merges(counts, 300, backend=backend.name)
            assert format_size(memory_needed(len(counts), 2**50, 256, 300)) in str(caught.value)
            assert "thin_rare" in str(caught.value)


def test_a_pre_token_of_four_gigabytes_is_refused() -> None:
    """No strip has enough positions for it. The bytes are not looked at."""
    text = np.frombuffer(mmap(-1, 2**32 - 3, MAP_PRIVATE | MAP_ANONYMOUS), dtype=np.uint8)
    counts = PretokenCounts(text, np.array([0, len(text)]), np.array([1]))
    for backend in BACKENDS:
        if backend.unavailable() is None and backend.name != "python":
            with pytest.raises(NativeError, match="bytes in one pre-token"):
                learn_merges(counts, 300, backend=backend.name)


def test_strips_of_any_size_give_the_same_merges(backend: MergeBackend) -> None:
    """From one pre-token per strip to all in one, including a pre-token that is longer than a strip."""
    if not isinstance(backend, NativeBackend):
        pytest.skip("only native backends have strips")
    words = {b"abab" * 9: 7, b"aaaaa": 7, b"ab": 6, b"bab": 6, b"x": 5, b"abba": 5, b"baab": 1, b"aa": 1}
    total = sum(map(len, words)) + len(words) + 1
    for order, threads in (("greatest_bytes", 3), ("smallest_ids", 1)):
        task = make_task(words, 30, order=order, threads=threads)
        expected = naive_merges(task)
        for positions in (1, *range(4, total + 2)):
            assert learn(with_strips(backend, positions), task) == expected, positions


def test_a_session_counts_the_same_work_with_strips(backend: MergeBackend) -> None:
    if not isinstance(backend, NativeBackend):
        pytest.skip("only native backends have strips")
    task = make_task({b"abab": 3, b"ab": 2, b"c": 1}, 5)
    figures = []
    for each in (backend, with_strips(backend, 4)):
        with each.start(task) as session:
            session.step(10)
            statistics = session.statistics()
        names = ("words", "positions", "pairs", "occurrences_visited", "occurrences_merged", "stale_pops")
        figures.append([getattr(statistics, name) for name in names])
    assert figures[0] == figures[1]


def test_the_highest_64_bit_pair_count_is_exact(backend: MergeBackend) -> None:
    assert learn(backend, make_task({b"ab": 2**62, b"abc": 2**62 - 1}, 1)) == [(97, 98, 256, 2**63 - 1)]


def test_a_session_reports_statistics(backend: MergeBackend) -> None:
    with backend.start(make_task({b"abab": 3, b"ab": 2, b"c": 1}, 5)) as session:
        session.step(10)
        statistics = session.statistics()
    assert (statistics.words, statistics.positions) == (3, 7)
    assert statistics.occurrences_merged == 4  # ab three times, abab once
    assert statistics.occurrences_visited >= statistics.occurrences_merged
    assert statistics.pairs >= 3
    assert statistics.setup_seconds > 0


def test_lists_of_pairs_that_can_no_longer_be_chosen_are_dropped(backend: MergeBackend) -> None:
    """The peak is 14.4 bytes per position. If those lists were kept, it would be 18.3."""
    if not isinstance(backend, NativeBackend):
        pytest.skip("only native backends know their memory")
    words, length = 20_000, 50
    data = np.random.default_rng(1).integers(97, 99, size=words * length).astype(np.uint8)
    counts = PretokenCounts(data, np.arange(words + 1) * length, np.ones(words, dtype=np.int64))
    with backend.start(MergeTask(counts, BYTES, tuple(range(256)), max_tokens=4000, threads=1)) as session:
        assert len(session.step(4000)) == 3744
        assert session.statistics().memory_bytes < 16 * len(data)


STATM = Path("/proc/self/statm")


def pages_in_use() -> int:
    return int(STATM.read_text(encoding="ascii").split()[1])


def test_lists_are_written_when_the_words_are_no_longer_needed(backend: MergeBackend) -> None:
    """The first step writes them, 4 bytes per position, so that the memory of the words can be freed before."""
    if not isinstance(backend, NativeBackend):
        pytest.skip("only native backends copy the words")
    if not STATM.exists():
        pytest.skip("memory in use is only known on Linux")
    words, length = 100_000, 100
    data = np.random.default_rng(1).integers(97, 123, size=words * length).astype(np.uint8)
    counts = PretokenCounts(data, np.arange(words + 1) * length, np.ones(words, dtype=np.int64))
    task = MergeTask(counts, BYTES, tuple(range(256)), max_tokens=257, threads=1)
    with backend.start(task) as session:
        expected = session.step(1).tolist()
    with backend.start(task) as session:
        data.setflags(write=True)
        data[:] = 0
        before = pages_in_use()
        assert session.step(1).tolist() == expected
        assert (pages_in_use() - before) * PAGESIZE > 3 * len(data)


def test_long_lists_lose_most_of_their_stale_entries(backend: MergeBackend) -> None:
    """Merging b and c makes 42,000 of 67,200 entries of (a, b) stale. They are not visited when a and b are merged."""
    if not isinstance(backend, NativeBackend):
        pytest.skip("the reference keeps stale entries")
    starts = {"abc": 42_000, "abd": 8_400, "abe": 8_400, "abf": 8_400, "xbc": 21_000, "ybc": 21_000}
    words = {f"{start}{word:05}".encode(): 1 for start, number in starts.items() for word in range(number)}
    task = make_task(words, 40, threads=2)
    with BACKENDS[-1].start(task) as reference:
        expected = reference.step(1000).tolist()
        visited = reference.statistics().occurrences_visited
    assert {(98, 99), (97, 98)} <= {record[:2] for record in expected}
    for each in (backend, with_strips(backend, 10_000)):
        with each.start(task) as session:
            assert session.step(1000).tolist() == expected
            assert session.statistics().occurrences_visited <= visited - 42_000


def test_a_closed_session_can_be_closed_again_and_still_reports_statistics(backend: MergeBackend) -> None:
    session = backend.start(make_task({b"abab": 3}, 5))
    session.step(1)
    session.close()
    session.close()
    assert session.statistics().words == 1


def test_the_tinystories_reference_is_reproduced_merge_for_merge(backend: MergeBackend) -> None:
    lines = real_data("reference/tinystories_5M.merges.txt").read_text(encoding="utf-8").splitlines()
    expected = list(read_reference(lines))
    counted = real_data("reference/tinystories_5M.pretoken_counts.json").read_text(encoding="utf-8")
    counts = PretokenCounts.from_mapping(json.loads(counted))
    learned = learn_merges(counts, vocab_size=256 + len(expected), special_tokens=(), backend=backend.name)
    assert len(expected) == 1743
    assert list(zip(learned.pairs, learned.counts, strict=True)) == expected


def read_reference(lines: Iterable[str]) -> Iterable[tuple[tuple[bytes | None, bytes | None], int]]:
    for line in lines:
        pair, _, count = line.rpartition(" => ")
        left, right = pair.split(" ")
        yield (from_printable(left), from_printable(right)), int(count)


@pytest.mark.slow
def test_all_backends_agree_on_a_realistic_table(backends: list[MergeBackend]) -> None:
    """Random words with Zipf-like counts give 2,743 merges with many ties."""
    seed = int(np.random.SeedSequence().entropy) % 2**32  # type: ignore[arg-type]
    print("seed", seed)  # noqa: T201
    random = np.random.default_rng(seed)
    alphabet = np.frombuffer(b"etaoinshrdlcumwfgypbvk", dtype=np.uint8)
    weights = 1 / np.arange(1, len(alphabet) + 1)
    random_words = [
        b" " + random.choice(alphabet, size=length, p=weights / weights.sum()).tobytes()
        for length in random.integers(1, 12, size=8_000)
    ]
    counts = {word: 1 + 50_000 // (rank + 1) for rank, word in enumerate(dict.fromkeys(random_words))}
    for tie_break in ("greatest_bytes", "smallest_ids", "huggingface"):
        task = learning_task(PretokenCounts.from_mapping(counts), MergeSettings(vocab_size=3000, tie_break=tie_break))
        results = [learn(backend, task) for backend in wide_strips(backends)]
        assert all(result == results[0] for result in results)


def wide_strips(backends: Iterable[MergeBackend]) -> Iterable[MergeBackend]:
    """Replace tiny strips by some of thousands of positions: each occurrence list has a mark for every strip."""
    for backend in backends:
        tiny = isinstance(backend, NativeBackend) and backend.max_strip_positions
        yield with_strips(backend, 20_000) if tiny else backend


def test_a_step_after_close_is_an_error() -> None:
    for backend in BACKENDS:
        if backend.unavailable() is None and backend.name != "python":
            session = backend.start(make_task({b"abab": 3}, 5))
            session.close()
            with pytest.raises(NativeError, match="closed"):
                session.step(1)


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({}, ("passive", "1000")),
        ({"GOMP_SPINCOUNT": "7"}, ("passive", "7")),
        ({"OMP_WAIT_POLICY": "active"}, ("active", None)),
    ],
    ids=str,
)
def test_threads_wait_as_the_user_says_or_else_asleep(
    given: dict[str, str], seen: tuple[str | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(native, "load_library", lambda *_: tuple(map(os.environ.get, names)))
    backend = OmpBackend("omp", "")
    assert backend.library == seen
    assert {name: os.environ[name] for name in names if name in os.environ} == given
