from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bpeflow.corpus.sources import Sample


@given(sizes=st.lists(st.integers(0, 50), max_size=60), most=st.integers(1, 800), seed=st.integers(0, 5))
def test_documents_are_taken_in_the_order_of_their_numbers_as_long_as_they_fit(
    sizes: list[int], most: int, seed: int
) -> None:
    sample = Sample(most, seed)
    numbers = [sample.number(0, place) for place in range(len(sizes))]
    threshold = sample.threshold(zip(numbers, sizes, strict=True))
    expected: set[int] = set()
    total = 0
    for number, size in sorted(zip(numbers, sizes, strict=True)):
        total += size
        if total > most:
            break
        expected.add(number)
    assert {number for number in numbers if number < threshold} == expected


def test_numbers_are_those_of_every_machine() -> None:
    assert Sample(1, seed=7).number(2, 3) == 13317231211106649246 == Sample(99, seed=7).number(2, 3)
    assert len({Sample(1, seed).number(file, place) for seed in (0, 1) for file in (0, 1) for place in (0, 1)}) == 8
