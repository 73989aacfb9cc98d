"""The claims of docs/parity.md: which tools learn the same merges, with which setting, and where they differ.

tests/formats/test_same_ids.py compares our encoding with theirs, and tests/backends/test_backends.py compares
`greatest_bytes` with its shared reference.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers import export
from real_data import real_text

import bpeflow
from bpeflow._util.byte_level import from_printable
from bpeflow.errors import InvalidTextError, SpecialTokenError
from bpeflow.formats.ranks import recover_merges
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Merge, Vocab

SMALL = ["c4_2MB", "tinystories_3MB", "wikitext2_2MB"]
LARGE = ["code_20MB", "docs_30MB", "multilingual_20MB", "wiki_150MB"]
CORPORA = [*SMALL, *(pytest.param(name, marks=[pytest.mark.large, pytest.mark.timeout(3600)]) for name in LARGE)]
SIZE = 32_000
END = "<|endoftext|>"

LOWER = TokenizerSpec(Vocab.build([(b"l", b"o"), (b"lo", b"w")], ["<s>"]))

#: Few letters and few distinct counts: nearly every choice is a tie between pairs.
tables = st.dictionaries(
    st.text(st.sampled_from("abcé"), min_size=1, max_size=8), st.sampled_from([1, 1, 1, 2]), min_size=1, max_size=14
)
specials = st.lists(st.sampled_from(["ab", "a", "ca", END]), max_size=3, unique=True)


@cache
def documents(corpus: str) -> list[str]:
    return real_text(corpus).decode().split(END)


@cache
def counts_of(corpus: str) -> bpeflow.PretokenCounts:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.txt"
        path.write_text(END.join(documents(corpus)), encoding="utf-8", newline="")
        return bpeflow.count(path, separator=END)


def train_huggingface(
    texts: Iterable[str] | Path, vocab_size: int, special_tokens: list[str], **options: Any
) -> list[Merge]:
    """Return the merges that HuggingFace's BpeTrainer learns from texts, or from a file."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special_tokens,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        **options,
    )
    if isinstance(texts, Path):
        tokenizer.train([str(texts)], trainer)
    else:
        tokenizer.train_from_iterator(texts, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [(from_printable(left) or b"", from_printable(right) or b"") for left, right in merges]


def train_rustbpe(texts: Iterable[str], vocab_size: int) -> list[Merge]:
    """Return the merges that rustbpe learns, recovered from the ranks that it exports."""
    rustbpe = pytest.importorskip("rustbpe", reason="rustbpe is not installed")
    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator(iter(texts), vocab_size, pattern=NAMED_PATTERNS["gpt2"])
    return recover_merges({bytes(token): rank for token, rank in tokenizer.get_mergeable_ranks()})


def learn(counts: Any, vocab_size: int, special_tokens: list[str], **options: Any) -> list[Merge]:
    return list(bpeflow.learn_merges(counts, vocab_size, special_tokens, **options).pairs)


def repeated(table: dict[str, int]) -> Iterator[str]:
    """Yield each word as often as its count says, each time as a separate text."""
    return (word for word, count in table.items() for _ in range(count))


# ---- equal ----


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA)
def test_huggingface_mode_equals_its_trainer_on_real_text(corpus: str) -> None:
    ours = learn(counts_of(corpus), SIZE, [END], tie_break="huggingface")
    assert first_difference(ours, train_huggingface(documents(corpus), SIZE, [END])) is None


@pytest.mark.parametrize("corpus", CORPORA)
def test_smallest_ids_equal_rustbpe_on_real_text(corpus: str) -> None:
    ours = learn(counts_of(corpus), SIZE, [], tie_break="smallest_ids")
    assert first_difference(ours, train_rustbpe(documents(corpus), SIZE)) is None


@pytest.mark.slow
@given(table=tables, special_tokens=specials)
def test_huggingface_mode_equals_its_trainer_on_ties(table: dict[str, int], special_tokens: list[str]) -> None:
    size = 256 + len(special_tokens) + 20
    assert learn(table, size, special_tokens, tie_break="huggingface") == train_huggingface(
        repeated(table), size, special_tokens
    )


@given(table=tables)
def test_smallest_ids_equal_rustbpe_on_ties(table: dict[str, int]) -> None:
    assert learn(table, 276, [], tie_break="smallest_ids") == train_rustbpe(repeated(table), 276)


def first_difference(ours: list[Merge], theirs: list[Merge]) -> tuple[int, Merge, Merge] | str | None:
    """Return the first rank where two lists of merges differ, which is easier to read than both lists."""
    for rank, (our, their) in enumerate(zip(ours, theirs, strict=False)):
        if our != their:
            return rank, our, their
    return None if len(ours) == len(theirs) else f"{len(ours)} merges and {len(theirs)}"


# ---- different, on purpose or by accident ----


@pytest.mark.parametrize(
    ("text", "whole", "by_lines"),
    [("a\n\n\nb", [(b"\n", b"\n")], []), ("a\r\nb", [], [(b"\r", b"\n")])],
    ids=["empty lines", "CRLF"],
)
def test_huggingface_reads_files_line_by_line(
    text: str, whole: list[Merge], by_lines: list[Merge], tmp_path: Path
) -> None:
    """There a line end always ends a pre-token. Given the whole text, HuggingFace learns the same merges as we do."""
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8", newline="")
    assert learn(bpeflow.count(path, special_tokens=[]), 300, [], tie_break="huggingface") == whole
    assert train_huggingface([text], 300, []) == whole
    assert train_huggingface(path, 300, []) == by_lines


def test_huggingface_learns_from_special_tokens_in_the_text(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(f"ab{END}ab{END}ab{END}", encoding="utf-8")
    ours = learn(bpeflow.count(path, special_tokens=[END]), 300, [END], tie_break="huggingface")
    theirs = train_huggingface([path.read_text(encoding="utf-8")], 300, [END])
    assert ours == [(b"a", b"b")]
    assert b"endoftext" in {left + right for left, right in theirs}


@pytest.mark.parametrize(("limit", "theirs", "ours"), [(5, 4, 4), (4, 3, 4), (3, 2, 3), (2, 2, 2), (1, 2, 1)])
def test_huggingface_treats_max_token_length_as_already_too_long(limit: int, theirs: int, ours: int) -> None:
    """And it does not apply the limit to pairs of bytes."""
    table = {"ab": 9, "abc": 5, "abcd": 3}
    assert longest(train_huggingface(repeated(table), 300, [], max_token_length=limit)) == theirs
    assert longest(learn(table, 300, [], max_token_length=limit)) == ours


def longest(merges: list[Merge]) -> int:
    return max((len(left + right) for left, right in merges), default=1)


def test_tiktoken_refuses_special_tokens_unless_they_are_allowed() -> None:
    theirs, _ = export(LOWER)
    ours = Tokenizer.from_spec(LOWER)
    with pytest.raises(ValueError, match="disallowed special token"):
        theirs.encode("low<s>")
    assert ours.encode("low<s>") == theirs.encode("low<s>", allowed_special="all") == [258, 256]
    assert ours.encode_ordinary("low<s>") == theirs.encode_ordinary("low<s>")
    with pytest.raises(SpecialTokenError):
        ours.encode("low<s>", disallowed_special="all", allowed_special=())


def test_tiktoken_replaces_lone_surrogates() -> None:
    theirs, _ = export(LOWER)
    ours = Tokenizer.from_spec(LOWER)
    assert theirs.encode("a\ud800") == ours.encode("a\ufffd")
    with pytest.raises(InvalidTextError):
        ours.encode("a\ud800")


def test_huggingface_drops_special_tokens_when_decoding() -> None:
    _, theirs = export(LOWER)
    assert theirs.decode([258, 256]) == "low"
    assert (
        theirs.decode([258, 256], skip_special_tokens=False)
        == "low<s>"
        == Tokenizer.from_spec(LOWER).decode([258, 256])
    )


@pytest.mark.large
@pytest.mark.timeout(3600)
def test_huggingface_counts_pairs_in_32_bits() -> None:
    """There 2^31 occurrences of a pair wrap to a negative count, so the slightly rarer pair is merged."""
    word, times = "ab" * 2**14, 2**17
    assert learn({word: times}, 257, []) == [(b"a", b"b")]
    assert train_huggingface(itertools.repeat(word, times), 257, []) == [(b"b", b"a")]
