"""Run the examples in the documentation."""

import doctest
from collections import Counter
from functools import partial

import flow_workers as w

import bpeflow.flow
from bpeflow.flow import Pipeline, QueueSpec, Source, Stage


def test_the_example_of_the_package_docstring_runs() -> None:
    results = doctest.testmod(bpeflow.flow)
    assert results.attempted >= 5
    assert results.failed == 0


def test_the_word_count_of_the_example_runs_in_processes() -> None:
    lines = ["to be or", "not to be"] * 500
    counter = Stage("counter", w.count_words, reads=QueueSpec("line_queue"), workers=4)
    totals: Counter[str] = Counter()
    for counts in Pipeline(Source("reader", partial(iter, lines)), [counter]).run():
        totals.update(counts)
    assert totals == {"to": 1000, "be": 1000, "or": 500, "not": 500}
