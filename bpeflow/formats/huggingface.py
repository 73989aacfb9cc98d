"""HuggingFace's ``tokenizer.json`` with byte-level BPE, which tokenizers and transformers can load.

Every part of the file that affects the ids of a text is either read or refused with an error that names it. Other parts
are ignored with a warning: truncation, padding, and post-processors, which add tokens before and after a text. Source:
HuggingFace tokenizers 0.23, the ``Serialize`` and ``Deserialize`` implementations of its types.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bpeflow._util.atomic import write_text
from bpeflow._util.byte_level import BYTE_CHARACTERS, from_printable
from bpeflow._util.text import NormalizerName, short_repr
from bpeflow.errors import FormatError
from bpeflow.formats.dialects import (
    byte_level,
    check_normalized_tokens,
    normalizer_to_json,
    read_normalizer,
    read_pre_tokenizer,
    write_pre_tokenizer,
)
from bpeflow.formats.printable import find_merge_ids, ids_by_form, json_entries, merge_lines, vocab_of_forms
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.formats.untrusted import Part, check_bytes, check_ids, has_duplicates, is_text, read_json
from bpeflow.vocab import Vocab

FILE = "tokenizer.json"

#: Settings of the BPE model, with the values that have no effect on byte-level BPE. `unk_token` and `fuse_unk` are not
#: among them, because they never have an effect: they are for characters without a token, and every byte has a token.
_NEUTRAL = {
    "dropout": (None, 0, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (None, False),
}

#: The longest added token, in characters, in a file with both normalized and verbatim added tokens. Their comparison
#: takes time and memory quadratic in the length. Real tokens are far shorter.
_MAX_MIXED_LENGTH = 1_000
log = logging.getLogger(__name__)


def load(path: Path) -> TokenizerSpec:
    """Read a ``tokenizer.json``.

    Raises:
        FormatError: the file is damaged, has another kind of model (WordPiece, Unigram …), or has a part that bpeflow
            does not support (another normalizer or pre-tokenizer, options that affect merging). The message has the
            file and the position.
    """
    return from_json(read_json(path))


def from_json(file: Part) -> TokenizerSpec:
    """Return the tokenizer in the content of a ``tokenizer.json``. Raises as `load` does."""
    model = _model(file)
    pattern, unmatched = read_pre_tokenizer(file["pre_tokenizer"])
    normalizer = read_normalizer(file["normalizer"])
    decoder = file["decoder"]
    if decoder.value is not None and decoder.type != "ByteLevel":
        raise decoder.refusal("bpeflow decodes bytes as ByteLevel does")
    specials = _read_added_tokens(file["added_tokens"], normalizer)
    vocab = _read_vocab(model, specials)
    whole_tokens = model["ignore_merges"].flag()
    if whole_tokens:
        _check_whole_tokens(vocab, specials.keys() & model["vocab"].value.keys(), file.path)
    _warn_of_ignored_parts(file)
    return TokenizerSpec(vocab, pattern, whole_tokens, unmatched, normalizer)


def save(spec: TokenizerSpec, path: Path, post_processor: Mapping[str, Any] | None = None) -> list[Path]:
    """Write a ``tokenizer.json``, with a post-processor if one is given. Return its path. Raises as `to_json` does."""
    write_text(path, to_json(spec, path, post_processor))
    return [path]


def to_json(spec: TokenizerSpec, path: Path, post_processor: Mapping[str, Any] | None = None) -> str:
    """Return the content of a ``tokenizer.json`` at `path`.

    The log warns of special tokens that HuggingFace's decoder does not restore.

    Raises:
        FormatError: two ids would have the same entry in the file, HuggingFace would encode other text as a special
            token or text that is an error here, or its engine reads the pattern differently.
    """
    ids = _ids(spec.vocab, path)
    if spec.whole_tokens:
        _check_whole_tokens(spec.vocab, spec.vocab.special_tokens, path)
    pre_tokenizer = write_pre_tokenizer(spec, path)
    content: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(spec.vocab),
        "normalizer": normalizer_to_json(spec.normalizer),
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": spec.whole_tokens,
            "vocab": {},
            "merges": [],
        },
    }
    text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
    # The long parts, in the same layout: `json` is ten times slower with `indent`.
    entries = json_entries(ids, ",\n   ")
    text = text.replace('"vocab": {}', f'"vocab": {{\n   {entries}\n  }}')
    escaped = merge_lines(spec.vocab, "\0")[:-1].replace("\\", r"\\").replace('"', r"\"")
    merges = escaped.replace("\n", '"\n   ],\n   [\n    "').replace("\0", '",\n    "')
    return text.replace('"merges": []', f'"merges": [\n   [\n    "{merges}"\n   ]\n  ]') if merges else text


def added_tokens(vocab: Vocab) -> list[dict[str, Any]]:
    """Return the special tokens in ascending order of their ids, as HuggingFace's files list them."""
    return [
        {"id": token_id, "content": text, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False, "special": True}
        for text, token_id in sorted(vocab.special_tokens.items(), key=lambda item: item[1])
    ]


def _check_whole_tokens(vocab: Vocab, specials: Iterable[str], path: Path) -> None:
    """Refuse special tokens of ``model.vocab`` that HuggingFace would yield for other text.

    With `ignore_merges` HuggingFace looks up the printable form of a pre-token, so the text ``" the"`` would become the
    special token ``"Ġthe"``.
    """
    for text in specials:
        printable = from_printable(text)
        if printable and printable not in (text.encode(), vocab.ordinary_tokens[vocab.special_tokens[text]]):
            raise FormatError(
                f"{path}: special token {text!r} is the printable form of {printable!r}: with model.ignore_merges "
                "HuggingFace's tokenizers would encode that text as the special token, and bpeflow would not; choose "
                "another special token"
            )


# ---- writing ----


def _ids(vocab: Vocab, path: Path) -> dict[str, int]:
    """Return the ids by the printable form of ordinary tokens and the text of special tokens."""
    ids, ordinary = ids_by_form(vocab, path), vocab.ordinary_tokens
    for text, token_id in vocab.special_tokens.items():
        other = from_printable(text)
        if other not in (None, text.encode()):
            log.warning(
                "%s: HuggingFace's tokenizers encode special token %r as bpeflow does, but their ByteLevel decoder "
                "takes it for the printable form of %r",
                path,
                text,
                other,
            )
        shared = ordinary[token_id]
        if shared not in (b"", other):
            raise FormatError(
                f"{path}: special token {text!r} and {shared!r} share id {token_id}; choose another special token"
            )
        if ids[text] != token_id:
            raise FormatError(
                f"{path}: special token {text!r} (id {token_id}) is also the form of a token (id {ids[text]}), and "
                "tokenizer.json can hold only one of these ids: choose another special token, or train with "
                "tie_break='huggingface', where they share an id"
            )
    return ids


# ---- reading ----


def _model(file: Part) -> Part:
    model, path = file["model"], file.path
    if not isinstance(model.value, dict):
        names = "vocab.json and merges.txt, or encoder.json and vocab.bpe"
        hint = f"; for {names} (with these names) give their folder" if "a" in file.value else ""
        raise FormatError(f'{path}: no "model" in it, so it is not a tokenizer.json{hint}')
    is_bpe = model.type == "BPE" if "type" in model.value else "merges" in model.value  # older files have no type
    if not is_bpe:
        kind = short_repr(model.type or "WordPiece or Unigram")  # BERT's files have no type
        raise FormatError(
            f"{path}: a {kind} model, which HuggingFace's tokenizers read; bpeflow reads byte-level BPE only"
        )
    if model["byte_fallback"].value:
        raise FormatError(
            f"{path}: a SentencePiece BPE model (model.byte_fallback), which merges characters and HuggingFace's "
            "tokenizers read; bpeflow reads byte-level BPE only"
        )
    for option, neutral in _NEUTRAL.items():
        if option in model.value and model[option].value not in neutral:
            raise model[option].refusal("it affects merging")
    return model


def _read_added_tokens(part: Part, normalizer: Sequence[NormalizerName]) -> dict[str, int]:
    ids: dict[str, int] = {}
    verbatim: list[str] = []
    in_normalized_text: list[str] = []
    if not isinstance(part.value, list | None):
        raise part.need("a list")
    for token in part.entries():
        text, token_id = token["content"].value, token["id"].value
        if not is_text(text) or type(token_id) is not int:
            raise token.need("an object with content and id")
        if token["lstrip"].flag():
            log.warning(
                "%s: %s takes the white space before it in HuggingFace's tokenizers (lstrip), which bpeflow encodes",
                part.path,
                short_repr(text),
            )
        for option in ("rstrip", "single_word"):
            if token[option].flag():
                raise token[option].error(
                    f"{short_repr(text)} is not supported: bpeflow matches special tokens anywhere and without the "
                    "text around them"
                )
        if text in ids:
            raise token.error(f"duplicate token {short_repr(text)}")
        ids[text] = token_id
        (in_normalized_text if token["normalized"].flag() else verbatim).append(text)
    _check_overlaps(in_normalized_text, verbatim, part)
    check_normalized_tokens(in_normalized_text, normalizer, part.path)
    return ids


def _check_overlaps(normalized: Collection[str], verbatim: Collection[str], part: Part) -> None:
    """Refuse normalized tokens from which HuggingFace can take a part for a verbatim token.

    HuggingFace searches for verbatim tokens first. In bpeflow all overlaps are resolved leftmost-longest, which takes
    the verbatim token, too, unless a normalized one begins before it or at the same character.
    """
    if not normalized or not verbatim:
        return
    if long := [text for text in (*normalized, *verbatim) if len(text) > _MAX_MIXED_LENGTH]:
        raise part.error(f"{short_repr(long[0])} is too long for the check for overlaps with the other tokens")
    starts = {text[:end] for text in verbatim for end in range(1, len(text) + 1)}
    joined = "\0".join(verbatim)
    for text in normalized:
        if (
            text in joined
            or any(text[-size:] in starts for size in range(1, len(text) + 1))
            or any(other in text for other in verbatim)
        ):
            raise part.error(f"{short_repr(text)} is normalized, and overlaps with a token that is not")


def _read_vocab(model: Part, specials: dict[str, int]) -> Vocab:
    path, merges = model.path, model["merges"].value
    ids = check_ids(model["vocab"])
    for text, token_id in specials.items():
        if ids.get(text, token_id) != token_id:
            raise FormatError(
                f"{path}: added token {short_repr(text)} has id {token_id}, but {ids[text]} in model.vocab"
            )
    check_bytes(path, (bytes([byte]) for byte, character in enumerate(BYTE_CHARACTERS) if character in ids))
    if not isinstance(merges, list):
        raise model["merges"].need("a list")
    merge_ids = find_merge_ids(merges, ids, lambda index: f"{path}: model.merges[{index}]")
    if has_duplicates(merge_ids[:, :2].copy().view(np.uint64).ravel()):
        raise model["merges"].error("two merges are the same")
    return vocab_of_forms(path, ids, specials, merges, merge_ids)


def _warn_of_ignored_parts(file: Part) -> None:
    processor = file["post_processor"]
    if _changes_ids(processor):
        log.warning(
            "%s: the post-processor, %s, is ignored: ids are those of encode(..., add_special_tokens=False)",
            file.path,
            short_repr(processor.description),
        )
    for key in ("truncation", "padding"):
        if file[key].value is not None:
            log.warning("%s: %s is ignored: each text is encoded separately and in full", file.path, key)


def _changes_ids(processor: Part) -> bool:
    """Return whether a post-processor changes the ids of a single text, not only offsets or pairs of texts."""
    single = processor["single"].value
    if processor.type == "Sequence" and isinstance(processor["processors"].value, list):
        return any(map(_changes_ids, processor["processors"].entries()))
    if processor.type == "TemplateProcessing" and isinstance(single, list):
        return [next(iter(part), None) if isinstance(part, dict) else part for part in single] != ["Sequence"]
    return processor.value is not None and processor.type != "ByteLevel"
