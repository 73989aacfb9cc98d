"""tiktoken's format: one line per token, with the token's bytes in base64 and its rank, which is also its id.

The file has neither special tokens nor the split pattern. They are in a sidecar, a JSON file beside it (see
`sidecar_path`) with the other arguments of ``tiktoken.Encoding``::

    arguments = json.loads(Path("tokenizer.tiktoken.json").read_text())
    tiktoken.Encoding(**arguments, mergeable_ranks=load_tiktoken_bpe("tokenizer.tiktoken"))

Published files need no sidecar: they are recognised by their content (see `published`). Source: tiktoken 0.14,
``tiktoken/load.py``.

tiktoken repeatedly joins the two adjacent pieces of a pre-token whose concatenation is the token with the lowest rank,
the leftmost if there are several, until no two adjacent pieces form a token. It has no list of merges, but there is at
most one merge for each token:

    *A token is always joined from the same two pieces: the last two that remain when its own bytes are merged in
    isolation.*

Proof: Let two adjacent pieces of a text be joined to the token t. No earlier join crossed the edges of t. So the joins
inside t were chosen among the pieces inside t, lowest rank first and leftmost first, exactly as they are if the bytes
of t stand alone. This does not require that ranks increase from parts to wholes. Therefore the list of these pairs, in
the order of the tokens' ranks, merges every text as the ranks do. A token that merging its own bytes never yields has
no merge: tiktoken yields it only for a pre-token that equals it, which it checks first (`TokenizerSpec.whole_tokens`).

So merges can be recovered in the order of lengths, shortest first: those of all shorter tokens join a token's bytes to
its two pieces. Native code does this. The Python code below looks up the concatenations, as tiktoken does.

For the same reason, further pairs for the same tokens do no harm, such as those in the list that HuggingFace's
converter writes: whenever two pieces can be joined to the token with the lowest rank, they are its recovered pair.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ctypes import byref, c_uint64
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.atomic import atomic_path, write_text
from bpeflow._util.native import load_library
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import Pattern, short_repr
from bpeflow.errors import FormatError, NativeUnavailableError
from bpeflow.formats.dialects import (
    keep_unmatched,
    pattern_to_regex,
    refuse_differences,
    regex_to_pattern,
    split_unmatched,
    unmatched_is_error,
)
from bpeflow.formats.published import PUBLISHED, Description, find_ranks
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.formats.untrusted import (
    Part,
    check_bytes,
    check_pattern,
    check_special_tokens,
    has_duplicates,
    is_text,
    place_tokens,
    read_bytes,
    read_json,
)
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.vocab import Merge, Vocab

FILE = "tokenizer.tiktoken"
SUFFIX = ".tiktoken"

#: The arguments of ``tiktoken.Encoding`` that a sidecar may have.
_ENCODING_ARGUMENTS = ("name", "pat_str", "special_tokens", "explicit_n_vocab")
log = logging.getLogger(__name__)


def sidecar_path(path: Path) -> Path:
    """Return the path of a file's sidecar: ``x.tiktoken.json`` for ``x.tiktoken``."""
    return path.with_name(path.name + ".json")


def load(path: Path, pattern: Pattern | None = None, known: Description | None = None) -> TokenizerSpec:
    """Read the ranks and their sidecar, and recover the merges from the ranks.

    Args:
        path: the file of ranks.
        pattern: the pattern, for a file that has no sidecar and is not a published one.
        known: the pattern and the special tokens, whatever the sidecar has.

    Raises:
        FormatError: a file is damaged, or the pattern is unknown. The message has the file and the position.
    """
    content = read_bytes(path)
    tokens, ranks = _read_ranks(path, content)
    check_bytes(path, tokens.singles())
    arguments = known or _read_sidecar(path) or find_ranks(content, path.parent)
    if arguments is None:
        if pattern is None:
            raise FormatError(
                f"{path}: ranks without a pattern, and not one of the known published files: give the pattern and the "
                "special tokens (pattern=, special_tokens=; --pattern, --special_tokens), or use the ranks as a "
                "published tokenizer with the same ones (Tokenizer.load(…, known=NAME); bpeflow convert --known NAME): "
                f"{', '.join(PUBLISHED)}"
            )
        arguments = Description(pattern)
    return _spec(path, tokens, ranks, arguments)


def from_arguments(path: Path, ranks: Mapping[bytes, int], arguments: Mapping[str, Any]) -> TokenizerSpec:
    """Return the tokenizer with these arguments of ``tiktoken.Encoding``. Raises as `load` does."""
    tokens = PackedBytes.of(ranks)
    check_bytes(path, tokens.singles())
    description = _describe(Part(path, arguments))
    return _spec(path, tokens, np.fromiter(ranks.values(), np.int64, len(ranks)), description)


def _spec(path: Path, tokens: PackedBytes, ranks: NDArray[np.int64], arguments: Description) -> TokenizerSpec:
    specials = {text.encode(): token_id for text, token_id in arguments.special_tokens.items()}
    shared = np.flatnonzero(np.isin(ranks, [*specials.values()])).tolist()
    ranked = {(tokens[i], int(ranks[i])) for i in shared}
    unranked = {token: token_id for token, token_id in specials.items() if (token, token_id) not in ranked}
    tokens = place_tokens(path, [*ranks.tolist(), *unranked.values()], tokens.plus(unranked))
    mergeable = tokens.without(unranked.values())
    merge_ids = recover_merge_ids(mergeable)
    # If merging yields every token from its own bytes, it makes no difference that tiktoken looks up pre-tokens first.
    yields_all = len(merge_ids) == int(np.count_nonzero(mergeable.lengths > 1))
    vocab = Vocab.from_merge_ids(tokens, arguments.special_tokens, merge_ids, merging_yields_all=yields_all)
    return TokenizerSpec(vocab, arguments.pattern, not yields_all, arguments.unmatched, arguments.normalizer)


def save(spec: TokenizerSpec, path: Path) -> list[Path]:
    """Write the ranks and their sidecar, and return the paths of both. Raises as `to_arguments` does."""
    arguments = to_arguments(spec, path)
    ranks = arguments.pop("mergeable_ranks")
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.writelines(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())
    write_text(sidecar_path(path), json.dumps(arguments, ensure_ascii=False, indent=1) + "\n")
    return [path, sidecar_path(path)]


def to_arguments(spec: TokenizerSpec, path: Path) -> dict[str, Any]:
    """Return the arguments of ``tiktoken.Encoding`` for a tokenizer with the name of `path`.

    Raises:
        FormatError: merging by ranks would differ from merging by the list of merges, two ids have the same bytes, an
            id has two strings, there is a normalizer, or tiktoken's engine reads the pattern differently or cannot keep
            the text that it does not match.
    """
    if spec.normalizer:
        raise FormatError(
            f"{path}: tiktoken has no normalizers, and this tokenizer has {', '.join(spec.normalizer)}; use the format "
            "huggingface or gpt2"
        )
    vocab = spec.vocab
    ordinary = vocab.ordinary_tokens
    _check_ids(vocab, ordinary, path)
    if difference := first_difference(ordinary, vocab.merges, spec.whole_tokens):
        raise FormatError(
            f"{path}: tiktoken has only ranks, no list of merges, and would merge differently: {difference}; use "
            "another format"
        )
    _warn_of_prefixes(vocab, path)
    return {
        "name": path.name.removesuffix(SUFFIX),
        "pat_str": _pat_str(spec, path),
        "special_tokens": vocab.special_tokens,
        "mergeable_ranks": {token: rank for rank, token in enumerate(ordinary) if token},
    }


def _pat_str(spec: TokenizerSpec, path: Path) -> str:
    if isinstance(spec.pattern, tuple):
        raise FormatError(
            f"{path}: tiktoken splits with one regular expression, and this tokenizer with {len(spec.pattern)}, one "
            "after another, which have no equivalent single one in general; use the format huggingface or gpt2"
        )
    regex = pattern_to_regex(spec.pattern, "fancy-regex", path)
    if spec.pattern in NAMED_PATTERNS or spec.unmatched == "drop":
        return regex  # tiktoken drops text that its pattern does not match
    if spec.unmatched == "error":
        raise unmatched_is_error(path, "tiktoken")
    return keep_unmatched(regex, path)


def looks_like_ranks(path: Path) -> bool:
    """Return whether a file starts like tiktoken's, whatever its name. Llama 3's is called ``tokenizer.model``."""
    try:
        with path.open("rb") as file:
            line = file.readline(4096)
    except OSError:
        return False
    try:
        return bool(_read_lines(path, line))
    except FormatError:
        return False


def _warn_of_prefixes(vocab: Vocab, path: Path) -> None:
    """Warn of special tokens that are a prefix of another one: tiktoken may match either, bpeflow the longer."""
    specials = sorted(vocab.special_tokens)
    for text, following in itertools.pairwise(specials):
        if following.startswith(text):  # a text is directly followed by one that starts with it, if there is one
            log.warning(
                "%s: special token %r is a prefix of %r: tiktoken may match either of them, bpeflow matches the longer",
                path,
                text,
                following,
            )


def _check_ids(vocab: Vocab, ordinary: tuple[bytes, ...], path: Path) -> None:
    specials = {token_id: token for token, token_id in vocab.special_tokens.items()}
    for token_id, token in enumerate(vocab.tokens):
        if token and token_id not in specials and not ordinary[token_id]:
            raise FormatError(f"{path}: tiktoken has one id per string, but {token!r} (id {token_id}) has two")
        if token_id in specials and ordinary[token_id] not in (b"", token):
            raise FormatError(
                f"{path}: special token {specials[token_id]!r} shares id {token_id} with {ordinary[token_id]!r}; "
                "in tiktoken an id has one string"
            )


def _read_ranks(path: Path, content: bytes) -> tuple[PackedBytes, NDArray[np.int64]]:
    """Return the tokens and their ranks. Raises `FormatError` for the first line that is not a token and its rank."""
    with suppress(NativeUnavailableError):
        if (read := read_natively(content)) and not has_duplicates(read[1]):
            return read
    ranks = _read_lines(path, content)
    return PackedBytes.of(ranks), np.fromiter(ranks.values(), np.int64, len(ranks))


def _read_lines(path: Path, content: bytes) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    lines: dict[int, int] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line:
            continue
        parts = line.split()
        if len(parts) != 2 or not parts[1].isdigit() or len(parts[1]) > 10:
            raise FormatError(f"{path}, line {number}: need a token in base64 and its rank, found {short_repr(line)}")
        try:
            token = base64.b64decode(parts[0], validate=True)
        except binascii.Error as error:
            raise FormatError(f"{path}, line {number}: {short_repr(parts[0])} is not base64: {error}") from error
        if len(parts[0]) != 4 * math.ceil(len(token) / 3):  # versions of Python differ in what they accept
            raise FormatError(f"{path}, line {number}: {short_repr(parts[0])} is not base64: excess padding")
        rank = int(parts[1])
        if not token:
            raise FormatError(f"{path}, line {number}: an empty token")
        if token in ranks:
            raise FormatError(
                f"{path}, line {number}: token {short_repr(token)} already has rank {ranks[token]}, from line "
                f"{lines[ranks[token]]}"
            )
        if rank in lines:
            raise FormatError(f"{path}, line {number}: rank {rank} is already in line {lines[rank]}")
        ranks[token] = rank
        lines[rank] = number
    return ranks


def _read_sidecar(path: Path) -> Description | None:
    sidecar = sidecar_path(path)
    if not sidecar.exists():
        return None
    return _describe(Part(sidecar, read_json(sidecar)))


def _describe(arguments: Part) -> Description:
    for key in arguments.value:
        if key not in _ENCODING_ARGUMENTS:
            raise arguments.error(f"unknown key {short_repr(key)}; known keys are {', '.join(_ENCODING_ARGUMENTS)}")
    regex = arguments["pat_str"].value
    if not regex or not is_text(regex):
        raise arguments["pat_str"].need("a regular expression")
    specials = check_special_tokens(arguments["special_tokens"]) if "special_tokens" in arguments.value else {}
    if (known := regex_to_pattern(regex)) in NAMED_PATTERNS:
        return Description(known, specials)
    pattern, unmatched = split_unmatched(known)
    refuse_differences(check_pattern(pattern, arguments.path), "fancy-regex", arguments.path)
    return Description(pattern, specials, unmatched)


# ---- merges of ranks ----


def read_natively(content: bytes) -> tuple[PackedBytes, NDArray[np.int64]] | None:
    """Return the tokens and their ranks; None if a line has another form, or two have equal tokens.

    Raises `NativeUnavailableError` if the library is not available.
    """
    lines = content.count(b"\n")
    data, offsets, ranks = np.empty(len(content), np.uint8), np.empty(lines + 1, np.int64), np.empty(lines, np.int64)
    arrays = (data.ctypes.data, offsets.ctypes.data, ranks.ctypes.data)
    read = load_library("encode").bpeflow_read_ranks
    if read(content, len(content), *arrays, lines) != 0:  # other text is left to the caller
        return None
    return PackedBytes(data[: offsets[-1]].tobytes(), offsets), ranks


def recover_merge_ids(tokens: PackedBytes) -> NDArray[np.uint32]:
    """Return the merge of each token that merging can yield, as ids: rows of left, right and result, by result.

    Args:
        tokens: the token of each rank, which is also its id; ``b""`` if there is none. Of equal tokens only the first
            counts. A token has no merge if one of its bytes is not a token.

    >>> tokens = [*(bytes([byte]) for byte in range(256)), b"ab", b"bc", b"abc"]
    >>> recover_merge_ids(PackedBytes.of(tokens)).tolist()
    [[97, 98, 256], [98, 99, 257], [256, 99, 258]]
    """
    try:
        return recover_natively(tokens)
    except NativeUnavailableError:
        return recover_in_python(tokens)


def recover_natively(tokens: PackedBytes) -> NDArray[np.uint32]:
    """Implement `recover_merge_ids`. Raises `NativeUnavailableError` if the library is not available."""
    merges, count = np.empty((len(tokens), 3), np.uint32), c_uint64()
    arguments = (tokens.data, tokens.offsets.ctypes.data, len(tokens), merges.ctypes.data, byref(count))
    load_library("encode").bpeflow_recover_merges(*arguments)
    recovered: NDArray[np.uint32] = merges[: count.value].copy()
    return recovered


def recover_in_python(tokens: Sequence[bytes]) -> NDArray[np.uint32]:
    """Implement `recover_merge_ids`, in twenty times the time."""
    singles = {token[0] for token in tokens if len(token) == 1}
    ids = {t: i for i, t in reversed([*enumerate(tokens)]) if t and singles.issuperset(t)}
    merges = [(ids[left], ids[right], ids[left + right]) for left, right in recover_merges(ids)]
    return np.array(merges, np.uint32).reshape(-1, 3)


def recover_merges(ranks: Mapping[bytes, int]) -> list[Merge]:
    """Return the merge of each token that merging can yield, in the order of ranks.

    >>> ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b"bc": 257, b"abc": 258, b"xyz": 259}
    >>> recover_merges(ranks)
    [(b'a', b'b'), (b'b', b'c'), (b'ab', b'c')]
    """
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        middle = final_split(token, ranks) if len(token) > 1 else None
        if middle is not None:
            merges.append((token[:middle], token[middle:]))
    return merges


def final_split(token: bytes, ranks: Mapping[bytes, int]) -> int | None:
    """Return where the last two pieces of `token` meet when its bytes are merged; None if they never become one piece.

    A piece that starts at `start` ends at ``ends[start]``. After it has been joined to the piece before it, this entry
    is an empty piece. Candidates in the heap that are no longer two adjacent pieces are skipped.
    """
    rank_of, size = ranks.get, len(token)
    ends, previous_starts = list(range(1, size + 1)), list(range(-1, size - 1))
    candidates = [(r, i, i + 2) for i in range(size - 1) if (r := rank_of(token[i : i + 2])) is not None]
    heapify(candidates)
    while candidates:
        _, start, end = heappop(candidates)
        middle = ends[start]
        if not start < middle < end or ends[middle] != end:
            continue
        if end - start == size:
            return middle
        ends[start], ends[middle] = end, middle
        if end < size:
            previous_starts[end] = start
            next_end = ends[end]
            if (rank := rank_of(token[start:next_end])) is not None:
                heappush(candidates, (rank, start, next_end))
        if start > 0:
            previous_start = previous_starts[start]
            if (rank := rank_of(token[previous_start:end])) is not None:
                heappush(candidates, (rank, previous_start, end))
    return None


def first_difference(tokens: Sequence[bytes], merges: Sequence[Merge], whole_tokens: bool) -> str | None:
    """Describe the first difference between merging by ranks and by `merges`; None if both always yield the same.

    Tokens that merging never yields are a difference unless `whole_tokens` is true, because tiktoken yields them for
    pre-tokens that equal them.
    """
    merge_ids = recover_merge_ids(PackedBytes.of(tokens))
    if not whole_tokens:
        made = {*merge_ids[:, 2].tolist()}
        for token_id, token in enumerate(tokens):
            if len(token) > 1 and token_id not in made:
                return (
                    f"token {token!r} (id {token_id}) is not the result of any merge, but would be used for a "
                    "pre-token that equals it"
                )
    recovered = tuple((tokens[left], tokens[right]) for left, right in merge_ids[:, :2].tolist())
    if recovered == merges:
        return None
    ranks = {token: rank for rank, token in enumerate(tokens)}
    known = set(merges)
    for left, right in recovered:
        if (left, right) not in known:
            return f"token {left + right!r} (id {ranks[left + right]}) would be merged from {left!r} and {right!r}"
    highest = -1
    for rank, (left, right) in enumerate(merges):
        if ranks[left + right] < highest:
            return (
                f"merge {rank}, {left!r} + {right!r}, makes id {ranks[left + right]}, which is lower than the id "
                f"{highest} of an earlier merge"
            )
        highest = ranks[left + right]
    return None
