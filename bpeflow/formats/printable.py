"""Merges in GPT-2's printable form, as ``merges.txt`` and ``tokenizer.json`` have them.

Merges become ids by way of their printable forms. Their bytes are not needed before someone asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.byte_level import BYTE_CHARACTERS, from_printable
from bpeflow._util.native import load_library
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import short_repr
from bpeflow.errors import FormatError, NativeUnavailableError
from bpeflow.formats.untrusted import place_tokens
from bpeflow.vocab import Vocab

#: The character of each byte.
_CHARACTERS = np.frombuffer(BYTE_CHARACTERS.encode("utf-16-le"), "<u2")


def bytes_of_forms(forms: Collection[str]) -> PackedBytes | None:
    """Return the bytes of each form; None if one of them is not in printable form.

    >>> list(bytes_of_forms(["Ġthe", "a"]))
    [b' the', b'a']
    """
    joined = from_printable("".join(forms))
    if joined is None:
        return None
    return PackedBytes.of_lengths(joined, np.fromiter(map(len, forms), np.int64, len(forms)))  # a character is a byte


def merge_lines(vocab: Vocab, between: str = " ") -> str:
    r"""Return a line for each merge: the printable forms of its sides, with a character between them.

    >>> merge_lines(Vocab.build([(b" ", b"t"), (b"h", b"e")]))
    'Ġ t\nh e\n'
    """
    return _forms(vocab.packed_sides(), np.tile([ord(between), ord("\n")], vocab.merge_count))


def _forms(strings: PackedBytes, ends: NDArray[np.integer[Any]] | int) -> str:
    """Return the printable form of each string, with one character of `ends` after each."""
    characters = _CHARACTERS[np.frombuffer(strings.data, np.uint8)]
    return np.insert(characters, strings.offsets[1:], ends).tobytes().decode("utf-16-le")


def find_merge_ids(merges: Sequence[Any], ids: Mapping[str, int], place: Callable[[int], str]) -> NDArray[np.uint32]:
    """Return the ids of both sides and of the result of each merge, in an array of shape (merges, 3).

    Args:
        merges: the merges, each two printable forms with a space between them, or a list of the two.
        ids: the id of each form.
        place: says where the merge of an index is, for the error.

    Raises:
        FormatError: a merge has another form, or a side or a result has no id.
    """
    with suppress(NativeUnavailableError):
        if (found := read_merges_natively(merges, ids)) is not None:
            return found
    return read_merges(merges, ids, place)


def read_merges(merges: Sequence[Any], ids: Mapping[str, int], place: Callable[[int], str]) -> NDArray[np.uint32]:
    """Implement `find_merge_ids`, in ten times the time."""
    merge_ids = np.empty((len(merges), 3), np.uint32)
    for index, merge in enumerate(merges):
        sides = _sides(merge)
        if not isinstance(sides, list) or len(sides) != 2 or not all(isinstance(side, str) for side in sides):
            raise FormatError(f"{place(index)}: need two tokens, found {short_repr(merge)}")
        left, right = sides
        for column, token in enumerate((left, right, left + right)):
            if token not in ids:
                raise FormatError(f"{place(index)}: {short_repr(token)} is not in the vocabulary")
            merge_ids[index, column] = ids[token]
        if not all(sides) or from_printable(left + right) is None:
            raise FormatError(f"{place(index)}: {short_repr(merge)} is not in printable form")
    return merge_ids


def read_merges_natively(merges: Sequence[Any], ids: Mapping[str, int]) -> NDArray[np.uint32] | None:
    """Implement `find_merge_ids`; None if that is left to Python: for bad merges, and forms with line ends.

    Raises `NativeUnavailableError` if the library is not available.
    """
    library = load_library("encode")
    types = {*map(type, merges)}
    pairs = [merge for merge in merges if isinstance(merge, list)] if list in types else []
    if not types <= {str, list} or not {*map(len, pairs)} <= {2}:
        return None
    try:
        lines = [merge if isinstance(merge, str) else " ".join(merge) for merge in merges] if pairs else merges
        forms, text = "\n".join([*ids, ""]).encode(), "\n".join([*lines, ""]).encode()
    except (TypeError, UnicodeEncodeError):  # a side that is not a string, or has a lone surrogate
        return None
    found = np.empty((len(merges), 3), np.uint32)
    arguments = (text, len(text), forms, len(forms), len(ids), found.ctypes.data, len(found))
    if text.count(b"\n") != len(merges) or library.bpeflow_read_merges(*arguments) != 0:
        return None
    merge_ids: NDArray[np.uint32] = np.fromiter(ids.values(), np.uint32, len(ids))[found]
    return merge_ids


def _sides(merge: Any) -> Any:
    return merge.split(" ") if isinstance(merge, str) else merge


# ---- vocabularies ----


def ids_by_form(vocab: Vocab, path: Path) -> dict[str, int]:
    """Return the id of each form, in ascending order.

    Special tokens have their text as the form. One whose text is the form of another token is left out.

    Raises:
        FormatError: two ordinary tokens have the same bytes, as those of no trained vocabulary have. The message has
            `path`.
    """
    own, specials = vocab.own_tokens, vocab.special_tokens
    ordinary, forms = np.count_nonzero(own.lengths), _forms(own, ord("\n")).split("\n")[:-1]
    ids = _numbered(forms, specials)
    if len(ids) < ordinary + len(specials):
        ids = _numbered(forms, {})
        if len(ids) < ordinary:
            first, second = next((i, ids[form]) for i, form in enumerate(forms) if form and ids[form] != i)
            raise FormatError(f"{path}: {own[first]!r} has the ids {first} and {second}; the file can hold only one")
        ids = _numbered(forms, {text: token_id for text, token_id in specials.items() if text not in ids})
    return ids


def _numbered(forms: list[str], specials: Mapping[str, int]) -> dict[str, int]:
    """Return the index of each form, and of special tokens in place of empty ones."""
    forms = [*forms]
    for text, token_id in specials.items():
        forms[token_id] = text
    ids = dict(zip(forms, range(len(forms)), strict=True))
    ids.pop("", None)
    return ids


def json_entries(ids: Mapping[str, int], separator: str) -> str:
    r"""Return the entries of a JSON object as `json.dumps` writes them, which takes 1.5 times as long.

    >>> json_entries({"a": 0, '"': 1}, ", ")
    '"a": 0, "\\"": 1'
    """
    return separator.join(map("%s: %d".__mod__, zip(map(encode_basestring, ids), ids.values(), strict=True)))


def vocab_of_forms(
    path: Path,
    ids: Mapping[str, int],
    special_tokens: dict[str, int],
    merges: Sequence[Any],
    merge_ids: NDArray[np.uint32],
) -> Vocab:
    """Make a vocabulary.

    Args:
        path: the file that it is from.
        ids: the id of each form, and possibly of special tokens by their text.
        special_tokens: the special tokens.
        merges: the merges, as for `find_merge_ids`.
        merge_ids: what `find_merge_ids` returns for them.

    Raises:
        FormatError: an id is assigned twice or far too high, or a token is neither special nor in printable form.
    """
    forms = dict(ids)
    for text, _ in special_tokens.items() & ids.items():
        del forms[text]
    packed = bytes_of_forms(forms)
    if packed is None or "" in ids:
        form = next(form for form in forms if not from_printable(form))
        raise FormatError(
            f"{path}: token {short_repr(form)} is neither in printable form, as byte-level tokens are, nor special"
        )
    all_ids = [*forms.values(), *special_tokens.values()]
    tokens = place_tokens(path, all_ids, packed.plus([*map(str.encode, special_tokens)]))
    # A side with the id of a special token has other bytes than that token, which is not in printable form.
    if not np.isin(merge_ids, [*special_tokens.values()]).any():
        return Vocab.from_merge_ids(tokens, special_tokens, merge_ids)
    pairs = ((from_printable(left) or b"", from_printable(right) or b"") for left, right in map(_sides, merges))
    return Vocab(tuple(tokens), special_tokens, tuple(pairs))
