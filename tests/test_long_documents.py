"""One long document is counted and encoded in parts with every pattern that is compiled, and the result is the same."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest
from available import skip_missing
from pydantic import ByteSize

import bpeflow
from bpeflow import Tokenizer
from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy
from bpeflow.config import CountSettings
from bpeflow.corpus.documents import Delimiters
from bpeflow.corpus.files import InputFile
from bpeflow.corpus.split import plan_chunks
from bpeflow.corpus.text_rules import TextRules
from bpeflow.counting.count import CorpusCounter
from bpeflow.pretokenize.native import why_regex
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer import parallel
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS

TEXT = "Ein Wort, 12 mots! Привет, мир (x = 345) を見て。\n中文字，的。\t…" * 1500
WORDS = r"[\p{L}\p{M}]+|\p{N}"

CASES: list[tuple[Pattern, UnmatchedPolicy, tuple[NormalizerName, ...]]] = [
    (WORDS, "isolate", ()),
    (WORDS, "drop", ()),
    (WORDS + r"|[^\p{L}\p{M}\p{N}]", "error", ()),
    (WORDS, "drop", ("nfkc", "lowercase")),
    ("kimi_k2", "isolate", ()),
    ("deepseek_v3", "isolate", ("nfc",)),
    ("superbpe", "isolate", ()),
]
every_case = pytest.mark.parametrize(("pattern", "unmatched", "normalizer"), CASES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    (path := tmp_path / "document.txt").write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("pattern", "unmatched", "normalizer", "executor"),
    [*((*case, "threads") for case in CASES), (*CASES[5], "processes")],
)
def test_a_document_is_counted_in_parts(
    path: Path,
    pattern: Pattern,
    unmatched: UnmatchedPolicy,
    normalizer: tuple[NormalizerName, ...],
    executor: Literal["threads", "processes"],
) -> None:
    pretokenizer = load_pretokenizer(pattern, unmatched, normalizer)
    rules = TextRules(pretokenizer, Delimiters(None))
    chunks = [*plan_chunks(InputFile(str(path), path.stat().st_size), 20_000, rules)]
    assert max(chunk.length for chunk in chunks) < 21_000
    counted = bpeflow.count(
        path, pattern, unmatched=unmatched, normalizer=normalizer, chunk_size=20_000, num_counter=2, executor=executor
    )
    expected = Counter(pretokenizer.pretokens(pretokenizer.normalizer(TEXT)))
    assert dict(counted) == {token.encode(): count for token, count in expected.items()}


@every_case
def test_a_document_is_encoded_in_parts(
    path: Path,
    pattern: Pattern,
    unmatched: UnmatchedPolicy,
    normalizer: tuple[NormalizerName, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel, "PART_BYTES", 20_000)
    tokenizer = Tokenizer.train(path, 300, pattern=pattern, unmatched=unmatched, normalizer=normalizer)
    ids = tokenizer.encode(TEXT)
    assert len([*parallel.cut_text(TEXT.encode(), tokenizer._pretokenizer, NO_SPECIAL_TOKENS)]) > 4
    assert tokenizer.encode_to_numpy(TEXT, num_threads=2).tolist() == ids
    assert [*tokenizer.encode_iterable(TEXT[start : start + 999] for start in range(0, len(TEXT), 999))] == ids
    tokenizer.encode_file(path, out := path.with_suffix(".bin"), chunk_size=20_000, num_threads=2)
    assert bpeflow.load_tokens(out).tolist() == ids


@pytest.mark.parametrize("pattern", ["gpt2", WORDS, "deepseek_v3"])
def test_medium_inputs_are_counted_in_threads(path: Path, pattern: str) -> None:
    """`regex`, which holds the interpreter lock, is used in threads for up to 4 MB only."""
    path.write_text(TEXT * 50, encoding="utf-8")
    counter = CorpusCounter(
        CountSettings(input=(str(path),), pattern=pattern, num_counter=2, chunk_size=ByteSize(1_000_000))
    )
    counting = counter.count().counting
    assert (counting.in_process, counting.threads) == (True, 2)


def test_workers_never_ask_the_regex_module(path: Path) -> None:
    """What is sent to processes and Ray tasks brings the tables of the pattern along."""
    rules = TextRules(load_pretokenizer("deepseek_v3"), Delimiters(None))
    tokenizer = Tokenizer.train(path, 300, pattern=WORDS)
    assert rules.scanner == "native"
    program = """
import pickle, sys
sys.modules["regex"] = None  # importing it fails
rules, tokenizer = pickle.loads(sys.stdin.buffer.read())
from bpeflow.counting.table import new_table
table = new_table(rules.pretokenizer, rules.scanner)
table.count("one 中文字 12".encode())
assert rules.cutter.find_cut("one 中文字 12".encode(), 1) == 3
print(len(table), tokenizer.encode("mots 12"))
"""
    data = pickle.dumps((rules, tokenizer))
    result = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, check=True)
    assert result.stdout.decode().split(maxsplit=1) == ["4", f"{tokenizer.encode('mots 12')}\n"]
