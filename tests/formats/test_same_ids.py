"""bpeflow, tiktoken and HuggingFace tokenizers give the same ids with the same tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from peers import (
    CHARACTERS,
    SPECIAL_TOKENS,
    Encode,
    encoders,
    huggingface_encoder,
    published_spec,
    read_ranks,
    tiktoken_encoder,
    train,
)
from real_data import real_data, real_text, real_text_start
from superword_tokenizers import train_superwords

import bpeflow
from bpeflow.errors import FormatError
from bpeflow.formats import any_format as formats
from bpeflow.formats import gpt2
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab

CORPORA = ["c4_2MB", "code_20MB", "docs_30MB", "multilingual_20MB", "tinystories_3MB", "wiki_150MB", "wikitext2_2MB"]
PATTERNS = [*sorted(NAMED_PATTERNS), "superwords"]
PUBLISHED = ["gpt2", "r50k_base", "cl100k_base", "o200k_base"]
MEGABYTE = 1_000_000

texts = st.text(st.sampled_from(CHARACTERS), max_size=40)
texts_with_specials = st.lists(texts | st.sampled_from([*SPECIAL_TOKENS, "<|pad|", " the", "aaaa"]), max_size=6).map(
    "".join
)


@cache
def start(corpus: str) -> str:
    return real_text_start(corpus, 100_000)


def trained(pattern: str) -> TokenizerSpec:
    """Train a vocabulary on all kinds of text, including the characters of the random texts."""
    text = "".join(start(corpus) for corpus in CORPORA) + CHARACTERS * 50
    if pattern == "superwords":
        return train_superwords(text, 4000, 6000, SPECIAL_TOKENS)
    return train(text, pattern, 6000)


@cache
def trained_encoders(pattern: str) -> tuple[Tokenizer, dict[str, Encode]]:
    return Tokenizer.from_spec(trained(pattern)), encoders(trained(pattern))


@cache
def published(name: str) -> tuple[Tokenizer, Any]:
    """Return bpeflow's and tiktoken's tokenizer of the same published files."""
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    public = pytest.importorskip("tiktoken_ext.openai_public", reason="tiktoken is not installed")
    folder = real_data("vocabs")
    if name == "gpt2":
        paths = (folder / "gpt2.encoder.json", folder / "gpt2.vocab.bpe")
        load = pytest.importorskip("tiktoken.load").data_gym_to_mergeable_bpe_ranks
        ranks = load(vocab_bpe_file=str(paths[1]), encoder_json_file=str(paths[0]))
        spec = TokenizerSpec(gpt2.load_files(*paths))
    else:
        ranks, spec = read_ranks(folder / f"{name}.tiktoken"), published_spec(name)
    with pytest.MonkeyPatch.context() as patch:  # no downloads
        patch.setattr(public, "load_tiktoken_bpe", lambda *_, **__: ranks)
        patch.setattr(public, "data_gym_to_mergeable_bpe_ranks", lambda *_, **__: ranks)
        theirs = tiktoken.Encoding(**getattr(public, name)())
    return Tokenizer.from_spec(spec), theirs


def assert_same(text: str, ours: list[int], theirs: list[int], decode: Callable[[list[int]], bytes]) -> None:
    """Fail with the first difference between two encodings, instead of all their ids."""
    if ours == theirs:
        return
    at = next(
        (i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), min(len(ours), len(theirs))
    )
    around = decode(ours[max(0, at - 5) : at + 5]), decode(theirs[max(0, at - 5) : at + 5])
    pytest.fail(f"token {at}: {ours[at : at + 5]} and {theirs[at : at + 5]}, around: {around}")


def compare_with_peers(pattern: str, text: str) -> None:
    tokenizer, peers = trained_encoders(pattern)
    ours = tokenizer.encode(text)
    for theirs in peers.values():
        assert_same(text, ours, theirs(text), tokenizer.decode_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("corpus", CORPORA)
def test_three_tools_agree_on_real_text(pattern: str, corpus: str) -> None:
    compare_with_peers(pattern, start(corpus))


@pytest.mark.large
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("corpus", CORPORA)
def test_three_tools_agree_on_whole_corpora(pattern: str, corpus: str) -> None:
    for document in documents(corpus):
        compare_with_peers(pattern, document)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=texts_with_specials)
def test_three_tools_agree_on_any_text(pattern: str, text: str) -> None:
    compare_with_peers(pattern, text)


letters = st.text(st.sampled_from("aab "), max_size=16)
tables = st.dictionaries(
    st.text(st.sampled_from("ab "), min_size=1, max_size=9), st.integers(1, 3), min_size=1, max_size=9
)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    table=tables, texts=st.lists(letters, max_size=4), first=st.booleans(),
    specials=st.lists(st.sampled_from(["<s>", "aa", "ba", "b"]), max_size=2, unique=True),
    tie_break=st.sampled_from(["greatest_bytes", "smallest_ids", "huggingface"]),
)  # fmt: skip
def test_all_agree_on_any_learned_vocabulary(
    table: dict[str, int], texts: list[str], first: bool, specials: list[str], tie_break: str
) -> None:
    """A format that cannot hold the vocabulary is skipped, because it raises `FormatError`."""
    assume(tie_break == "huggingface" or "b" not in specials)
    learned = bpeflow.learn_merges(table, 256 + len(specials) + 12, specials, tie_break=tie_break)
    vocab = Vocab.build(learned.pairs, specials, special_tokens_first=first, reuse_tokens=tie_break == "huggingface")
    compare_all_encoders(TokenizerSpec(vocab), texts)


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data(), texts=st.lists(letters, max_size=4), whole_tokens=st.booleans())
def test_all_agree_on_any_list_of_merges(data: st.DataObject, texts: list[str], whole_tokens: bool) -> None:
    """Also on lists that were never learned: in any order, with several merges that make the same string."""
    tokens, merges = [b"a", b"b", b" "], []
    for _ in range(data.draw(st.integers(0, 8))):
        merge = data.draw(st.tuples(st.sampled_from(tokens), st.sampled_from(tokens)).filter(lambda m: m not in merges))
        merges.append(merge)
        tokens.append(merge[0] + merge[1])
    vocab = Vocab.build(merges, ["<s>"], reuse_tokens=True)
    order = data.draw(st.permutations(merges) | st.just(merges))
    compare_all_encoders(TokenizerSpec(vocab.replaced(merges=tuple(order)), "gpt2", whole_tokens), texts)


def compare_all_encoders(spec: TokenizerSpec, texts: list[str]) -> None:
    tokenizer = Tokenizer.from_spec(spec)
    with TemporaryDirectory() as folder:
        for name, encoder in (("tiktoken", tiktoken_encoder), ("huggingface", huggingface_encoder)):
            with suppress(FormatError):
                encode = encoder(formats.write(spec, Path(folder), name)[0])
                for text in texts:
                    assert (name, encode(text)) == (name, tokenizer.encode(text))


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("corpus", CORPORA)
def test_published_vocabularies_give_tiktokens_ids(name: str, corpus: str) -> None:
    compare_with_tiktoken(name, start(corpus))


@pytest.mark.large
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("corpus", CORPORA)
def test_published_vocabularies_give_tiktokens_ids_on_whole_corpora(name: str, corpus: str) -> None:
    for document in documents(corpus):
        compare_with_tiktoken(name, document)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
@given(text=texts | st.lists(st.sampled_from(["<|endoftext|>", "<|endofprompt|>", " the", "aaaa", "\n"])).map("".join))
def test_published_vocabularies_give_tiktokens_ids_for_any_text(name: str, text: str) -> None:
    compare_with_tiktoken(name, text)


def compare_with_tiktoken(name: str, text: str) -> None:
    tokenizer, theirs = published(name)
    ids = theirs.encode(text, allowed_special="all")
    assert_same(text, tokenizer.encode(text), ids, tokenizer.decode_bytes)
    assert tokenizer.decode_bytes(ids) == text.encode()


def documents(corpus: str) -> list[str]:
    """Return the whole corpus in pieces of a few megabytes, cut at special tokens."""
    pieces, size = [""], 0
    for document in real_text(corpus).decode().split("<|endoftext|>"):
        if size > 4 * MEGABYTE:
            pieces.append("")
            size = 0
        pieces[-1] += document + "<|endoftext|>"
        size += len(document)
    return pieces


@pytest.mark.slow
def test_special_tokens_and_patterns_of_published_files_are_known_without_a_sidecar(tmp_path: Path) -> None:
    for name in PUBLISHED[1:]:
        ours, theirs = published(name)
        assert ours.special_tokens == theirs._special_tokens
        assert NAMED_PATTERNS[ours.pattern] == theirs._pat_str
        assert ours.vocab_size == theirs.n_vocab
