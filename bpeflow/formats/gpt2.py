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
      "hidden_tokens": {id: printable form},
      "merge_counts": [training count of each merge, by rank; null if it is unknown]
    }

``hidden_tokens`` is only written if there are tokens without an entry in ``vocab.json``, which can hold only one id for
each printable form. ``merge_counts`` is only written if counts are known, and no id depends on it.
"""

from __future__ import annotations

import json
import logging
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any, get_args

import numpy as np

from bpeflow._util.atomic import atomic_path
from bpeflow._util.byte_level import BYTE_CHARACTERS, UTF8_BYTES, from_printable, to_printable
from bpeflow._util.text import UnmatchedPolicy
from bpeflow.errors import ConfigError, FormatError
from bpeflow.formats.printable import (
    Sides,
    bytes_of_forms,
    find_merge_ids,
    merge_lines,
    split_merges,
    vocab_of_forms,
)
from bpeflow.formats.published import find_merges
from bpeflow.formats.regex_dialects import check_pattern
from bpeflow.formats.tokenizer_spec import TokenizerSpec, add_special_tokens
from bpeflow.formats.untrusted import MOST_GAPS, check_special_tokens, is_text, place_tokens, read_json, read_text
from bpeflow.pretokenize.normalizer import load_normalizer
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.vocab import Vocab, describe_byte_conflict

VOCAB_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
TOKENIZER_FILE = "bpeflow.json"

#: The names of vocabulary and merges that are searched in a folder: the usual ones, then OpenAI's.
FILE_NAMES = ((VOCAB_FILE, MERGES_FILE), ("encoder.json", "vocab.bpe"))

#: The value of ``format`` in ``bpeflow.json``.
_VERSION = 1

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
        FormatError: as for `save_files`.
    """
    paths = save_files(spec.vocab, folder)
    content: dict[str, Any] = {
        "format": _VERSION,
        "pattern": spec.pattern,
        **({} if spec.pattern in NAMED_PATTERNS else {"unmatched": spec.unmatched}),
        **({"normalizer": spec.normalizer} if spec.normalizer else {}),
        "special_tokens": spec.vocab.special_tokens,
        "whole_tokens": spec.whole_tokens,
        "merges": len(spec.vocab.merges),
    }
    hidden = _hidden_tokens(spec.vocab)
    if hidden:
        content["hidden_tokens"] = hidden
    lines = json.dumps(content, ensure_ascii=False, indent=2).removesuffix("\n}")
    if spec.vocab.merge_counts:  # one line
        lines += f',\n  "merge_counts": {json.dumps(spec.vocab.merge_counts, separators=(",", ":"))}'
    path = folder / TOKENIZER_FILE
    with atomic_path(path) as temporary:
        temporary.write_text(lines + "\n}\n", encoding="utf-8")
    return [*paths, path]


def load(folder: Path) -> TokenizerSpec:
    """Read a folder that `save` or a run wrote, or one with GPT-2's two files only.

    Then the pattern is GPT-2's, unless the merges are those of another published tokenizer.

    Raises:
        FormatError: a file is missing or damaged, or the files belong to different tokenizers.
    """
    names = next((names for names in FILE_NAMES if (folder / names[0]).is_file()), FILE_NAMES[0])
    vocab_path, merges_path, path = folder / names[0], folder / names[1], folder / TOKENIZER_FILE
    for required in (vocab_path, merges_path):
        if not required.is_file():
            raise FormatError(f"no {required.name} in {folder}; need a run folder or a folder in GPT-2's format")
    if not path.is_file():
        vocab = load_files(vocab_path, merges_path)
        if found := find_merges(vocab, folder):
            known = {} if vocab.special_tokens else found.special_tokens
            return TokenizerSpec(add_special_tokens(vocab, known), found.pattern, normalizer=found.normalizer)
        return TokenizerSpec(vocab)
    content = _read_tokenizer_file(path)
    specials = content["special_tokens"]
    vocab = load_files(vocab_path, merges_path, list(specials), find_special_tokens=False)
    if vocab.special_tokens != specials:
        different = {*specials.items()} ^ {*vocab.special_tokens.items()}
        raise FormatError(
            f"{path} and {vocab_path} differ in special tokens: {sorted(different)[:5]}; write both files again"
        )
    counts = content.get("merge_counts")
    if content.get("merges", vocab.merge_count) != vocab.merge_count:
        raise FormatError(
            f"{merges_path}: {vocab.merge_count} merges, but {path.name} says {content['merges']}; one of the files is "
            "damaged or belongs to another tokenizer"
        )
    if counts and len(counts) != vocab.merge_count:
        raise FormatError(f"{path}: {len(counts)} merge_counts, but there are {vocab.merge_count} merges")
    vocab = vocab.annotated(special_tokens=specials, merge_counts=tuple(counts) if counts else None)
    vocab = _restore_hidden_tokens(vocab, content["hidden_tokens"], path)
    return TokenizerSpec(
        vocab, content["pattern"], content["whole_tokens"], content["unmatched"], content["normalizer"]
    )


def pattern_beside(vocab_path: Path) -> dict[str, Any]:
    """Return the `pattern`, `unmatched` and `normalizer` of a ``vocab.json``.

    They are those of the ``bpeflow.json`` beside it. If there is none, the pattern is GPT-2's.

    Raises `FormatError` if ``bpeflow.json`` is damaged.
    """
    path = vocab_path.with_name(TOKENIZER_FILE)
    exists = vocab_path.name == VOCAB_FILE and path.is_file()
    if not exists:
        return {"pattern": "gpt2", "unmatched": "isolate", "normalizer": ()}
    content = _read_tokenizer_file(path)
    return {key: content[key] for key in ("pattern", "unmatched", "normalizer")}


# ---- GPT-2's two files ----


def save_files(vocab: Vocab, folder: Path) -> list[Path]:
    """Write ``vocab.json`` and ``merges.txt`` and return their paths.

    The format holds one id per printable form. If two tokens have the same form, the id of the special token or else
    the lower id is written, and the log warns. Merging works as before, but yields the written id for both tokens.

    Args:
        vocab: the vocabulary.
        folder: the folder to write to, which must exist.

    Raises:
        FormatError: a special token would replace a byte. Nothing has been written. Before training,
            `bpeflow.vocab.check_special_tokens` finds such tokens.
    """
    specials = {token_id: token for token, token_id in vocab.special_tokens.items()}
    ids: dict[str, int] = {token: token_id for token_id, token in specials.items()}
    for token_id, token in enumerate(vocab.tokens):
        form = to_printable(token)
        if not token or token_id in specials or ids.setdefault(form, token_id) == token_id:
            continue
        if form in _BYTES and form in vocab.special_tokens:
            raise FormatError(f"{folder / VOCAB_FILE}: {describe_byte_conflict(form)}")
        log.warning(
            "%s can hold one id for each printable form: %r keeps id %d, and id %d, which has the same form, is left "
            "out",
            VOCAB_FILE,
            form,
            ids[form],
            token_id,
        )
    by_id = dict(sorted(ids.items(), key=operator.itemgetter(1)))
    vocab_path, merges_path = folder / VOCAB_FILE, folder / MERGES_FILE
    with atomic_path(vocab_path) as temporary:
        temporary.write_text(json.dumps(by_id, ensure_ascii=False) + "\n", encoding="utf-8")
    with atomic_path(merges_path) as temporary:
        temporary.write_text(f"{_HEADER}\n{merge_lines(vocab.merges)}", encoding="utf-8", newline="\n")
    return [vocab_path, merges_path]


def load_files(
    vocab_path: Path, merges_path: Path, special_tokens: Sequence[str] = (), *, find_special_tokens: bool = True
) -> Vocab:
    """Read GPT-2's two files. An id that `save_files` left out becomes an unused id.

    Args:
        vocab_path: the vocabulary, ``vocab.json`` or a file in its format.
        merges_path: the merges, ``merges.txt`` or a file in its format.
        special_tokens: entries that are special tokens although they are also the form of a byte or of a merge.
        find_special_tokens: whether all entries that are neither the form of a byte nor of a merge are special tokens,
            too. If false, only `special_tokens` are.

    Raises:
        FormatError: a file is damaged, or the files do not belong together. The message has the file and the position.
    """
    ids = _read_ids(vocab_path)
    lines = _read_merges(merges_path)
    if max(ids.values(), default=0) >= len(ids) + MOST_GAPS:
        raise FormatError(f"{vocab_path}: ids up to {max(ids.values())}, but only {len(ids)} tokens")
    merge_ids = find_merge_ids(lines, ids)
    made = [*map(operator.add, *_split_merges(lines, merges_path))] if merge_ids is None else []
    for form in (*_UTF8_BYTES, *special_tokens, *made):
        if form not in ids:
            raise FormatError(
                f"{vocab_path}: no id for {form!r}, which is a byte, a special token or the result of a merge in "
                f"{merges_path}"
            )
    special_forms = {*special_tokens}
    if find_special_tokens:
        made_ids = [*map(ids.__getitem__, made)] if merge_ids is None else merge_ids[:, 2]
        is_made = np.isin(np.fromiter(ids.values(), np.int64, len(ids)), made_ids)
        special_forms |= {*compress(ids, ~is_made)} - _BYTES
    specials = {form: ids.pop(form) for form in sorted(special_forms, key=ids.__getitem__)}
    ordinary = bytes_of_forms(ids)
    if ordinary is None:
        form = next(form for form in ids if from_printable(form) is None)
        raise FormatError(f"{vocab_path}: token {form!r} has characters that are not in GPT-2's printable form")
    tokens = place_tokens(vocab_path, [*ids.values(), *specials.values()], ordinary.plus([*map(str.encode, specials)]))
    return vocab_of_forms(tokens, specials, lines, merge_ids)


def _read_ids(path: Path) -> dict[str, int]:
    ids = read_json(path)
    if not {*map(type, ids.values())} <= {int}:
        raise FormatError(f"{path}: need one JSON object of token: id")
    if len(set(ids.values())) != len(ids) or min(ids.values(), default=0) < 0:
        raise FormatError(f"{path}: an id is negative or assigned to two tokens")
    return ids


def _read_merges(path: Path) -> str:
    """Return the merges, one per line."""
    text = read_text(path).replace("\r\n", "\n")
    if text.startswith("#version"):
        text = text.partition("\n")[2]
    return text if text.endswith("\n") or not text else text + "\n"


def _split_merges(lines: str, path: Path) -> Sides:
    if sides := split_merges(lines):
        return sides
    merges = lines.splitlines()
    index = next(i for i, merge in enumerate(merges) if split_merges(merge + "\n") is None)
    first = 1 + read_text(path).startswith("#version")
    raise FormatError(f"{path}, line {index + first}: need two tokens in printable form, found {merges[index]!r}")


# ---- bpeflow.json ----


def _read_tokenizer_file(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if content.get("format") != _VERSION:
        raise FormatError(
            f"{path}: format {content.get('format')!r}, but this version of bpeflow reads format {_VERSION}; the file "
            "may have been written by a newer version"
        )
    content.setdefault("hidden_tokens", {})
    if "unmatched" not in content:  # written by version 0.1.0, which dropped such text
        content["unmatched"] = "isolate" if content.get("pattern") in [*NAMED_PATTERNS] else "drop"
    types = {
        "pattern": (str | list, "a string or a list of strings"),
        "whole_tokens": (bool, "true or false"),
        "special_tokens": (dict, "an object"),
        "hidden_tokens": (dict, "an object"),
    }
    for key, (type_, description) in types.items():
        if not isinstance(content.get(key), type_):
            raise FormatError(f"{path}: {key} must be {description}")
    check_special_tokens(path, content["special_tokens"])
    pattern = content["pattern"]
    if not all(is_text(step) for step in (pattern if isinstance(pattern, list) else [pattern])):
        raise FormatError(f"{path}: pattern has characters that cannot be encoded as UTF-8")
    content["pattern"] = check_pattern(tuple(pattern) if isinstance(pattern, list) else pattern, path)
    if content["unmatched"] not in get_args(UnmatchedPolicy):
        raise FormatError(f"{path}: unmatched must be one of {', '.join(get_args(UnmatchedPolicy))}")
    try:
        content["normalizer"] = load_normalizer(content.get("normalizer", ())).names
    except ConfigError as error:
        raise FormatError(f"{path}: {error}") from None
    counts = content.get("merge_counts", [])
    are_counts = isinstance(counts, list) and {*map(type, counts)} <= {int, type(None)}
    if not are_counts or min(filter(None, counts), default=0) < 0:
        raise FormatError(f"{path}: merge_counts must be a list of counts, with null where one is unknown")
    if not all(key.isdecimal() and len(key) <= 10 and is_text(form) for key, form in content["hidden_tokens"].items()):
        raise FormatError(f"{path}: hidden_tokens must be an object of id: printable form")
    return content


def _hidden_tokens(vocab: Vocab) -> dict[str, str]:
    """Return the tokens that `save_files` leaves out because a special token or a lower id has their printable form."""
    specials = set(vocab.special_tokens.values())
    seen = {from_printable(token) for token in vocab.special_tokens}
    hidden = {}
    for token_id, token in enumerate(vocab.tokens):
        if token_id in specials or not token:
            continue
        if token in seen:
            hidden[str(token_id)] = to_printable(token)
        seen.add(token)
    return hidden


def _restore_hidden_tokens(vocab: Vocab, hidden: Mapping[str, str], path: Path) -> Vocab:
    if not hidden:
        return vocab
    forms = {int(text): form for text, form in hidden.items() if text.isdecimal()}
    tokens = [*vocab.tokens, *[b""] * len(forms)]
    for token_id, form in forms.items():
        token = from_printable(form)
        if not token or token_id >= len(tokens) or tokens[token_id]:
            raise FormatError(f"{path}: hidden token {form!r} with id {token_id} does not fit {VOCAB_FILE}")
        tokens[token_id] = token
    while not tokens[-1]:
        tokens.pop()
    return replace(vocab, tokens=tuple(tokens))
