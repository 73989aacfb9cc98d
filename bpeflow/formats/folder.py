"""A folder with a tokenizer: GPT-2's two files, and ``bpeflow.json`` beside them with what those cannot say.

``bpeflow.json``: ``{"format": 1, "pattern": name or regular expression, "special_tokens": {text: id},
"whole_tokens": false, "merges": how many}``, and ``"hidden_tokens": {id: printable form}`` where there are tokens for
which ``vocab.json`` has no place, as it holds one id for each printable form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bpeflow.atomic import atomic_path
from bpeflow.errors import FormatError
from bpeflow.formats import gpt2
from bpeflow.formats.saved import SavedTokenizer
from bpeflow.printable import from_printable, to_printable
from bpeflow.vocab import Vocab

TOKENIZER_FILE = "bpeflow.json"
_FORMAT = 1


def save(saved: SavedTokenizer, folder: Path) -> list[Path]:
    """Write the three files into `folder`, which is made where it is missing, and return their paths.

    `load` gives the same tokenizer back. Raises `FormatError` as `gpt2.save` does.
    """
    folder.mkdir(parents=True, exist_ok=True)
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
    vocab_path, merges_path, path = folder / gpt2.VOCAB_FILE, folder / gpt2.MERGES_FILE, folder / TOKENIZER_FILE
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
    if content["merges"] != len(vocab.merges):
        raise FormatError(
            f"{merges_path} has {len(vocab.merges):,} merges, but {path} tells of {content['merges']:,}: it is cut "
            "short, or of another tokenizer"
        )
    vocab = _unhide(replace(vocab, special_tokens=specials), content["hidden_tokens"], path)
    return SavedTokenizer(vocab, content["pattern"], content["whole_tokens"])


def _hidden_tokens(vocab: Vocab) -> dict[str, str]:
    """The tokens that `gpt2.save` has to leave out: those whose printable form a lower id or a special token has."""
    specials = set(vocab.special_tokens.values())
    seen = set(vocab.special_tokens)
    hidden = {}
    for token_id, token in enumerate(vocab.tokens):
        form = to_printable(token)
        if token_id in specials or not token:
            continue
        if form in seen:
            hidden[str(token_id)] = form
        seen.add(form)
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
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not JSON in UTF-8: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"{path}: need one JSON object")
    if content.get("format") != _FORMAT:
        raise FormatError(
            f"{path}: format {content.get('format')!r}, but this version of bpeflow reads format {_FORMAT}; it may "
            "have been written by a newer one"
        )
    content.setdefault("hidden_tokens", {})
    kinds = {"pattern": str, "whole_tokens": bool, "special_tokens": dict, "hidden_tokens": dict, "merges": int}
    for key, kind in kinds.items():
        if not isinstance(content.get(key), kind):
            raise FormatError(f"{path}: need {key!r} with a value of JSON's kind {kind.__name__}")
    if not all(type(token_id) is int for token_id in content["special_tokens"].values()):
        raise FormatError(f"{path}: need an id for each of 'special_tokens'")
    if not all(key.isdecimal() and type(form) is str for key, form in content["hidden_tokens"].items()):
        raise FormatError(f"{path}: need a printable form for each id of 'hidden_tokens'")
    return content
