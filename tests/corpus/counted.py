"""Count a corpus as the tests of inputs and sources do, and compare what was counted."""

from __future__ import annotations

from corpus_forms import SEPARATOR

from bpeflow.config import CountSettings, make_settings
from bpeflow.counting.count import CorpusCounter, CorpusCounts


def count(path: object, **options: object) -> CorpusCounts:
    values = {"input": path, "special_tokens": [SEPARATOR], **options}
    return CorpusCounter(make_settings(CountSettings, values)).count()


def assert_same(counted: CorpusCounts, expected: CorpusCounts) -> None:
    assert counted.counts == expected.counts
    assert counted.documents.documents == expected.documents.documents
    assert counted.documents.skipped_documents == 0
