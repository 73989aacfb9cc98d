"""`Vocab`: the bytes of each token id, and the merges that made them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from bpeflow._util.byte_level import BYTE_CHARACTERS, BYTES_BY_CHARACTER, mergeable_bytes
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy
from bpeflow.vocab_ids import VocabIds, read_only

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A learned pair: the bytes of its left and of its right token.
Merge = tuple[bytes, bytes]

#: The usual names of the special token that ends a text, in order of precedence.
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")

#: Number of special tokens that `repr` of a `Vocab` lists by name.
_SPECIAL_TOKENS_IN_REPR = 5


@dataclass(frozen=True, eq=False)
class Vocab(VocabIds, Mapping[int, bytes]):
    """An immutable vocabulary: a mapping from each id to its bytes.

    Training returns one, and `bpeflow.Tokenizer` has one. `Vocab.build` makes one from a list of merges. The keys are
    all ids from 0 on, including unused ones. So `len` is the number of ids, and a model needs as many embeddings. Two
    vocabularies are equal if they have the same ids, special tokens and merges; a `Vocab` and any other mapping, such
    as CS336's ``dict``, if they have the same items.

    Attributes:
        tokens: the bytes of each token, indexed by id. ``b""`` marks an unused id.
        special_tokens: the id of each special token.
        merges: the merges in the order in which they were learned. A merge's index is its rank.
        pattern: the split pattern that it was trained with or is used with, which `bpeflow.Tokenizer` takes; None if it
            is unknown. Vocabularies are compared without it.
        unmatched: what to do with text that the pattern does not match; None if the pattern is unknown.
        normalizer: the names of the normalizers of the text, like the pattern.
        merge_counts: how often the pair of each merge occurred in training when it was merged; None for merges that
            were not learned then, and instead of all if nothing is known. Vocabularies are compared without it.

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

    tokens: tuple[bytes, ...]
    special_tokens: dict[str, int]
    merges: tuple[Merge, ...]
    pattern: Pattern | None = field(default=None, compare=False)
    unmatched: UnmatchedPolicy | None = field(default=None, compare=False)
    normalizer: tuple[NormalizerName, ...] = field(default=(), compare=False)
    merge_counts: tuple[int | None, ...] | None = field(default=None, compare=False)

    @classmethod
    def from_merge_ids(
        cls,
        tokens: PackedBytes,
        special_tokens: dict[str, int],
        merge_ids: NDArray[np.uint32],
        merging_yields_all: bool = False,
    ) -> Vocab:
        """Make a vocabulary from packed tokens and merges as ids. `tokens` and `merges` are made when first needed.

        Args:
            tokens: the bytes of each id. Except for special tokens, no two are equal.
            special_tokens: as for the class.
            merge_ids: as the property has them.
            merging_yields_all: as for `VocabIds`.

        >>> vocab = Vocab.build([(b"t", b"h"), (b"th", b"e")])
        >>> Vocab.from_merge_ids(PackedBytes.of(vocab.tokens), {}, vocab.merge_ids).merges
        ((b't', b'h'), (b'th', b'e'))
        """
        ordinary = tokens.without(special_tokens.values())
        vocab = cls((), special_tokens, ())
        del vocab.__dict__["tokens"], vocab.__dict__["merges"]  # `__getattr__` makes them
        vocab.__dict__.update(
            _packed=(tokens, ordinary), merge_ids=read_only(merge_ids), merging_yields_all=merging_yields_all
        )
        shares_ids = vocab._merges_special_tokens or any(len(token) == 1 for token in special_tokens)
        return cls(tuple(tokens), special_tokens, vocab.merges) if shares_ids else vocab

    if not TYPE_CHECKING:  # type checkers would accept any name

        def __getattr__(self, name: str) -> tuple[Any, ...]:
            """Make the `tokens` or `merges` that were left out. Python calls this for attributes that are not set."""
            if name == "tokens" and self._packed:
                made = tuple(self._packed[0])
            elif name == "merges" and "merge_ids" in self.__dict__:
                left, right = (map(self.tokens.__getitem__, ids) for ids in self.merge_ids[:, :2].T.tolist())
                made = tuple(zip(left, right, strict=True))
            else:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.__dict__[name] = made
            return made

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the cached properties. Merges are pickled as ids and tokens in one piece, if they are known so."""
        names = {field.name for field in fields(self)} - {"merges"}
        if self._packed:
            names = names - {"tokens"} | {"_packed", "merging_yields_all"}
        state = {name: getattr(self, name) for name in names}
        if "merge_ids" not in self.__dict__ or self._merges_special_tokens:
            return state | {"merges": self.merges}
        return state | {"merge_ids": self.merge_ids}

    @property
    def merge_count(self) -> int:
        """The number of merges."""
        return len(self.merges if "merges" in self.__dict__ else self.merge_ids)

    def annotated(self, **changes: Any) -> Vocab:
        """Return a copy with other values of fields that no id depends on. It shares the cached properties."""
        other = Vocab.__new__(Vocab)
        other.__dict__.update(self.__dict__ | changes)
        return other

    def __len__(self) -> int:
        return len(self._packed[0] if self._packed else self.tokens)

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
        return all(getattr(self, field.name) == getattr(other, field.name) for field in fields(self) if field.compare)

    __hash__ = None  # type: ignore[assignment]  # equal to dicts, which have no hash

    def __repr__(self) -> str:
        """Return a summary. The full content could be hundreds of thousands of characters long."""
        listed = list(self.special_tokens)[:_SPECIAL_TOKENS_IN_REPR]
        if len(self.special_tokens) > len(listed):
            listed.append(f"{len(self.special_tokens) - len(listed):,} more")
        specials = ", ".join(listed) or "none"
        return f"Vocab({len(self):,} tokens, {self.merge_count:,} merges, special tokens: {specials})"

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
        """Build a vocabulary from merges and assign the ids.

        Args:
            merges: the merges by rank.
            special_tokens: the special tokens, in the order of their ids.
            special_tokens_first: whether ids are assigned in HuggingFace's order (special tokens, bytes in the order of
                their printable characters, merges) instead of the default order (bytes, special tokens, merges).
            reuse_tokens: whether a merge that makes the bytes of an existing token, which can be a special token, gets
                its id, as in HuggingFace tokenizers. By default every merge makes a new token.
            max_tokens: the size to stop at. Merges beyond it are left out, so a smaller vocabulary is a prefix of a
                larger one.

        Returns:
            The vocabulary.

        >>> Vocab.build([(b"t", b"h"), (b"th", b"e")], max_tokens=257).merges
        ((b't', b'h'),)
        """
        builder = _VocabBuilder(reuse_tokens)
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

    def extend(
        self,
        merges: Iterable[Merge],
        special_tokens: Iterable[str] = (),
        *,
        reuse_tokens: bool = False,
        max_tokens: int | None = None,
    ) -> Vocab:
        """Return this vocabulary with more special tokens and merges. All ids stay as they are.

        New ids follow the greatest old one: first those of new special tokens, then those of merges. So of the
        vocabularies with more and more merges each is a prefix of the next. A merge that makes the bytes of an ordinary
        token that no merge made so far gets that token's id.

        Args:
            merges: the merges after those of this vocabulary, by rank.
            special_tokens: special tokens. Those already in the vocabulary keep their ids.
            reuse_tokens: as for `build`: special tokens also share an id with ordinary tokens.
            max_tokens: the size to stop at, as for `build`.

        Raises:
            FormatError: as for `merge_ids`.

        >>> Vocab.build([(b"t", b"h")], ["<s>"]).extend([(b"th", b"e")], ["<s>", "<pad>"]).tokens[256:]
        (b'<s>', b'th', b'<pad>', b'the')
        """
        builder = _VocabBuilder(True, self.tokens, self.reusable_ids(special_tokens=reuse_tokens))
        specials = dict(self.special_tokens)
        for token in special_tokens:
            if token not in specials:
                specials[token] = builder.add_special(token) if reuse_tokens else builder.append(token.encode())
        taken = list(self.merges)
        for left, right in merges:
            if max_tokens is not None and len(builder.tokens) >= max_tokens:
                break
            builder.add(left + right)
            taken.append((left, right))
        unknown = (None,) * (len(taken) - len(self.merges))
        return replace(
            self,
            tokens=tuple(builder.tokens),
            special_tokens=specials,
            merges=tuple(taken),
            merge_counts=self.merge_counts and self.merge_counts + unknown,
        )

    def reusable_ids(self, *, special_tokens: bool) -> dict[bytes, int]:
        """Return the id of each string whose token a new merge would not make again.

        Args:
            special_tokens: whether merges also yield special tokens, as in HuggingFace tokenizers.

        Raises:
            FormatError: as for `merge_ids`.
        """
        specials = {mergeable_bytes(token): i for token, i in self.special_tokens.items()} if special_tokens else {}
        ids = specials | {token: i for i, token in enumerate(self.ordinary_tokens)}
        ids.pop(b"", None)
        return ids

    @property
    def longest_token(self) -> bytes:
        """The longest token that is not a special token; of several, the one with the lowest id."""
        specials = set(self.special_tokens.values())
        return max((t for i, t in enumerate(self.tokens) if i not in specials), key=len)

    def to_dict(self) -> dict[int, bytes]:
        """Return the tokens as ``{id: bytes}``, as CS336's ``train_bpe`` does."""
        return dict(enumerate(self.tokens))


class _VocabBuilder:
    """Assigns ids to tokens in the order in which they are added, after the existing ids."""

    def __init__(self, reuse_tokens: bool, tokens: Iterable[bytes] = (), ids: dict[bytes, int] | None = None) -> None:
        self.tokens: list[bytes] = list(tokens)
        self._reuse_tokens = reuse_tokens
        self._ids: dict[bytes, int] = ids or {}

    def add(self, token: bytes, merged_form: bytes | None = None) -> int:
        key = token if merged_form is None else merged_form
        if self._reuse_tokens and key:
            known = self._ids.setdefault(key, len(self.tokens))
            if known < len(self.tokens):
                return known
        return self.append(token)

    def append(self, token: bytes) -> int:
        self.tokens.append(token)
        return len(self.tokens) - 1

    def add_special(self, token: str) -> int:
        return self.add(token.encode(), mergeable_bytes(token))


def check_special_tokens(special_tokens: Iterable[str], reuse_tokens: bool) -> None:
    """Check, before training, that ``vocab.json`` will be able to hold the special tokens and all bytes.

    A special token that is the printable form of a byte, such as ``"a"`` or ``"Ġ"``, would share an entry with that
    byte. With `reuse_tokens` (HuggingFace's way) they also share an id, so nothing is lost.

    Raises:
        ValueError: a special token is the printable form of a byte, and `reuse_tokens` is false.
    """
    for token in special_tokens:
        if token in BYTE_CHARACTERS and len(token) == 1 and not reuse_tokens:
            raise ValueError(describe_byte_conflict(token))


def describe_byte_conflict(special_token: str) -> str:
    """Return the error message for a special token that is the printable form of a byte."""
    byte = BYTE_CHARACTERS.index(special_token)
    return (
        f"special token {special_token!r} is the printable form of byte 0x{byte:02x}, and would replace it in "
        "vocab.json; choose a longer special token, or tie_break: huggingface, where both have the same id"
    )
