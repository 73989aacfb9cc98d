from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bpeflow.corpus.sources import Sample


@given(sizes=st.lists(st.integers(0, 50), max_size=60), max_bytes=st.integers(1, 800), seed=st.integers(0, 5))
def test_documents_are_taken_in_order_of_their_numbers_while_they_fit(
    sizes: list[int], max_bytes: int, seed: int
) -> None:
    sample = Sample(max_bytes, seed)
    numbers = [sample.number(0, index) for index in range(len(sizes))]
    threshold = sample.threshold(zip(numbers, sizes, strict=True))
    expected: set[int] = set()
    total = 0
    for number, size in sorted(zip(numbers, sizes, strict=True)):
        total += size
        if total > max_bytes:
            break
        expected.add(number)
    assert {number for number in numbers if number < threshold} == expected


def test_numbers_are_the_same_on_every_machine() -> None:
    assert Sample(1, seed=7).number(2, 3) == 13317231211106649246 == Sample(99, seed=7).number(2, 3)
    assert len({Sample(1, seed).number(file, index) for seed in (0, 1) for file in (0, 1) for index in (0, 1)}) == 8
