"""`Vocab`: the bytes of each token id, and the merges that made them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.byte_level import BYTES_BY_CHARACTER, UTF8_BYTES, mergeable_bytes
from bpeflow._util.delimiters import special_bytes
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy, short_repr
from bpeflow.errors import ConfigError, FormatError, InputTypeError

#: A learned pair: the bytes of its left and of its right token.
Merge = tuple[bytes, bytes]

#: The largest number of unused ids in a vocabulary that is read or given. `Vocab` has an entry of 8 bytes for each, so
#: a damaged id could otherwise take any amount of memory. Published vocabularies have up to a few hundred.
MOST_GAPS = 1_000_000

#: Number of special tokens that `repr` of a `Vocab` lists by name.
_SPECIAL_TOKENS_IN_REPR = 5

#: What a `Vocab` has besides tokens and merges.
_FIELDS = ("special_tokens", "pattern", "unmatched", "normalizer", "merge_counts")


def as_merges(merges: Iterable[Merge]) -> tuple[Merge, ...]:
    """Return merges as a tuple of pairs. Raises `InputTypeError` if one is not a pair of bytes."""
    if not isinstance(merges, Iterable):
        raise InputTypeError(f"merges must be a list of pairs of bytes, not {type(merges).__name__}")
    pairs = tuple(merges)
    are_tuples = {*map(type, pairs)} <= {tuple} and {*map(len, pairs)} <= {2}
    if are_tuples and {*map(type, chain.from_iterable(pairs))} <= {bytes}:  # as usual: without a step for each merge
        return pairs
    for rank, merge in enumerate(pairs):
        is_pair = isinstance(merge, tuple | list) and len(merge) == 2
        if not is_pair or not all(isinstance(part, bytes) for part in merge):
            raise InputTypeError(f"merge {rank} is {merge!r}; it must be a pair of bytes")
    return tuple((left, right) for left, right in pairs)


class Vocab(Mapping[int, bytes]):
    """An immutable vocabulary: a mapping from each id to its bytes.

    Training returns one, and `bpeflow.Tokenizer` has one. `Vocab.build` makes one from a list of merges. The keys are
    all ids from 0 on, including unused ones. So `len` is the number of ids, and a model needs as many embeddings. Two
    vocabularies are equal if they have the same ids, special tokens and merges; a `Vocab` and any other mapping, such
    as CS336's ``dict``, if they have the same items.

    Attributes:
        tokens: the bytes of each token, indexed by id. ``b""`` marks an unused id.
        special_tokens: the id of each special token.
        merges: the merges in the order in which they were learned. A merge's index is its rank.
        pattern: the split pattern of its training or of its files, the default of `bpeflow.Tokenizer`; None if it is
            unknown. Vocabularies are compared without it.
        unmatched: what to do with text that the pattern does not match; None if the pattern is unknown.
        normalizer: the names of the normalizers of the text, like the pattern.
        merge_counts: how often the pair of each merge occurred in training when it was merged. An entry is None for a
            merge whose count is unknown, and the whole attribute is None if nothing is known.
            Vocabularies are compared without it.

    >>> from bpeflow import Vocab
    >>> vocab = Vocab.build([(b"t", b"h"), (b"th", b"e")], special_tokens=["<s>"])
    >>> vocab
    Vocab(259 tokens, 2 merges, special tokens: <s>)
    >>> vocab.tokens[256:]
    (b'<s>', b'th', b'the')
    >>> vocab[258], vocab.token_ids[b"the"], 259 in vocab
    (b'the', 258, False)
    >>> vocab.special_tokens
    {'<s>': 256}
    >>> vocab.merge_ids.tolist()
    [[116, 104, 257], [257, 101, 258]]
    """

    packed_tokens: PackedBytes  # `tokens`, in one piece
    special_tokens: dict[str, int]
    pattern: Pattern | None
    unmatched: UnmatchedPolicy | None
    normalizer: tuple[NormalizerName, ...]
    merge_counts: tuple[int | None, ...] | None

    #: Whether no two ordinary tokens are known to be equal, and no special token to share its id with another string.
    _distinct = False

    def __init__(
        self,
        tokens: Iterable[bytes],
        special_tokens: dict[str, int],
        merges: Iterable[Merge] | NDArray[np.uint32],
        pattern: Pattern | None = None,
        unmatched: UnmatchedPolicy | None = None,
        normalizer: tuple[NormalizerName, ...] = (),
        merge_counts: tuple[int | None, ...] | None = None,
    ) -> None:
        """Make a vocabulary of given ids. The attributes explain the arguments.

        Merges may also be ids, as `merge_ids` has them. Each form is made from the other when it is first needed.

        Raises:
            InputTypeError: a token, a special token or a merge has a wrong type.
            FormatError: an id is not in the vocabulary, or `merge_counts` has not one entry for each merge.
        """
        packed = tokens if isinstance(tokens, PackedBytes) else PackedBytes.of(_as_tokens(tokens))
        merge_ids = merges if isinstance(merges, np.ndarray) else None
        _check_ids(special_tokens, merge_ids, len(packed))
        self.__dict__.update(
            packed_tokens=packed,
            special_tokens=special_tokens,
            pattern=pattern,
            unmatched=unmatched,
            normalizer=normalizer,
            merge_counts=merge_counts,
            **({"merges": as_merges(merges)} if merge_ids is None else {"merge_ids": _read_only(merge_ids)}),
        )
        if merge_counts is not None and len(merge_counts) != self.merge_count:
            raise FormatError(f"{len(merge_counts):,} merge_counts for {self.merge_count:,} merges")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Vocab is immutable: {name} cannot be set; `replaced` makes a copy with other values")

    @classmethod
    def from_merge_ids(
        cls,
        tokens: PackedBytes,
        special_tokens: dict[str, int],
        merge_ids: NDArray[np.uint32],
    ) -> Vocab:
        """Make a vocabulary whose ordinary tokens are all different, which need not be checked again.

        Args:
            tokens: the bytes of each id. Except for special tokens, no two are equal.
            special_tokens: as for the class.
            merge_ids: as the property has them.

        >>> vocab = Vocab.build([(b"t", b"h"), (b"th", b"e")])
        >>> Vocab.from_merge_ids(PackedBytes.of(vocab.tokens), {}, vocab.merge_ids).merges
        ((b't', b'h'), (b'th', b'e'))
        """
        vocab = cls(tokens, special_tokens, merge_ids)
        if vocab._merges_special_tokens or any(len(token) == 1 for token in special_tokens):
            return cls(tokens, special_tokens, vocab.merges)
        vocab.__dict__["_distinct"] = True
        return vocab

    def replaced(self, **changes: Any) -> Vocab:
        """Return a copy with changed attributes, such as `tokens` or `merges`."""
        names = ("merges", *_FIELDS)
        return Vocab(**{"tokens": self.packed_tokens} | {name: getattr(self, name) for name in names} | changes)

    def annotated(self, **changes: Any) -> Vocab:
        """Return a copy with changed attributes that do not affect ids. It shares the cached properties."""
        other = Vocab.__new__(Vocab)
        other.__dict__.update(self.__dict__ | changes)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what can be computed. Merges are pickled as ids if that form is known."""
        are_ids = "merge_ids" in self.__dict__ and not self._merges_special_tokens
        names = (*_FIELDS, "packed_tokens", "merge_ids" if are_ids else "merges", "_distinct")
        return {name: getattr(self, name) for name in names}

    # ---- tokens by id ----

    @cached_property
    def tokens(self) -> tuple[bytes, ...]:
        """The bytes of each token, indexed by id."""
        return tuple(self.packed_tokens)

    def __len__(self) -> int:
        return len(self.packed_tokens)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __getitem__(self, token_id: int) -> bytes:
        try:
            if token_id >= 0:
                return self.tokens[token_id]
        except (IndexError, TypeError):
            pass
        raise KeyError(token_id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocab):
            return super().__eq__(other)
        names = ("packed_tokens", "special_tokens", "merges")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]  # equal to dicts, which have no hash

    def __repr__(self) -> str:
        """Return a summary. The full content could be hundreds of thousands of characters long."""
        listed = list(self.special_tokens)[:_SPECIAL_TOKENS_IN_REPR]
        if len(self.special_tokens) > len(listed):
            listed.append(f"{len(self.special_tokens) - len(listed):,} more")
        specials = ", ".join(listed) or "none"
        return f"Vocab({len(self):,} tokens, {self.merge_count:,} merges, special tokens: {specials})"

    def to_dict(self) -> dict[int, bytes]:
        """Return the tokens as ``{id: bytes}``, as CS336's ``train_bpe`` does."""
        return dict(enumerate(self.tokens))

    # ---- merges ----

    @cached_property
    def merges(self) -> tuple[Merge, ...]:
        """The merges by rank."""
        left, right = (map(self.tokens.__getitem__, ids) for ids in self.merge_ids[:, :2].T.tolist())
        return tuple(zip(left, right, strict=True))

    @cached_property
    def merge_ids(self) -> NDArray[np.uint32]:
        """The merges as ids: an array of shape (merges, 3) with the columns left, right and result.

        If a merge and a special token have the same bytes but separate ids, the result is the merge's own id. If they
        share an id, as in HuggingFace's mode, the result is the shared id. Merges that make the same string have the
        same result.

        Raises:
            FormatError: a part or the result of a merge has no id. The message has the merge's rank and bytes.
        """
        parts = chain.from_iterable((left, right, left + right) for left, right in self.merges)
        try:
            ids = np.fromiter(map(self._ids.__getitem__, parts), np.uint32)
        except KeyError as error:
            raise self._unfit_merge(error.args[0]) from None
        return _read_only(ids.reshape(-1, 3))

    @property
    def merge_count(self) -> int:
        """The number of merges."""
        return len(self.merges if "merges" in self.__dict__ else self.merge_ids)

    def packed_sides(self) -> PackedBytes:
        """Return the left and the right side of each of the `merges`, one after another, in one piece."""
        if "merges" in self.__dict__:
            return PackedBytes.of([*chain.from_iterable(self.merges)])
        return self.packed_tokens.taken(self.merge_ids[:, :2].ravel())

    # ---- what encoding yields ----

    @cached_property
    def byte_ids(self) -> tuple[int, ...]:
        """The id of each of the 256 bytes: of its own token, or of the special token that it shares an id with.

        Bytes that UTF-8 never has, and that published vocabularies may leave out, then have the id 0.

        Raises:
            FormatError: another byte has no id.
        """
        ids = self.ordinary_tokens.singles()
        missing = [byte for byte in range(256) if bytes([byte]) not in ids]
        if not set(UTF8_BYTES).isdisjoint(missing):
            raise FormatError(
                f"the vocabulary has no token for {len(missing)} of the 256 bytes, the first of them 0x{missing[0]:02x}"
            )
        return tuple(ids.get(bytes([byte]), 0) for byte in range(256))

    @cached_property
    def own_tokens(self) -> PackedBytes:
        """The bytes of each token that is not special, indexed by id; ``b""`` for all other ids."""
        return self.packed_tokens.without(self.special_tokens.values())

    @cached_property
    def ordinary_tokens(self) -> PackedBytes:
        """The bytes of each id that encoding ordinary text can yield; ``b""`` for all other ids.

        Ordinary text never yields a special token, unless that shares its id with a byte or a merge. Of two ids with
        the same bytes, it never yields the higher.

        Raises:
            FormatError: as for `merge_ids`.
        """
        own = self.own_tokens
        if self._distinct:
            return own
        ids = self._ids
        repeated = own.lengths > 0
        repeated[[*ids.values()]] = False
        shared = np.flatnonzero(np.isin(self.merge_ids[:, 2], [*self.special_tokens.values()]))
        made = [*(b"".join(self.merges[rank]) for rank in shared), *(bytes([byte]) for byte in range(256))]
        changed = dict.fromkeys(np.flatnonzero(repeated).tolist(), b"")
        return own.replaced(changed | {ids[token]: token for token in made if token in ids})

    @cached_property
    def decoded_tokens(self) -> PackedBytes:
        """The bytes that each id is decoded to: ordinary text that yields the id, or else the token's own.

        The two differ if a special token shares its id with other bytes, as ``"Ġthe"`` can with ``b" the"`` in
        HuggingFace's mode. Then ordinary text survives the round trip. HuggingFace also decodes such a special token to
        the other bytes.

        Raises:
            FormatError: as for `merge_ids`.
        """
        shared = {token_id: self.ordinary_tokens[token_id] for token_id in self.special_tokens.values()}
        return self.packed_tokens.replaced({token_id: token for token_id, token in shared.items() if token})

    @cached_property
    def token_ids(self) -> dict[bytes, int]:
        """The id of each token by its bytes: the id that encoding yields for them.

        If a special token has the same bytes as an ordinary one, but an id of its own, the id is the ordinary one's.

        Raises:
            FormatError: as for `merge_ids`.
        """
        specials = {token.encode(): token_id for token, token_id in self.special_tokens.items()}
        return specials | self.ordinary_ids

    @cached_property
    def ordinary_ids(self) -> dict[bytes, int]:
        """The id of each of the `ordinary_tokens`."""
        ids = dict(zip(self.ordinary_tokens, range(len(self)), strict=True))
        ids.pop(b"", None)
        return ids

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """The id of each byte string: the lowest id of an ordinary token, else the id of a special token.

        A special token provides the id of two strings: of the bytes that HuggingFace takes it for while merging
        (`mergeable_bytes`) and, with lower precedence, of its own bytes.
        """
        texts = {token_id: token for token, token_id in self.special_tokens.items()}
        same_bytes = {token.encode(): token_id for token_id, token in texts.items()}
        shared = {mergeable_bytes(token): token_id for token_id, token in texts.items()}
        own = [*self.own_tokens]
        ids = same_bytes | shared | dict(zip(reversed(own), reversed(range(len(own))), strict=True))
        ids.pop(b"", None)
        return ids

    @property
    def _merges_special_tokens(self) -> bool:
        """Whether a merge has the id of a special token, which may have other bytes than the merge."""
        return bool(np.isin(self.merge_ids, [*self.special_tokens.values()]).any())

    def _unfit_merge(self, missing: bytes) -> FormatError:
        """Return the error for the first merge with a part or a result that has no id."""
        ranked = enumerate(self.merges)
        rank, left, right = next((rank, *merge) for rank, merge in ranked if missing in (*merge, b"".join(merge)))
        return FormatError(
            f"merge {rank}, {left!r} + {right!r}, does not fit the vocabulary, which has no token {missing!r}; "
            "do the merges and the vocabulary belong to the same tokenizer?"
        )

    # ---- building ----

    @classmethod
    def build(
        cls,
        merges: Iterable[Merge],
        special_tokens: str | Iterable[str] = (),
        *,
        special_tokens_first: bool = False,
        reuse_tokens: bool = False,
        max_tokens: int | None = None,
    ) -> Vocab:
        """Build a vocabulary from merges and assign the ids.

        Args:
            merges: the merges by rank.
            special_tokens: the special tokens, in the order of their ids.
            special_tokens_first: whether ids are assigned in HuggingFace's order (special tokens, bytes in the order of
                their printable characters, merges) instead of the default order (bytes, special tokens, merges).
            reuse_tokens: whether a merge that makes the bytes of an existing token, even of a special token, gets the
                id of that token, as in HuggingFace tokenizers. By default every merge makes a new token.
            max_tokens: the size to stop at. Merges beyond it are left out, so a smaller vocabulary is a prefix of a
                larger one.

        Returns:
            The vocabulary.

        Raises:
            InputTypeError: a merge is not a pair of bytes, or a special token not a `str`.
            ConfigError: a special token is empty or given twice.
            FormatError: a part of a merge is not a token.

        >>> Vocab.build([(b"t", b"h"), (b"th", b"e")], max_tokens=257).merges
        ((b't', b'h'),)
        """
        builder, special_tokens = _VocabBuilder((), {} if reuse_tokens else None), _as_texts(special_tokens)
        if special_tokens_first:
            specials = {token: builder.add_special(token) for token in special_tokens}
            for byte in BYTES_BY_CHARACTER:
                builder.add(bytes([byte]), bytes([byte]))
        else:
            for byte in range(256):
                builder.add(bytes([byte]), bytes([byte]))
            specials = {token: builder.add_special(token) for token in special_tokens}
        first, taken = len(builder.tokens), builder.add_merges(merges, max_tokens)
        vocab = cls(builder.tokens, specials, taken)
        ids = dict(zip(builder.tokens, range(len(vocab)), strict=True))
        if not reuse_tokens and len(ids) == len(vocab):  # as usual
            with suppress(KeyError):
                sides = np.fromiter(map(ids.__getitem__, chain.from_iterable(taken)), np.uint32).reshape(-1, 2)
                results = np.arange(first, len(vocab), dtype=np.uint32)
                vocab.__dict__.update(_distinct=True, merge_ids=_read_only(np.column_stack([sides, results])))
        return vocab._checked()

    def extend(
        self,
        merges: Iterable[Merge],
        special_tokens: str | Iterable[str] = (),
        *,
        reuse_tokens: bool = False,
        max_tokens: int | None = None,
    ) -> Vocab:
        """Return this vocabulary with more special tokens and merges. All ids stay as they are.

        New ids follow the greatest old one: first the new special tokens, then the merges. So a vocabulary with fewer
        new merges is a prefix of a vocabulary with more. If a merge makes the bytes of an ordinary token, and no
        earlier merge has made it, it gets that token's id.

        Args:
            merges: the further merges, by rank.
            special_tokens: special tokens. Those already in the vocabulary keep their ids.
            reuse_tokens: as for `build`: special tokens also share an id with ordinary tokens.
            max_tokens: the size to stop at, as for `build`.

        Raises:
            FormatError: as for `merge_ids`; other errors as `build`.

        >>> Vocab.build([(b"t", b"h")], ["<s>"]).extend([(b"th", b"e")], ["<s>", "<pad>"]).tokens[256:]
        (b'<s>', b'th', b'<pad>', b'the')
        """
        specials = dict(self.special_tokens)
        known = {mergeable_bytes(token): i for token, i in specials.items()} if reuse_tokens else {}
        known |= self.ordinary_ids
        builder = _VocabBuilder(self.tokens, known)
        for token in _as_texts(special_tokens):
            if token not in specials:
                form = mergeable_bytes(token) if reuse_tokens else b""
                specials[token] = builder.add(special_bytes(token), form)
        taken = builder.add_merges(merges, max_tokens)
        return self.replaced(
            tokens=builder.tokens,
            special_tokens=specials,
            merges=self.merges + taken,
            merge_counts=self.merge_counts and self.merge_counts + (None,) * len(taken),
        )._checked()

    def _checked(self) -> Vocab:
        """Return this vocabulary. Raises `FormatError` if a part of a merge is not a token."""
        self.merge_ids  # noqa: B018
        return self

    @property
    def longest_token(self) -> bytes:
        """The longest token that is not a special token; of several, the one with the lowest id."""
        own = self.own_tokens
        return own[int(own.lengths.argmax())]


def _as_tokens(tokens: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return tokens as a tuple. Raises `InputTypeError` if one is not bytes."""
    listed = tuple(tokens) if isinstance(tokens, Iterable) else (tokens,)
    if not {*map(type, listed)} <= {bytes}:
        for token_id, token in enumerate(listed):
            if not isinstance(token, bytes):
                raise InputTypeError(f"token {token_id} is {short_repr(token)}; it must be bytes")
    return listed


def _check_ids(special_tokens: Mapping[str, int], merge_ids: NDArray[np.uint32] | None, tokens: int) -> None:
    """Raise an error if special tokens or merges are not ids of a vocabulary of this size."""
    if not isinstance(special_tokens, Mapping):
        hint = "; Vocab.build takes a list" if isinstance(special_tokens, list | tuple) else ""
        raise InputTypeError(f"special_tokens must map strings to ids, not {type(special_tokens).__name__}{hint}")
    for token, token_id in special_tokens.items():
        if not isinstance(token, str) or token_id not in range(tokens):
            raise FormatError(f"special_tokens: {token!r} with id {token_id!r}: need a str and an id below {tokens:,}")
    if merge_ids is not None and (merge_ids.shape[1:] != (3,) or merge_ids.max(initial=0) >= max(tokens, 1)):
        raise FormatError(f"merges as ids: need an array of shape (merges, 3) of ids below {tokens:,}")


def _read_only(merge_ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Make a shared array read-only."""
    merge_ids.flags.writeable = False
    return merge_ids


def _as_texts(special_tokens: str | Iterable[str]) -> tuple[str, ...]:
    """Return one special token, several or None as a tuple. Raises `ConfigError` if one is given twice."""
    listed = (special_tokens,) if isinstance(special_tokens, str) else tuple(special_tokens or ())
    if len({*listed}) < len(listed):
        raise ConfigError(f"special token {max(listed, key=listed.count)!r} is given twice")
    return listed


class _VocabBuilder:
    """Assigns ids to tokens in the order in which they are added, after the existing ones.

    Attributes:
        tokens: the tokens by id.
        ids: the ids that further tokens can get, by their bytes; None if every token gets an id of its own.
    """

    def __init__(self, tokens: Iterable[bytes], ids: dict[bytes, int] | None) -> None:
        self.tokens = [*tokens]
        self.ids = ids

    def add(self, token: bytes, form: bytes) -> int:
        """Add a token, unless `form`, the bytes that merging takes it for, has an id. Return its id."""
        new = len(self.tokens)
        token_id = new if self.ids is None or not form else self.ids.setdefault(form, new)
        if token_id == new:
            self.tokens.append(token)
        return token_id

    def add_special(self, token: str) -> int:
        return self.add(special_bytes(token), mergeable_bytes(token))

    def add_merges(self, merges: Iterable[Merge], max_tokens: int | None) -> tuple[Merge, ...]:
        """Add the tokens that merges make, up to `max_tokens` in all. Return these merges."""
        pairs = as_merges(merges)
        if self.ids is None:
            taken = pairs if max_tokens is None else pairs[: max(max_tokens - len(self.tokens), 0)]
            self.tokens += map(b"".join, taken)
            return taken
        for number, (left, right) in enumerate(pairs):
            if max_tokens is not None and len(self.tokens) >= max_tokens:
                return pairs[:number]
            self.add(left + right, left + right)
        return pairs
