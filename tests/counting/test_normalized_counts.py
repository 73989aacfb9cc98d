"""Counts of a corpus with a normalizer: those of the normalized documents, however the corpus is cut and counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from normalized_text import CHANGED_PARTS, NORMALIZERS, changed_text
from segmented import counter

import bpeflow
from bpeflow.counting import table
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError, CorpusError, FormatError, ResumeError
from bpeflow.pretokenize.normalizer import load_normalizer
from bpeflow.pretokenize.regex import load_pretokenizer

END = "<|endoftext|>"
MIXED = "Words e\u0301té. ＜|endoftext|＞ ﬁ ガ.\n。\n中文 \u1112\u1161\u11ab ΑΣ. "
documents = st.lists(changed_text | st.lists(st.sampled_from(CHANGED_PARTS)).map("".join), max_size=4)


def expected(texts: list[str], pattern: str, names: tuple[str, ...]) -> dict[bytes, int]:
    """Return the counts by their definition."""
    normalizer, pretokenizer = load_normalizer(names), load_pretokenizer(pattern)
    counts = Counter(token.encode() for text in texts for token in pretokenizer.pretokens(normalizer(text)))
    return dict(counts)


@settings(max_examples=60)
@given(
    texts=documents.filter(lambda texts: any(texts)),
    pattern=st.sampled_from(["gpt2", "cl100k", "o200k", "qwen2", r"\w+|\s"]),
    names=st.sampled_from(NORMALIZERS),
    chunk_size=st.integers(1, 40),
)
def test_counts_do_not_depend_on_chunks(
    texts: list[str], pattern: str, names: tuple[str, ...], chunk_size: int, tmp_path: Path
) -> None:
    path = tmp_path / "text"
    path.write_bytes(END.join(texts).encode())
    counts = bpeflow.count(path, pattern, [END], normalizer=names, chunk_size=chunk_size)
    assert counts == expected(texts, pattern, names)
    assert (counts.pattern, counts.normalizer) == (pattern, names)


@pytest.mark.usefixtures("scanner")
@pytest.mark.parametrize("names", [("nfkc", "lowercase"), ("nfd",)])
def test_counts_of_every_kind_of_input(names: tuple[str, ...], tmp_path: Path) -> None:
    texts = [MIXED * 3, "ASCII only. ", MIXED]
    (tmp_path / "text.txt").write_text(END.join(texts), encoding="utf-8", newline="")
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "ascii.jsonl").write_text('{"text": "Plain"}\n{"text": "Text"}\n')
    wanted = expected(texts, "cl100k", names)
    options: dict[str, object] = {"normalizer": names}
    for corpus in (tmp_path / "text.txt", tmp_path / "lines.jsonl", iter(texts)):
        assert bpeflow.count(corpus, "cl100k", [END], **options) == wanted  # type: ignore[arg-type]
    plain = bpeflow.count(tmp_path / "ascii.jsonl", "cl100k", [END], **options)  # type: ignore[arg-type]
    assert plain == expected(["Plain", "Text"], "cl100k", names)


def test_counts_of_worker_processes(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(MIXED * 200, encoding="utf-8", newline="")
    counts = bpeflow.count(tmp_path / "text", normalizer="nfkc", executor="processes", num_counter=2, chunk_size=700)
    assert counts == expected([MIXED * 200], "gpt2", ("nfkc",))


def test_counts_of_segments(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text").write_text(MIXED * 200, encoding="utf-8", newline="")
    options: dict[str, object] = {"segment_size": 3_000, "normalizer": ["nfd", "lowercase"], "pattern": "cl100k"}
    counted = counter(tmp_path / "corpus", tmp_path / "run", **options).count()
    assert counted.counting.segments is not None
    assert counted.counts == expected([MIXED * 200], "cl100k", ("nfd", "lowercase"))


def test_ascii_is_counted_in_one_pass(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("plain text" + END, encoding="utf-8")
    with patch.object(table.NativeTable, "count", side_effect=AssertionError):
        assert bpeflow.count(tmp_path / "text", special_tokens=[END], normalizer="nfkc")
        with pytest.raises(AssertionError):
            bpeflow.count(tmp_path / "text", special_tokens=[END], normalizer="lowercase")


def test_replaced_bytes_are_normalized_with_the_others(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"\xff e\xcc\x81 \xc3")
    counts = bpeflow.count(tmp_path / "text", normalizer=["nfc"], invalid_utf8="replace")
    assert counts == expected(["\ufffd e\u0301 \ufffd"], "gpt2", ("nfc",))
    with pytest.raises(CorpusError, match="is not UTF-8 at byte 0 "):
        bpeflow.count(tmp_path / "text", normalizer=["nfc"])


def test_unmatched_text_has_its_position_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(f"é{END}éé!", encoding="utf-8")
    options: dict[str, object] = {"normalizer": "nfd", "unmatched": "error"}
    with pytest.raises(CorpusError, match=r"text: the pattern .* does not match '!' in '.*!', at byte 19;"):
        bpeflow.count(tmp_path / "text", r"[\w\u0301]+", [END], **options)  # type: ignore[arg-type]


def test_counts_keep_their_normalizer(tmp_path: Path) -> None:
    counts = bpeflow.count(iter(["É"]), normalizer=["nfd", "lowercase"])
    counts.save(tmp_path / "counts.npz")
    assert PretokenCounts.load(tmp_path / "counts.npz").normalizer == ("nfd", "lowercase")
    assert (counts + counts).normalizer == ("nfd", "lowercase")
    other = bpeflow.count(iter(["É"]))
    assert other.normalizer == ()
    assert (counts + other).pattern is None
    damaged = PretokenCounts(counts.data, counts.offsets, counts.counts, "gpt2", "isolate", ("nfx",))  # type: ignore[arg-type]
    damaged.save(tmp_path / "damaged.npz")
    with pytest.raises(FormatError, match=r"damaged\.npz: "):
        PretokenCounts.load(tmp_path / "damaged.npz")


def test_unknown_normalizers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^normalizer\.0: .*'nfc', 'nfd', 'nfkc', 'nfkd' or 'lowercase'"):
        bpeflow.count(iter(["a"]), normalizer="NFC")  # type: ignore[arg-type]


def test_a_run_with_another_normalizer_is_not_resumed(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("low lower", encoding="utf-8")
    run = {"input": tmp_path / "text", "vocab_size": 258, "out_dir": tmp_path / "run"}
    bpeflow.train({**run, "normalizer": "nfc"})
    assert bpeflow.train({**run, "normalizer": ["nfc"], "resume": True}).report.corpus is not None
    with pytest.raises(ResumeError, match=r"normalizer: \['nfc'\] → \['nfkc'\]"):
        bpeflow.train({**run, "normalizer": "nfkc", "resume": True})
    with pytest.raises(ResumeError, match=r"normalizer: \['nfc'\] → null"):
        bpeflow.train({**run, "resume": True})
