"""Stanford CS336's format: two pickles, a ``dict[int, bytes]`` and a ``list[tuple[bytes, bytes]]``.

Loading a pickle can run arbitrary code. Not here: the unpickler refuses every class and function. Even then, a few
bytes can take 64 GB (a high index of the unpickler's memo), and a deeply nested tuple as a key ends the process. So the
operations of a pickle are checked before it is loaded. Only operations that such a value needs may occur.
"""

from __future__ import annotations

import io
import logging
import pickle
import pickletools
from pathlib import Path
from typing import Any

from bpeflow._util.atomic import atomic_path
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import short_repr
from bpeflow.errors import FormatError
from bpeflow.formats.components import refuse_normalizer
from bpeflow.formats.ranks import first_difference
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.formats.untrusted import check_bytes, place_tokens, read_bytes
from bpeflow.vocab import Vocab

VOCAB_FILE = "vocab.pkl"
MERGES_FILE = "merges.pkl"
SUFFIX = ".pkl"

#: The pickle protocol to write; Python 3.4 and later can read it.
_PROTOCOL = 4
log = logging.getLogger(__name__)


def load(path: Path) -> TokenizerSpec:
    """Read both pickles.

    Args:
        path: the vocabulary, with "vocab" in its name. The merges are beside it, with "merges" in its place.

    Raises:
        FormatError: as for `load_files`.
    """
    return TokenizerSpec(load_files(path, _merges_path(path)))


def is_pickle(path: Path) -> bool:
    """Return whether a file is a pickle, by its ending or its first byte. Raises `FormatError` if it is unreadable."""
    return path.suffix in (SUFFIX, ".pickle") or read_bytes(path).startswith(pickle.PROTO)


def load_files(path: Path, merges_path: Path) -> Vocab:
    """Read the pickles of a vocabulary and of its merges.

    A token that is neither a byte nor the result of a merge is a special token, and so is the lower of two ids with the
    same bytes. The pattern is GPT-2's, as in the course.

    Raises:
        FormatError: a pickle is damaged or has other content. The message has the file and the position.
    """
    by_id = _read_pickle(path, _VOCAB_OPERATIONS, "a dict of int: bytes")
    pairs = _read_pickle(merges_path, _MERGES_OPERATIONS, "a list of pairs of bytes")
    if not isinstance(by_id, dict) or not all(type(i) is int and type(t) is bytes for i, t in by_id.items()):
        raise FormatError(f"{path}: need a dict of int: bytes, found {_describe(by_id)}")
    if not isinstance(pairs, list):
        raise FormatError(f"{merges_path}: need a list of pairs of bytes, found {_describe(pairs)}")
    for rank, pair in enumerate(pairs):
        if type(pair) is not tuple or len(pair) != 2 or not all(type(side) is bytes and side for side in pair):
            raise FormatError(f"{merges_path}: merge {rank}: need a pair of bytes, found {short_repr(pair)}")
    tokens = tuple(place_tokens(path, [*by_id], PackedBytes.of(by_id.values())))
    check_bytes(path, tokens)
    vocab = Vocab(tokens, _special_tokens(tokens, pairs, path), tuple(pairs))
    try:
        _ = vocab.merge_ids
    except FormatError as error:
        raise FormatError(f"{merges_path}: {error}") from None
    return vocab


def save(spec: TokenizerSpec, path: Path) -> list[Path]:
    """Write both pickles and return their paths.

    A pattern other than GPT-2's is lost, with a warning: in CS336 the code that loads the pickles has the pattern.

    Args:
        spec: the tokenizer.
        path: the vocabulary, with "vocab" in its name. The merges are written beside it, with "merges" in its place.

    Raises:
        FormatError: the pickles cannot hold the tokenizer, because a special token shares its id, or cannot be
            recognised, or because of `TokenizerSpec.whole_tokens` or a normalizer. Nothing has been written.
    """
    refuse_normalizer(spec, path, "CS336's format")
    vocab, merges_path = spec.vocab, _merges_path(path)
    ordinary = vocab.ordinary_tokens
    if spec.whole_tokens and (difference := first_difference(ordinary, vocab.merges, whole_tokens=False)):
        raise FormatError(
            f"{path}: CS336's format has no setting for pre-tokens that equal a token: {difference}; use another format"
        )
    for text, token_id in vocab.special_tokens.items():
        if shared := ordinary[token_id]:
            raise FormatError(
                f"{path}: special token {text!r} shares id {token_id} with {shared!r}, and CS336's format cannot mark "
                "it as special; use another format"
            )
    if (found := _special_tokens(vocab.tokens, vocab.merges, path)) != vocab.special_tokens:
        text = min(set(found.items()) ^ set(vocab.special_tokens.items()))[0]
        raise FormatError(
            f"{path}: CS336's format cannot say whether {text!r} is a special token, because it has no list of them: a "
            "special token is a token that is neither a byte nor the result of a merge; use another format"
        )
    if spec.pattern != "gpt2":
        log.warning(
            "%s: CS336's format does not store the pattern, %s: set it when you load the files", path, spec.pattern
        )
    content = {token_id: token for token_id, token in enumerate(vocab.tokens) if token}
    for file, value in ((path, content), (merges_path, list(vocab.merges))):
        with atomic_path(file) as temporary:
            temporary.write_bytes(pickle.dumps(value, protocol=_PROTOCOL))
    return [path, merges_path]


def _merges_path(path: Path) -> Path:
    if "vocab" not in path.name:
        raise FormatError(
            f"{path}: need a file name with 'vocab' in it; the merges have the same name with 'merges' instead"
        )
    return path.with_name(path.name.replace("vocab", "merges"))


def _special_tokens(tokens: tuple[bytes, ...], merges: Any, path: Path) -> dict[str, int]:
    ordinary = {bytes([byte]) for byte in range(256)} | {left + right for left, right in merges}
    own = {token: token_id for token_id, token in enumerate(tokens)}  # of two ids, the higher
    specials = {}
    for token_id, token in enumerate(tokens):
        if not token or (token in ordinary and own[token] == token_id):
            continue
        try:
            text = token.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(
                f"{path}: {short_repr(token)} is neither a byte nor the result of a merge, and cannot be a special "
                "token because it is not UTF-8"
            ) from error
        if text in specials:
            raise FormatError(
                f"{path}: {short_repr(token)} has too many ids; it can have one as a special token and one as a merge"
            )
        specials[text] = token_id
    return specials


def _describe(value: object) -> str:
    return f"{type(value).__name__} {short_repr(value)}"


# ---- reading pickles ----

#: The operations of both values, by the names of ``pickletools``. No pickle may have tuples and dicts.
_OPERATIONS = {
    *("PROTO", "FRAME", "MARK", "STOP", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
    *("MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
}
_VOCAB_OPERATIONS = _OPERATIONS | {"EMPTY_DICT", "SETITEM", "SETITEMS", "BININT", "BININT1", "BININT2", "LONG1"}
_MERGES_OPERATIONS = _OPERATIONS | {"EMPTY_LIST", "APPEND", "APPENDS", "TUPLE", "TUPLE2"}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it refers to {module}.{name}")


def _read_pickle(path: Path, operations: set[str], need: str) -> Any:
    """Return the value of a pickle. Raises `FormatError`, with the position, if it cannot hold what we `need`."""
    content = read_bytes(path)
    position = 0
    try:
        for operation, argument, at in pickletools.genops(content):
            position = at or 0
            if operation.name not in operations or (operation.name == "LONG_BINPUT" and (argument or 0) > len(content)):
                value = "" if argument is None else f" {short_repr(argument)}"
                raise pickle.UnpicklingError(f"it has {operation.name}{value}")
        return _Unpickler(io.BytesIO(content)).load()
    except Exception as error:
        raise FormatError(
            f"{path}, byte {position}: not a pickle of {need} ({error}): write it again, with "
            "pickle.dump(..., protocol=4)"
        ) from error
