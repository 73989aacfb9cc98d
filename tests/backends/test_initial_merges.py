"""Learning continues after initial merges, whatever their counts, as a naive recount does that replays them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import naive_merges
from tasks import (
    BYTES,
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

from bpeflow.backends.base import EncodedWords, MergeBackend, MergeTask
from bpeflow.backends.native_backend import NativeBackend
from bpeflow.config import MergeSettings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError, CountOverflowError
from bpeflow.training.learn import learn_merges
from bpeflow.training.task import after_merges, learning_task
from bpeflow.vocab import Merge


@pytest.mark.slow
@settings(max_examples=120)
@given(
    words=words(), options=limits, tie_break=tie_breaks, specials=special_tokens, merges=st.integers(0, 30),
    cut=st.floats(0, 1), search=st.sampled_from(["heap", "scan"]), threads=st.sampled_from([1, 2, 3]),
)  # fmt: skip
def test_resuming_after_any_merge_equals_learning_at_once(
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
    assert resumed.pairs == at_once.pairs
    assert resumed.counts == (0,) * len(first) + at_once.counts[len(first) :]
    assert (resumed.replayed, resumed.wanted) == (len(first), at_once.wanted)


@pytest.mark.slow
@settings(max_examples=120)
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
    """The initial merges are learned without limits, so they can be rarer and longer than the limits allow."""
    size = 256 + len(specials) + merges
    initial = learn_merges(others, size, specials, tie_break=tie_break, backend="python").pairs
    values = {"vocab_size": size + more, "special_tokens": specials, "tie_break": tie_break, "threads": threads}
    settings = MergeSettings(**values, **options, max_search=search)
    task = learning_task(PretokenCounts.from_mapping(words), settings)
    assert_equal_to_their_replay(backends, task, initial, step)


@pytest.mark.slow
@settings(max_examples=120)
@given(
    words=words(), options=options, specials=colliding, data=st.data(), merges=st.integers(0, 30),
    strip=st.sampled_from([0, 2, 9]), step=st.sampled_from([1, 1000]),
)  # fmt: skip
def test_any_initial_merges_equal_the_naive_recount(
    backends: list[MergeBackend],
    words: dict[bytes, int],
    options: dict[str, object],
    specials: tuple[bytes, ...],
    data: st.DataObject,
    merges: int,
    strip: int,
    step: int,
) -> None:
    """Arbitrary lists too, with merges whose tokens never occur and whose strings other merges make again."""
    task = make_task(words, merges, **options)
    if data.draw(st.booleans(), label="reuse_tokens"):
        task = with_specials(task, specials)
    divided = [with_strips(each, strip) if isinstance(each, NativeBackend) else each for each in backends]
    assert_equal_to_their_replay(divided, task, draw_initial_merges(data.draw, task, merges), step)


def assert_equal_to_their_replay(
    backends: list[MergeBackend], task: MergeTask, initial: Sequence[Merge], step: int = 1000
) -> None:
    """Compare every backend, which begins with words encoded with the initial merges, with their naive replay."""
    assert isinstance(task.counts, PretokenCounts)
    rest = after_merges(task, task.counts, initial)
    numbers = {token: number for number, token in reversed([*enumerate(rest.tokens)])}
    replayed = naive_merges(task, [(numbers[left], numbers[right]) for left, right in initial])
    for backend in backends:
        assert learn(backend, rest, step) == replayed[len(initial) :], backend.name


def draw_initial_merges(
    draw: Callable[[st.SearchStrategy[int]], int], task: MergeTask, merges: int
) -> tuple[Merge, ...]:
    """Join tokens at random, without making a string twice."""
    known = [bytes([byte]) for byte in b"abc\x00\xff"]
    tokens = {*task.tokens}
    pairs = []
    for _ in range(draw(st.integers(0, min(merges, 8)))):
        left, right = (known[draw(st.integers(0, len(known) - 1))] for _ in range(2))
        if left + right in known or len(tokens | {left + right}) > task.max_tokens:
            continue
        pairs.append((left, right))
        known.append(left + right)
        tokens.add(left + right)
    return tuple(pairs)


def test_a_merge_that_does_not_occur_keeps_its_rank(backend: MergeBackend) -> None:
    initial = [(b"x", b"y"), (b"a", b"b"), (b"xy", b"ab")]
    learned = learn_merges({"abc": 3, "bc": 2}, 261, (), initial_merges=initial, backend=backend.name)
    assert learned.pairs == (*initial, (b"ab", b"c"), (b"b", b"c"))
    assert learned.counts == (0, 0, 0, 3, 2)
    assert learned.replayed == 3


def test_limits_do_not_apply_to_initial_merges(backend: MergeBackend) -> None:
    words = {"aaaa": 2, "bb": 9, "bbb": 9}
    initial = [(b"a", b"a"), (b"aa", b"aa")]
    learned = learn_merges(
        words, 300, initial_merges=initial, backend=backend.name, min_frequency=5, max_token_length=2
    )
    assert learned.pairs == (*initial, (b"b", b"b"))
    assert learned.counts == (0, 0, 27)


def test_an_initial_merge_can_yield_a_special_token_in_huggingfaces_mode(backend: MergeBackend) -> None:
    """Such a merge reuses the id, so two merges fit into a vocabulary that has room for one more token."""
    initial = [(b"a", b"b"), (b"ab", b"c")]
    learned = learn_merges(
        {"abcd": 2}, 258, ["ab"], initial_merges=initial, tie_break="huggingface", backend=backend.name
    )
    assert learned.pairs == tuple(initial)
    with pytest.raises(ConfigError, match="vocab_size is too small: the initial merges make 1 token more"):
        learn_merges({"abcd": 2}, 258, ["ab"], initial_merges=initial, backend=backend.name)


@pytest.mark.parametrize("reuse", [False, True])
def test_a_string_that_the_initial_merges_never_produce_is_made_by_another_merge(
    backend: MergeBackend, reuse: bool
) -> None:
    """`b c` is merged before `ab c`, so the latter never occurs. Only HuggingFace's mode reuses its token."""
    task = with_specials(make_task({b"abc": 5}, 6), ()) if reuse else make_task({b"abc": 5}, 6)
    initial = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]
    assert_equal_to_their_replay([backend], task, initial)
    assert isinstance(task.counts, PretokenCounts)
    assert learn(backend, after_merges(task, task.counts, initial)) == [(97, 256, 258 if reuse else 259, 5)]


def test_initial_merges_that_fill_the_vocabulary_leave_nothing_to_learn(backend: MergeBackend) -> None:
    learned = learn_merges({"abc": 2}, 257, (), initial_merges=[(b"b", b"c")], backend=backend.name)
    assert (learned.pairs, learned.counts) == (((b"b", b"c"),), (0,))


@pytest.mark.parametrize(
    ("initial", "size", "message"),
    [
        (
            [(b"a", b"b"), (b"ab", b"cd")],
            300,
            "initial merge 1, b'ab' b'cd': b'cd' is neither a byte nor made by a merge",
        ),
        ([(b"ab", b"c"), (b"a", b"b")], 300, "initial merge 0, b'ab' b'c': a later merge makes b'ab'"),
        ([(b"", b"c")], 300, "initial merge 0, b'' b'c': b'' is neither a byte nor made by a merge"),
        ([(b"a", b"b"), (b"c", b"d"), (b"a", b"b")], 300, "initial merge 2, b'a' b'b': an earlier merge makes b'ab'"),
        (
            [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc")],
            300,
            "initial merge 3, b'a' b'bc': an earlier merge makes b'abc'",
        ),
        ([(b"a", b"b"), (b"ab", b"c")], 257, "vocab_size is too small: the initial merges make 1 token more"),
    ],
    ids=str,
)
@pytest.mark.parametrize("tie_break", ["greatest_bytes", "smallest_ids", "huggingface"])
def test_invalid_initial_merges_are_refused(
    initial: list[tuple[bytes, bytes]], size: int, message: str, tie_break: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        learn_merges({"abcd": 3}, size, (), initial_merges=initial, tie_break=tie_break)
    assert message in str(caught.value)


def test_a_special_token_cannot_be_part_of_a_merge_before_a_merge_makes_its_string() -> None:
    with pytest.raises(ConfigError, match="b'ab' is neither a byte nor made by a merge"):
        learn_merges({"abc": 3}, 300, ["ab"], initial_merges=[(b"ab", b"c")], tie_break="huggingface")


def test_native_code_refuses_unknown_ids(backend: MergeBackend) -> None:
    if backend.name == "python":
        pytest.skip("the Python backend trusts its caller")
    words = EncodedWords(np.array([97, len(BYTES)], np.uint32), np.array([0, 2]), np.array([1]))
    with pytest.raises(Exception, match=r"rules of bpeflow\.h"):
        backend.start(replace(make_task({b"ab": 1}, 5), counts=words))


@pytest.mark.parametrize(("count", "fits"), [(2**62 - 1, True), (2**62, False)])
def test_counts_of_pairs_of_ids_fit_64_bits(backend: MergeBackend, count: int, fits: bool) -> None:
    words = EncodedWords(np.array([97, 98, 99, 97, 98], np.uint32), np.array([0, 3, 5]), np.array([count + 1, count]))
    task = replace(make_task({}, 1), counts=words)
    if fits:
        assert learn(backend, task) == [(97, 98, 256, 2 * count + 1)]
    else:
        with pytest.raises(CountOverflowError):
            backend.start(task)
