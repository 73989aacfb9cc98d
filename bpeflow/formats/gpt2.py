"""GPT-2's form: ``vocab.json`` (printable token → id) and ``merges.txt`` (a merge a line, by rank).

Source: OpenAI's GPT-2 release (``encoder.json``, ``vocab.bpe``); HuggingFace tokenizers reads and writes the same.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from bpeflow.atomic import atomic_path
from bpeflow.errors import FormatError
from bpeflow.formats.reading import MOST_GAPS, read_json, read_text
from bpeflow.printable import BYTE_CHARACTERS, from_printable, to_printable
from bpeflow.vocab import Merge, Vocab, hidden_byte

VOCAB_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
#: The names that both files have, ours first; the others are OpenAI's own.
NAMES = ((VOCAB_FILE, MERGES_FILE), ("encoder.json", "vocab.bpe"))
_HEADER = "#version: 0.2"
_BYTES = frozenset(BYTE_CHARACTERS)

log = logging.getLogger(__name__)


def save(vocab: Vocab, folder: Path) -> list[Path]:
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
            raise FormatError(f"{folder / VOCAB_FILE}: {hidden_byte(text)}")
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


def load(
    vocab_path: Path, merges_path: Path, special_tokens: Sequence[str] = (), *, find_special_tokens: bool = True
) -> Vocab:
    """Read both files.

    An entry that is neither a byte nor what a merge yields is a special token; name in `special_tokens` those that are
    a byte's or that a merge yields too. Without `find_special_tokens` those that are named are all. An id that `save`
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
