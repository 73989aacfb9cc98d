"""A folder with a tokenizer: GPT-2's two files, and ``bpeflow.json`` beside them with what those cannot say.

``bpeflow.json``: ``{"format": 1, "pattern": name or regular expression, "special_tokens": {text: id},
"whole_tokens": false, "merges": how many there are}``, and ``"hidden_tokens": {id: printable form}`` where there are
tokens for which ``vocab.json`` has no place, as it holds one id for each printable form.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bpeflow._util.atomic import atomic_path, make_folder
from bpeflow.errors import FormatError
from bpeflow.formats.regex_dialects import check_pattern
from bpeflow.formats.spec import TokenizerSpec
from bpeflow.formats.untrusted import MOST_GAPS, check_special_tokens, is_text, read_json, read_text
from bpeflow.vocab import BYTE_CHARACTERS, Merge, Vocab, from_printable, describe_byte_conflict, to_printable

TOKENIZER_FILE = "bpeflow.json"
_VERSION = 1


def save(spec: TokenizerSpec, folder: Path) -> list[Path]:
    """Write the three files into `folder`, which is made where it is missing, and return their paths.

    `load` gives the same tokenizer back. Raises `FormatError` as `save_files` does.
    """
    make_folder(folder)
    paths = save_files(spec.vocab, folder)
    content: dict[str, Any] = {
        "format": _VERSION,
        "pattern": spec.pattern,
        "special_tokens": spec.vocab.special_tokens,
        "whole_tokens": spec.whole_tokens,
        "merges": len(spec.vocab.merges),
    }
    hidden = _hidden_tokens(spec.vocab)
    if hidden:
        content["hidden_tokens"] = hidden
    path = folder / TOKENIZER_FILE
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return [*paths, path]


def load(folder: Path) -> TokenizerSpec:
    """Read a folder that `save` or a training wrote, or one with GPT-2's two files only, whose pattern is GPT-2's.

    Raises `FormatError`, with file and place, for files that are missing, damaged, or not of one tokenizer.
    """
    names = next((names for names in NAMES if (folder / names[0]).is_file()), NAMES[0])
    vocab_path, merges_path, path = folder / names[0], folder / names[1], folder / TOKENIZER_FILE
    for needed in (vocab_path, merges_path):
        if not needed.is_file():
            raise FormatError(f"there is no {needed.name} in {folder}; give a run folder or one of GPT-2's form")
    if not path.is_file():
        return TokenizerSpec(load_files(vocab_path, merges_path))
    content = _read_description(path)
    specials = content["special_tokens"]
    vocab = load_files(vocab_path, merges_path, list(specials), find_special_tokens=False)
    if vocab.special_tokens != specials:
        theirs = {*specials.items()} ^ {*vocab.special_tokens.items()}
        raise FormatError(f"{path} and {vocab_path} differ in special tokens: {sorted(theirs)[:5]}; write both anew")
    if content.get("merges", len(vocab.merges)) != len(vocab.merges):
        raise FormatError(
            f"{merges_path}: {len(vocab.merges)} merges, but {path.name} tells of {content['merges']}; one of the two "
            "is damaged, or of another tokenizer"
        )
    vocab = _unhide(replace(vocab, special_tokens=specials), content["hidden_tokens"], path)
    return TokenizerSpec(vocab, content["pattern"], content["whole_tokens"])


def pattern_beside(vocab_path: Path) -> str:
    """The pattern of the tokenizer that a ``vocab.json`` belongs to: GPT-2's where no `TOKENIZER_FILE` tells another.

    Raises `FormatError` where that file is damaged.
    """
    path = vocab_path.with_name(TOKENIZER_FILE)
    known = vocab_path.name == VOCAB_FILE and path.is_file()
    return str(_read_description(path)["pattern"]) if known else "gpt2"


def _hidden_tokens(vocab: Vocab) -> dict[str, str]:
    """The tokens that `save_files` has to leave out: those whose printable form a lower id or a special token has."""
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


def _unhide(vocab: Vocab, hidden: Mapping[str, str], path: Path) -> Vocab:
    if not hidden:
        return vocab
    ids = {int(text): form for text, form in hidden.items() if text.isdecimal()}
    tokens = [*vocab.tokens, *[b""] * len(ids)]
    for token_id, form in ids.items():
        token = from_printable(form)
        if not token or token_id >= len(tokens) or tokens[token_id]:
            raise FormatError(f"{path}: hidden token {form!r} with id {token_id} does not fit {VOCAB_FILE}")
        tokens[token_id] = token
    while not tokens[-1]:
        tokens.pop()
    return replace(vocab, tokens=tuple(tokens))


def _read_description(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if content.get("format") != _VERSION:
        raise FormatError(
            f"{path}: format {content.get('format')!r}, but this version of bpeflow reads format {_VERSION}; it may "
            "have been written by a newer one"
        )
    content.setdefault("hidden_tokens", {})
    kinds = {"pattern": str, "whole_tokens": bool, "special_tokens": dict, "hidden_tokens": dict}
    for key, kind in kinds.items():
        if not isinstance(content.get(key), kind):
            raise FormatError(f"{path}: need {key!r} with a value of JSON's kind {kind.__name__}")
    check_special_tokens(path, content["special_tokens"])
    if not is_text(content["pattern"]):
        raise FormatError(f"{path}: need 'pattern' in characters that have a UTF-8 form")
    check_pattern(content["pattern"], path)
    if not all(key.isdecimal() and len(key) <= 10 and is_text(form) for key, form in content["hidden_tokens"].items()):
        raise FormatError(f"{path}: need a printable form for each id of 'hidden_tokens'")
    return content


VOCAB_FILE = "vocab.json"
MERGES_FILE = "merges.txt"

#: The names that both files have, ours first; the others are OpenAI's own.
NAMES = ((VOCAB_FILE, MERGES_FILE), ("encoder.json", "vocab.bpe"))
_HEADER = "#version: 0.2"
_BYTES = frozenset(BYTE_CHARACTERS)
log = logging.getLogger(__name__)


def save_files(vocab: Vocab, folder: Path) -> list[Path]:
    """Write ``vocab.json`` and ``merges.txt`` into `folder`, and return their paths.

    The format holds one id for each printable form. Where two tokens have the same one, the lower id is written, or a
    special token's, and the log warns: merging still goes the same way, and yields that id for both.

    Raises `FormatError`, before anything is written, for a special token that would so take the place of a byte
    (`bpeflow.vocab.check_special_tokens` finds it before the training).
    """
    specials = {token_id: token for token, token_id in vocab.special_tokens.items()}
    ids: dict[str, int] = {token: token_id for token_id, token in specials.items()}
    for token_id, token in enumerate(vocab.tokens):
        text = to_printable(token)
        if not token or token_id in specials or ids.setdefault(text, token_id) == token_id:
            continue
        if text in _BYTES and text in vocab.special_tokens:
            raise FormatError(f"{folder / VOCAB_FILE}: {describe_byte_conflict(text)}")
        log.warning(
            "%s has one id for each printable form: %r keeps id %d, and id %d, which has the same form, is left out",
            VOCAB_FILE,
            text,
            ids[text],
            token_id,
        )
    by_id = dict(sorted(ids.items(), key=lambda item: item[1]))
    vocab_path, merges_path = folder / VOCAB_FILE, folder / MERGES_FILE
    with atomic_path(vocab_path) as temporary:
        temporary.write_text(json.dumps(by_id, ensure_ascii=False) + "\n", encoding="utf-8")
    with atomic_path(merges_path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(_HEADER + "\n")
        file.writelines(f"{to_printable(left)} {to_printable(right)}\n" for left, right in vocab.merges)
    return [vocab_path, merges_path]


def load_files(
    vocab_path: Path, merges_path: Path, special_tokens: Sequence[str] = (), *, find_special_tokens: bool = True
) -> Vocab:
    """Read both files.

    An entry that is neither a byte nor what a merge yields is a special token; name in `special_tokens` those that are
    a byte's or that a merge yields too. Without `find_special_tokens` those that are named are all. An id that `save_files`
    left out stands for no bytes. Raises `FormatError`, with file and place, for anything that does not fit.
    """
    ids = _read_ids(vocab_path)
    merges = _read_merges(merges_path)
    merged = {to_printable(left + right) for left, right in merges}
    for text in itertools.chain(_BYTES, special_tokens, merged):
        if text not in ids:
            raise FormatError(f"{vocab_path}: no id for {text!r}, which is a byte, a special token or in {merges_path}")
    if max(ids.values()) >= len(ids) + MOST_GAPS:
        raise FormatError(f"{vocab_path}: ids up to {max(ids.values())}, but only {len(ids)} tokens")
    named = frozenset(special_tokens)
    specials = {
        t: i for t, i in ids.items() if t in named or (find_special_tokens and not (t in merged or t in _BYTES))
    }
    tokens = [b""] * (max(ids.values()) + 1)
    for text, token_id in ids.items():
        token = text.encode() if text in specials else from_printable(text)
        if token is None:
            raise FormatError(f"{vocab_path}: token {text!r} has characters that are not GPT-2's printable bytes")
        tokens[token_id] = token
    return Vocab(tuple(tokens), specials, tuple(merges))


def _read_ids(path: Path) -> dict[str, int]:
    ids = read_json(path)
    if not all(type(i) is int for i in ids.values()):
        raise FormatError(f"{path}: need one JSON object of token: id")
    if len(set(ids.values())) != len(ids) or min(ids.values(), default=0) < 0:
        raise FormatError(f"{path}: an id that is negative or given to two tokens")
    return ids


def _read_merges(path: Path) -> list[Merge]:
    lines = read_text(path).replace("\r\n", "\n").split("\n")
    merges: list[Merge] = []
    for number, line in enumerate(lines, start=1):
        if (number == 1 and line.startswith("#version")) or (number == len(lines) and not line):
            continue
        sides = [from_printable(side) for side in line.split(" ")]
        if len(sides) != 2 or not sides[0] or not sides[1]:
            raise FormatError(f"{path}, line {number}: need two tokens in printable form, found {line!r}")
        merges.append((sides[0], sides[1]))
    return merges
