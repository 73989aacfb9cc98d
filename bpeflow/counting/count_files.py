r"""The files of counts.

An ``.npz`` has the arrays of `PretokenCounts` as they are. A ``.tsv`` is text, ``pre-token TAB count`` lines in UTF-8,
which can hold pre-tokens that are not UTF-8: backslash, tab, CR, LF and invalid UTF-8 are written as
``\\ \t \r \n \xNN``.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.atomic import atomic_path
from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy, short_repr
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
_UNESCAPES = {escaped: plain for plain, escaped in _ESCAPES.items()}
_ESCAPE = re.compile(rb"\\(?:x[0-9a-f]{2}|.?)", re.DOTALL)

#: Pre-tokens that are written at a time, to bound the memory of temporary arrays.
_STEP = 1 << 17

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


def read_tsv(path: Path) -> dict[bytes, int]:
    """Read lines of distinct pre-tokens. Raises `FormatError`, with the path and the line, for anything else."""
    counts: dict[bytes, int] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            escaped, _, digits = line.removesuffix(b"\n").partition(b"\t")
            count = int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else 0
            where = f"{path}, line {number}"
            if not 1 <= count <= MAX_COUNT:
                raise FormatError(
                    f"{where}: must be a pre-token, a tab and an integer of at least 1 and at most {MAX_COUNT}, found "
                    f"{short_repr(line)}"
                )
            token = _unescape(escaped, where) if b"\\" in escaped else escaped
            if not token:
                raise FormatError(f"{where}: an empty pre-token")
            if token in counts:
                raise FormatError(f"{where}: the pre-token {token!r} occurs twice")
            counts[token] = count
    return counts


def _unescape(escaped: bytes, where: str) -> bytes:
    def plain(match: re.Match[bytes]) -> bytes:
        if match[0] in _UNESCAPES:
            return _UNESCAPES[match[0]]
        if match[0].startswith(b"\\x") and len(match[0]) == 4:
            return bytes([int(match[0][2:], 16)])
        raise FormatError(f"{where}: unknown escape {match[0].decode(errors='replace')}")

    return _ESCAPE.sub(plain, escaped)
