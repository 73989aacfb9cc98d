"""Counting text that a custom pattern does not match: what counts, what is reported, and the error."""

from __future__ import annotations

import json
import logging
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from segmented import counter, fail_after

import bpeflow
from bpeflow._util.text import UnmatchedPolicy
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import CorpusError, FormatError, ResumeError
from bpeflow.pretokenize.native import INSTRUCTIONS_VARIABLE

TEXT = "Hello, world 12!||naïve – ça||only"
WORDS = r"\p{L}+"


def oracle(pattern: str, documents: list[str], unmatched: UnmatchedPolicy) -> Counter[bytes]:
    counts: Counter[bytes] = Counter()
    for document in documents:
        end = 0
        spans = [match.span() for match in regex.finditer(pattern, document)]
        for start, following in [*spans, (len(document), len(document))]:
            gap = document[end:start] if unmatched == "isolate" else ""
            counts.update(piece.encode() for piece in (gap, document[start:following]) if piece)
            end = following
    return counts


@pytest.mark.parametrize("unmatched", ["isolate", "drop"])
@settings(max_examples=40)
@given(
    pattern=st.sampled_from([WORDS, r"(a)+|\s", "b*", r"(?=[A-Z])", "日"]),
    documents=st.lists(st.text(st.sampled_from("abA é日1,\n"), max_size=12), max_size=5),
)
def test_counts_are_the_oracle(unmatched: UnmatchedPolicy, pattern: str, documents: list[str]) -> None:
    expected = oracle(pattern, documents, unmatched)
    if not expected:
        with pytest.raises(CorpusError, match="nothing to count"):
            bpeflow.count(iter(documents), pattern=pattern, unmatched=unmatched)
        return
    counts = bpeflow.count(iter(documents), pattern=pattern, unmatched=unmatched)
    assert dict(counts) == expected
    assert (counts.pattern, counts.unmatched) == (pattern, unmatched)


@pytest.mark.parametrize("unmatched", ["isolate", "drop"])
def test_the_share_of_unmatched_text_is_exact(
    unmatched: UnmatchedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text(TEXT, encoding="utf-8")
    options = {"pattern": WORDS, "unmatched": unmatched, "separator": "||", "special_tokens": []}
    expected = {"matched_bytes": 23, "unmatched_bytes": 11}
    counted = counter(tmp_path, None, **options).count().documents
    assert counted == DocumentStatistics(documents=3, bytes=len(TEXT.encode()), **expected)  # type: ignore[arg-type]
    assert counted.unmatched_example == "', ' in 'Hello, world 12!'"
    several = counter(tmp_path, None, chunk_size=1, executor="processes", num_counter=2, **options).count().documents
    assert several == counted
    monkeypatch.setenv(INSTRUCTIONS_VARIABLE, "regex")
    named = counter(tmp_path, None, pattern="gpt2", separator="||").count().documents
    assert (named.matched_bytes, named.unmatched_bytes) == (0, 0)


MESSAGES = [
    ("drop", WORDS, "WARNING", "pattern: 36.7 % of the text (11 bytes) is matched by nothing and dropped, e.g. ', ' "),
    ("isolate", WORDS, "INFO", "pattern: 36.7 % of the text (11 bytes) is between matches and makes pre-tokens of "),
    ("isolate", "ß", "WARNING", "the pattern 'ß' matches nothing in the corpus, e.g. in 'Hello, world 12!'"),
    ("isolate", r"\p{L}+|\P{L}", "", ""),
    ("drop", r"\p{L}+|\P{L}", "", ""),
    ("isolate", "superbpe", "", ""),
]


@pytest.mark.parametrize(("unmatched", "pattern", "level", "message"), MESSAGES)
def test_unmatched_text_is_reported(
    unmatched: str, pattern: str, level: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        bpeflow.count(iter(["Hello, world 12!", "naïve – ça"]), pattern=pattern, unmatched=unmatched)
    reported = [(r.levelname, r.getMessage()) for r in caplog.records if "pattern" in r.getMessage()[:12]]
    assert [(found, text[: len(message)]) for found, text in reported] == ([(level, message)] if level else [])


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("text", "dé||ab||cdé, ef", "at byte 13;"),
        ("text.jsonl", '{"text": "ab"}\n\n{"text": "é"}\n{"text": "ef, g"}\n', "at line 4;"),
    ],
)
def test_an_error_names_the_file_and_the_position(name: str, content: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    options = {"pattern": WORDS, "separator": "||", "unmatched": "error"}
    for more in ({}, {"executor": "processes", "num_counter": 1}):
        with pytest.raises(CorpusError, match=rf"^{path}: the pattern .* does not match ', ' in '.*', {place}"):
            bpeflow.count(path, **options, **more)
    path.write_text(content.replace(", ", ""), encoding="utf-8")
    assert bpeflow.count(path, **options)


def test_an_error_in_an_iterable_names_the_position() -> None:
    with pytest.raises(CorpusError, match=r"^<documents>: .* does not match '-' in 'c-d', at byte 3 of its documents'"):
        bpeflow.count(iter(["ab", "c-d"]), pattern=WORDS, unmatched="error")


def test_segments_of_another_policy_are_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, run = tmp_path / "corpus", tmp_path / "run"
    corpus.mkdir()
    (corpus / "text").write_text("ab, cd||" * 100, encoding="utf-8")
    options = {"pattern": WORDS, "separator": "||", "segment_size": 300}
    fail_after(1, counter(corpus, run, **options), monkeypatch)
    with pytest.raises(ResumeError, match="unmatched: 'isolate' → 'drop'"):
        counter(corpus, run, **options, unmatched="drop").count()
    counted = counter(corpus, run, **options).count()
    assert dict(counted.counts) == {b"ab": 100, b", ": 100, b"cd": 100}
    assert (counted.documents.matched_bytes, counted.documents.unmatched_bytes) == (400, 200)
    assert counted.documents.unmatched_example == "', ' in 'ab, cd'"


def test_the_policy_does_not_matter_for_a_named_pattern(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(TEXT, encoding="utf-8")
    fingerprints = [counter(tmp_path, None, unmatched=policy).fingerprint for policy in ("isolate", "drop", "error")]
    assert fingerprints[0] == fingerprints[1] == fingerprints[2]


def test_counts_keep_their_pattern(tmp_path: Path) -> None:
    counts = bpeflow.count(iter([TEXT]), pattern=WORDS, unmatched="drop")
    counts.save(tmp_path / "counts.npz")
    copies = [PretokenCounts.load(tmp_path / "counts.npz"), pickle.loads(pickle.dumps(counts))]
    assert [(copy.pattern, copy.unmatched) for copy in copies] == [(WORDS, "drop")] * 2
    assert copies == [counts] * 2
    plain = PretokenCounts.from_items(counts.items())
    assert plain == counts  # compared without the pattern
    assert plain.pattern is None
    plain.save(tmp_path / "plain.npz")
    assert PretokenCounts.load(tmp_path / "plain.npz").pattern is None


def test_a_policy_that_does_not_exist_is_refused_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "counts.npz"
    counts = PretokenCounts.from_items([(b"a", 1)])
    arrays = {"version": np.array([1]), "data": counts.data, "offsets": counts.offsets, "counts": counts.counts}
    np.savez(path, **arrays, pattern=np.array(WORDS), unmatched=np.array("keep"))
    with pytest.raises(FormatError, match=rf"{path}: unmatched is 'keep'; it must be one of error, isolate, drop"):
        PretokenCounts.load(path)


def test_manifests_of_earlier_versions_are_read() -> None:
    written = json.loads('{"documents": 1, "skipped_documents": 0, "bytes": 3, "sources": []}')
    assert DocumentStatistics(**{**written, "sources": ()}).unmatched_bytes == 0
