"""`Choices`: turns the bytes of an input into decisions, so that changing bytes changes the test case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Choices:
    """Decisions read from bytes, in order. After the last byte, every choice is the first one, or 0."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        """The number of unused bytes."""
        return len(self._data) - self._position

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes, or fewer at the end."""
        data = self._data[self._position : self._position + size]
        self._position += len(data)
        return data

    def below(self, limit: int) -> int:
        """Return a number from 0 to `limit` - 1. `limit` is at most 65,536."""
        return int.from_bytes(self.take(1 if limit <= 256 else 2), "little") % limit

    def flag(self) -> bool:
        return bool(self.below(2))

    def one_of(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def count(self) -> int:
        """Return a count up to 2^63 - 1, usually small and sometimes close to a power of two."""
        size = self.below(256)
        if size < 192:
            return size % 8 + 1
        return max(1, min((1 << (size - 191)) - 3 + self.below(6), 2**63 - 1))
