"""With GPT-2's files, the ids are those of tiktoken and HuggingFace tokenizers; and CS336's interface works on them."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adversarial import adversarial_text
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import real_data, real_text, real_text_start

from bpeflow._util.byte_level import from_printable
from bpeflow.tokenizer.tokenizer import Tokenizer

CORPORA = ["c4_2MB", "tinystories_3MB", "wikitext2_2MB", "multilingual_20MB", "code_20MB", "docs_30MB"]
END = "<|endoftext|>"


def without_unassigned(text: str) -> str:
    """Remove characters that are so new that only some of the libraries classify them as letters."""
    return "".join(character for character in text if unicodedata.category(character) != "Cn")


pieces = adversarial_text.map(without_unassigned) | st.just(END) | st.sampled_from(["<|endo", "the ", " of"])
texts = st.lists(pieces).map("".join)


def corpus(name: str, size: int | None) -> str:
    return real_text_start(name, size) if size else real_text(name).decode()


@pytest.mark.slow
@settings(max_examples=300)
@given(text=texts)
def test_random_text_has_tiktokens_ids(gpt2: Tokenizer, tiktoken_gpt2: Any, text: str) -> None:
    assert gpt2.encode(text) == tiktoken_gpt2.encode(text, allowed_special="all")
    assert gpt2.encode_ordinary(text) == tiktoken_gpt2.encode_ordinary(text)
    ids = gpt2.encode(text)
    assert gpt2.decode_bytes(ids) == tiktoken_gpt2.decode_bytes(ids) == text.encode()


@pytest.mark.slow
@given(text=texts, allowed=st.sampled_from(["all", (), (END,)]), disallowed=st.sampled_from(["all", (), (END,)]))
def test_special_tokens_are_handled_as_by_tiktoken(
    gpt2: Tokenizer, tiktoken_gpt2: Any, text: str, allowed: Any, disallowed: Any
) -> None:
    def outcome(encode: Any) -> Any:
        try:
            allowed_special = allowed if allowed == "all" else set(allowed)
            return encode(text, allowed_special=allowed_special, disallowed_special=disallowed)
        except ValueError:
            return "disallowed"

    assert outcome(gpt2.encode) == outcome(tiktoken_gpt2.encode)


@pytest.mark.slow
@settings(max_examples=300)
@given(text=texts)
def test_random_text_has_huggingfaces_ids_and_offsets(gpt2: Tokenizer, huggingface_gpt2: Any, text: str) -> None:
    theirs = huggingface_gpt2.encode(text)
    ids, offsets = gpt2.encode_with_offsets(text)
    assert ids == theirs.ids
    assert offsets == theirs.offsets


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPORA)
def test_the_start_of_each_corpus_has_the_ids_of_both(
    encoder: str, gpt2: Tokenizer, tiktoken_gpt2: Any, huggingface_gpt2: Any, name: str
) -> None:
    check_corpus(gpt2, tiktoken_gpt2, huggingface_gpt2, corpus(name, 300_000 if encoder == "native" else 30_000))


@pytest.mark.large
@pytest.mark.parametrize("name", [*CORPORA, "wiki_150MB"])
def test_whole_corpora_have_the_ids_of_both(
    gpt2: Tokenizer, tiktoken_gpt2: Any, huggingface_gpt2: Any, name: str
) -> None:
    text = corpus(name, None)
    for start in range(0, len(text), 10_000_000):  # the peers need a hundred bytes per token
        check_corpus(gpt2, tiktoken_gpt2, huggingface_gpt2, text[start : start + 10_000_000])


def check_corpus(gpt2: Tokenizer, tiktoken: Any, huggingface: Any, text: str) -> None:
    ids = gpt2.encode_to_numpy(text)
    assert ids.dtype == np.uint16
    assert np.array_equal(ids, tiktoken.encode_to_numpy(text, allowed_special="all"))
    assert np.array_equal(ids, huggingface.encode(text).ids)
    assert np.array_equal(ids, np.fromiter(gpt2.encode_iterable(text.splitlines(keepends=True)), np.uint16))
    assert gpt2.decode(ids) == text
    assert gpt2.count_tokens(text) == len(ids)


# CS336's interface: dicts made from the files as in the assignment's tests, which check the methods as below.


@pytest.fixture(scope="module")
def vocab_and_merges() -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """GPT-2's vocabulary as {id: bytes}, which does not set special tokens apart, and its merges."""
    vocab = json.loads(real_data("vocabs/gpt2.encoder.json").read_text(encoding="utf-8"))
    lines = real_data("vocabs/gpt2.vocab.bpe").read_text(encoding="utf-8").splitlines()[1:]
    merges = [(from_printable(left) or b"", from_printable(right) or b"") for left, right in map(str.split, lines)]
    return {token_id: from_printable(text) or text.encode() for text, token_id in vocab.items()}, merges


@pytest.fixture(scope="module")
def tokenizers(vocab_and_merges: Any) -> Callable[[tuple[str, ...] | None, str], Tokenizer]:
    """Make each tokenizer only once, because that takes a third of a second."""
    return cache(lambda special_tokens, encoder: Tokenizer(*vocab_and_merges, special_tokens, encoder=encoder))


@pytest.mark.slow
@pytest.mark.parametrize("special_tokens", [None, (END,)])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "🙃",
        "Hello, how are you?",
        "Héllò hôw are ü? 🙃",
        f"Héllò {END} hôw {END}{END} are ü? 🙃{END}",
        f"a {END}\n\n",
    ],
)
def test_texts_round_trip_and_have_tiktokens_ids(
    encoder: str, tokenizers: Any, tiktoken_gpt2: Any, text: str, special_tokens: tuple[str, ...] | None
) -> None:
    tokenizer = tokenizers(special_tokens, encoder)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert ids == tiktoken_gpt2.encode(text, allowed_special=set(special_tokens or ()), disallowed_special=())
    assert "".join(tokenizer.decode([token_id]) for token_id in ids if token_id == 50256) == (
        END * text.count(END) if special_tokens else ""
    )


def test_overlapping_special_tokens(encoder: str, vocab_and_merges: Any) -> None:
    tokenizer = Tokenizer(*vocab_and_merges, special_tokens=[END, END * 2], encoder=encoder)
    text = f"Hello, how {END * 2} are you?{END}"
    ids = tokenizer.encode(text)
    found = [tokenizer.decode([token_id]) for token_id in ids]
    assert found.count(END) == 1
    assert found.count(END * 2) == 1
    assert tokenizer.decode(ids) == text
    assert list(tokenizer.encode_iterable([text])) == ids


@pytest.mark.slow
def test_an_open_file_is_encoded_line_by_line(
    encoder: str, tokenizers: Any, tiktoken_gpt2: Any, tmp_path: Path
) -> None:
    text = corpus("tinystories_3MB", 300_000)
    path = tmp_path / "stories.txt"
    path.write_text(text, encoding="utf-8", newline="")
    tokenizer = tokenizers((END,), encoder)
    with path.open(encoding="utf-8", newline="") as file:
        ids = list(tokenizer.encode_iterable(file))
    assert ids == tiktoken_gpt2.encode(text, allowed_special={END})
    assert tokenizer.decode(ids) == text
