r"""The files of counts.

An ``.npz`` has the arrays of `PretokenCounts` as they are. A ``.tsv`` is text, ``pre-token TAB count`` lines in UTF-8,
which can hold pre-tokens that are not UTF-8: backslash, tab, CR, LF and invalid UTF-8 are written as
``\\ \t \r \n \xNN``.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.atomic import atomic_path
from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy, short_repr
from bpeflow.counting.canonical import Arrays
from bpeflow.counting.shards import MAX_COUNT
from bpeflow.errors import ConfigError, FormatError
from bpeflow.pretokenize.normalizer import load_normalizer

#: The version of the layout of an ``.npz``.
_VERSION = 1


class Cut(NamedTuple):
    """How the pre-tokens were cut that superwords are learned from (`bpeflow.counting.units`).

    Attributes:
        base: the hash of the tokenizer whose ids are the units.
        lowest_count: the count below which a pair of units was cut. Merges with at least this count are the same as
            without the cut. No other merges can be learned.
    """

    base: str
    lowest_count: int


#: What an ``.npz`` holds: the arguments of `PretokenCounts`.
NpzContent = tuple[
    NDArray[np.uint8],
    NDArray[np.int64],
    NDArray[np.int64],
    Pattern | None,
    UnmatchedPolicy | None,
    tuple[NormalizerName, ...],
    Cut | None,
]

# ---- arrays ----


def write_npz(path: Path, content: NpzContent) -> None:
    """Write an uncompressed ``.npz`` of plain arrays, without pickle."""
    data, offsets, counts, pattern, unmatched, normalizer, cut = content
    with path.open("wb") as file:
        arrays = {"version": np.array([_VERSION], "<i8"), "data": data}
        arrays["offsets"] = offsets.astype("<i8", copy=False)
        arrays["counts"] = counts.astype("<i8", copy=False)
        if pattern is not None:
            arrays |= {"pattern": np.array(pattern), "unmatched": np.array(unmatched)}
        if normalizer:
            arrays |= {"normalizer": np.array(normalizer)}
        if cut is not None:
            arrays |= {"cut_base": np.array(cut.base), "cut_lowest_count": np.array(cut.lowest_count, "<i8")}
        try:
            np.savez(file, **cast(Any, arrays))
        except ValueError as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # after which zipfile complains
                raise error.__context__ from None
            raise


def read_npz(file: IO[bytes]) -> NpzContent:
    """Read what `write_npz` wrote. Use it in `explain_npz_errors`."""
    _check_sizes(file)
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        if arrays["version"].tolist() != [_VERSION]:
            raise FormatError(f"counts of version {arrays['version']}; this bpeflow reads version {_VERSION}")
        data, offsets, counts = (_native_order(arrays[name]) for name in ("data", "offsets", "counts"))
        if "pattern" not in arrays:
            return data, offsets, counts, None, None, (), None
        names = arrays["normalizer"].tolist() if "normalizer" in arrays else ()
        normalizer = load_normalizer(names).names
        cut = Cut(str(arrays["cut_base"]), int(arrays["cut_lowest_count"])) if "cut_base" in arrays else None
        steps, unmatched = arrays["pattern"].tolist(), str(arrays["unmatched"])
        if unmatched not in get_args(UnmatchedPolicy):
            raise FormatError(f"unmatched is {unmatched!r}; it must be one of {', '.join(get_args(UnmatchedPolicy))}")
        pattern = steps if isinstance(steps, str) else tuple(map(str, steps))
        return data, offsets, counts, pattern, cast(UnmatchedPolicy, unmatched), normalizer, cut


@contextmanager
def explain_npz_errors(path: Path) -> Iterator[None]:
    """Turn the errors of a file that `write_npz` did not write into `FormatError`, with the path."""
    if path.is_dir():
        raise FormatError(f"{path}: is a folder; the counts in a run folder are the file counts.npz")
    try:
        yield
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    except (
        ConfigError, ValueError, KeyError, AttributeError, TypeError, EOFError, RuntimeError, MemoryError,
        zipfile.BadZipFile,
    ) as error:  # fmt: skip
        raise FormatError(
            f"{path}: not a file of pre-token counts, or a damaged one; TSV counts are read from files that end in .tsv"
        ) from error


def _check_sizes(file: IO[bytes]) -> None:
    """Refuse compressed arrays, which may take far more memory than the file has bytes."""
    for member in zipfile.ZipFile(file).infolist():
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise FormatError(f"{member.filename} is compressed, which counts are not; write them again")


def _native_order(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in this processor's byte order, which may differ from the file's."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


# ---- text ----

_ESCAPES = {b"\\": b"\\\\", b"\t": b"\\t", b"\n": b"\\n", b"\r": b"\\r"}  # the backslash comes first

#: What the byte after a backslash means, 0 for nothing, and the value of each hexadecimal digit, 16 for other bytes.
_PLAIN, _DIGITS = np.zeros(256, np.uint8), np.full(256, 16, np.uint8)
_PLAIN[list(b"tnr")] = list(b"\t\n\r")
_DIGITS[list(b"0123456789abcdef")] = range(16)

#: Pre-tokens that are written at a time, to bound the memory of temporary arrays.
_STEP = 1 << 17

#: Bytes that are read at a time, to bound the memory of temporary arrays.
_BLOCK = 1 << 20

#: The most digits of a count, zeros before it included: far fewer than `int` accepts.
_MOST_DIGITS = 99


def write_tsv(path: Path, data: NDArray[np.uint8], offsets: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    """Write pre-tokens and their counts, given as the arrays of `PretokenCounts`."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        for start in range(0, len(counts), _STEP):
            bounds = offsets[start : start + _STEP + 1]
            part, ends = data[bounds[0] : bounds[-1]], bounds[1:] - bounds[0]
            # An escape is one byte longer.
            ends += np.cumsum(np.isin(part, np.frombuffer(b"".join(_ESCAPES), np.uint8)))[ends - 1]
            text = part.tobytes()
            for plain, escaped in _ESCAPES.items():
                text = text.replace(plain, escaped)
            lines = np.insert(np.frombuffer(text, np.uint8), ends, ord("\n")).tobytes()
            # Invalid UTF-8 becomes \xNN.
            tokens = lines.decode("utf-8", errors="backslashreplace").encode().split(b"\n")
            file.writelines(map(b"%s\t%d\n".__mod__, zip(tokens, counts[start : start + _STEP].tolist(), strict=False)))


def read_tsv(path: Path) -> Arrays:
    """Read lines of distinct pre-tokens into the arrays of `PretokenCounts`, in the order of the file.

    Equal pre-tokens are left to the caller (`second_of_equals`). Raises `FormatError`, with the path and the line, for
    anything else.
    """
    data, lengths, counts = bytearray(), bytearray(), bytearray()
    with path.open("rb") as file:
        while block := file.read(_BLOCK) + file.readline():
            part = _parse(block.removesuffix(b"\n") + b"\n", path, len(counts) // 8 + 1)
            data += part[0].data
            lengths += part[1].data
            counts += part[2].data
    offsets = np.append(0, np.cumsum(np.frombuffer(lengths, np.int64)))
    return np.frombuffer(data, np.uint8), offsets, np.frombuffer(counts, np.int64)


def second_of_equals(path: Path, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> FormatError:
    """Return the error of a file in which a pre-token occurs twice."""
    packed = data.tobytes()
    tokens = [packed[start:end] for start, end in pairwise(offsets.tolist())]
    token = Counter(tokens).most_common(1)[0][0]
    line = tokens.index(token, tokens.index(token) + 1) + 1
    return FormatError(f"{path}, line {line}: the pre-token {token!r} occurs twice")


def _parse(block: bytes, path: Path, first: int) -> Arrays:
    """Return the bytes of pre-tokens, their lengths and their counts. The block is whole lines, the first `first`."""
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    starts = np.append(0, ends[:-1] + 1)
    tabs = np.append(np.flatnonzero(text == ord("\t")), len(text))
    tabs = tabs[np.searchsorted(tabs, starts)]
    counts = _numbers(text, tabs + 1, ends)
    if len(wrong := np.flatnonzero((counts == 0) | (tabs == starts))):
        where = f"{path}, line {first + wrong[0]}"
        if counts[wrong[0]]:
            raise FormatError(f"{where}: an empty pre-token")
        raise FormatError(
            f"{where}: must be a pre-token, a tab and an integer of at least 1 and at most {MAX_COUNT}, found "
            f"{short_repr(block[starts[wrong[0]] : ends[wrong[0]]])}"
        )
    changes = np.zeros(len(text), np.int8)
    changes[starts], changes[tabs] = 1, -1
    is_kept = np.cumsum(changes, dtype=np.int8).astype(bool)
    is_kept[ends] = True
    return (*_unescape(text[is_kept].tobytes(), path, first), counts)


def _numbers(text: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the decimal numbers between some places of a text; 0 for anything else, and for more than 64 bits."""
    numbers, widths = np.zeros(len(starts), np.int64), ends - starts
    left = np.flatnonzero((widths > 0) & (widths <= _MOST_DIGITS))
    for place in range(widths[left].max(initial=0)):
        left = left[widths[left] > place]
        digits = text[starts[left] + place] - np.uint8(ord("0"))
        fits = (digits <= 9) & (numbers[left] <= (MAX_COUNT - digits.astype(np.int64)) // 10)
        numbers[left[~fits]] = 0
        left = left[fits]
        numbers[left] = numbers[left] * 10 + digits[fits]
    return numbers


def _unescape(lines: bytes, path: Path, first: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of pre-tokens, and their lengths. Each is a line."""
    # A pair of backslashes is an escape of its own wherever it begins, and no line has a tab.
    text = np.frombuffer(lines.replace(b"\\\\", b"\t") + b"\n\n", np.uint8)
    ends = np.flatnonzero(text == ord("\n"))[:-2]
    at = np.flatnonzero(text == ord("\\"))
    plain, high, low = _PLAIN[text[at + 1]], _DIGITS[text[at + 2]], _DIGITS[text[at + 3]]
    is_byte = (text[at + 1] == ord("x")) & (high < 16) & (low < 16)
    if len(wrong := at[~is_byte & (plain == 0)]):
        escape = text[wrong[0] : wrong[0] + 2].tobytes().rstrip(b"\n").decode(errors="replace")
        line = first + np.searchsorted(ends, wrong[0])
        raise FormatError(f"{path}, line {line}: unknown escape {escape}")
    data = np.where(text == ord("\t"), np.uint8(ord("\\")), text)
    data[at] = np.where(is_byte, high * 16 + low, plain)
    is_kept = text != ord("\n")
    is_kept[at + 1] = False
    is_kept[at[is_byte] + 2] = is_kept[at[is_byte] + 3] = False
    return data[is_kept], np.diff(np.cumsum(is_kept)[ends], prepend=0)
