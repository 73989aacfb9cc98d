"""Merges in GPT-2's printable form, as ``merges.txt`` and ``tokenizer.json`` have them.

Merges become ids by way of their printable forms. Their bytes are not needed before someone asks for them.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.byte_level import BYTE_CHARACTERS, from_printable, to_printable
from bpeflow._util.native import load_library
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import short_repr
from bpeflow.errors import FormatError, NativeUnavailableError
from bpeflow.formats.untrusted import place_tokens
from bpeflow.vocab import Merge, Vocab

#: The left and the right sides of merges, in printable form.
Sides = tuple[Sequence[str], Sequence[str]]

_NO_BYTE = 256
_BYTE_OF = np.full(ord(max(BYTE_CHARACTERS)) + 1, _NO_BYTE, np.uint16)
_BYTE_OF[[*map(ord, BYTE_CHARACTERS)]] = range(256)


def are_printable(forms: Collection[str]) -> bool:
    """Return whether all forms are in printable form, and none is empty."""
    return all(forms) and _join_bytes(forms) is not None


def bytes_of_forms(forms: Collection[str]) -> PackedBytes | None:
    """Return the bytes of each form; None if one of them is not in printable form.

    >>> list(bytes_of_forms(["Ġthe", "a"]))
    [b' the', b'a']
    """
    joined = _join_bytes(forms)
    if joined is None:
        return None
    return PackedBytes.of_lengths(joined, np.fromiter(map(len, forms), np.int64, len(forms)))  # a character is a byte


def _join_bytes(forms: Iterable[str]) -> bytes | None:
    """Return what `from_printable` returns for the joined forms, in an eighth of the time."""
    codes = np.frombuffer("".join(forms).encode("utf-32-le", "surrogatepass"), "<u4")
    if not len(codes):
        return b""
    if codes.max() >= len(_BYTE_OF):
        return None
    joined = _BYTE_OF[codes]
    return None if joined.max() == _NO_BYTE else joined.astype(np.uint8).tobytes()


def find_merge_ids(lines: str, ids: Mapping[str, int]) -> NDArray[np.uint32] | None:
    """Return the ids of both sides and of the result of each merge.

    Args:
        lines: the merges, each a line of two printable forms with a space between them.
        ids: the id of each form.

    Returns:
        An array of shape (merges, 3); None if a line has another form, or a side or a result has no id.
    """
    with suppress(NativeUnavailableError):
        if (found := read_merges_natively(lines, ids)) is not None:
            return found
    sides = split_merges(lines)  # native code leaves forms with line ends to this
    return None if sides is None else look_up(sides, ids)


def find_bad_merge(merges: Iterable[object], ids: Mapping[str, int]) -> tuple[int, str]:
    """Return the index of the first merge that `find_merge_ids` cannot read, and what is wrong with it."""
    for index, merge in enumerate(merges):
        sides = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(sides, list) or len(sides) != 2 or not all(isinstance(side, str) for side in sides):
            return index, f"need two tokens, found {short_repr(merge)}"
        left, right = sides
        for token in (left, right, left + right):
            if token not in ids:
                return index, f"{short_repr(token)} is not in the vocabulary"
        if not are_printable(sides):
            return index, f"{short_repr(merge)} is not in printable form"
    raise AssertionError("all merges can be read")


def read_merges_natively(lines: str, ids: Mapping[str, int]) -> NDArray[np.uint32] | None:
    """Implement `find_merge_ids`. Raises `NativeUnavailableError` if the library is not available."""
    library = load_library("encode")
    try:
        forms, text = "\n".join([*ids, ""]).encode(), lines.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return None
    merges = np.empty((lines.count("\n"), 3), np.uint32)
    arguments = (text, len(text), forms, len(forms), len(ids), merges.ctypes.data, len(merges))
    if library.bpeflow_read_merges(*arguments) != 0:  # other text is left to the caller
        return None
    found: NDArray[np.uint32] = np.fromiter(ids.values(), np.uint32, len(ids))[merges]
    return found


def merge_lines(merges: Iterable[Merge]) -> str:
    r"""Return a line for each merge: the printable forms of its sides, with a space between them.

    >>> merge_lines([(b" ", b"t"), (b"h", b"e")])
    'Ġ t\nh e\n'
    """
    return "".join([f"{to_printable(left)} {to_printable(right)}\n" for left, right in merges])


def split_merges(lines: str) -> Sides | None:
    """Return the sides of each merge; None if a line does not have two printable forms."""
    merges = lines.split("\n")
    if merges.pop() or not {*map(str.count, merges, repeat(" "))} <= {1}:
        return None
    sides = " ".join(merges).split(" ") if merges else []
    return (sides[::2], sides[1::2]) if are_printable(sides) else None


def look_up(sides: Sides, ids: Mapping[str, int]) -> NDArray[np.uint32] | None:
    """Return the same as `find_merge_ids`."""
    merge_ids = np.empty((len(sides[0]), 3), np.uint32)
    try:
        for column, forms in enumerate((*sides, map(operator.add, *sides))):
            merge_ids[:, column] = np.fromiter(map(ids.__getitem__, forms), np.uint32, len(merge_ids))
    except KeyError:
        return None
    return merge_ids


# ---- vocabularies ----


def ids_by_form(vocab: Vocab) -> tuple[dict[str, int], dict[int, str]]:
    """Return the id of each form, in ascending order, and the forms of the ids that are left out.

    Special tokens have their text as the form. If several ids have the same form, the special token or else the lowest
    id keeps it.
    """
    ids, hidden = dict(vocab.special_tokens), {}
    specials = set(ids.values())
    for token_id, token in enumerate(vocab.tokens):
        form = to_printable(token)
        if token and token_id not in specials and ids.setdefault(form, token_id) != token_id:
            hidden[token_id] = form
    return dict(sorted(ids.items(), key=operator.itemgetter(1))), hidden


def vocab_of_forms(
    path: Path,
    ids: Mapping[str, int],
    special_tokens: dict[str, int],
    lines: str,
    merge_ids: NDArray[np.uint32],
    hidden: Mapping[int, str] = MappingProxyType({}),
) -> Vocab:
    """Make a vocabulary.

    Args:
        path: the file that it is from.
        ids: the id of each form, and possibly of the special tokens.
        special_tokens: the special tokens.
        lines: the merges, as for `find_merge_ids`.
        merge_ids: what `find_merge_ids` returns for them.
        hidden: further ids, as `ids_by_form` returns them.

    Raises:
        FormatError: an id is assigned twice or far too high, or a token is neither special nor in printable form.
    """
    forms = [form for form in ids if form not in special_tokens] if special_tokens else ids
    packed = bytes_of_forms([*forms, *hidden.values()])
    if packed is None or "" in ids:
        form = next(form for form in (*forms, *hidden.values()) if not from_printable(form))
        raise FormatError(
            f"{path}: token {short_repr(form)} is neither in printable form, as byte-level tokens are, nor special"
        )
    all_ids = [*map(ids.__getitem__, forms), *hidden, *special_tokens.values()]
    tokens = place_tokens(path, all_ids, packed.plus([*map(str.encode, special_tokens)]))
    # A side with the id of a special token has other bytes than that token, which is not in printable form.
    if not hidden and not np.isin(merge_ids, [*special_tokens.values()]).any():
        return Vocab.from_merge_ids(tokens, special_tokens, merge_ids)
    left, right = ([from_printable(form) or b"" for form in forms] for forms in split_merges(lines) or ((), ()))
    return Vocab(tuple(tokens), special_tokens, tuple(zip(left, right, strict=True)))
