"""Pre-tokenizers of a tokenizer.json that split several times: read, written, and equal to HuggingFace's."""

from __future__ import annotations

import json
import logging
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from characters import CHARACTERS
from hypothesis import given
from hypothesis import strategies as st
from peers import open_huggingface
from real_data import real_text, real_text_start

from bpeflow.errors import FormatError
from bpeflow.formats import any_format as formats
from bpeflow.formats import gpt2, huggingface, tiktoken
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.patterns import DEEPSEEK_V3, KIMI, KIMI_PUBLISHED
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab

#: Merges across every border that the patterns below can make, so that no split goes unnoticed.
PARTS = [b"a", b"B", b"1", b"2", b" ", b",", b"'", b"s", b"\n", "日".encode(), "。".encode(), "é".encode(), b"_", b"."]
MERGES = (
    (b"\xe6", b"\x97"), (b"\xe6\x97", b"\xa5"), (b"\xe3", b"\x80"), (b"\xe3\x80", b"\x82"), (b"\xc3", b"\xa9"),
    *((left, right) for left in PARTS for right in PARTS),
    *((left + right, last) for left in PARTS for right in PARTS[:5] for last in PARTS[:5]),
)  # fmt: skip
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
Content = dict[str, Any]

texts = st.text(st.sampled_from("aB12 ,'s\n日。é_."), max_size=24)


def split(pattern: Content | str, behavior: str = "Isolated", invert: bool = False) -> Content:
    pattern = {"Regex": pattern} if isinstance(pattern, str) else pattern
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def digits(individual: bool) -> Content:
    return {"type": "Digits", "individual_digits": individual}


#: Pre-tokenizers, and the patterns that they are read as.
READ = {
    "deepseek": ([*map(split, DEEPSEEK_V3), BYTE_LEVEL], DEEPSEEK_V3),
    "kimi": ([split(KIMI_PUBLISHED), BYTE_LEVEL], KIMI),
    "digits": ([digits(True), BYTE_LEVEL], r"\p{N}|\P{N}+"),
    "runs of digits, then GPT-2": ([digits(False), {**BYTE_LEVEL, "use_regex": True}], (r"\p{N}+|\P{N}+", "gpt2")),
    "no pattern": ([BYTE_LEVEL], r"[\s\S]+"),
    "GPT-2 after a split": ([split("[12]"), {**BYTE_LEVEL, "use_regex": True}], ("[12]", "gpt2")),
    "strings": ([split({"String": "a,"}), split({"String": "."}), BYTE_LEVEL], ("a,", r"\.")),
    "words": ([split({"String": "a1"}), split("s"), BYTE_LEVEL], ("(?:a1)", "(?:s)")),
    "removed": ([split("[^a]+", "Removed", True), split(r"\S+", "Removed", True), BYTE_LEVEL], ("[^a]+", r"\S+")),
    "removed, all matched": ([split("a|B", "Removed", True), digits(True), BYTE_LEVEL], ("a|B", r"\p{N}|\P{N}+")),
}


def write(path: Path, pre_tokenizer: Any, **model: Any) -> Path:
    [path] = huggingface.save(TokenizerSpec(Vocab.build(MERGES, ["<s>"])), path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["pre_tokenizer"] = pre_tokenizer
    content["model"].update(model)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@cache
def encoders(name: str, ignore_merges: bool) -> tuple[Tokenizer, list[Any]]:
    """Return our tokenizer, and HuggingFace's of the file that is read and of the one that is written."""
    with TemporaryDirectory() as folder:
        steps = {"type": "Sequence", "pretokenizers": READ[name][0]}
        path = write(Path(folder) / "theirs.json", steps, ignore_merges=ignore_merges)
        ours = Tokenizer.load(path)
        [again] = ours.save(Path(folder) / "ours.json")
        assert Tokenizer.load(again) == ours
        return ours, [open_huggingface(path), open_huggingface(again)]


@pytest.mark.parametrize("name", READ)
@given(text=st.lists(texts | st.just("<s>"), max_size=3).map("".join), ignore_merges=st.booleans())
def test_the_ids_are_huggingfaces(name: str, ignore_merges: bool, text: str) -> None:
    ours, theirs = encoders(name, ignore_merges)
    ids = ours.encode(text)
    assert [tokenizer.encode(text).ids for tokenizer in theirs] == [ids, ids]


@pytest.mark.parametrize("name", READ)
def test_the_pattern_is_recognised(name: str) -> None:
    ours, _ = encoders(name, False)
    assert (ours.pattern, ours.unmatched) == (READ[name][1], "drop" if "removed" in name else "isolate")


@pytest.mark.parametrize("name", ["deepseek", "kimi"])
def test_patterns_that_were_compared_are_read_without_a_warning(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        Tokenizer.load(write(tmp_path / "tokenizer.json", {"type": "Sequence", "pretokenizers": READ[name][0]}))
    assert not caplog.records


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepseek", "kimi", "digits"])
def test_every_character_that_both_know_gives_the_same_ids(name: str) -> None:
    ours, (theirs, _) = encoders(name, False)
    tokenizers = pytest.importorskip("tokenizers")
    assigned = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\P{Cn}"), "removed", invert=True)
    known = {character for character, _ in assigned.pre_tokenize_str(CHARACTERS)} - {"\u0295"}  # now of another class
    assert len(known) > 90_000
    lines = [f"{c}a{c}1{c}{c} {c}s {c}\n日{c}'s" if c < "\u3400" else f"{c}a{c}日" for c in sorted(known)]
    blocks = ["".join(lines[start : start + 20]) for start in range(0, len(lines), 20)]
    for block in blocks:
        assert ours.encode(block) == theirs.encode(block).ids


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepseek", "kimi", "runs of digits, then GPT-2"])
@pytest.mark.parametrize("corpus", ["c4_2MB", "code_20MB", "docs_30MB", "multilingual_20MB"])
def test_real_text_gives_the_same_ids(name: str, corpus: str) -> None:
    ours, theirs = encoders(name, False)
    text = real_text_start(corpus, 100_000)
    assert ours.encode(text) == theirs[0].encode(text).ids


@pytest.mark.large
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["deepseek", "kimi"])
@pytest.mark.parametrize("corpus", ["c4_2MB", "code_20MB", "docs_30MB", "multilingual_20MB"])
def test_whole_corpora_give_the_same_ids(name: str, corpus: str) -> None:
    ours, theirs = encoders(name, False)
    for document in real_text(corpus).decode().split("<|endoftext|>"):
        assert ours.encode(document) == theirs[0].encode(document).ids


@pytest.mark.parametrize("format_", ["gpt2", "huggingface"])
@pytest.mark.parametrize("pattern", [DEEPSEEK_V3, KIMI, ("gpt2", "llama3"), ("cl100k", r"\d|\D+")])
def test_several_expressions_survive_saving_and_loading(
    format_: str, pattern: str | tuple[str, ...], tmp_path: Path
) -> None:
    spec = TokenizerSpec(Vocab.build(MERGES, ["<s>"]), pattern)
    formats.save(spec, tmp_path, format_)
    again = formats.load(tmp_path)
    assert (again, again.pattern, again.vocab.pattern) == (spec, pattern, pattern)


def test_tiktokens_format_refuses_several_expressions(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"x\.tiktoken: tiktoken splits with one regular expression, and this .* 3"):
        tiktoken.save(TokenizerSpec(Vocab.build(MERGES[:1]), DEEPSEEK_V3), tmp_path / "x.tiktoken")
    assert list(tmp_path.iterdir()) == []


def test_kimis_spelling_is_recognised_in_tiktokens_format(tmp_path: Path) -> None:
    ranks, sidecar = formats.save(TokenizerSpec(Vocab.build(MERGES[:9]), KIMI, True), tmp_path, "tiktoken")
    sidecar.write_text(json.dumps({"pat_str": KIMI_PUBLISHED, "special_tokens": {}}), encoding="utf-8")
    assert tiktoken.load(ranks).pattern == KIMI


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([split("a"), split("b", "Removed", True), BYTE_LEVEL],
         "Sequence of Split, Split, ByteLevel' is not supported: bpeflow drops unmatched text with all of several"),
        ([split("a", "Removed"), split("b"), BYTE_LEVEL], r"\.behavior: 'Removed' is not supported"),
        ([split("a"), split("b", "Contiguous"), BYTE_LEVEL], r"\.behavior: 'Contiguous' is not supported"),
        ([split("a"), split("("), BYTE_LEVEL], "invalid regular expression"),
        ([split("a"), split({"String": ""}), BYTE_LEVEL], r"\.pattern: \{'String': ''\} is not supported"),
        ([split("a"), split({"String": "a", "Regex": "b"}), BYTE_LEVEL], r"\.pattern: \{.*\} is not supported"),
        ([split("a"), split({"String": 5}), BYTE_LEVEL], r"\.pattern: \{'String': 5\} is not supported"),
        ([split("a"), None, BYTE_LEVEL], r"pretokenizers\[1\]: None is not supported"),
        ([{"type": "Digits", "individual_digits": 1}, BYTE_LEVEL], r"individual_digits: need true or false"),
        ([BYTE_LEVEL, split("a")], "bpeflow needs ByteLevel, alone or after a Split"),
        ([split("a"), {"type": "Sequence", "pretokenizers": []}, BYTE_LEVEL], r"\[1\]: 'Sequence of ' is not"),
    ],
)  # fmt: skip
def test_other_sequences_are_refused_in_one_line(steps: list[Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "tokenizer.json", {"type": "Sequence", "pretokenizers": steps})
    with pytest.raises(FormatError, match=rf"tokenizer\.json: .*{message}") as caught:
        huggingface.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pattern", [5, [], ["a", 5], ["a", "("], ["a", "\ud800"], {"a": "b"}])
def test_a_broken_pattern_in_bpeflow_json_is_refused_in_one_line(pattern: Any, tmp_path: Path) -> None:
    *_, path = gpt2.save(TokenizerSpec(Vocab.build(MERGES[:9]), ("a", "gpt2")), tmp_path)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["pattern"] == ["a", "gpt2"]
    path.write_text(json.dumps(content | {"pattern": pattern}), encoding="utf-8")
    with pytest.raises(FormatError, match=r"bpeflow\.json: ") as caught:
        formats.load(tmp_path)
    assert "\n" not in str(caught.value)
