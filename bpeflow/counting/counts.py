"""`PretokenCounts`: how often each distinct pre-token occurs. The result of counting and the input of learning."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from operator import index, mul
from pathlib import Path
from typing import Any, SupportsIndex, cast

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.atomic import atomic_path
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy, as_path
from bpeflow.counting.canonical import Arrays, canonical
from bpeflow.counting.count_files import (
    Cut,
    NpzContent,
    explain_npz_errors,
    read_npz,
    read_tsv,
    second_of_equals,
    write_npz,
    write_tsv,
)
from bpeflow.counting.shards import MAX_COUNT
from bpeflow.errors import CountOverflowError, FormatError, InputTypeError
from bpeflow.flow.shared import Descriptor, owned


class PretokenCounts(Mapping[bytes, int]):
    """An immutable mapping from each distinct pre-token to its count, in canonical order.

    In canonical order counts descend, and pre-tokens of equal count ascend by their bytes. It makes everything computed
    from the table deterministic, lets a backend find a pre-token's count from its position alone, and puts frequent
    pre-tokens on the same cache lines.

    >>> counts = PretokenCounts.from_mapping({"low": 5, " lower": 2, " newest": 5})
    >>> counts
    PretokenCounts(3 distinct pre-tokens, 12 in all)
    >>> list(counts.items())
    [(b' newest', 5), (b'low', 5), (b' lower', 2)]
    >>> counts["low"], counts[b"low"], "high" in counts
    (5, 5, False)
    >>> (counts + PretokenCounts.from_mapping({"low": 1, "high": 2})).most_common(2)
    [(b'low', 6), (b' newest', 5)]
    >>> counts.data.tobytes(), counts.offsets.tolist(), counts.counts.tolist()
    (b' newestlow lower', [0, 7, 10, 16], [5, 5, 2])

    The first look-up of a pre-token builds an index of all, about 150 bytes each; iteration needs none.

    Attributes:
        pattern: the split pattern that they were counted with; None if it is unknown. Counts are compared without it,
            and only ``.npz`` files store it.
        unmatched: what was done with text that the pattern did not match; None if the pattern is unknown.
        normalizer: the names of the normalizers of the text; empty if the pattern is unknown.
        cut: for counts of a large corpus for superwords, how the pre-tokens were cut; None if they are whole.
    """

    __slots__ = ("_arrays", "_file", "_index", "_size", "cut", "normalizer", "pattern", "unmatched")

    def __init__(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        counts: NDArray[np.int64],
        pattern: Pattern | None = None,
        unmatched: UnmatchedPolicy | None = None,
        normalizer: tuple[NormalizerName, ...] = (),
        cut: Cut | None = None,
    ) -> None:
        """Wrap three arrays, which must be in canonical order and without duplicates. They become read-only.

        The order of pre-tokens is not checked: code on the fast path builds the arrays in order, and `load` checks
        files.

        Raises:
            FormatError: the arrays do not fit together, or the counts are out of order.
        """
        _check_arrays(data, offsets, counts)
        self._arrays: Arrays | None = (data, offsets, counts)
        self._size = len(counts)
        self._file: Descriptor | None = None
        self._index: dict[bytes, int] | None = None
        self.pattern = pattern
        self.unmatched = unmatched
        self.normalizer = normalizer
        self.cut = cut
        for array in (data, offsets, counts):
            array.setflags(write=False)

    @property
    def data(self) -> NDArray[np.uint8]:
        """`uint8[offsets[n]]`: the bytes of the pre-tokens, one after another."""
        return self._loaded()[0]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """`int64[n + 1]`: pre-token `i` is `data[offsets[i]:offsets[i + 1]]`, at least one byte long."""
        return self._loaded()[1]

    @property
    def counts(self) -> NDArray[np.int64]:
        """`int64[n]`: the count of each pre-token, at least 1."""
        return self._loaded()[2]

    def kept_in(self, path: Path) -> None:
        """Remember an ``.npz`` that has these counts, for `unload`. It may be renamed or replaced later."""
        self._file = owned(os.open, path, os.O_RDONLY | os.O_CLOEXEC)

    def unload(self) -> None:
        """Free the arrays until they are needed again, if `kept_in` has named a file with them."""
        if self._file is not None:
            self._arrays = self._index = None

    def _loaded(self) -> Arrays:
        """Return the arrays, read again after `unload`."""
        if self._arrays is None and self._file is not None:
            with explain_npz_errors(Path("the counts of this run")):
                self._arrays = PretokenCounts(*read_npz(self._file))._arrays
        return cast(Arrays, self._arrays)

    @classmethod
    def from_items(cls, items: Iterable[tuple[bytes, int]]) -> PretokenCounts:
        """Build from distinct pre-tokens and their counts, in any order.

        >>> len(PretokenCounts.from_items([(b"low", 5), (b"er", 7)]))
        2

        Args:
            items: `(pre-token, count)` pairs. Counts may be numpy integers, but not bools.

        Raises:
            CountOverflowError: a count does not fit 64 bits.
            FormatError: a pre-token is empty or occurs twice, or a count is below 1 or not an integer.
        """
        tokens, numbers = [], []
        for token, count in items:
            tokens.append(token)
            numbers.append(_checked(token, count))
        if b"" in tokens:
            raise FormatError("an empty pre-token")
        packed = PackedBytes.of(tokens)
        counts = cls(*canonical(np.frombuffer(packed.data, np.uint8), packed.offsets, np.array(numbers, np.int64)))
        if len(counts) < len(tokens):
            raise FormatError(f"the pre-token {Counter(tokens).most_common(1)[0][0]!r} occurs twice")
        return counts

    @classmethod
    def from_mapping(cls, counts: Mapping[bytes, int] | Mapping[str, int]) -> PretokenCounts:
        """Build from a mapping of pre-tokens to counts.

        Args:
            counts: `{pre-token: count}` in any order. Keys are `bytes`, or `str` to be encoded as UTF-8.

        Raises:
            CountOverflowError: a count does not fit 64 bits.
            FormatError: as for `from_items`, or a `str` has a lone surrogate.
            InputTypeError: it is not a mapping, or a key is neither `bytes` nor `str`.
        """
        if not isinstance(counts, Mapping):
            hint = "; PretokenCounts.load reads a file" if isinstance(counts, str | Path) else ""
            raise InputTypeError(f"counts must be a mapping of pre-token to count, not {type(counts).__name__}{hint}")
        encoded = {_encode(token): count for token, count in counts.items()}
        if len(encoded) != len(counts):
            raise FormatError("a pre-token occurs twice, once as str and once as bytes")
        return cls.from_items(encoded.items())

    def with_pattern(
        self, pattern: Pattern, unmatched: UnmatchedPolicy = "isolate", normalizer: tuple[NormalizerName, ...] = ()
    ) -> PretokenCounts:
        """Return the same counts, labelled with the pattern and the normalizer of the counting."""
        return PretokenCounts(self.data, self.offsets, self.counts, pattern, unmatched, normalizer, self.cut)

    def with_cut(self, cut: Cut) -> PretokenCounts:
        """Return the same counts, labelled with how pre-tokens were cut."""
        return PretokenCounts(*self._content[:-1], cut)

    def thin(self, below: int, keep: float) -> PretokenCounts:
        """Return the counts with fewer rare pre-tokens, as the setting `thin_rare` does before merges are learned.

        Of the pre-tokens counted less than `below`, one in 1/keep is kept, with its count times 1/keep. A fixed hash of
        the bytes decides (`bpeflow.counting.shards.hash_of`), so the result depends only on the counts and the two
        arguments. A smaller `keep` keeps a subset of the same pre-tokens.

        >>> counts = PretokenCounts.from_mapping({"low": 5, "er": 2, "new": 2, "est": 2, "age": 1})
        >>> list(counts.thin(below=5, keep=0.5).items())
        [(b'low', 5), (b'er', 4), (b'est', 4)]

        Args:
            below: pre-tokens with lower counts are rare.
            keep: the share of rare pre-tokens to keep: one divided by a whole number, such as 0.1. 1 keeps all.

        Raises:
            SettingsError: an argument is out of range.
            CountOverflowError: a multiplied count does not fit 64 bits.
        """
        from bpeflow.config import ThinRare, make_settings  # pydantic, which counts alone do not need

        chosen = make_settings(ThinRare, {"below": below, "keep": keep})
        thinned = canonical(*self._loaded(), chosen.below, chosen.one_in)
        return PretokenCounts(*thinned, self.pattern, self.unmatched, self.normalizer, self.cut)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        """Yield the pre-tokens in canonical order."""
        return (token for token, _ in self._pairs(len(self)))

    def __getitem__(self, token: bytes | str) -> int:
        """Return the count of a pre-token; a `str` means its UTF-8 bytes. Raises `KeyError` if there is none."""
        if self._index is None:
            self._index = dict(self._pairs(len(self)))
        return self._index[token.encode("utf-8", "surrogatepass") if isinstance(token, str) else token]

    def items(self) -> ItemsView[bytes, int]:
        """Return a view of the `(pre-token, count)` pairs in canonical order."""
        return _Items(self)

    def most_common(self, n: int | None = None) -> list[tuple[bytes, int]]:
        """Return the `n` most frequent pre-tokens with their counts, or all, in canonical order."""
        return list(self._pairs(len(self) if n is None else min(max(n, 0), len(self))))

    def _pairs(self, number: int) -> Iterator[tuple[bytes, int]]:
        data = self.data[: self.offsets[number]].tobytes()
        start = 0
        for end, count in zip(self.offsets[1 : number + 1].tolist(), self.counts[:number].tolist(), strict=True):
            yield data[start:end], count
            start = end

    def __add__(self, other: object) -> PretokenCounts:
        """Return the counts of both corpora together.

        Raises:
            CountOverflowError: a sum does not fit 64 bits.
            FormatError: pre-tokens were cut (`cut`), each corpus at its own pairs.
        """
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        if self.cut or other.cut:
            raise FormatError(
                "counts of pre-tokens that were cut for superwords cannot be added up: count both at once"
            )
        data, counts = (np.concatenate([getattr(each, name) for each in (self, other)]) for name in ("data", "counts"))
        offsets = np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]])
        added = PretokenCounts(*canonical(data, offsets, counts))
        ways = [(counts.pattern, counts.unmatched, counts.normalizer) for counts in (self, other)]
        if self.pattern is None or ways[0] != ways[1]:
            return added
        return added.with_pattern(self.pattern, self.unmatched or "isolate", self.normalizer)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PretokenCounts):
            return super().__eq__(other)
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in ("data", "offsets", "counts"))

    __hash__ = None  # type: ignore[assignment]  # equality compares the content, which is too large to hash

    @property
    def _content(self) -> NpzContent:
        return self.data, self.offsets, self.counts, self.pattern, self.unmatched, self.normalizer, self.cut

    def __reduce__(self) -> tuple[Any, ...]:
        return PretokenCounts, self._content

    def __repr__(self) -> str:
        return f"PretokenCounts({len(self):,} distinct pre-tokens, {self.total:,} in all)"

    @property
    def total(self) -> int:
        """The number of pre-tokens in the corpus, including repetitions. Exact, even beyond 64 bits."""
        if len(self) * int(self.counts.max(initial=0)) <= MAX_COUNT:
            return int(np.sum(self.counts))
        return sum(self.counts.tolist())

    @property
    def total_bytes(self) -> int:
        """The number of bytes in the pre-tokens of the corpus, including repetitions. Exact, even beyond 64 bits."""
        lengths = np.diff(self.offsets)
        if self.total * int(lengths.max(initial=0)) <= MAX_COUNT:
            return int(np.dot(lengths, self.counts))
        return sum(map(mul, lengths.tolist(), self.counts.tolist()))

    def save(self, path: str | Path) -> None:
        """Write an uncompressed ``.npz`` of plain arrays, without pickle. The file appears atomically."""
        with atomic_path(as_path(path, "path")) as temporary:
            self.dump(temporary)

    def dump(self, path: Path) -> None:
        """Write as `save` does, but not atomically: the caller gives the file its name when it is complete."""
        write_npz(path, self._content)

    @classmethod
    def load(cls, path: str | Path) -> PretokenCounts:
        """Read a file that `save` wrote. Raises `FormatError`, with the path, for any other file."""
        with explain_npz_errors(path := as_path(path, "path")), path.open("rb") as file:
            counts = cls(*read_npz(file))
            ordered = cls(*canonical(*counts._loaded()))
            if len(ordered) < len(counts):
                raise FormatError("a pre-token occurs twice")
            if ordered != counts:
                raise FormatError("pre-tokens of equal count are not in ascending order of bytes")
            return counts

    @classmethod
    def read(cls, path: str | Path) -> PretokenCounts:
        """Read a file in the format of its ending, in any case: ``.npz`` (see `load`) or ``.tsv``.

        Raises:
            FormatError: the file has another ending, or is not in the format of its ending.
            OSError: the file does not exist or cannot be read.
        """
        if _ending(path) == ".npz":
            return cls.load(path)
        data, offsets, numbers = read_tsv(Path(path))
        counts = cls(*canonical(data, offsets, numbers))
        if len(counts) < len(numbers):
            raise second_of_equals(Path(path), data, offsets)
        return counts

    def write(self, path: str | Path) -> None:
        """Write a file in the format of its ending, in any case: ``.npz`` (see `save`) or ``.tsv``.

        TSV has lines ``pre-token TAB count``. Raises `FormatError` if the file has another ending, or if
        pre-tokens were cut, which only ``.npz`` stores.
        """
        if _ending(path) == ".npz":
            self.save(path)
        elif self.cut:
            raise FormatError(f"{path}: pre-tokens were cut for superwords, and only .npz says how")
        else:
            write_tsv(Path(path), *self._loaded())


class _Items(ItemsView[bytes, int]):
    """The pairs of a table, read from its arrays rather than looked up one by one."""

    def __init__(self, counts: PretokenCounts) -> None:
        super().__init__(counts)
        self._counts = counts

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        return self._counts._pairs(len(self._counts))


def _ending(path: str | Path) -> str:
    ending = as_path(path, "path").suffix.lower()
    if ending not in (".npz", ".tsv"):
        raise FormatError(f"{path}: the ending decides the format of counts; it must be .npz or .tsv")
    return ending


def _checked(token: bytes, count: SupportsIndex) -> int:
    """Return a count as an integer, if it is one, and in range."""
    try:
        number = 0 if isinstance(count, bool) else index(count)
    except TypeError:
        number = 0
    if number < 1:
        raise FormatError(f"the count of pre-token {token!r} must be an integer of at least 1, found {count!r}")
    if number > MAX_COUNT:
        raise CountOverflowError(f"the count of pre-token {token!r} does not fit 64 bits")
    return number


def _encode(token: str | bytes) -> bytes:
    if not isinstance(token, str | bytes):
        raise InputTypeError(f"the pre-token {token!r} is {type(token).__name__}; it must be bytes or str")
    try:
        return token.encode() if isinstance(token, str) else token
    except UnicodeEncodeError:
        raise FormatError(f"pre-token {token!r} has a lone surrogate, which UTF-8 cannot encode") from None


def _check_arrays(data: NDArray[Any], offsets: NDArray[Any], counts: NDArray[Any]) -> None:
    if data.dtype != np.uint8 or offsets.dtype != np.int64 or counts.dtype != np.int64:
        raise FormatError(f"arrays of types {data.dtype}, {offsets.dtype}, {counts.dtype}; need uint8, int64, int64")
    if not (data.ndim == offsets.ndim == counts.ndim == 1) or len(offsets) != len(counts) + 1:
        raise FormatError(f"arrays of shapes {data.shape}, {offsets.shape}, {counts.shape} do not fit together")
    if offsets[0] != 0 or offsets[-1] != len(data) or np.any(offsets[1:] <= offsets[:-1]):
        raise FormatError("the offsets do not divide the bytes into pre-tokens of at least one byte")
    if len(counts) and (counts[-1] < 1 or np.any(counts[1:] > counts[:-1])):
        raise FormatError("counts are below 1 or not in descending order")
