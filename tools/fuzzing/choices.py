"""`Choices`: the bytes of an input as decisions, so that a fuzzer that changes bytes changes what is tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Choices:
    """Decisions taken from bytes, first to last. When they are used up every choice is the first one, or 0."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """How many bytes have not been used."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """The next `size` bytes, or as many as there are."""
        taken = self._data[self._at : self._at + size]
        self._at += len(taken)
        return taken

    def below(self, limit: int) -> int:
        """A number from 0 to `limit` - 1, of up to 65,536."""
        return int.from_bytes(self.take(1 if limit <= 256 else 2), "little") % limit

    def flag(self) -> bool:
        return bool(self.below(2))

    def one_of(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def count(self) -> int:
        """A count of any size up to 2^63 - 1: mostly small, and now and then next to a power of two."""
        size = self.below(256)
        if size < 192:
            return size % 8 + 1
        return max(1, min((1 << (size - 191)) - 3 + self.below(6), 2**63 - 1))
