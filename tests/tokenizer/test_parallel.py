"""Threads share the parts of a text, and join their ids in one array."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.tokenizer.parallel import JoinedIds, in_threads

UINT16 = np.dtype(np.uint16)


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[tuple[int, int, list[int]]], list[int]]:
    """Return parts of a text (begin, end, ids), and an order to add them in. Some have more ids than bytes."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=12))
    longest = draw(st.sampled_from([0, 1, 3]))  # ids per byte
    begins = np.cumsum([0, *lengths]).tolist()
    ids = [draw(st.lists(st.integers(0, 65535), max_size=longest * length)) for length in lengths]
    return [*zip(begins, begins[1:], ids, strict=False)], draw(st.permutations(range(len(lengths))))


@pytest.mark.threads
@given(given_parts=parts(), threads=st.integers(1, 3))
def test_ids_are_joined_in_the_order_of_the_text(
    given_parts: tuple[list[tuple[int, int, list[int]]], list[int]], threads: int
) -> None:
    text, order = given_parts
    joined = JoinedIds(text[-1][1], UINT16)
    with ThreadPoolExecutor(threads) as pool:
        for added in [pool.submit(joined.add, *text[i][:2], np.array(text[i][2], UINT16)) for i in order]:
            added.result()
    result = joined.result()
    assert result.tolist() == [i for _, _, ids in text for i in ids]
    assert result.dtype == UINT16


def test_ids_are_placed_before_the_last_part_has_come() -> None:
    joined = JoinedIds(6, UINT16)
    joined.add(2, 4, np.array([3], UINT16))
    assert len(joined._early) == 1
    joined.add(0, 2, np.array([1, 2], UINT16))
    assert not joined._early
    assert joined._ids[:3].tolist() == [1, 2, 3]


@pytest.mark.threads
def test_a_slow_part_does_not_hold_up_another_thread() -> None:
    done: list[int] = []
    all_others = threading.Event()

    def work(begin: int, end: int) -> int:
        if begin == 0:
            assert all_others.wait(20)
        done.append(begin)
        if len(done) == 99:
            all_others.set()
        return begin

    assert [*in_threads(((i, i + 1) for i in range(100)), work, 2)] == [*range(100)]
    assert done[-1] == 0
