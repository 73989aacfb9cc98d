"""Encoding text that a custom pattern does not match."""

from __future__ import annotations

import pickle

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from small import MERGES, SPECIALS, merge_naively, small_vocab, special_text

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.errors import ConfigError, InvalidTextError, UnmatchedTextError
from bpeflow.tokenizer import parallel
from bpeflow.tokenizer.special_tokens import SpecialTokens
from bpeflow.tokenizer.tokenizer import Tokenizer

PATTERNS = [r"[a-z]+", r"(a)+|\s", r"\d{1,2}| ?[^\s\d]+", r"a*", "日"]


def small(
    encoder: str, pattern: str | None = None, unmatched: UnmatchedPolicy | None = None, specials: list[str] = SPECIALS
) -> Tokenizer:
    return Tokenizer(small_vocab(), MERGES, specials, pattern, unmatched=unmatched, encoder=encoder)


def oracle(tokenizer: Tokenizer, text: str) -> list[bytes]:
    """Return the tokens of a text, one piece after another."""
    tokens: list[bytes] = []
    for part in regex.split(f"({'|'.join(map(regex.escape, sorted(SPECIALS, key=len, reverse=True)))})", text):
        if part in SPECIALS:
            tokens.append(part.encode())
            continue
        end = 0
        for start, following in [*(m.span() for m in regex.finditer(tokenizer.pattern, part)), (len(part), len(part))]:
            for piece in [part[end:start] if tokenizer.unmatched == "isolate" else "", part[start:following]]:
                tokens += merge_naively(piece.encode(), MERGES)
            end = following
    return tokens


@pytest.mark.parametrize("unmatched", ["isolate", "drop"])
@settings(max_examples=30)
@given(text=special_text, pattern=st.sampled_from(PATTERNS), size=st.integers(1, 5))
def test_all_ways_of_encoding_are_the_oracle(
    encoder: str, text: str, pattern: str, unmatched: UnmatchedPolicy, size: int
) -> None:
    tokenizer = small(encoder, pattern, unmatched)
    ids = tokenizer.encode(text)
    assert [tokenizer.vocab.tokens[token_id] for token_id in ids] == oracle(tokenizer, text)
    assert tokenizer.encode_to_numpy(text).tolist() == ids
    assert tokenizer.encode_batch([text, "", text]) == [ids, [], ids]
    assert tokenizer.count_tokens(text) == len(ids)
    assert list(tokenizer.encode_iterable(text[i : i + size] for i in range(0, len(text), size))) == ids
    located, offsets = tokenizer.encode_with_offsets(text, byte_offsets=True)
    assert located == ids
    assert [text.encode()[start:end] for start, end in offsets] == oracle(tokenizer, text)
    if unmatched == "isolate":
        assert tokenizer.decode(ids) == text


@settings(max_examples=30)
@given(text=special_text, pattern=st.sampled_from(PATTERNS))
def test_offsets_tile_a_text_that_is_isolated(encoder: str, text: str, pattern: str) -> None:
    _, offsets = small(encoder, pattern).encode_with_offsets(text, byte_offsets=True)
    assert [start for start, _ in offsets] == [0, *(end for _, end in offsets)][: len(offsets)]
    assert max((end for _, end in offsets), default=0) == len(text.encode())


@pytest.mark.parametrize("unmatched", ["isolate", "drop", "error"])
def test_a_text_in_threads_has_the_same_ids(
    encoder: str, unmatched: UnmatchedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "PART_BYTES", 1000)
    tokenizer: Tokenizer = pickle.loads(
        pickle.dumps(small(encoder, r"[a-z]+" if unmatched != "error" else r"[a-z]+|\s+|<.*?>", unmatched))
    )
    assert tokenizer.unmatched == unmatched
    text = "word words aab abab<a>" * 300  # more than a part for a thread
    ids = tokenizer.encode("word words aab abab<a>")
    assert tokenizer.encode_to_numpy(text, num_threads=2).tolist() == ids * 300


def test_text_that_is_an_error_is_located(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "PART_BYTES", 1000)  # the last text but one has several parts
    tokenizer = small(encoder, r"[a-z]+|é", "error", ["<a>"])
    assert tokenizer.decode(tokenizer.encode("éab<a>")) == "éab<a>"
    message = r"the pattern .* does not match ', ' in 'ab, cd', at character {}; extend the pattern, or use unmatched"
    for call in (tokenizer.encode, tokenizer.encode_to_numpy, tokenizer.count_tokens, tokenizer.encode_with_offsets):
        with pytest.raises(UnmatchedTextError, match="^" + message.format(6)):
            call("é<a>ab, cd")
    with pytest.raises(UnmatchedTextError, match="at index 1 of the batch: " + message.format(6)):
        tokenizer.encode_batch(["é", "é<a>ab, cd"])
    with pytest.raises(UnmatchedTextError, match=r"after 0 characters of the stream: the pattern .* at character 6"):
        list(tokenizer.encode_iterable(["é<a", ">ab", ", cd"]))
    with pytest.raises(UnmatchedTextError, match="at character 5998"):
        tokenizer.encode_to_numpy("é<a>ab" + "aé" * 2996 + ", cd", num_threads=2)
    with pytest.raises(InvalidTextError, match="not UTF-8"):
        tokenizer.encode_to_numpy(b"ab\xff")


def test_named_patterns_match_all_text(encoder: str) -> None:
    policies: list[UnmatchedPolicy] = ["isolate", "drop", "error"]
    assert len({tuple(small(encoder, "gpt2", policy).encode("a, é\n 1")) for policy in policies}) == 1


def test_the_encoder_itself_finds_special_tokens_in_unmatched_text(encoder: str) -> None:
    specials = SpecialTokens.of({"<a>": 1000})
    assert small(encoder, r"\d")._encoder.encode(b"1<a>-<a>2", specials) == [49, 1000, 45, 1000, 50]


def test_a_vocabulary_brings_its_pattern(encoder: str) -> None:
    trained = small(encoder, r"[a-z]+", "drop").vocab
    assert (trained.pattern, trained.unmatched) == (r"[a-z]+", "drop")
    chosen = [
        Tokenizer(trained, MERGES),
        Tokenizer(trained, MERGES, ["<more>"]),
        Tokenizer(trained, MERGES[:3], unmatched="error"),
        Tokenizer(trained, MERGES, pattern="[a-z]+"),
        Tokenizer(trained, MERGES, pattern=r"\w+"),
        Tokenizer(trained, MERGES, pattern="o200k"),
        Tokenizer(dict(enumerate(trained.tokens)), MERGES),
    ]
    assert [(tokenizer.pattern, tokenizer.unmatched) for tokenizer in chosen] == [
        ("[a-z]+", "drop"),
        ("[a-z]+", "drop"),
        ("[a-z]+", "error"),
        ("[a-z]+", "drop"),
        (r"\w+", "isolate"),
        ("o200k", "isolate"),
        ("gpt2", "isolate"),
    ]
    assert all((t.vocab.pattern, t.vocab.unmatched) == (t.pattern, t.unmatched) for t in chosen)
    assert chosen[0].vocab == chosen[5].vocab  # compared without the pattern


def test_an_unknown_policy_is_an_error(encoder: str) -> None:
    with pytest.raises(ConfigError, match="unmatched is 'keep'"):
        small(encoder, r"\w+", "keep")  # type: ignore[arg-type]
