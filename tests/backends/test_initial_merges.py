"""Initial merges are replayed whatever their counts are, then all backends learn on as the naive recount does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Merge, naive_merges
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

from bpeflow.backends.base import EncodedWords, MergeBackend, MergeTask
from bpeflow.backends.native_backend import NativeBackend
from bpeflow.config import MergeSettings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError, CountOverflowError
from bpeflow.tokenizer.python_encoder import PretokenMerging, merge_table
from bpeflow.training.learn import learn_merges
from bpeflow.training.task import learning_task


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
    assert (resumed.pairs, resumed.counts) == (at_once.pairs, at_once.counts)
    assert resumed.replayed == len(first)


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
    task = learning_task(PretokenCounts.from_mapping(words), settings, initial)
    assert_equal_to_the_naive_recount(backends, task, step)


@pytest.mark.slow
@settings(max_examples=120)
@given(words=words(), options=options, specials=colliding, data=st.data(), merges=st.integers(0, 30))
def test_any_initial_merges_equal_the_naive_recount(
    backends: list[MergeBackend],
    words: dict[bytes, int],
    options: dict[str, object],
    specials: tuple[bytes, ...],
    data: st.DataObject,
    merges: int,
) -> None:
    """Arbitrary lists too, with merges whose tokens never occur and whose strings other merges make again."""
    task = with_specials(make_task(words, merges, **options), specials)
    if not data.draw(st.booleans(), label="reuse_tokens"):
        task = make_task(words, merges, **options)
    task = replace(task, initial_merges=draw_initial_merges(data.draw, task, merges))
    assert_equal_to_the_naive_recount(backends, task)


@pytest.mark.slow
@settings(max_examples=120)
@given(
    words=words(), options=options, specials=colliding, data=st.data(), merges=st.integers(0, 30),
    strip=st.sampled_from([0, 2, 9]), step=st.sampled_from([1, 1000]),
)  # fmt: skip
def test_words_encoded_with_the_first_initial_merges_equal_their_replay(
    backends: list[MergeBackend],
    words: dict[bytes, int],
    options: dict[str, object],
    specials: tuple[bytes, ...],
    data: st.DataObject,
    merges: int,
    strip: int,
    step: int,
) -> None:
    """Encoding takes the place of any number of them. The others are still replayed."""
    task = make_task(words, merges, **options)
    if data.draw(st.booleans(), label="reuse_tokens"):
        task = with_specials(task, specials)
    task = replace(task, initial_merges=draw_initial_merges(data.draw, task, merges))
    expected = naive_merges(task)
    encoded = data.draw(st.integers(0, len(task.initial_merges)), label="encoded")
    assert naive_merges(encode_words(task, expected[:encoded])) == expected[encoded:]
    for backend in backends:
        divided = with_strips(backend, strip) if isinstance(backend, NativeBackend) else backend
        assert learn(divided, encode_words(task, expected[:encoded]), step) == expected[encoded:], backend.name


def encode_words(task: MergeTask, merges: list[Merge]) -> MergeTask:
    """Return the task after its first initial merges: encode the words by rank."""
    tokens = [*task.tokens]
    for left, right, token, _ in merges:
        if token == len(tokens):
            tokens.append(tokens[left] + tokens[right])
    table = merge_table(np.array([merge[:3] for merge in merges], np.uint32).reshape(-1, 3))
    words = []
    assert isinstance(task.counts, PretokenCounts)
    for word in task.counts:
        merging = PretokenMerging(word, task.byte_ids, table)
        for _step in merging.steps():
            pass
        words.append([token for token in merging.ids if token is not None])
    offsets = np.cumsum([0, *map(len, words)])
    ids = np.array([token for word in words for token in word], np.uint32)
    return replace(
        task,
        counts=EncodedWords(ids, offsets, task.counts.counts),
        tokens=tuple(tokens),
        initial_merges=task.initial_merges[len(merges) :],
    )


def draw_initial_merges(
    draw: Callable[[st.SearchStrategy[int]], int], task: MergeTask, merges: int
) -> tuple[tuple[int, int], ...]:
    """Join tokens at random, without making a string twice."""
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
    learned = learn_merges({"abc": 3, "bc": 2}, 261, (), initial_merges=initial, backend=backend.name)
    assert learned.pairs == (*initial, (b"ab", b"c"), (b"b", b"c"))
    assert learned.counts == (0, 3, 0, 3, 2)
    assert learned.replayed == 3


def test_limits_do_not_apply_to_initial_merges(backend: MergeBackend) -> None:
    words = {"aaaa": 2, "bb": 9, "bbb": 9}
    initial = [(b"a", b"a"), (b"aa", b"aa")]
    learned = learn_merges(
        words, 300, initial_merges=initial, backend=backend.name, min_frequency=5, max_token_length=2
    )
    assert learned.pairs == (*initial, (b"b", b"b"))
    assert learned.counts == (6, 2, 27)


def test_an_initial_merge_can_yield_a_special_token_in_huggingfaces_mode(backend: MergeBackend) -> None:
    """Such a merge reuses the id, so two merges fit into a vocabulary that has room for one more token."""
    initial = [(b"a", b"b"), (b"ab", b"c")]
    learned = learn_merges(
        {"abcd": 2}, 258, ["ab"], initial_merges=initial, tie_break="huggingface", backend=backend.name
    )
    assert learned.pairs == tuple(initial)
    with pytest.raises(ConfigError, match="the vocabulary is full, and 1 of 2 initial merges"):
        learn_merges({"abcd": 2}, 258, ["ab"], initial_merges=initial, backend=backend.name)


@pytest.mark.parametrize("reuse", [False, True])
def test_a_string_that_the_initial_merges_never_produce_is_made_by_another_merge(
    backend: MergeBackend, reuse: bool
) -> None:
    """`b c` is merged before `ab c`, so the latter never occurs. Only HuggingFace's mode reuses its token."""
    task = with_specials(make_task({b"abc": 5}, 6), ()) if reuse else make_task({b"abc": 5}, 6)
    task = replace(task, initial_merges=((98, 99), (97, 98), (257, 99)))
    learned = learn(backend, task)
    assert learned == naive_merges(task)
    assert learned == [(98, 99, 256, 5), (97, 98, 257, 0), (257, 99, 258, 0), (97, 256, 258 if reuse else 259, 5)]


def test_initial_merges_that_fill_the_vocabulary_leave_nothing_to_learn(backend: MergeBackend) -> None:
    learned = learn_merges({"abc": 2}, 257, (), initial_merges=[(b"b", b"c")], backend=backend.name)
    assert (learned.pairs, learned.counts) == (((b"b", b"c"),), (2,))


def test_counts_of_replayed_merges_are_exact_beyond_32_bits(backend: MergeBackend) -> None:
    words = {b"ab": 2**33, b"abc": 2**62}
    learned = learn_merges(words, 258, (), initial_merges=[(b"b", b"c"), (b"a", b"b")], backend=backend.name)
    assert learned.counts == (2**62, 2**33)


@pytest.mark.parametrize(
    ("initial", "size", "message"),
    [
        ([(b"a", b"b"), (b"ab", b"cd")], 300, "initial merge 1, b'ab' b'cd': b'cd' is not a token yet"),
        ([(b"ab", b"c"), (b"a", b"b")], 300, "initial merge 0, b'ab' b'c': b'ab' is not a token yet"),
        ([(b"", b"c")], 300, "initial merge 0, b'' b'c': b'' is not a token yet"),
        ([(b"a", b"b"), (b"c", b"d"), (b"a", b"b")], 300, "initial merge 2, b'a' b'b': an earlier merge makes b'ab'"),
        (
            [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc")],
            300,
            "initial merge 3, b'a' b'bc': an earlier merge makes b'abc'",
        ),
        ([(b"a", b"b"), (b"ab", b"c")], 257, "initial merge 1, b'ab' b'c': the vocabulary is full"),
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
    with pytest.raises(ConfigError, match="b'ab' is not a token yet"):
        learn_merges({"abc": 3}, 300, ["ab"], initial_merges=[(b"ab", b"c")], tie_break="huggingface")


def test_native_code_refuses_unknown_ids(backend: MergeBackend) -> None:
    if backend.name == "python":
        pytest.skip("the Python backend trusts its caller")
    task = replace(make_task({b"ab": 1}, 5), initial_merges=((len(BYTES), 97),))
    with backend.start(task) as session, pytest.raises(Exception, match=r"rules of bpeflow\.h"):
        session.step(1)
    words = EncodedWords(np.array([97, len(BYTES)], np.uint32), np.array([0, 2]), np.array([1]))
    with pytest.raises(Exception, match=r"rules of bpeflow\.h"):
        backend.start(replace(task, counts=words))


@pytest.mark.parametrize(("count", "fits"), [(2**62 - 1, True), (2**62, False)])
def test_counts_of_pairs_of_ids_fit_64_bits(backend: MergeBackend, count: int, fits: bool) -> None:
    words = EncodedWords(np.array([97, 98, 99, 97, 98], np.uint32), np.array([0, 3, 5]), np.array([count + 1, count]))
    task = replace(make_task({}, 1), counts=words)
    if fits:
        assert learn(backend, task) == [(97, 98, 256, 2 * count + 1)]
    else:
        with pytest.raises(CountOverflowError):
            backend.start(task)
