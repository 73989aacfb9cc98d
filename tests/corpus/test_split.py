from __future__ import annotations

import lzma
import pickle
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from real_data import real_data
from rules import plain_file, rules, texts_of

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus import split
from bpeflow.corpus.documents import Chunk, DocumentStatistics
from bpeflow.corpus.files import InputFile
from bpeflow.corpus.find import InputRules, find_inputs
from bpeflow.corpus.open_chunk import ChunkBuffer, open_chunk
from bpeflow.corpus.reader import CorpusReader
from bpeflow.corpus.split import plan_chunks
from bpeflow.corpus.text_rules import TextRules
from bpeflow.errors import CorpusError
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import Pretokenizer, load_pretokenizer

#: Looks behind, so it cannot be compiled, and matches across every safe cut of the named patterns.
NOT_COMPILED = r"\w+ ?\w|\s+|(?<=x)."

#: Custom patterns that are compiled; the second leaves gaps.
COMPILED = [r"\p{L}+|\P{L}", r"[a-z]+ ?|\p{Han}"]

# Delimiters that overlap themselves, each other and the safe cuts of patterns, and text made of their parts.
DELIMITERS = ["\n\n", "\n", "aa", "aba", "a b", "b a", "a a", " a", "|", "||", "<|e|>", "<|e|><|x|>", "|><", "x|>", "é"]
PARTS = ["a", "b", "x", " ", "\n", "|", "<", ">", "é", "1", "!", "\r\n", "  ", "字", "。", "\u3000", "{", *DELIMITERS]
some_run = st.builds(lambda part, times: part * times, st.sampled_from(PARTS), st.sampled_from([1, 1, 1, 2, 3, 20]))
some_text = st.lists(some_run, max_size=15).map(lambda parts: "".join(parts).encode())
some_bytes = st.lists(st.sampled_from([part.encode() for part in PARTS] + [b"\xc3", b"\xa9", b"\xff"]), max_size=25)
some_delimiter = st.sampled_from(DELIMITERS) | st.text("ab \n|", min_size=1, max_size=4)
some_delimiters = st.tuples(st.none() | some_delimiter, st.lists(some_delimiter, max_size=3))
some_pattern = st.sampled_from([*NAMED_PATTERNS, *COMPILED, NOT_COMPILED])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpus") / "file.txt"


def _oracle(data: bytes, separator: str | None, special_tokens: list[str]) -> list[list[bytes]]:
    """Return the pieces of each document by definition: from left to right, taking the longest delimiter."""
    delimiters = {text.encode() for text in special_tokens} | ({separator.encode()} if separator else set())
    documents: list[list[bytes]] = [[b""]]
    position = 0
    while position < len(data):
        candidates = [delimiter for delimiter in delimiters if data.startswith(delimiter, position)]
        found = max(candidates, key=len, default=None)
        if found is None:
            documents[-1][-1] += data[position : position + 1]
            position += 1
            continue
        position += len(found)
        documents[-1].append(b"")
        if separator and found == separator.encode():
            documents[-1].pop()
            documents.append([b""])
    return documents if documents[-1] != [b""] else documents[:-1]


def _count(texts: list[str], pretokenizer: Pretokenizer) -> Counter[str]:
    return Counter(token for text in texts for token in pretokenizer.pretokens(text))


def _plan_and_count(chunks: list[Chunk], text_rules: TextRules) -> tuple[Counter[str], DocumentStatistics]:
    counts: Counter[str] = Counter()
    statistics = DocumentStatistics()
    for chunk in chunks:
        texts, of_chunk = texts_of(open_chunk(chunk, text_rules))
        counts += _count([text.decode() for text in texts], text_rules.pretokenizer)
        statistics += of_chunk
    return counts, statistics


def _assert_covers(chunks: list[Chunk], size: int) -> None:
    ends = [chunk.offset + chunk.length for chunk in chunks]
    assert [chunk.offset for chunk in chunks] == [0, *ends][: len(chunks)]
    assert [chunk.ends_file for chunk in chunks] == [end == size for end in ends]
    assert ends[-1:] == ([size] if size else [])
    assert all(chunk.length > 0 for chunk in chunks)


@pytest.mark.slow
@settings(max_examples=120)
@given(data=some_text, delimiters=some_delimiters, pattern=some_pattern, window=st.integers(2, 40), cut=st.booleans())
@example(data=b"a\n\n\nb\n\n\n\n", delimiters=("\n\n", []), pattern="gpt2", window=2, cut=True)
@example(data=b"1<|e|><|x|>2<|e|>3", delimiters=("<|e|>", ["<|e|><|x|>"]), pattern="gpt2", window=2, cut=True)
@example(data=b"a b a b a b a b", delimiters=(None, ["a b"]), pattern="gpt2", window=2, cut=True)
def test_every_chunk_size_has_the_result_of_a_single_pass(
    path: Path, data: bytes, delimiters: tuple[str | None, list[str]], pattern: str, window: int, cut: bool
) -> None:
    path.write_bytes(data)
    pretokenizer = load_pretokenizer(pattern)
    documents = _oracle(data, *delimiters)
    expected = _count([piece.decode() for document in documents for piece in document], pretokenizer)
    with patch.object(split, "WINDOW_BYTES", window):
        for chunk_size in range(1, len(data) + 2):
            plan = plan_chunks(plain_file(path, len(data)), chunk_size, rules(*delimiters, pattern, cut=cut))
            chunks = list(plan)
            _assert_covers(chunks, len(data))
            counts, statistics = _plan_and_count(chunks, rules(*delimiters, pattern))
            assert counts == expected
            assert statistics == DocumentStatistics(len(documents), 0, len(data))


@pytest.mark.slow
@settings(max_examples=150)
@given(parts=some_bytes, delimiters=some_delimiters, pattern=some_pattern, policy=st.sampled_from(["replace", "skip"]))
def test_every_chunk_size_treats_invalid_utf8_alike(
    path: Path,
    parts: list[bytes],
    delimiters: tuple[str | None, list[str]],
    pattern: str,
    policy: InvalidUtf8Policy,
) -> None:
    data = b"".join(parts)
    path.write_bytes(data)
    pretokenizer = load_pretokenizer(pattern)
    documents = _oracle(data, *delimiters)
    kept = [document for document in documents if policy == "replace" or _valid(document)]
    texts = [piece.decode(errors="replace") for document in kept for piece in document]
    for chunk_size in range(1, len(data) + 2):
        file = plain_file(path, len(data))
        text_rules = rules(*delimiters, pattern, policy)
        counts, statistics = _plan_and_count(list(plan_chunks(file, chunk_size, text_rules)), text_rules)
        assert counts == _count(texts, pretokenizer)
        assert statistics == DocumentStatistics(len(documents), len(documents) - len(kept), len(data))


def _valid(document: list[bytes]) -> bool:
    try:
        [piece.decode() for piece in document]
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["wiki_150MB", "code_20MB", "multilingual_20MB", "docs_30MB", "tinystories_3MB"])
@pytest.mark.parametrize("separator", ["<|endoftext|>", "\n\n", None])
def test_real_text_has_the_same_counts_in_any_chunks(path: Path, corpus: str, separator: str | None) -> None:
    with lzma.open(real_data(f"corpora/{corpus}.txt.xz")) as stream:
        data = stream.read(80_000).decode(errors="ignore").encode()  # without the character that was cut off
    path.write_bytes(data)
    pretokenizer = load_pretokenizer("cl100k")
    text_rules = rules(separator, ["<|endoftext|>", " the"], "cl100k")
    documents = _oracle(data, separator, ["<|endoftext|>", " the"])
    expected = _count([piece.decode() for document in documents for piece in document], pretokenizer)
    for chunk_size in (777, 30_000):
        chunks = list(plan_chunks(plain_file(path, len(data)), chunk_size, text_rules))
        _assert_covers(chunks, len(data))
        counts, statistics = _plan_and_count(chunks, text_rules)
        assert counts == expected
        assert statistics.documents == len(documents)


def _pieces(
    path: Path, data: bytes, chunk_size: int, separator: str | None, pattern: str = "gpt2", cut: bool = True
) -> list[bytes]:
    path.write_bytes(data)
    chunks = plan_chunks(plain_file(path, path.stat().st_size), chunk_size, rules(separator, pattern=pattern, cut=cut))
    return [bytes(ChunkBuffer().read(chunk)) for chunk in chunks]


def test_a_chunk_ends_after_the_first_separator_past_its_size(path: Path) -> None:
    assert _pieces(path, b"aa|bb|cc|dd", 4, "|") == [b"aa|bb|", b"cc|dd"]
    assert _pieces(path, b"aa||bb||cc||dd", 4, "||") == [b"aa||", b"bb||", b"cc||", b"dd"]  # ... or exactly at it


def test_a_separator_is_preferred_to_a_cut_within_reach(path: Path) -> None:
    assert _pieces(path, b"a b c d e|f", 4, "|") == [b"a b c", b" d e|", b"f"]
    assert _pieces(path, b"a b c d|f g", 4, "|") == [b"a b c d|", b"f g"]


@pytest.mark.parametrize(("pattern", "cut"), [(NOT_COMPILED, True), ("gpt2", False), (COMPILED[0], False)])
def test_documents_stay_whole_if_the_pattern_or_the_caller_requires_it(path: Path, pattern: str, cut: bool) -> None:
    document = b"one two " * 100_000
    assert _pieces(path, document + b"|" + document, 1000, "|", pattern, cut) == [document + b"|", document]


def test_a_long_document_is_cut_near_the_chunk_size(path: Path) -> None:
    document = b"one two " * 100_000
    chunks = _pieces(path, document, 1000, "|")
    assert len(chunks) > 790
    assert all(1000 <= len(chunk) < 1010 for chunk in chunks[:-1])


# Repeated, they are documents without a separator.
UNBROKEN = {
    "Chinese without spaces": "今天天气很好，我们去公园散步。“真的吗？”她问：「当然！」",
    "Japanese without spaces": "吾輩は猫である。名前はまだ無い。どこで生れたか、とんと見当がつかぬ。",
    "minified code": "var a=b;c(d);for(let i=0;i<n;i++){e[i]=f.g(h,'i')?j:k||\"l\"}",
    "hexadecimal digits": "d41d8cd98f00b204e9800998ecf8427e",
    "one long line": "Вот дом, который построил Джек; και το σπίτι, and the house that Jack built. ",
    "a word a line": "გამარჯობა\nनमस्ते\n안녕\nשלום\nпривет\n😀\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [*NAMED_PATTERNS, COMPILED[0]])
@pytest.mark.parametrize("kind", UNBROKEN)
def test_a_document_without_separators_is_divided_evenly_with_the_same_counts(
    path: Path, kind: str, pattern: str
) -> None:
    line = UNBROKEN[kind]
    data = (line * (150_000 // len(line.encode()))).encode()
    chunks = _pieces(path, data, 37_500, "<|endoftext|>", pattern)
    assert b"".join(chunks) == data
    assert len(chunks) == 4
    assert all(37_500 <= len(chunk) < 37_600 for chunk in chunks[:-1])
    pretokenizer = load_pretokenizer(pattern)
    parts = Counter[str]()
    for chunk in chunks:
        parts.update(pretokenizer.pretokens(chunk.decode()))
    assert parts == Counter(pretokenizer.pretokens(data.decode()))


@pytest.mark.parametrize("pattern", [*NAMED_PATTERNS, r"\w+|\s+|[^\w\s]+", NOT_COMPILED])
@pytest.mark.parametrize("run", ["a", "字", " ", "="])
def test_text_that_cannot_be_cut_is_one_chunk(path: Path, run: str, pattern: str) -> None:
    data = (run * (2_000_000 // len(run.encode()))).encode()
    assert _pieces(path, data, 10_000, "<|endoftext|>", pattern) == [data]


def test_a_pattern_that_is_not_compiled_is_not_cut_where_named_ones_are(path: Path) -> None:
    data = (UNBROKEN["minified code"] * 10_000).encode()
    assert _pieces(path, data, 10_000, "<|endoftext|>", NOT_COMPILED) == [data]


def test_empty_files_have_no_chunks(path: Path) -> None:
    assert _pieces(path, b"", 10, "|") == []


def test_files_follow_one_another_and_never_share_a_chunk(tmp_path: Path) -> None:
    for name, content in [("a", b"one"), ("b", b""), ("c", b"two|three")]:
        (tmp_path / name).write_bytes(content)
    chunks = list(CorpusReader(rules("|"), 4).read(find_inputs([tmp_path], InputRules())))
    a, c = str(tmp_path / "a"), str(tmp_path / "c")
    assert chunks == [Chunk(a, 0, 3, True), Chunk(c, 0, 4, False), Chunk(c, 4, 5, True)]


def test_a_file_that_shrank_since_it_was_found_is_an_error(path: Path) -> None:
    path.write_bytes(b"12345")
    with pytest.raises(CorpusError, match="shrank from 6 to 5 bytes"):
        list(plan_chunks(plain_file(path, 6), 10, rules()))


def test_a_file_that_shrinks_while_it_is_planned_is_an_error(path: Path) -> None:
    path.write_bytes(b"a|" * 100_000)
    plan = plan_chunks(plain_file(path, path.stat().st_size), 10, rules("|"))
    next(plan)
    path.write_bytes(b"a|")
    with pytest.raises(CorpusError, match="became shorter while it was read"):
        list(plan)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"cannot read .*gone"):
        list(plan_chunks(plain_file(tmp_path / "gone", 6), 10, rules()))


def test_bytes_appended_since_a_file_was_found_are_not_read(path: Path) -> None:
    path.write_bytes(b"a|b|c")
    plan = plan_chunks(plain_file(path, 3), 10, rules("|"))
    assert list(plan) == [Chunk(str(path), 0, 3, True)]


def test_a_pickled_chunk_is_hardly_larger_than_its_path() -> None:
    chunk = Chunk("/data/corpus.txt", 1 << 40, 1 << 24, False)
    data = pickle.dumps(chunk)
    assert pickle.loads(data) == chunk
    assert len(data) < 150


@pytest.fixture
def sparse_file(tmp_path: Path) -> Iterator[InputFile]:
    """Make a file of 20 MB of zeros, which cannot be cut and take no space on the disk."""
    path = tmp_path / "sparse"
    with path.open("wb") as stream:
        stream.truncate(20_000_000)
    yield plain_file(path, 20_000_000)
    path.unlink()


@pytest.mark.slow
def test_a_document_that_cannot_be_cut_is_planned_in_little_memory(sparse_file: InputFile) -> None:
    tracemalloc.start()
    try:
        chunks = list(plan_chunks(sparse_file, 1000, rules("|", ["<s>"])))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [chunk.length for chunk in chunks] == [20_000_000]
    assert peak < 2_000_000
