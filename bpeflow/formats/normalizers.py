"""Normalizers in files: the ``normalizer`` of ``tokenizer.json``, and formats that cannot hold one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bpeflow._util.text import NormalizerName, short_repr
from bpeflow.errors import FormatError
from bpeflow.formats.spec import TokenizerSpec

_TYPES: dict[NormalizerName, str] = {
    "nfc": "NFC",
    "nfd": "NFD",
    "nfkc": "NFKC",
    "nfkd": "NFKD",
    "lowercase": "Lowercase",
}
_NAMES = {type_: name for name, type_ in _TYPES.items()}

#: ASCII that NFC and NFD keep wherever it is: without characters that others become (U+212A becomes K, U+037E a
#: semicolon, U+1FEF a backquote), and without a last character that is composed with marks after it.
_KEPT = r"[^K;`\x80-\U0010ffff]*[^A-Za-z<=>;`\x80-\U0010ffff]"

_CANONICAL = frozenset({"nfc", "nfd"})


def read_normalizer(value: object, path: Path) -> tuple[NormalizerName, ...]:
    """Read the ``normalizer`` of a ``tokenizer.json``. Raises `FormatError` for a type that bpeflow does not have."""
    names: list[NormalizerName] = []
    steps = [] if value is None else [value]
    while steps:
        step = steps.pop(0)
        type_ = step.get("type") if isinstance(step, dict) else step
        nested = step.get("normalizers") if isinstance(step, dict) and type_ == "Sequence" else None
        if isinstance(nested, list):
            steps[:0] = nested
        elif isinstance(step, dict) and isinstance(type_, str) and type_ in _NAMES:
            names.append(_NAMES[type_])
        else:
            raise FormatError(
                f"{path}: normalizer: {short_repr(type_)} is not supported: bpeflow has {', '.join(_NAMES)} and "
                "Sequences of these; normalize your text yourself, and set normalizer to null in the file"
            )
    return tuple(names)


def normalizer_to_json(names: Sequence[NormalizerName]) -> dict[str, Any] | None:
    """Return the ``normalizer`` of a ``tokenizer.json``."""
    steps = [{"type": _TYPES[name]} for name in names]
    return {"type": "Sequence", "normalizers": steps} if len(steps) > 1 else next(iter(steps), None)


def check_normalized_tokens(tokens: Iterable[str], normalizer: Sequence[NormalizerName], path: Path) -> None:
    """Refuse normalized added tokens that bpeflow would not find in the same places.

    HuggingFace's tokenizers normalize these tokens, and search for them in the normalized text. bpeflow searches the
    text as it is. Both find the same if the token is ASCII that a canonical form neither changes nor makes of other
    characters, and that ends in a character which is never composed. Then text can also be normalized before and after
    the token separately, because an ASCII character is never composed with one before it.
    """
    if not normalizer:
        return
    for token in tokens:
        if not (_CANONICAL.issuperset(normalizer) and re.fullmatch(_KEPT, token)):
            raise FormatError(
                f"{path}: added_tokens: {short_repr(token)} is searched for in the normalized text "
                f"({', '.join(normalizer)}), and bpeflow searches for special tokens before normalizing; set its "
                '"normalized" to false in the file if that is what you want'
            )


def refuse_normalizer(spec: TokenizerSpec, path: Path, format_: str) -> None:
    """Raise `FormatError` if a tokenizer has a normalizer, for a format that has none."""
    if spec.normalizer:
        raise FormatError(
            f"{path}: {format_} has no normalizers, and this tokenizer has {', '.join(spec.normalizer)}; use the "
            "format huggingface or gpt2"
        )
