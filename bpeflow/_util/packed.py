"""`PackedBytes`: many byte strings in one piece of memory, as native code reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class PackedBytes(Sequence[bytes]):
    """A sequence of byte strings without an object for each, which are only made when someone asks for them.

    Attributes:
        data: all strings, one after another.
        offsets: the offset in `data` at which each string starts, and the one at which the last ends.

    >>> packed = PackedBytes.of([b"the", b"", b"he"])
    >>> packed.data, packed.offsets.tolist(), packed[2], len(packed)
    (b'thehe', [0, 3, 3, 5], b'he', 3)
    """

    data: bytes
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, strings: Collection[bytes]) -> PackedBytes:
        """Pack strings."""
        return cls.of_lengths(b"".join(strings), np.fromiter(map(len, strings), np.int64, len(strings)))

    @classmethod
    def of_lengths(cls, data: bytes, lengths: NDArray[np.int64]) -> PackedBytes:
        """Pack strings that are in one piece already, given their lengths."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(data, offsets)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each string."""
        return np.diff(self.offsets)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PackedBytes):
            return NotImplemented
        return self.data == other.data and np.array_equal(self.offsets, other.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        if isinstance(index, slice):
            return tuple(map(self.__getitem__, range(len(self))[index]))
        at = range(len(self))[index]
        return self.data[self.offsets[at] : self.offsets[at + 1]]

    def __iter__(self) -> Iterator[bytes]:
        return iter([self.data[start:end] for start, end in pairwise(self.offsets.tolist())])

    def singles(self) -> dict[bytes, int]:
        """Return the lowest index of each string of one byte.

        >>> PackedBytes.of([b"b", b"ab", b"a", b"b"]).singles()
        {b'b': 0, b'a': 2}
        """
        found: dict[bytes, int] = {}
        for index in np.flatnonzero(self.lengths == 1).tolist():
            found.setdefault(self[index], index)
        return found

    def plus(self, strings: Collection[bytes]) -> PackedBytes:
        """Return these strings and, after them, more."""
        if not strings:
            return self
        more = PackedBytes.of(strings)
        return PackedBytes(self.data + more.data, np.concatenate([self.offsets, self.offsets[-1] + more.offsets[1:]]))

    def replaced(self, strings: Mapping[int, bytes]) -> PackedBytes:
        """Return these strings with others at some indices.

        >>> [*PackedBytes.of([b"x", b"", b"yz"]).replaced({1: b"new", 2: b""})]
        [b'x', b'new', b'']
        """
        if not strings:
            return self
        lengths, kept = self.lengths, 0
        pieces: list[bytes] = []
        for index in sorted(strings):
            pieces += self.data[kept : self.offsets[index]], strings[index]
            kept, lengths[index] = self.offsets[index + 1], len(strings[index])
        return PackedBytes.of_lengths(b"".join([*pieces, self.data[kept:]]), lengths)

    def without(self, indices: Iterable[int]) -> PackedBytes:
        """Return the strings with empty ones at some indices."""
        return self.replaced(dict.fromkeys(indices, b""))

    def taken(self, indices: NDArray[np.integer[Any]]) -> PackedBytes:
        """Return the strings at some indices, in their order, which may repeat.

        >>> [*PackedBytes.of([b"x", b"", b"yz"]).taken(np.array([2, 1, 0, 2]))]
        [b'yz', b'', b'x', b'yz']
        """
        starts = self.offsets[indices]
        taken = PackedBytes.of_lengths(b"", self.offsets[indices + 1] - starts)
        moved = np.repeat(starts - taken.offsets[:-1], taken.lengths)
        data = np.frombuffer(self.data, np.uint8)[moved + np.arange(len(moved))]
        return PackedBytes(data.tobytes(), taken.offsets)

    def placed(self, indices: NDArray[np.int64], limit: int) -> PackedBytes:
        """Return the strings at other indices, with empty ones where there is none.

        Args:
            indices: the index of each string.
            limit: the greatest length of the result.

        Raises:
            ValueError: two indices are equal, or one is negative or too large.

        >>> [*PackedBytes.of([b"x", b"yz"]).placed(np.array([3, 1]), 4)]
        [b'', b'yz', b'', b'x']
        """
        order = np.argsort(indices, kind="stable")
        indices, strings = indices[order], self if (order[1:] > order[:-1]).all() else self.taken(order)
        if not (indices[1:] > indices[:-1]).all():
            raise ValueError("two indices are equal")
        if len(indices) and not 0 <= indices[0] <= indices[-1] < limit:
            raise ValueError("an index is negative or too large")
        placed = np.zeros(indices[-1] + 1 if len(indices) else 0, np.int64)
        placed[indices] = strings.lengths
        return PackedBytes.of_lengths(strings.data, placed)
