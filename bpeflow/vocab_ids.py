"""`VocabIds`: the ids that follow from the tokens and the merges of a vocabulary."""

from __future__ import annotations

import operator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bpeflow._util.byte_level import UTF8_BYTES, mergeable_bytes
from bpeflow._util.packed import PackedBytes
from bpeflow.errors import FormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class VocabIds:
    """The part of `Vocab` that is computed. Each property is computed once, when it is first needed."""

    tokens: tuple[bytes, ...]
    special_tokens: dict[str, int]
    merges: tuple[tuple[bytes, bytes], ...]

    #: Whether merging the bytes of each ordinary token is known to yield that token.
    merging_yields_all = False

    #: The tokens, and the ordinary ones, in one piece; None if they were not given so.
    _packed: tuple[PackedBytes, PackedBytes] | None = None

    def packed(self) -> tuple[PackedBytes, PackedBytes]:
        """Return `decoded_tokens` and `ordinary_tokens`, each in one piece."""
        return self._packed or (PackedBytes.of(self.decoded_tokens), PackedBytes.of(self.ordinary_tokens))

    def packed_tokens(self) -> PackedBytes:
        """Return `tokens` in one piece."""
        return self._packed[0] if self._packed else PackedBytes.of(self.tokens)

    def packed_merges(self) -> tuple[PackedBytes, PackedBytes]:
        """Return the left and the right sides of `merges`, each in one piece."""
        if "merges" in self.__dict__:
            return PackedBytes.of([left for left, _ in self.merges]), PackedBytes.of(
                [right for _, right in self.merges]
            )
        tokens, sides = self.packed_tokens(), self.merge_ids
        return tokens.taken(sides[:, 0]), tokens.taken(sides[:, 1])

    @cached_property
    def byte_ids(self) -> tuple[int, ...]:
        """The id of each of the 256 bytes: of its own token, or of the special token that it shares an id with.

        Bytes that UTF-8 never has, and that published vocabularies may leave out, then have the id 0.

        Raises:
            FormatError: another byte has no id.
        """
        ids = self._packed[1].singles() if self._packed else self._ids
        missing = [byte for byte in range(256) if bytes([byte]) not in ids]
        if not set(UTF8_BYTES).isdisjoint(missing):
            raise FormatError(
                f"the vocabulary has no token for {len(missing)} of the 256 bytes, the first of them 0x{missing[0]:02x}"
            )
        return tuple(ids.get(bytes([byte]), 0) for byte in range(256))

    @cached_property
    def merge_ids(self) -> NDArray[np.uint32]:
        """The merges as ids: an array of shape (merges, 3) with the columns left, right and result.

        If a merge and a special token have the same bytes but separate ids, the result is the merge's own id. If they
        share an id, as in HuggingFace's mode, the result is the shared id. Merges that make the same string have the
        same result.

        Raises:
            FormatError: a part or the result of a merge has no id. The message has the merge's rank and bytes.
        """
        left, right = [left for left, _ in self.merges], [right for _, right in self.merges]
        id_of = self._ids.__getitem__
        merge_ids = np.empty((len(left), 3), np.uint32)
        try:
            for column, tokens in enumerate((left, right, map(operator.add, left, right))):
                merge_ids[:, column] = np.fromiter(map(id_of, tokens), np.uint32, len(left))
        except KeyError:
            raise self._unfit_merge() from None
        return read_only(merge_ids)

    @cached_property
    def ordinary_tokens(self) -> tuple[bytes, ...]:
        """The bytes of each id that encoding ordinary text can yield; ``b""`` for all other ids.

        Ordinary text never yields a special token, unless that shares its id with a byte or a merge. Of two ids with
        the same bytes, it never yields the higher.

        Raises:
            FormatError: as for `merge_ids`.
        """
        if self._packed:
            return tuple(self._packed[1])
        ordinary, ids = self._own_tokens(), self._ids
        if len(self._own_ids) < len(ordinary) - ordinary.count(b""):  # two ids have the same bytes
            ordinary = [token if ids.get(token) == token_id else b"" for token_id, token in enumerate(ordinary)]
        shared = np.flatnonzero(np.isin(self.merge_ids[:, 2], [*self._special_ids]))
        for token in [*(b"".join(self.merges[rank]) for rank in shared), *(bytes([byte]) for byte in range(256))]:
            if token in ids:
                ordinary[ids[token]] = token
        return tuple(ordinary)

    @cached_property
    def decoded_tokens(self) -> tuple[bytes, ...]:
        """The bytes that each id is decoded to: those of ordinary text if that can yield the id, else the token's own.

        The two differ if a special token shares its id with other bytes, as ``"Ġthe"`` can with ``b" the"`` in
        HuggingFace's mode. Then ordinary text survives the round trip. HuggingFace also decodes such a special token to
        the other bytes.

        Raises:
            FormatError: as for `merge_ids`.
        """
        decoded = list(self.tokens)
        for token_id in self._special_ids:
            decoded[token_id] = self.ordinary_tokens[token_id] or decoded[token_id]
        return tuple(decoded)

    @cached_property
    def token_ids(self) -> dict[bytes, int]:
        """The id of each token by its bytes: the id that encoding yields for them.

        If a special token has the same bytes as an ordinary one, but an id of its own, the id is the ordinary one's.

        Raises:
            FormatError: as for `merge_ids`.
        """
        specials = {token.encode(): token_id for token, token_id in self.special_tokens.items()}
        return specials | {token: token_id for token_id, token in enumerate(self.ordinary_tokens) if token}

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """The id of each byte string: the lowest id of an ordinary token, else the id of a special token.

        A special token provides the id of two strings: of the bytes that HuggingFace takes it for while merging
        (`mergeable_bytes`) and, with lower precedence, of its own bytes.
        """
        specials = {token_id: token for token, token_id in self.special_tokens.items()}
        same_bytes = {token.encode(): token_id for token_id, token in specials.items()}
        shared = {mergeable_bytes(token): token_id for token_id, token in specials.items()}
        ids = self._own_ids.copy()
        for token, token_id in (same_bytes | shared).items():
            ids.setdefault(token, token_id)
        ids.pop(b"", None)
        return ids

    @cached_property
    def _own_ids(self) -> dict[bytes, int]:
        """The lowest id of each token that is not special."""
        own = self._own_tokens()
        ids = dict(zip(reversed(own), reversed(range(len(own))), strict=True))
        ids.pop(b"", None)
        return ids

    def _own_tokens(self) -> list[bytes]:
        """Return the tokens, with ``b""`` for special ones."""
        own = [*self.tokens]
        for token_id in self._special_ids:
            own[token_id] = b""
        return own

    @property
    def _special_ids(self) -> set[int]:
        return {token_id for token_id in self.special_tokens.values() if token_id < len(self.tokens)}

    @property
    def _merges_special_tokens(self) -> bool:
        """Whether a merge has the id of a special token, which may have other bytes than the merge."""
        return bool(np.isin(self.merge_ids, [*self.special_tokens.values()]).any())

    def _unfit_merge(self) -> FormatError:
        rank, (left, right) = next(
            (r, m) for r, m in enumerate(self.merges) if not {*m, m[0] + m[1]} <= self._ids.keys()
        )
        missing = next(part for part in (left, right, left + right) if part not in self._ids)
        return FormatError(
            f"merge {rank}, {left!r} + {right!r}, does not fit the vocabulary, which has no token {missing!r}; "
            "do the merges and the vocabulary belong to the same tokenizer?"
        )


def read_only(merge_ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Protect an array, which others share, from changes."""
    merge_ids.flags.writeable = False
    return merge_ids
