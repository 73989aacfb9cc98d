"""Normalizers in files: what every format keeps of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from normalized_text import NORMALIZERS
from peers import open_huggingface

import bpeflow
from bpeflow.errors import FormatError
from bpeflow.formats import huggingface
from bpeflow.formats.tokenizer_spec import TokenizerSpec, tokenizer_hash
from bpeflow.vocab import Vocab

SPECIALS = ["<|endoftext|>"]


def spec(*names: Any, pattern: str = "gpt2") -> TokenizerSpec:
    return TokenizerSpec(Vocab.build([(b"t", b"h"), (b"\xc3", b"\xa9")], SPECIALS), pattern, normalizer=names)


def edit(path: Path, **parts: Any) -> Path:
    content = json.loads(path.read_text(encoding="utf-8")) | parts
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("names", [(), *NORMALIZERS], ids="+".join)
@pytest.mark.parametrize("format_", ["gpt2", "huggingface"])
def test_a_normalizer_survives_saving_and_loading(format_: str, names: tuple[str, ...], tmp_path: Path) -> None:
    saved = bpeflow.Tokenizer.from_spec(spec(*names))
    saved.save(tmp_path, format_)
    loaded = bpeflow.Tokenizer.load(tmp_path)
    assert loaded.to_spec() == saved.to_spec()
    assert loaded.vocab.normalizer == loaded.normalizer == names
    if format_ == "gpt2":
        files = (tmp_path / "vocab.json", tmp_path / "merges.txt")
        assert bpeflow.Tokenizer.from_files(*files).normalizer == names
        assert bpeflow.Tokenizer.from_files(*files, pattern="o200k").normalizer == names
        assert ("normalizer" in (tmp_path / "bpeflow.json").read_text(encoding="utf-8")) == bool(names)


@pytest.mark.parametrize("format_", ["tiktoken"])
def test_formats_without_normalizers_refuse_one(format_: str, tmp_path: Path) -> None:
    message = r"(tiktoken|CS336's format) has no normalizers, and this tokenizer has nfkc, lowercase; use the format"
    with pytest.raises(FormatError, match=message):
        bpeflow.Tokenizer.from_spec(spec("nfkc", "lowercase")).save(tmp_path / "new", format_)
    assert not (tmp_path / "new").exists() or not [*(tmp_path / "new").iterdir()]


@pytest.mark.parametrize(
    ("normalizer", "names"),
    [
        (None, ()),
        ({"type": "NFKD"}, ("nfkd",)),
        ({"type": "Sequence", "normalizers": []}, ()),
        ({"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "NFC"}]}, ("lowercase", "nfc")),
        (
            {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [{"type": "NFD"}]}]},
            ("nfd",),
        ),
    ],
)
def test_normalizers_of_tokenizer_json_are_read(normalizer: Any, names: tuple[str, ...], tmp_path: Path) -> None:
    [path] = huggingface.save(spec(), tmp_path / "tokenizer.json")
    edit(path, normalizer=normalizer)
    assert huggingface.load(path).normalizer == names
    assert open_huggingface(path).encode("É").ids == bpeflow.Tokenizer.load(path).encode("É")


@pytest.mark.parametrize(
    ("normalizer", "shown"),
    [
        ({"type": "Prepend", "prepend": "▁"}, "'Prepend'"),
        ({"type": "BertNormalizer"}, "'BertNormalizer'"),
        ({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "StripAccents"}]}, "'StripAccents'"),
        ({"type": "Sequence", "normalizers": {"type": "NFC"}}, "'Sequence of '"),
        ({"type": ["NFC"]}, r"\['NFC'\]"),
        ("NFC", "'NFC'"),
        (["NFC"], r"\['NFC'\]"),
        ({}, r"\{\}"),
    ],
)
def test_other_normalizers_are_refused_by_name(normalizer: Any, shown: str, tmp_path: Path) -> None:
    [path] = huggingface.save(spec(), tmp_path / "tokenizer.json")
    edit(path, normalizer=normalizer)
    with pytest.raises(
        FormatError, match=rf"tokenizer\.json: normalizer\S*: {shown} is not supported: bpeflow has NFC, "
    ):
        huggingface.load(path)


@pytest.mark.parametrize("names", ["nfx", ["nfc", 1], 5, {"nfc": 1, "x": 2}])
def test_damaged_normalizers_in_bpeflow_json_are_refused(names: Any, tmp_path: Path) -> None:
    bpeflow.Tokenizer.from_spec(spec("nfc")).save(tmp_path)
    edit(tmp_path / "bpeflow.json", normalizer=names)
    with pytest.raises(FormatError, match=r"bpeflow\.json: (unknown normalizer|normalizer is 5)") as error:
        bpeflow.Tokenizer.load(tmp_path)
    assert "\n" not in str(error.value)


def added(token: str, normalized: bool) -> dict[str, Any]:
    options = {"single_word": False, "lstrip": False, "rstrip": False, "special": False}
    return {"id": 259, "content": token, "normalized": normalized} | options


@pytest.mark.parametrize("token", ["   ", "|||IP_ADDRESS|||", "\n\n", "a 1", "<a|"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_normalized_added_tokens_that_stay_as_they_are(token: str, form: str, tmp_path: Path) -> None:
    [path] = huggingface.save(spec(), tmp_path / "tokenizer.json")
    edit(path, normalizer={"type": form}, added_tokens=[added(token, normalized=True)])
    ours, theirs = bpeflow.Tokenizer.load(path), open_huggingface(path)
    for text in (
        f"é{token}\u0301e\u0301",
        f"a\u2002{token}\u0338",
        token * 2,
        f"e{token}",
        f"\u1112\u1161{token}\u11ab",
    ):
        ids = ours.encode(text)
        assert ids == theirs.encode(text).ids
        assert 259 in ids


@pytest.mark.parametrize(
    ("names", "token"),
    [
        ("NFKC", "  "),
        ("Lowercase", "[X]"),
        ("NFC", "<x>"),
        ("NFC", "word"),
        ("NFC", "K|"),
        ("NFC", "é|"),
        ("NFD", ";|"),
    ],
)
def test_normalized_added_tokens_that_other_text_may_become_are_refused(names: str, token: str, tmp_path: Path) -> None:
    [path] = huggingface.save(spec(), tmp_path / "tokenizer.json")
    edit(path, normalizer={"type": names}, added_tokens=[added(token, normalized=True)])
    with pytest.raises(FormatError, match=r'is searched for in the normalized text .*; set its "normalized" to false'):
        huggingface.load(path)
    edit(path, added_tokens=[added(token, normalized=False)])
    text = f"{token}ＡK{token}\u0338{token.upper()}"
    assert bpeflow.Tokenizer.load(path).encode(text) == open_huggingface(path).encode(text).ids


def test_a_tokenizer_is_identified_with_its_normalizer() -> None:
    hashes = {tokenizer_hash(spec(*names)) for names in [(), ("nfc",), ("nfc", "lowercase"), ("lowercase", "nfc")]}
    assert len(hashes) == 4
