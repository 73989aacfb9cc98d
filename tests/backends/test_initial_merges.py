"""Initial merges, replayed whatever their counts are and gone on from: every backend as the naive recount does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import naive_merges
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
    words,
)

from bpeflow.backends.base import MergeBackend, MergeTask
from bpeflow.config import MergeSettings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError
from bpeflow.merging import learn_merges, merge_task


@pytest.mark.slow
@settings(max_examples=300)
@given(
    words=words(), options=limits, tie_break=tie_breaks, specials=special_tokens, merges=st.integers(0, 30),
    cut=st.floats(0, 1), search=st.sampled_from(["heap", "scan"]), threads=st.sampled_from([1, 2, 3]),
)  # fmt: skip
def test_to_go_on_from_any_merge_is_to_learn_at_once(
    backend: MergeBackend,
    words: dict[bytes, int],
    options: dict[str, int | None],
    tie_break: str,
    specials: tuple[str, ...],
    merges: int,
    cut: float,
    search: str,
    threads: int,
) -> None:
    size = 256 + len(specials) + merges
    common = {**options, "tie_break": tie_break, "backend": backend.name, "max_search": search, "threads": threads}
    at_once = learn_merges(words, size, specials, **common)
    first = at_once.pairs[: round(cut * len(at_once))]
    resumed = learn_merges(words, size, specials, initial_merges=first, **common)
    assert (resumed.pairs, resumed.counts) == (at_once.pairs, at_once.counts)
    assert resumed.replayed == len(first)


@pytest.mark.slow
@settings(max_examples=400)
@given(
    words=words(), others=words(), options=limits, tie_break=tie_breaks, specials=special_tokens,
    merges=st.integers(0, 20), more=st.integers(0, 20), search=st.sampled_from(["heap", "scan"]),
    threads=st.sampled_from([1, 2, 3]), step=st.sampled_from([1, 3, 1000]),
)  # fmt: skip
def test_merges_of_other_counts_equal_the_naive_recount(
    backends: list[MergeBackend],
    words: dict[bytes, int],
    others: dict[bytes, int],
    options: dict[str, int | None],
    tie_break: str,
    specials: tuple[str, ...],
    merges: int,
    more: int,
    search: str,
    threads: int,
    step: int,
) -> None:
    """The others are learned without limits: so initial merges are rarer and longer than what may be learned."""
    size = 256 + len(specials) + merges
    initial = learn_merges(others, size, specials, tie_break=tie_break, backend="python").pairs
    wanted = {"vocab_size": size + more, "special_tokens": specials, "tie_break": tie_break, "threads": threads}
    settings = MergeSettings(**wanted, **options, max_search=search)
    task = merge_task(PretokenCounts.from_mapping(words), settings, initial)
    assert_equal_to_the_naive_recount(backends, task, step)


@pytest.mark.slow
@settings(max_examples=300)
@given(words=words(), options=options, specials=colliding, data=st.data(), merges=st.integers(0, 30))
def test_any_list_of_merges_equals_the_naive_recount(
    backends: list[MergeBackend],
    words: dict[bytes, int],
    options: dict[str, object],
    specials: tuple[bytes, ...],
    data: st.DataObject,
    merges: int,
) -> None:
    """Lists that were never learned too: whose tokens no text leads to, and which other merges then make again."""
    task = with_specials(make_task(words, merges, **options), specials)
    if not data.draw(st.booleans(), label="reuse_tokens"):
        task = make_task(words, merges, **options)
    task = replace(task, initial_merges=draw_initial_merges(data.draw, task, merges))
    assert_equal_to_the_naive_recount(backends, task)


def draw_initial_merges(
    draw: Callable[[st.SearchStrategy[int]], int], task: MergeTask, merges: int
) -> tuple[tuple[int, int], ...]:
    """Join tokens at random, no string twice."""
    known = {bytes([byte]): task.byte_ids[byte] for byte in b"abc\x00\xff"}
    pairs = []
    tokens = len(task.tokens)
    for _ in range(draw(st.integers(0, min(merges, 8)))):
        left, right = (list(known)[draw(st.integers(0, len(known) - 1))] for _ in range(2))
        if left + right in known or tokens >= task.max_tokens:
            continue
        pairs.append((known[left], known[right]))
        reused = task.reuse_tokens and left + right in task.tokens
        known[left + right] = task.tokens.index(left + right) if reused else tokens
        tokens += not reused
    return tuple(pairs)


def test_a_merge_that_does_not_occur_keeps_its_rank(backend: MergeBackend) -> None:
    initial = [(b"x", b"y"), (b"a", b"b"), (b"xy", b"ab")]
    learned = learn_merges({"abc": 3, "bc": 2}, 261, initial_merges=initial, backend=backend.name)
    assert learned.pairs == (*initial, (b"ab", b"c"), (b"b", b"c"))
    assert learned.counts == (0, 3, 0, 3, 2)
    assert learned.replayed == 3


def test_limits_concern_what_is_learned_only(backend: MergeBackend) -> None:
    words = {"aaaa": 2, "bb": 9, "bbb": 9}
    initial = [(b"a", b"a"), (b"aa", b"aa")]
    learned = learn_merges(
        words, 300, initial_merges=initial, backend=backend.name, min_frequency=5, max_token_length=2
    )
    assert learned.pairs == (*initial, (b"b", b"b"))
    assert learned.counts == (6, 2, 27)


def test_a_merge_can_yield_a_special_token_in_huggingfaces_way(backend: MergeBackend) -> None:
    """It takes the special token's id, and so no place: two merges fit where one is left."""
    initial = [(b"a", b"b"), (b"ab", b"c")]
    learned = learn_merges(
        {"abcd": 2}, 258, ["ab"], initial_merges=initial, tie_break="huggingface", backend=backend.name
    )
    assert learned.pairs == tuple(initial)
    with pytest.raises(ConfigError, match="the vocabulary is full before it"):
        learn_merges({"abcd": 2}, 258, ["ab"], initial_merges=initial, backend=backend.name)


@pytest.mark.parametrize("reuse", [False, True])
def test_a_string_that_the_list_never_leads_to_is_made_by_another_merge(backend: MergeBackend, reuse: bool) -> None:
    """`b c` comes before `ab c`, so no text has the latter; its token is reused in HuggingFace's way only."""
    task = with_specials(make_task({b"abc": 5}, 6), ()) if reuse else make_task({b"abc": 5}, 6)
    task = replace(task, initial_merges=((98, 99), (97, 98), (257, 99)))
    learned = learn(backend, task)
    assert learned == naive_merges(task)
    assert learned == [(98, 99, 256, 5), (97, 98, 257, 0), (257, 99, 258, 0), (97, 256, 258 if reuse else 259, 5)]


def test_a_list_that_fills_the_vocabulary_leaves_nothing_to_learn(backend: MergeBackend) -> None:
    learned = learn_merges({"abc": 2}, 257, initial_merges=[(b"b", b"c")], backend=backend.name)
    assert (learned.pairs, learned.counts) == (((b"b", b"c"),), (2,))


def test_counts_of_replayed_merges_are_exact_beyond_32_bits(backend: MergeBackend) -> None:
    words = {b"ab": 2**33, b"abc": 2**62}
    learned = learn_merges(words, 258, initial_merges=[(b"b", b"c"), (b"a", b"b")], backend=backend.name)
    assert learned.counts == (2**62, 2**33)


@pytest.mark.parametrize(
    ("initial", "size", "complaint"),
    [
        ([(b"a", b"b"), (b"ab", b"cd")], 300, "initial merge 1, b'ab' b'cd': b'cd' is no token yet"),
        ([(b"ab", b"c"), (b"a", b"b")], 300, "initial merge 0, b'ab' b'c': b'ab' is no token yet"),
        ([(b"", b"c")], 300, "initial merge 0, b'' b'c': b'' is no token yet"),
        ([(b"a", b"b"), (b"c", b"d"), (b"a", b"b")], 300, "initial merge 2, b'a' b'b': a merge before it makes b'ab'"),
        (
            [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc")],
            300,
            "initial merge 3, b'a' b'bc': a merge before it makes b'abc'",
        ),
        ([(b"a", b"b"), (b"ab", b"c")], 257, "initial merge 1, b'ab' b'c': the vocabulary is full"),
    ],
    ids=str,
)
@pytest.mark.parametrize("tie_break", ["greatest_bytes", "smallest_ids", "huggingface"])
def test_a_list_that_does_not_fit_is_refused(
    initial: list[tuple[bytes, bytes]], size: int, complaint: str, tie_break: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        learn_merges({"abcd": 3}, size, initial_merges=initial, tie_break=tie_break)
    assert complaint in str(caught.value)


def test_a_special_tokens_string_is_no_part_until_a_merge_makes_it() -> None:
    with pytest.raises(ConfigError, match="b'ab' is no token yet"):
        learn_merges({"abc": 3}, 300, ["ab"], initial_merges=[(b"ab", b"c")], tie_break="huggingface")


def test_unknown_ids_are_refused_at_the_border(backend: MergeBackend) -> None:
    if backend.name == "python":
        pytest.skip("it trusts its caller")
    task = replace(make_task({b"ab": 1}, 5), initial_merges=((len(BYTES), 97),))
    with backend.start(task) as session, pytest.raises(Exception, match=r"rules of bpeflow\.h"):
        session.step(1)
