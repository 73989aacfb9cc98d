"""GPT-2's two files, ``vocab.json`` and ``merges.txt``, and ``bpeflow.json`` beside them for what they cannot hold.

``vocab.json`` maps the printable form of each token to its id. ``merges.txt`` has one merge per line. ``bpeflow.json``
is an object::

    {
      "format": 1,
      "pattern": name, regular expression, or a list of them,
      "unmatched": "isolate", "drop" or "error" (only with a regular expression),
      "normalizer": list of "nfc", "lowercase" … (only if there is one),
      "special_tokens": {text: id},
      "whole_tokens": false,
      "merges": number of merges,
      "merge_counts": [training count of each merge, by rank; null if it is unknown]
    }

``vocab.json`` has no entry for a special token whose text is the printable form of another token. ``merge_counts`` is
only written if counts are known, and no id depends on it.
"""

from __future__ import annotations

import json
import logging
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from bpeflow._util.atomic import write_text
from bpeflow._util.byte_level import BYTE_CHARACTERS, UTF8_BYTES
from bpeflow._util.text import Pattern, UnmatchedPolicy
from bpeflow.errors import ConfigError, FormatError
from bpeflow.formats.printable import find_merge_ids, ids_by_form, json_entries, merge_lines, vocab_of_forms
from bpeflow.formats.tokenizer_spec import TokenizerSpec, add_special_tokens
from bpeflow.formats.untrusted import (
    Part,
    check_ids,
    check_pattern,
    check_special_tokens,
    is_text,
    read_json,
    read_text,
)
from bpeflow.pretokenize.normalizer import load_normalizer
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.vocab import Vocab

if TYPE_CHECKING:
    from bpeflow.formats.published import Description

VOCAB_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
TOKENIZER_FILE = "bpeflow.json"

#: The names of vocabulary and merges that are searched in a folder: the usual ones, then OpenAI's.
FILE_NAMES = ((VOCAB_FILE, MERGES_FILE), ("encoder.json", "vocab.bpe"))

#: The value of ``format`` in ``bpeflow.json``.
_VERSION = 1

_KEYS = ("format", "pattern", "unmatched", "normalizer", "special_tokens", "whole_tokens", "merges", "merge_counts")

#: The first line of ``merges.txt``.
_HEADER = "#version: 0.2"
_BYTES = frozenset(BYTE_CHARACTERS)
_UTF8_BYTES = [BYTE_CHARACTERS[byte] for byte in UTF8_BYTES]
log = logging.getLogger(__name__)


# ---- a folder with all three files ----


def save(spec: TokenizerSpec, folder: Path) -> list[Path]:
    """Write the three files and return their paths. `load` reads the same tokenizer back.

    Args:
        spec: the tokenizer.
        folder: the folder to write to. It is created if it is missing.

    Raises:
        FormatError: two ordinary tokens have the same bytes. Nothing has been written.
    """
    vocab = spec.vocab
    ids = ids_by_form(vocab, folder / VOCAB_FILE)
    for text, token_id in vocab.special_tokens.items():
        if ids[text] != token_id:
            log.warning(
                "%s: %r is the form of another token there, so the special token %r is only in %s",
                *(VOCAB_FILE, text, text, TOKENIZER_FILE),
            )
    content: dict[str, Any] = {
        "format": _VERSION,
        "pattern": spec.pattern,
        **({} if spec.pattern in NAMED_PATTERNS else {"unmatched": spec.unmatched}),
        **({"normalizer": spec.normalizer} if spec.normalizer else {}),
        "special_tokens": vocab.special_tokens,
        "whole_tokens": spec.whole_tokens,
        "merges": vocab.merge_count,
    }
    lines = json.dumps(content, ensure_ascii=False, indent=2).removesuffix("\n}")
    if vocab.merge_counts:  # one line
        lines += f',\n  "merge_counts": {json.dumps(vocab.merge_counts, separators=(",", ":"))}'
    texts = {
        VOCAB_FILE: f"{{{json_entries(ids, ', ')}}}\n",
        MERGES_FILE: f"{_HEADER}\n{merge_lines(vocab)}",
        TOKENIZER_FILE: lines + "\n}\n",
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def load(folder: Path, pattern: Pattern | None = None, known: Description | None = None) -> TokenizerSpec:
    """Read a folder that `save` or a run wrote, or one with GPT-2's two files only.

    Then the pattern is that of the published tokenizer with these merges. For unknown merges GPT-2's pattern is
    assumed, with a warning, unless the caller has a `pattern` or a `known` description.

    Raises:
        FormatError: a file is missing or damaged, or the files belong to different tokenizers.
    """
    names = next((names for names in FILE_NAMES if (folder / names[0]).is_file()), FILE_NAMES[0])
    return load_pair(folder / names[0], folder / names[1], pattern, known)


def load_pair(
    vocab_path: Path, merges_path: Path, pattern: Pattern | None = None, known: Description | None = None
) -> TokenizerSpec:
    """Read a vocabulary, its merges, and the ``bpeflow.json`` beside the vocabulary, if there is one, like `load`."""
    folder = vocab_path.parent
    if (folder / TOKENIZER_FILE).is_file():
        return _load_described(read_json(folder / TOKENIZER_FILE), vocab_path, merges_path)
    from bpeflow.formats.published import find_merges  # only for files without a description of their own

    vocab = load_files(vocab_path, merges_path)
    if found := find_merges(vocab, folder):
        specials = {} if vocab.special_tokens else found.special_tokens
        return TokenizerSpec(add_special_tokens(vocab, specials), found.pattern, normalizer=found.normalizer)
    if pattern is None and known is None:
        log.warning(
            "%s: no %s here, so text is split by GPT-2's pattern, which may not be the one of these merges: copy "
            "the file, too, or give the pattern: pattern='gpt2', or another one",
            *(folder, TOKENIZER_FILE),
        )
    return TokenizerSpec(vocab, known.pattern if known else pattern or "gpt2")


def _load_described(file: Part, vocab_path: Path, merges_path: Path) -> TokenizerSpec:
    """Read a vocabulary and its merges, given the content of the ``bpeflow.json`` beside them."""
    path, content = file.path, file.value
    if content.get("format") != _VERSION:
        raise FormatError(
            f"{path}: format {content.get('format')!r}, but this version of bpeflow reads format {_VERSION}; the file "
            "may have been written by a newer version"
        )
    file.check_keys(_KEYS)
    given = content.get("pattern")
    steps = tuple(given) if isinstance(given, list) else (given,)
    if not all(map(is_text, steps)):
        raise file["pattern"].need("a string in UTF-8, or a list of strings")
    pattern = check_pattern(steps if isinstance(given, list) else str(given), path)
    # Version 0.1.0 dropped unmatched text without saying so.
    unmatched = content.get("unmatched", "isolate" if pattern in NAMED_PATTERNS else "drop")
    if unmatched not in get_args(UnmatchedPolicy):
        raise file["unmatched"].need(f"one of {', '.join(get_args(UnmatchedPolicy))}")
    counts = content.get("merge_counts", [])
    are_counts = isinstance(counts, list) and {*map(type, counts)} <= {int, type(None)}
    if not are_counts or min(filter(None, counts), default=0) < 0:
        raise file["merge_counts"].need("a list of counts, with null where one is unknown")
    try:
        normalizer = load_normalizer(content.get("normalizer", ())).names
    except ConfigError as error:
        raise FormatError(f"{path}: {error}") from None
    whole_tokens = file["whole_tokens"].flag()
    vocab = load_files(vocab_path, merges_path, check_special_tokens(file["special_tokens"]))
    if (merges := content.get("merges", vocab.merge_count)) != vocab.merge_count:
        raise FormatError(
            f"{merges_path}: {vocab.merge_count} merges, but {path.name} says {merges}; one of the files is damaged or "
            "belongs to another tokenizer"
        )
    if counts and len(counts) != vocab.merge_count:
        raise FormatError(f"{path}: {len(counts)} merge_counts, but there are {vocab.merge_count} merges")
    vocab = vocab.annotated(merge_counts=tuple(counts) or None)
    return TokenizerSpec(vocab, pattern, whole_tokens, unmatched, normalizer)


# ---- GPT-2's two files ----


def load_files(vocab_path: Path, merges_path: Path, special_tokens: dict[str, int] | None = None) -> Vocab:
    """Read GPT-2's two files.

    Args:
        vocab_path: the vocabulary, ``vocab.json`` or a file in its format.
        merges_path: the merges, ``merges.txt`` or a file in its format.
        special_tokens: the id of each special token; by default all entries that are neither the form of a byte nor of
            a merge.

    Raises:
        FormatError: a file is damaged, or the files do not belong together. The message has the file and the position.
    """
    ids = check_ids(read_json(vocab_path))
    merges, first = _read_merges(merges_path)
    for form in _UTF8_BYTES:
        if form not in ids:
            raise FormatError(
                f"{vocab_path}: no id for {form!r}, as GPT-2's format writes a byte; for tokens of another form "
                "(latin-1, hex, repr), convert them to bytes yourself, and make a Tokenizer({id: bytes}, [(bytes, "
                "bytes)])"
            )
    merge_ids = find_merge_ids(merges, ids, lambda index: f"{merges_path}, line {first + index}")
    if special_tokens is None:
        is_made = np.isin(np.fromiter(ids.values(), np.int64, len(ids)), merge_ids[:, 2])
        found = {*compress(ids, ~is_made)} - _BYTES
        special_tokens = {form: ids[form] for form in sorted(found, key=ids.__getitem__)}
    return vocab_of_forms(vocab_path, ids, special_tokens, merges, merge_ids)


def _read_merges(path: Path) -> tuple[list[str], int]:
    """Return the merges, a line each, and the number of the first line."""
    lines = read_text(path).replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    first = 1 + "".join(lines[:1]).startswith("#version")
    return lines[first - 1 :], first
