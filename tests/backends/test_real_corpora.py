"""All backends learn the same merges with the same counts from real text, for vocabularies of 32,000 and 100,000."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from available import chosen
from real_data import real_text

import bpeflow
from bpeflow.backends import BACKENDS

#: Corpora from which the Python backend learns 100,000 merges in seconds, and corpora for which it would take minutes.
SMALL = ["c4_2MB", "tinystories_3MB", "wikitext2_2MB"]
LARGE = ["code_20MB", "docs_30MB", "multilingual_20MB", "wiki_150MB"]
SIZES = (32_000, 100_000)
AVAILABLE = [backend.name for backend in chosen(BACKENDS) if backend.unavailable() is None]
NATIVE = [name for name in AVAILABLE if name != "python"]


@cache
def counts_of(corpus: str) -> bpeflow.PretokenCounts:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.txt"
        path.write_bytes(real_text(corpus))
        return bpeflow.count(path, special_tokens=["<|endoftext|>"])


def assert_all_equal(counts: bpeflow.PretokenCounts, names: list[str], **options: object) -> None:
    """Compare all backends with the first, and the smaller vocabulary with the larger one.

    The Python backend, which takes seconds, learns the larger one only.
    """
    reference: list[tuple[object, int]] | None = None
    for size in reversed(SIZES):
        for name in names if size == SIZES[-1] else [name for name in names if name != "python"]:
            merges = bpeflow.learn_merges(counts, size, ["<|endoftext|>"], backend=name, threads=2, **options)
            learned = list(zip(merges.pairs, merges.counts, strict=True))
            if reference is None:
                reference = learned
            assert learned == reference[: len(learned)]
            assert len(learned) == min(len(reference), size - 257)


@pytest.mark.slow
@pytest.mark.parametrize("corpus", SMALL)
def test_all_backends_agree_on_small_corpora(corpus: str) -> None:
    assert_all_equal(counts_of(corpus), AVAILABLE)


@pytest.mark.large
@pytest.mark.parametrize("corpus", LARGE)
def test_the_native_backends_agree_on_large_corpora(corpus: str) -> None:
    if len(NATIVE) < 2:
        pytest.skip(f"needs two native backends, found {NATIVE}")
    assert_all_equal(counts_of(corpus), NATIVE)


@pytest.mark.large
@pytest.mark.parametrize("tie_break", ["smallest_ids", "huggingface"])
def test_the_native_backends_agree_under_every_rule_for_ties(tie_break: str) -> None:
    if len(NATIVE) < 2:
        pytest.skip(f"needs two native backends, found {NATIVE}")
    assert_all_equal(counts_of("docs_30MB"), NATIVE, tie_break=tie_break)


@pytest.mark.large
def test_the_native_backends_agree_on_extending_a_vocabulary_of_another_corpus() -> None:
    if len(NATIVE) < 2:
        pytest.skip(f"needs two native backends, found {NATIVE}")
    initial = bpeflow.learn_merges(counts_of("docs_30MB"), 20_000, ["<|endoftext|>"]).pairs
    assert_all_equal(counts_of("code_20MB"), NATIVE, initial_merges=initial, min_frequency=3, max_token_length=32)
