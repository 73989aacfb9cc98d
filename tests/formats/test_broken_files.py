"""Loading a file with any content gives a tokenizer or a `FormatError` with the file and the position."""

from __future__ import annotations

import base64
import gc
import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpeflow.errors import ConfigError, FormatError
from bpeflow.formats import any_format as formats
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.formats.untrusted import read_json, short_repr
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab

SPEC = TokenizerSpec(Vocab.build([(b"t", b"h"), (b" ", b"th"), ("é".encode()[:1], "é".encode()[1:])], ["<s>"]))
NAMES = [known.name for known in formats.FORMATS]
#: All files of all formats. Each is damaged in turn.
FILES = [(known.name, file) for known in formats.FORMATS for file in known.files]
LINE = base64.b64encode(b"th")
NESTED = {"brackets": b"[" * 100_000_000, "braces": b'{"a":' * 20_000_000}

Damage = Callable[[bytes], bytes]


def write(folder: Path, name: str, file: str, damage: Damage) -> None:
    """Write a tokenizer and damage one of its files."""
    formats.write(SPEC, folder, name)
    (folder / file).write_bytes(damage((folder / file).read_bytes()))


def load_error(folder: Path, name: str, file: str, damage: Damage) -> str:
    """Write a tokenizer, damage one of its files, and return the message of the error on loading it."""
    write(folder, name, file, damage)
    known = next(known for known in formats.FORMATS if known.name == name)
    with pytest.raises(FormatError) as caught:
        known.load(folder / known.file)
    return str(caught.value)


@pytest.mark.parametrize(("name", "file"), FILES)
def test_truncated_files_are_refused(name: str, file: str, tmp_path: Path) -> None:
    """The cut is in the middle of a line, because a file of lines could be valid after a cut at the end of a line."""
    message = load_error(tmp_path, name, file, lambda content: content[: len(content) // 2 - 3])
    assert str(tmp_path) in message


@pytest.mark.parametrize(("name", "file"), FILES)
@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x00" * 100, b"null", b"7", b'"text"', b"[]"])
def test_files_with_other_content_are_refused(name: str, file: str, content: bytes, tmp_path: Path) -> None:
    assert file in load_error(tmp_path, name, file, lambda _: content)


@pytest.mark.parametrize(("name", "file"), [(name, file) for name, file in FILES if file.endswith(".json")])
@pytest.mark.parametrize("content", NESTED.values(), ids=NESTED)
def test_extremely_deep_nesting_is_refused(name: str, file: str, content: bytes, tmp_path: Path) -> None:
    assert file in load_error(tmp_path, name, file, lambda _: content)


@pytest.mark.parametrize(("name", "file"), [(name, file) for name, file in FILES if file.endswith(".json")])
def test_a_duplicate_key_is_refused(name: str, file: str, tmp_path: Path) -> None:

    def damage(content: bytes) -> bytes:
        return content.replace(b'"<s>": 256', b'"<s>": 300, "<s>": 256')

    assert f"{file}: duplicate key '<s>' in one object" in load_error(tmp_path, name, file, damage)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    known = next(known for known in formats.FORMATS if known.name == name)
    formats.save(SPEC, tmp_path, name)
    (tmp_path / known.file).unlink()
    with pytest.raises(FormatError, match=known.file.replace(".", r"\.")):
        known.load(tmp_path / known.file)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda c: c.replace(LINE, b"!!!!"), r"line 257: need a token in base64 and its rank, found b'!!!! 257'"),
        (lambda c: c.replace(LINE, LINE + b"="), r"line 257: need a token in base64"),
        (lambda c: c.replace(LINE, b"AAAA="), r"line 257: need a token in base64"),
        (lambda c: c.replace(LINE + b" ", LINE), r"line 257: need a token in base64 and its rank"),
        (lambda c: c.replace(LINE + b" 257", LINE + b" -1"), r"line 257: need a token in base64 and its rank"),
        (lambda c: c.replace(LINE + b" 257", LINE + b" " + b"9" * 5000), r"line 257: need a token in base64"),
        (lambda c: c.replace(LINE + b" 257", LINE + b" 65"), r"two tokens have id 65: b'A' and b'th'"),
        (lambda c: c + LINE + b" 400\n", r"line 260: token b'th' already has rank 257"),
        (lambda c: c.replace(LINE + b" 257", LINE + b" 256"), r"two tokens have id 256: b'th' and b'<s>'"),
        (lambda c: c.replace(LINE + b" 257", LINE + b" 4000000000"), r"ids from 0 to 4000000000, but only 260 tokens"),
        (lambda c: c[c.index(b"\n") + 1 :], r"no token for 1 of the 256 bytes, the first of them 0x00"),
        (lambda c: b"", r"no token for 256 of the 256 bytes"),
        (lambda c: c.replace(b"\n", b"\n= 5\n", 1), r"line 2: need a token in base64"),
    ],
)
def test_broken_ranks_are_refused_with_their_line(damage: Damage, expected: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=rf"tokenizer\.tiktoken(, |: ){expected}"):
        raise FormatError(load_error(tmp_path, "tiktoken", "tokenizer.tiktoken", damage))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pat_str": 5}, "pat_str: need a regular expression, found 5"),
        ({}, "pat_str: need a regular expression, found None"),
        ({"pat_str": "("}, "pattern '(' is an invalid regular expression"),
        ({"pat_str": "word"}, "unknown pattern 'word'"),
        ({"pat_str": "a" * 200_000}, "the pattern 'aaaaaa"),
        ({"pat_str": r"\s|\S", "special_token": {}}, "unknown key 'special_token'"),
        ({"pat_str": r"\s|\S", "special_tokens": []}, "special_tokens: need an object of text: id"),
        ({"pat_str": r"\s|\S", "special_tokens": {"<s>": "1"}}, "special_tokens: need an object of text: id"),
        ({"pat_str": r"\s|\S", "special_tokens": {"<s>": True}}, "special_tokens: need an object of text: id"),
        ({"pat_str": r"\s|\S", "special_tokens": {"": 300}}, "special_tokens: need an object of text: id"),
        ({"pat_str": r"\s|\S", "special_tokens": {"\ud800": 300}}, "special_tokens: need an object of text: id"),
        (
            {"pat_str": r"\s|\S", "special_tokens": {"<a>": 300, "<b>": 300}},
            "special_tokens: two tokens have the same id",
        ),
        ({"pat_str": "\ud800"}, "pat_str: need a regular expression"),
    ],
)
def test_a_broken_sidecar_of_ranks_is_refused(arguments: dict[str, Any], expected: str, tmp_path: Path) -> None:
    message = load_error(tmp_path, "tiktoken", "tokenizer.tiktoken.json", lambda _: json.dumps(arguments).encode())
    assert f"tokenizer.tiktoken.json: {expected}" in message


def edit(**changes: Any) -> Damage:
    """Change settings of a tokenizer.json, in its model if they are there."""

    def damage(content: bytes) -> bytes:
        parsed = json.loads(content)
        for key, value in changes.items():
            (parsed["model"] if key in parsed["model"] else parsed)[key] = value
        return json.dumps(parsed).encode()

    return damage


def edit_vocab(change: Callable[[dict[str, Any]], object]) -> Damage:
    def damage(content: bytes) -> bytes:
        parsed = json.loads(content)
        change(parsed["model"]["vocab"])
        return json.dumps(parsed).encode()

    return damage


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (edit(model=None), 'no "model" in it'),
        (edit(model=[]), 'no "model" in it'),
        (edit(type=None), "a 'WordPiece or Unigram' model"),
        (edit(type=["BPE"]), r"a ['BPE'] model"),
        (edit(vocab=[]), "model.vocab: need an object of token: id"),
        (edit(vocab={"a": "0"}), "model.vocab: need an object of token: id"),
        (edit(vocab={}, merges=[], added_tokens=[]), "no token for 256 of the 256 bytes"),
        (edit_vocab(lambda vocab: vocab.pop("a")), "no token for 1 of the 256 bytes, the first of them 0x61"),
        (edit_vocab(lambda vocab: vocab.update(th=5)), "two tokens have id 5: "),
        (edit_vocab(lambda vocab: vocab.update(th=-5)), "ids from -5 to 259, but only 260 tokens"),
        (edit_vocab(lambda vocab: vocab.update(th=2**40)), "ids from 0 to 1099511627776, but only 260 tokens"),
        (edit_vocab(lambda vocab: vocab.update(th=1.5)), "model.vocab: need an object of token: id"),
        (edit_vocab(lambda vocab: vocab.update({"<s>": 400})), "added token '<s>' has id 256, but 400 in model.vocab"),
        (edit_vocab(lambda vocab: vocab.update({"a b": 400})), "token 'a b' is neither in printable form"),
        (edit_vocab(lambda vocab: vocab.update({"": 400})), "token '' is neither in printable form"),
        (edit_vocab(lambda vocab: vocab.update({"\ud800": 400})), r"token '\ud800' is neither"),
        (edit(merges=None), "model.merges: need a list, found None"),
        (edit(merges=[["t"]]), "model.merges[0]: need two tokens, found ['t']"),
        (edit(merges=[["t h"]]), "model.merges[0]: need two tokens, found ['t h']"),
        (edit(merges=[["t", "h", "e"]]), "model.merges[0]: need two tokens, found ['t', 'h', 'e']"),
        (edit(merges=[{"t": 1, "h": 2}]), "model.merges[0]: need two tokens, found {"),
        (edit(merges=["t h\nt h"]), r"model.merges[0]: need two tokens, found 't h\nt h'"),
        (edit(merges=["t h", 5]), "model.merges[1]: need two tokens, found 5"),
        (edit(merges=["t h", "t  h"]), "model.merges[1]: need two tokens, found 't  h'"),
        (edit(merges=[["t", 5]]), "model.merges[0]: need two tokens"),
        (edit(merges=["t h", "h t"]), "model.merges[1]: 'ht' is not in the vocabulary"),
        (edit(merges=["t h", "t h"]), "model.merges: two merges are the same"),
        (edit(merges=[["th", ""]]), "model.merges[0]: '' is not in the vocabulary"),
        (edit(ignore_merges="yes"), "model.ignore_merges: need true or false, found 'yes'"),
        (edit(added_tokens={}), "added_tokens: need a list, found {}"),
        (edit(added_tokens=[5]), "added_tokens[0]: need an object with content and id, found 5"),
        (edit(added_tokens=[{"content": "<s>"}]), "added_tokens[0]: need an object with content and id"),
        (edit(added_tokens=[{"content": "<s>", "id": 256}] * 2), "added_tokens[1]: duplicate token '<s>'"),
        (
            edit(added_tokens=[{"content": "<t>", "id": 65}, {"content": "<s>", "id": 256}]),
            "two tokens have id 65: b'A'",
        ),
        (edit(added_tokens=[{"content": "<s>", "id": 256, "lstrip": 1}]), "added_tokens[0].lstrip: need true or false"),
        (edit(pre_tokenizer=[]), "pre_tokenizer: [] is not supported"),
        (edit(pre_tokenizer={"type": "Sequence", "pretokenizers": []}), "pre_tokenizer: 'Sequence of ' is not"),
        (edit(pre_tokenizer={"type": "Sequence", "pretokenizers": 5}), "pre_tokenizer: 'Sequence of ' is not"),
        (edit(normalizer=[[[[[[[[5]]]]]]]]), "normalizer: [[[...]]] is not supported"),
    ],
)
def test_a_broken_tokenizer_json_is_refused_with_the_position(damage: Damage, expected: str, tmp_path: Path) -> None:
    assert f"tokenizer.json: {expected}" in load_error(tmp_path, "huggingface", "tokenizer.json", damage)


@pytest.mark.slow
@settings(max_examples=75)
@given(data=st.data())
@pytest.mark.parametrize(("name", "file"), FILES)
def test_random_damage_never_causes_another_error(name: str, file: str, data: st.DataObject, tmp_path: Path) -> None:
    """Bytes are removed, inserted and changed. A tokenizer that still loads can be used."""

    def damage(content: bytes) -> bytes:
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(content)))
            inserted = data.draw(st.binary(max_size=4) | st.sampled_from([b'"', b"{", b"}", b"[", b",", b" ", b"9"]))
            content = content[:at] + inserted + content[at + data.draw(st.integers(0, 8)) :]
        return content

    write(tmp_path, name, file, damage)
    with suppress(FormatError, ConfigError):
        tokenizer = Tokenizer.from_spec(formats.load(tmp_path))
        tokenizer.decode(tokenizer.encode(" the <s> théâtre"))


@pytest.mark.slow
@settings(max_examples=75)
@given(data=st.data())
def test_random_json_never_causes_another_error(data: st.DataObject, tmp_path: Path) -> None:
    """A random value replaces a random part."""
    leaves = (
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["th", "BPE"])
    )
    values = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    )
    path, *_ = formats.write(SPEC, tmp_path, "huggingface")
    content = json.loads(path.read_text(encoding="utf-8"))
    part = content
    for _ in range(data.draw(st.integers(0, 3))):
        inner = [v for v in (part.values() if isinstance(part, dict) else part) if isinstance(v, (dict, list)) and v]
        part = data.draw(st.sampled_from(inner)) if inner else part
    keys = list(part) if isinstance(part, dict) else list(range(len(part)))
    part[data.draw(st.sampled_from(keys))] = data.draw(values)
    path.write_text(json.dumps(content), encoding="utf-8")
    with suppress(FormatError, ConfigError):
        Tokenizer.from_spec(formats.load(path)).encode(" the <s>")


def collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


@pytest.mark.parametrize("enabled", [True, False])
def test_json_is_read_without_garbage_collection(enabled: bool, tmp_path: Path) -> None:
    """The collector is as before afterwards, also after an error."""
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"x": [[i] for i in range(10_000)]}), encoding="utf-8")
    was_enabled = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        before = collections()
        read_json(path)
        assert collections() <= before + 2  # it may run before and after, but not for every few hundred lists
        assert gc.isenabled() is enabled
        path.write_text("[", encoding="utf-8")
        with pytest.raises(FormatError):
            read_json(path)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_values_in_messages_are_short() -> None:
    nested: list[Any] = []
    nested.append(nested)
    for value in ("a" * 10**6, b"a" * 10**6, nested, {"a": [[[[5]]]]}, 10**4000, "\ud800", [list(range(10**6))] * 9):
        assert len(short_repr(value)) < 1000
        short_repr(value).encode()


def test_pickles_are_not_read(tmp_path: Path) -> None:
    for name, file in FILES:
        assert file in load_error(tmp_path, name, file, lambda _: pickle.dumps({0: b"a"}))
