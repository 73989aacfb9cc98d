"""tiktoken's format: one line per token, with the token's bytes in base64 and its rank, which is also its id.

The file has neither special tokens nor the split pattern. They are in a sidecar, a JSON file beside it (see
`sidecar_path`) with the other arguments of ``tiktoken.Encoding``::

    arguments = json.loads(Path("tokenizer.tiktoken.json").read_text())
    tiktoken.Encoding(**arguments, mergeable_ranks=load_tiktoken_bpe("tokenizer.tiktoken"))

Published files need no sidecar: they are recognised by their content (see `published`). Source: tiktoken 0.14,
``tiktoken/load.py``.
"""

from __future__ import annotations

import itertools
import json
import logging
from binascii import b2a_base64
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.atomic import atomic_path, temporary_path, write_text
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import Pattern
from bpeflow.errors import FormatError
from bpeflow.formats.dialects import (
    keep_unmatched,
    pattern_to_regex,
    refuse_differences,
    regex_to_pattern,
    split_unmatched,
    unmatched_is_error,
)
from bpeflow.formats.published import PUBLISHED, Description, find_ranks
from bpeflow.formats.ranks import first_difference, read_lines, read_ranks, recover_merge_ids
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.formats.untrusted import (
    Part,
    check_bytes,
    check_pattern,
    check_special_tokens,
    is_text,
    place_tokens,
    read_bytes,
    read_json,
)
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.vocab import Vocab

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
    tokens, ranks = read_ranks(path, content)
    check_bytes(path, tokens.singles())
    found = find_ranks(content, path.parent)
    if known and found and known.pattern != found.pattern:
        log.warning(
            "%s is a published file whose own pattern is %s, and known replaces it by %s, with other special "
            "tokens: leave out known for the tokenizer as it was published",
            *(path, found.pattern, known.pattern),
        )
    sidecar = sidecar_path(path)
    arguments = known or (_describe(read_json(sidecar)) if sidecar.exists() else found)
    if arguments is None:
        if pattern is None:
            raise FormatError(
                f"{path}: ranks without a pattern, and not one of the known published files: give the pattern and the "
                "special tokens (pattern='…', special_tokens=['…']), or use the ranks as a published tokenizer with "
                f"the same ones (known='NAME'): {', '.join(PUBLISHED)}"
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
    vocab = Vocab.from_merge_ids(tokens, arguments.special_tokens, merge_ids)
    return TokenizerSpec(vocab, arguments.pattern, not yields_all, arguments.unmatched, arguments.normalizer)


def save(spec: TokenizerSpec, path: Path) -> list[Path]:
    """Write the ranks and their sidecar, and return the paths of both. Raises as `to_arguments` does, and `OSError`."""
    arguments = to_arguments(spec, path)
    ranks = arguments.pop("mergeable_ranks")
    temporary_path(sidecar_path(path))  # raises before the ranks are there, as its name is longer
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        in_base64 = map(partial(b2a_base64, newline=False), ranks)
        file.writelines(map(b"%s %d\n".__mod__, zip(in_base64, ranks.values(), strict=True)))
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
    if difference := first_difference(vocab, spec.whole_tokens):
        raise FormatError(
            f"{path}: tiktoken has only ranks, no list of merges, and would merge differently: {difference}; use "
            "another format"
        )
    _warn_of_prefixes(vocab, path)
    return {
        "name": path.name.removesuffix(SUFFIX),
        "pat_str": _pat_str(spec, path),
        "special_tokens": vocab.special_tokens,
        "mergeable_ranks": vocab.ordinary_ids,
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
        return bool(read_lines(path, line))
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


def _check_ids(vocab: Vocab, ordinary: PackedBytes, path: Path) -> None:
    for text, token_id in vocab.special_tokens.items():
        if ordinary[token_id] not in (b"", vocab.packed_tokens[token_id]):
            raise FormatError(
                f"{path}: special token {text!r} shares id {token_id} with {ordinary[token_id]!r}; in tiktoken an id "
                "has one string"
            )
    own = vocab.own_tokens
    for token_id in np.flatnonzero((own.lengths > 0) & (ordinary.lengths == 0)).tolist():
        raise FormatError(f"{path}: tiktoken has one id per string, but {own[token_id]!r} (id {token_id}) has two")


def _describe(arguments: Part) -> Description:
    arguments.check_keys(_ENCODING_ARGUMENTS)
    regex = arguments["pat_str"].value
    if not is_text(regex):
        raise arguments["pat_str"].need("a regular expression")
    specials = check_special_tokens(arguments["special_tokens"]) if "special_tokens" in arguments.value else {}
    if (known := regex_to_pattern(regex)) in NAMED_PATTERNS:
        return Description(known, specials)
    pattern, unmatched = split_unmatched(known)
    refuse_differences(check_pattern(pattern, arguments.path), "fancy-regex", arguments.path)
    return Description(pattern, specials, unmatched)
