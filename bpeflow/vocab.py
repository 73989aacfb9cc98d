"""`Vocab`: which ids there are, what bytes each stands for, and the merges that made them."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bpeflow.errors import FormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A learned pair: the bytes of its left and of its right token.
Merge = tuple[bytes, bytes]
_SHOWN_SPECIAL_TOKENS = 5


@dataclass(frozen=True)
class Vocab:
    """An immutable vocabulary.

    Attributes:
        tokens: the bytes of each id; an id is an index.
        special_tokens: the id of each special token.
        merges: in the order in which they were learned; a merge's index is its rank.
    """

    tokens: tuple[bytes, ...]
    special_tokens: dict[str, int]
    merges: tuple[Merge, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        """Name the special tokens and count the rest, which is hundreds of thousands of characters when written out."""
        shown = list(self.special_tokens)[:_SHOWN_SPECIAL_TOKENS]
        if len(self.special_tokens) > len(shown):
            shown.append(f"{len(self.special_tokens) - len(shown):,} more")
        specials = ", ".join(shown) or "none"
        return f"Vocab({len(self):,} tokens, {len(self.merges):,} merges, special tokens: {specials})"

    @classmethod
    def build(
        cls,
        merges: Iterable[Merge],
        special_tokens: Sequence[str] = (),
        *,
        special_tokens_first: bool = False,
        reuse_tokens: bool = False,
        max_tokens: int | None = None,
    ) -> Vocab:
        """Number the tokens: bytes, special tokens, merges; or special tokens, bytes in HuggingFace's order, merges.

        With `reuse_tokens` (HuggingFace's way) a token whose bytes exist already, as a special token's can, keeps their
        id; without it every merge makes a token of its own. Merges are taken until there are `max_tokens` tokens,
        which is how a vocabulary of a smaller size is cut from a larger one.
        """
        builder = _Builder(reuse_tokens)
        if special_tokens_first:
            specials = {token: builder.add_special(token) for token in special_tokens}
            for byte in BYTES_BY_CHARACTER:
                builder.add(bytes([byte]))
        else:
            for byte in range(256):
                builder.add(bytes([byte]))
            specials = {token: builder.add_special(token) for token in special_tokens}
        taken = []
        for left, right in merges:
            if max_tokens is not None and len(builder.tokens) >= max_tokens:
                break
            builder.add(left + right)
            taken.append((left, right))
        return cls(tuple(builder.tokens), specials, tuple(taken))

    @cached_property
    def byte_ids(self) -> tuple[int, ...]:
        """The id of each of the 256 bytes: its own token's, or that of the special token it shares an id with.

        Raises `FormatError` for a byte without one.
        """
        missing = [byte for byte in range(256) if bytes([byte]) not in self._ids]
        if missing:
            raise FormatError(
                f"the vocabulary has no token for {len(missing)} of the 256 bytes, the first of them 0x{missing[0]:02x}"
            )
        return tuple(self._ids[bytes([byte])] for byte in range(256))

    @cached_property
    def merge_ids(self) -> NDArray[np.uint32]:
        """The merges as ids: an array of shape (merges, 3), whose columns are left, right, and what they make.

        Where a merge and a special token have the same bytes and an id each, the merge has its own; where they have
        one id in common, as in HuggingFace's mode, it is that. Merges that make the same string yield the same id.
        Raises `FormatError`, with rank and bytes, where a merge's part or result has no id.
        """
        ids = self._ids
        try:
            rows = [(ids[left], ids[right], ids[left + right]) for left, right in self.merges]
        except KeyError:
            raise self._unfit_merge() from None
        return np.array(rows, np.uint32).reshape(-1, 3)

    @cached_property
    def ordinary_tokens(self) -> tuple[bytes, ...]:
        """The bytes of each id as ordinary text can yield it; ``b""`` where it cannot.

        It cannot yield a special token, unless that shares its id with a byte or a merge; nor the higher one of two ids
        with the same bytes. Raises `FormatError` as `merge_ids` does.
        """
        specials = set(self.special_tokens.values())
        reachable = [left + right for left, right in self.merges]
        reachable += [token for token, token_id in self._ids.items() if len(token) == 1 or token_id not in specials]
        ordinary = [b""] * len(self.tokens)
        try:
            for token in reachable:
                ordinary[self._ids[token]] = token
        except KeyError:
            raise self._unfit_merge() from None
        return tuple(ordinary)

    @cached_property
    def decoded_tokens(self) -> tuple[bytes, ...]:
        """The bytes that each id is decoded to: those of ordinary text, if that can yield it, else the token's own.

        They differ where a special token shares its id with other bytes, as ``"Ġthe"`` can in HuggingFace's mode with
        ``b" the"``: ordinary text comes back as it was, and HuggingFace decodes the special token to that, too.
        Raises `FormatError` as `merge_ids` does.
        """
        return tuple(ordinary or token for ordinary, token in zip(self.ordinary_tokens, self.tokens, strict=True))

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """The id of each string: the lowest of its own; else that of a special token that shares its id with it.

        A special token shares it with what HuggingFace takes it for while merging, else with its own bytes.
        """
        specials = {token_id: token for token, token_id in self.special_tokens.items()}
        same_bytes = {token.encode(): token_id for token_id, token in specials.items()}
        shared = {mergeable_bytes(token): token_id for token_id, token in specials.items()}
        own = {token: token_id for token_id, token in reversed([*enumerate(self.tokens)]) if token_id not in specials}
        ids = same_bytes | shared | own
        ids.pop(b"", None)
        return ids

    def _unfit_merge(self) -> FormatError:
        rank, (left, right) = next(
            (r, m) for r, m in enumerate(self.merges) if not {*m, m[0] + m[1]} <= self._ids.keys()
        )
        missing = next(part for part in (left, right, left + right) if part not in self._ids)
        return FormatError(
            f"merge {rank}, {left!r} + {right!r}, does not fit the vocabulary, which has no token {missing!r}; "
            "are both of the same tokenizer?"
        )

    @property
    def longest_token(self) -> bytes:
        """The longest token that merging made; the first of several."""
        specials = set(self.special_tokens.values())
        return max((t for i, t in enumerate(self.tokens) if i not in specials), key=len)

    def to_dict(self) -> dict[int, bytes]:
        """Return ``{id: bytes}``, as CS336's ``train_bpe`` does."""
        return dict(enumerate(self.tokens))


def mergeable_bytes(special_token: str) -> bytes:
    """The bytes that HuggingFace takes a special token for while it merges; empty where no merge can yield it.

    It compares tokens in printable form, so ``"the"`` is what merging ``t h e`` yields, ``"Ġthe"`` is what merging a
    space and ``the`` yields, and ``"a b"``, having a space, is nothing that merging could yield.
    """
    return from_printable(special_token) or b""


def check_special_tokens(special_tokens: Iterable[str], reuse_tokens: bool) -> None:
    """Raise `ValueError` for a special token that ``vocab.json`` could not hold beside a byte; call it before training.

    A byte and a special token that is the byte's printable form, as ``"a"`` or ``"Ġ"`` is, would share an entry. With
    `reuse_tokens` (HuggingFace's way) they share an id as well, so that nothing is lost.
    """
    for token in special_tokens:
        if token in BYTE_CHARACTERS and len(token) == 1 and not reuse_tokens:
            raise ValueError(hidden_byte(token))


def hidden_byte(special_token: str) -> str:
    """Say why a special token that is a byte's printable form cannot be."""
    byte = BYTE_CHARACTERS.index(special_token)
    return (
        f"special token {special_token!r} is the form in which vocab.json writes byte 0x{byte:02x}, and would take its "
        "place; choose a longer one, or tie_break: huggingface, where both have the same id"
    )


class _Builder:
    def __init__(self, reuse_tokens: bool) -> None:
        self.tokens: list[bytes] = []
        self._reuse_tokens = reuse_tokens
        self._ids: dict[bytes, int] = {}

    def add(self, token: bytes, merged_form: bytes | None = None) -> int:
        key = token if merged_form is None else merged_form
        if self._reuse_tokens and key:
            known = self._ids.setdefault(key, len(self.tokens))
            if known < len(self.tokens):
                return known
        self.tokens.append(token)
        return len(self.tokens) - 1

    def add_special(self, token: str) -> int:
        return self.add(token.encode(), mergeable_bytes(token))


_PRINTABLE_BYTES = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHER_BYTES = [byte for byte in range(256) if byte not in _PRINTABLE_BYTES]

#: ``BYTE_CHARACTERS[byte]`` is the byte's character.
BYTE_CHARACTERS = "".join(chr(b) if b in _PRINTABLE_BYTES else chr(256 + _OTHER_BYTES.index(b)) for b in range(256))

#: All bytes in the order of their characters: the order of HuggingFace's byte-level alphabet.
BYTES_BY_CHARACTER = tuple(sorted(range(256), key=BYTE_CHARACTERS.__getitem__))
_BYTE_OF = codecs.charmap_build(BYTE_CHARACTERS)


def to_printable(token: bytes) -> str:
    """Write bytes in printable form: ``b" the"`` → ``"Ġthe"``."""
    return codecs.charmap_decode(token, "strict", BYTE_CHARACTERS)[0]


def from_printable(text: str) -> bytes | None:
    """Read printable form back: ``"Ġthe"`` → ``b" the"``; None when a character is not one of the 256."""
    try:
        return codecs.charmap_encode(text, "strict", _BYTE_OF)[0]
    except UnicodeEncodeError:
        return None
