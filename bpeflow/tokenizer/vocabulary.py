"""What users give as a vocabulary, checked and made into a `Vocab`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from bpeflow.errors import FormatError, InputTypeError
from bpeflow.formats.reading import MOST_GAPS
from bpeflow.tokenizer.special import special_bytes
from bpeflow.vocab import Merge, Vocab


def vocab_of(vocab: Mapping[int, bytes] | Vocab, merges: Iterable[Merge]) -> Vocab:
    """Make a `Vocab` without special tokens of its own of a mapping, or of another with other merges.

    Raises `InputTypeError` for a wrong type, and `FormatError` for an id that is negative or far too large.
    """
    if not isinstance(merges, Iterable):
        raise InputTypeError(f"merges are a list of pairs of bytes, not {type(merges).__name__}")
    pairs = tuple(_merge(rank, merge) for rank, merge in enumerate(merges))
    if isinstance(vocab, Vocab):
        return vocab if pairs == vocab.merges else replace(vocab, merges=pairs)
    if not isinstance(vocab, Mapping):
        raise InputTypeError(f"vocab is a mapping from id to bytes, not {type(vocab).__name__}")
    for token_id, token in vocab.items():
        _check_entry(token_id, token, len(vocab))
    tokens = [b""] * (max(vocab, default=-1) + 1)
    for token_id, token in vocab.items():
        tokens[token_id] = bytes(token)
    return Vocab(tuple(tokens), {}, pairs)


def add_special_tokens(vocab: Vocab, special_tokens: Iterable[str]) -> Vocab:
    """A vocabulary with these special tokens, too: with the lowest id that has their bytes, else with the next ids.

    Raises `InputTypeError` and `ConfigError` for what is no special token.
    """
    if isinstance(special_tokens, (str, bytes)) or not isinstance(special_tokens, Iterable):
        raise InputTypeError(f"special_tokens is {special_tokens!r}; give a list of strings")
    ids = dict(vocab.special_tokens)
    tokens = list(vocab.tokens)
    known = {token: token_id for token_id, token in reversed([*enumerate(tokens)])}
    for special in special_tokens:
        token = special_bytes(special)
        if special in ids:
            continue
        if token in known:
            ids[special] = known[token]
        else:
            ids[special] = len(tokens)
            tokens.append(token)
    return vocab if ids == vocab.special_tokens else Vocab(tuple(tokens), ids, vocab.merges)


def _merge(rank: int, merge: Any) -> Merge:
    if isinstance(merge, tuple) and len(merge) == 2 and isinstance(merge[0], bytes) and isinstance(merge[1], bytes):
        return merge
    if isinstance(merge, list) and len(merge) == 2:
        return _merge(rank, tuple(merge))
    raise InputTypeError(f"merge {rank} is {merge!r}; a merge is a pair of bytes")


def _check_entry(token_id: Any, token: Any, tokens: int) -> None:
    if not isinstance(token_id, int):
        raise InputTypeError(f"the id {token_id!r} in the vocabulary is {type(token_id).__name__}; give {{id: bytes}}")
    if not isinstance(token, bytes):
        raise InputTypeError(f"token {token_id} in the vocabulary is {token!r}; give its bytes")
    if not 0 <= token_id < tokens + MOST_GAPS:
        raise FormatError(f"the vocabulary has the id {token_id}, but only {tokens:,} tokens")
