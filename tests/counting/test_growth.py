"""Growth of the vocabulary: what is measured over segments is right, and so is the end that it is extended to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from distinct_words import write_corpus
from segmented import counter, fail_after

from bpeflow.config import ThinRare
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.growth import DistinctSample, Growth, GrowthForecast, GrowthPoint, extrapolate
from bpeflow.counting.shards import Shard
from bpeflow.counting.thinning import BASE, Arrays, hashes_of_ends

THIN = ThinRare(below=5, keep=0.5)


@pytest.fixture(autouse=True)
def small_corpora_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpeflow.counting.growth.MIN_CORPUS", 1000)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def words(first: int, last: int, count: int = 1) -> dict[bytes, int]:
    return {b"word %d" % number: count for number in range(first, last)}


def arrays(table: dict[bytes, int]) -> Arrays:
    counts = PretokenCounts.from_mapping(table)
    return Arrays(counts.data, counts.offsets, counts.counts)


def segment(table: dict[bytes, int], size: int) -> Shard:
    """A segment with that much text, in which each pre-token has this count."""
    packed = Shard.pack(0, sorted(table.items()))
    return Shard(0, packed.tokens, packed.size, packed.data, statistics=DocumentStatistics(bytes=size))


# ---- the sample ----


def test_a_small_sample_is_the_union_and_exact() -> None:
    sample = DistinctSample()
    assert sample.estimate() == (0, 0, 0)
    first, second = words(0, 300, count=3), words(200, 700)
    sample.add(arrays(first))
    sample.add(arrays(second))
    union = Counter(first) + Counter(second)
    size, rare = sum(map(len, union)), sum(len(word) for word in union if union[word] < 4)
    assert sample.estimate(ThinRare(below=4, keep=0.25)) == (700, size, round(size - rare + rare / 4))
    assert sample.estimate() == (700, size, size)


def test_a_large_union_is_estimated() -> None:
    """Tables in any order and with any overlap give the same estimate, within a few percent of the truth."""
    tables = [arrays(words(first, first + 4000)) for first in range(0, 20_000, 1000)]
    size = sum(map(len, words(0, 23_000)))
    estimates = []
    for order in (tables, tables[::-1]):
        sample = DistinctSample(most=2000)
        for table in order:
            sample.add(table)
        estimates.append(sample.estimate(THIN))
    assert estimates[0] == estimates[1]
    assert estimates[0][0] == pytest.approx(23_000, rel=0.08)
    assert estimates[0][1] == pytest.approx(size, rel=0.08)
    assert estimates[0][2] < 0.9 * estimates[0][1]  # most words are in fewer than five tables
    assert sum(len(part[0]) for part in sample._parts) <= 2000


def test_the_hash_of_ends_is_that_of_its_definition() -> None:
    tokens = [b"a", b"\0", b"seven b", b"eight by", b"nine byte", b"a long pre-token", b"a longer pre-token", b"z"]
    expected = []
    for token in tokens:
        first, last = (token[:8].rjust(8, b"\0"), token[-8:].ljust(8, b"\0"))
        mixed = int.from_bytes(first, "little") * BASE + int.from_bytes(last, "little") * 0xD1342543DE82EF95
        mixed = (mixed + len(token)) % 2**64
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ mixed >> shift) * factor % 2**64
        expected.append(mixed ^ mixed >> 31)
    data, offsets = np.frombuffer(b"".join(tokens), np.uint8), np.cumsum([0, *map(len, tokens)])
    assert hashes_of_ends(data, offsets).tolist() == expected
    assert len({*expected}) == len(tokens)


# ---- the curve ----


def test_some_segments_are_measured_as_if_they_were_the_whole_text() -> None:
    growth = Growth(total=8000)
    tables = [words(100 * number, 100 * number + 150, count=2) for number in range(8)]
    for table in tables:
        growth.add([segment(table, size=500)], size=1000)
    expected = []
    union: Counter[bytes] = Counter()
    for number in (1, 2, 3, 4, 6):  # and not 8, the last
        union += Counter(tables[number - 1])
        point = GrowthPoint(
            bytes=500 * (len(expected) + 1),
            pretokens=union.total(),
            distinct=len(union),
            positions=sum(map(len, union)),
        )
        expected.append(point)
    assert growth.points == expected


def test_a_small_corpus_is_counted_before_a_warning_could_help() -> None:
    for total, measured in ((999, 0), (1000, 1)):
        growth = Growth(total)
        growth.add([segment(words(0, 10), size=300)], size=300)
        assert len(growth.points) == measured


def test_a_forecast_extends_the_curve_to_the_end() -> None:
    """Distinct pre-tokens that grow with the square root of the text: 100 of each new kind in 1, 4 and 16 parts."""
    forecasts: list[GrowthForecast] = []
    growth = Growth(6_400, forecasts.append, THIN)
    growth.add([segment({}, 0)], size=0)  # which makes no point
    for size, last in ((100, 100), (300, 200), (1200, 400)):
        growth.add([segment(words(1000, 1000 + last, count=5), size)], size)
    assert [(forecast.done, forecast.total) for forecast in forecasts] == [(400, 6400), (1600, 6400)]
    assert forecasts[-1].distinct == pytest.approx(800, rel=0.01)
    assert forecasts[-1].positions == forecasts[-1].learned == pytest.approx(800 * 9, rel=0.01)


@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.62, 0.96, 1.0])
def test_a_power_law_is_extended(exponent: float) -> None:
    sizes = [8, 16, 24, 32, 48, 64]
    values = [round(10**6 * size**exponent) for size in sizes]
    assert extrapolate(sizes, values, 1000) == pytest.approx(10**6 * 1000**exponent, rel=1e-4)


def test_the_latest_points_decide() -> None:
    sizes = [1, 2, 4, 8, 64, 128, 256]
    values = [1, 2, 4, 8, 800, 1131, 1600]  # from there on the square root
    assert extrapolate(sizes, values, 1024) == pytest.approx(3200, rel=0.01)
    assert extrapolate([1, 1000], [10, 10_000], 2000) == pytest.approx(20_000)  # at least two points


def test_growth_is_never_faster_than_the_text() -> None:
    assert extrapolate([1, 2], [10, 90], 4) == 180
    assert extrapolate([1, 2], [10, 9], 4) == 9


# ---- counting in segments ----


def test_counting_in_segments_measures_growth_and_changes_nothing(corpus: Path, tmp_path: Path) -> None:
    whole = counter(corpus, None).count()
    forecasts: list[GrowthForecast] = []
    counting = counter(corpus, tmp_path / "run", segment_size="4kb", num_merger=2)
    parts = counting.count(on_forecast=forecasts.append, thin=THIN)
    assert parts.counts == whole.counts
    assert parts.segments is not None
    last = GrowthPoint(
        bytes=whole.documents.bytes,
        pretokens=whole.counts.total,
        distinct=len(whole.counts),
        positions=len(whole.counts.data),
    )
    assert whole.growth == (last,)
    assert parts.growth[-1] == last
    assert 3 <= len(parts.growth) <= parts.segments.segments
    for before, after in zip(parts.growth, parts.growth[1:], strict=False):
        assert before.bytes < after.bytes
        assert before.pretokens < after.pretokens
        assert before.distinct < after.distinct
        assert before.positions < after.positions
    assert all(forecast.total == counting.total_bytes for forecast in forecasts)
    assert all(forecast.learned < forecast.positions for forecast in forecasts)
    assert forecasts[-1].distinct == pytest.approx(last.distinct, rel=0.2)


def test_a_resumed_run_measures_its_own_segments(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"segment_size": "4kb"}
    unbroken = counter(corpus, tmp_path / "unbroken", **options).count()
    fail_after(2, counter(corpus, tmp_path / "run", **options), monkeypatch)
    resumed = counter(corpus, tmp_path / "run", **options).count()
    assert resumed.counts == unbroken.counts
    assert resumed.growth[-1] == unbroken.growth[-1]
    assert 0 < resumed.growth[0].bytes < unbroken.growth[-1].bytes
