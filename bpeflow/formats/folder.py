"""A folder with a tokenizer: GPT-2's two files, and ``bpeflow.json`` beside them with what those cannot say.

``bpeflow.json``: ``{"format": 1, "pattern": name or regular expression, "special_tokens": {text: id},
"whole_tokens": false, "merges": how many there are}``, and ``"hidden_tokens": {id: printable form}`` where there are
tokens for which ``vocab.json`` has no place, as it holds one id for each printable form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bpeflow.atomic import atomic_path, make_folder
from bpeflow.errors import FormatError
from bpeflow.formats import gpt2
from bpeflow.formats.reading import check_special_tokens, is_text, read_json
from bpeflow.formats.saved import SavedTokenizer
from bpeflow.formats.spellings import check_pattern
from bpeflow.printable import from_printable, to_printable
from bpeflow.vocab import Vocab

TOKENIZER_FILE = "bpeflow.json"
_FORMAT = 1


def save(saved: SavedTokenizer, folder: Path) -> list[Path]:
    """Write the three files into `folder`, which is made where it is missing, and return their paths.

    `load` gives the same tokenizer back. Raises `FormatError` as `gpt2.save` does.
    """
    make_folder(folder)
    paths = gpt2.save(saved.vocab, folder)
    content: dict[str, Any] = {
        "format": _FORMAT,
        "pattern": saved.pattern,
        "special_tokens": saved.vocab.special_tokens,
        "whole_tokens": saved.whole_tokens,
        "merges": len(saved.vocab.merges),
    }
    hidden = _hidden_tokens(saved.vocab)
    if hidden:
        content["hidden_tokens"] = hidden
    path = folder / TOKENIZER_FILE
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return [*paths, path]


def load(folder: Path) -> SavedTokenizer:
    """Read a folder that `save` or a training wrote, or one with GPT-2's two files only, whose pattern is GPT-2's.

    Raises `FormatError`, with file and place, for files that are missing, damaged, or not of one tokenizer.
    """
    names = next((names for names in gpt2.NAMES if (folder / names[0]).is_file()), gpt2.NAMES[0])
    vocab_path, merges_path, path = folder / names[0], folder / names[1], folder / TOKENIZER_FILE
    for needed in (vocab_path, merges_path):
        if not needed.is_file():
            raise FormatError(f"there is no {needed.name} in {folder}; give a run folder or one of GPT-2's form")
    if not path.is_file():
        return SavedTokenizer(gpt2.load(vocab_path, merges_path))
    content = _read(path)
    specials = content["special_tokens"]
    vocab = gpt2.load(vocab_path, merges_path, list(specials), find_special_tokens=False)
    if vocab.special_tokens != specials:
        theirs = {*specials.items()} ^ {*vocab.special_tokens.items()}
        raise FormatError(f"{path} and {vocab_path} differ in special tokens: {sorted(theirs)[:5]}; write both anew")
    if content.get("merges", len(vocab.merges)) != len(vocab.merges):
        raise FormatError(
            f"{merges_path}: {len(vocab.merges)} merges, but {path.name} tells of {content['merges']}; one of the two "
            "is damaged, or of another tokenizer"
        )
    vocab = _unhide(replace(vocab, special_tokens=specials), content["hidden_tokens"], path)
    return SavedTokenizer(vocab, content["pattern"], content["whole_tokens"])


def pattern_beside(vocab_path: Path) -> str:
    """The pattern of the tokenizer that a ``vocab.json`` belongs to: GPT-2's where no `TOKENIZER_FILE` tells another.

    Raises `FormatError` where that file is damaged.
    """
    path = vocab_path.with_name(TOKENIZER_FILE)
    known = vocab_path.name == gpt2.VOCAB_FILE and path.is_file()
    return str(_read(path)["pattern"]) if known else "gpt2"


def _hidden_tokens(vocab: Vocab) -> dict[str, str]:
    """The tokens that `gpt2.save` has to leave out: those whose printable form a lower id or a special token has."""
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
            raise FormatError(f"{path}: hidden token {form!r} with id {token_id} does not fit {gpt2.VOCAB_FILE}")
        tokens[token_id] = token
    while not tokens[-1]:
        tokens.pop()
    return replace(vocab, tokens=tuple(tokens))


def _read(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if content.get("format") != _FORMAT:
        raise FormatError(
            f"{path}: format {content.get('format')!r}, but this version of bpeflow reads format {_FORMAT}; it may "
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
