"""Thinning: the kept pre-tokens are a function of their bytes, counts are right on average, and order is canonical."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import naive_merges

from bpeflow import learn_merges
from bpeflow.backends.base import MergeBackend
from bpeflow.config import MergeSettings
from bpeflow.counting.canonical import canonical
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.shards import hash_of
from bpeflow.errors import CountOverflowError, NativeUnavailableError, SettingsError
from bpeflow.training.task import learning_task

#: Few different bytes, so that pre-tokens share beginnings; counts that are equal after multiplication.
tokens = st.text("ab\0ÿ", min_size=1, max_size=12).map(lambda text: text.encode("latin-1"))
tables = st.dictionaries(tokens, st.sampled_from((1, 1, 1, 2, 3, 4, 5, 6, 8, 10, 20)), max_size=60)


def thinned(table: dict[bytes, int], below: int, one_in: int) -> dict[bytes, int]:
    """Thinning in plain Python."""
    kept = {token for token in table if table[token] >= below or hash_of(token) <= (2**64 - 1) // one_in}
    return {token: table[token] * (one_in if table[token] < below else 1) for token in kept}


# ---- the hash ----


@pytest.mark.parametrize(("token", "expected"), [(b"\0", 4289961095628688847), (b"low", 17588776831028573206)])
def test_the_hash_never_changes(token: bytes, expected: int) -> None:
    assert hash_of(token) == expected


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("one_in", [2, 3, 10])
def test_hashes_depend_on_the_bytes_alone(native: bool, one_in: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on the neighbours, nor on how many bytes follow."""
    if not native:
        monkeypatch.setattr("bpeflow.counting.canonical.load_library", unavailable)
    words = [b"a", b"\0", b"\0\0", b"low", b"x" * 300, bytes(range(256)), "日本語".encode()]
    words += [b"y" * length for length in range(1, 40)] + [b"b"]
    offsets = np.cumsum([2, *map(len, words)])  # the first two bytes belong to none of them
    data, counts = np.frombuffer(b"??" + b"".join(words), np.uint8), np.ones(len(words), np.int64)
    found = PretokenCounts(*canonical(data, offsets, counts, 2, one_in))
    assert dict(found.items()) == thinned(dict.fromkeys(words, 1), 2, one_in)


# ---- the table ----


@pytest.mark.parametrize("native", [True, False])
@settings(max_examples=40)
@given(table=tables, below=st.sampled_from((1, 2, 5, 100)), one_in=st.sampled_from((1, 2, 3, 10)))
def test_it_equals_plain_python_in_canonical_order(
    table: dict[bytes, int], below: int, one_in: int, native: bool
) -> None:
    counts = PretokenCounts.from_mapping(table)
    with pytest.MonkeyPatch.context() as patch:
        if not native:
            patch.setattr("bpeflow.counting.canonical.load_library", unavailable)
        assert counts.thin(below, 1 / one_in) == PretokenCounts.from_mapping(thinned(table, below, one_in))


def unavailable(_: str) -> None:
    raise NativeUnavailableError("not here")


@pytest.mark.parametrize("count", [255, 256, 257, 2**40])
def test_ties_are_ordered_by_all_bytes(count: int) -> None:
    table = {b"12345678" * 3 + b"%d" % number: count + number % 3 for number in range(500)} | {b"1": count, b"0": 1}
    found = PretokenCounts.from_mapping(table).thin(below=2, keep=1)
    assert found == PretokenCounts.from_mapping(table)


def test_keeping_all_changes_nothing_and_keeping_fewer_keeps_a_part() -> None:
    counts = PretokenCounts.from_mapping({b"%d" % number: 1 + number % 3 for number in range(1000)})
    assert counts.thin(below=3, keep=1) == counts
    assert counts.thin(below=1, keep=0.1) == counts
    some, few = counts.thin(below=4, keep=0.5), counts.thin(below=4, keep=0.1)
    assert 0 < len(few) < len(some) < len(counts)
    assert {*few} < {*some}


def test_it_keeps_what_is_known_of_the_counts() -> None:
    counts = PretokenCounts.from_mapping({"low": 1}).with_pattern("cl100k", "drop", ("nfc",))
    thin = counts.thin(below=2, keep=0.5)
    assert (thin.pattern, thin.unmatched, thin.normalizer) == ("cl100k", "drop", ("nfc",))


def test_pair_counts_are_right_on_average() -> None:
    """In 400 groups of words, thinned counts of pairs deviate as far as chance makes them, and to both sides.

    For a pair in n words of count c, of which one in m is kept, the variance is n·c²·(m - 1).
    """
    groups, size, count, one_in = 400, 100, 2, 10
    for pair in ("ab", "cd"):
        words = {f"{pair} {group} {number}".encode(): count for group in range(groups) for number in range(size)}
        found = [0] * groups
        for word, thinned_count in PretokenCounts.from_mapping(words).thin(5, 1 / one_in).items():
            found[int(word.split()[1])] += thinned_count
        deviations = (np.array(found) - size * count) / (size * count**2 * (one_in - 1)) ** 0.5
        assert abs(deviations.mean()) < 3 / groups**0.5
        assert deviations.std() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("native", [True, False])
def test_a_count_that_does_not_fit_is_an_error(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr("bpeflow.counting.canonical.load_library", unavailable)
    word = next(b"%d" % number for number in range(10**6) if hash_of(b"%d" % number) < 2**64 // 10)
    counts = PretokenCounts.from_mapping({word: 2**62})
    with pytest.raises(CountOverflowError, match="a count does not fit 64 bits"):
        counts.thin(below=2**63 - 1, keep=0.1)


@pytest.mark.parametrize(
    ("below", "keep", "said"),
    [
        (5, 0.4, r"keep: need one divided by a whole number, such as .*, found 0\.4"),
        (5, 0, "keep: "),
        (5, 1.5, "keep: "),
        (0, 0.5, "below: "),
        (2**63, 0.5, "below: "),
    ],
)
def test_arguments_out_of_range_are_refused(below: int, keep: float, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        PretokenCounts.from_mapping({"low": 1}).thin(below, keep)


@pytest.mark.parametrize(("keep", "one_in"), [(0.1, 10), (0.33, 3), (0.333, 3), (1 / 7, 7), (0.001, 1000)])
def test_a_fraction_stands_for_one_in_a_whole_number(keep: float, one_in: int) -> None:
    table = {b"%d" % number: 1 for number in range(500)}
    assert PretokenCounts.from_mapping(table).thin(2, keep) == PretokenCounts.from_mapping(thinned(table, 2, one_in))


def test_every_backend_learns_from_the_thinned_counts(backend: MergeBackend) -> None:
    table = {f"{stem}{number}".encode(): 1 + number % 6 for stem in ("low", "new", "wid") for number in range(60)}
    counts = PretokenCounts.from_mapping(table)
    learned = learn_merges(counts, 300, (), thin_rare={"below": 5, "keep": 0.5}, backend=backend.name)
    thin = PretokenCounts.from_mapping(thinned(table, 5, 2))
    task = learning_task(thin, MergeSettings(vocab_size=300, special_tokens=()))
    assert learned.counts == tuple(count for *_, count in naive_merges(task))
    assert learned.pairs == learn_merges(task.counts, 300, (), backend=backend.name).pairs
    assert learned.pairs != learn_merges(counts, 300, (), backend=backend.name).pairs
