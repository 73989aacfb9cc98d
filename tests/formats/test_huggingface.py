"""tokenizer.json: HuggingFace's tools load what is written, and unsupported parts are refused by name."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peers import open_huggingface

import bpeflow
from bpeflow.errors import FormatError
from bpeflow.formats import any_format as formats
from bpeflow.formats import huggingface
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab

WORDS = {" the": 90, " then": 30, "\n": 20, " naïve": 9, "日本": 5, " \xa0": 4, "hen": 12}
SPECIALS = ["<|endoftext|>", "<pad token>"]
TEXT = " then the naïve<pad token>日本\n\n12345 don't STOP<|endoftext|> \n "
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
Content = dict[str, Any]


@pytest.fixture
def spec() -> TokenizerSpec:
    return TokenizerSpec(Vocab.build(bpeflow.learn_merges(WORDS, 280, SPECIALS), SPECIALS))


@pytest.fixture
def edited(tmp_path: Path, spec: TokenizerSpec) -> Callable[[Callable[[Content], object]], Path]:
    """Return a function that writes a valid file with a change."""

    def edit(change: Callable[[Content], object]) -> Path:
        [path] = huggingface.save(spec, tmp_path / "tokenizer.json")
        content = json.loads(path.read_text(encoding="utf-8"))
        change(content)
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return edit


@pytest.mark.parametrize("whole_tokens", [True, False])
@pytest.mark.parametrize("pattern", [*NAMED_PATTERNS, r"\w+|\W"])
def test_a_tokenizer_survives_saving_and_loading(
    tmp_path: Path, spec: TokenizerSpec, pattern: str, whole_tokens: bool
) -> None:
    spec = TokenizerSpec(spec.vocab, pattern, whole_tokens)
    [path] = huggingface.save(spec, tmp_path / "tokenizer.json")
    assert huggingface.load(path) == spec


def test_transformers_loads_the_file(tmp_path: Path, spec: TokenizerSpec) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    [path] = huggingface.save(spec, tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token="<|endoftext|>")
    ids = theirs(TEXT)["input_ids"]
    assert ids == Tokenizer.from_spec(spec).encode(TEXT)
    assert theirs.decode(ids) == TEXT
    assert theirs.eos_token_id == spec.vocab.special_tokens["<|endoftext|>"]
    assert len(theirs) == len(spec.vocab)


def test_files_that_tokenizers_trained_and_saved_are_read(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=290, special_tokens=SPECIALS, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    theirs.train_from_iterator([TEXT * 3, "the then there"], trainer)
    theirs.add_tokens(["<think>"])  # not special, and `normalized`
    theirs.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_spec(formats.load(tmp_path))
    assert tokenizer.encode(TEXT + "<think> the") == theirs.encode(TEXT + "<think> the").ids
    assert tokenizer.special_tokens == {text: theirs.token_to_id(text) for text in [*SPECIALS, "<think>"]}


def test_the_older_spelling_of_merges_is_read(edited: Callable[..., Path], spec: TokenizerSpec) -> None:
    def respell(content: Content) -> None:
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
        del content["model"]["type"], content["model"]["ignore_merges"], content["pre_tokenizer"]["use_regex"]

    assert huggingface.load(edited(respell)) == spec


def test_a_special_token_that_other_text_would_be_encoded_as_is_refused(tmp_path: Path) -> None:
    """With ignore_merges HuggingFace looks up the printable form of pre-tokens, so the text " the" becomes "Ġthe"."""
    vocab = Vocab.build([(b"t", b"h")], ["Ġthe", "<s>"])
    message = "special token 'Ġthe' is the printable form of b' the'"
    with pytest.raises(FormatError, match=message):
        huggingface.save(TokenizerSpec(vocab, whole_tokens=True), tmp_path / "tokenizer.json")
    [path] = huggingface.save(TokenizerSpec(vocab), tmp_path / "tokenizer.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    content["model"]["ignore_merges"] = True
    path.write_text(json.dumps(content), encoding="utf-8")
    assert open_huggingface(path).encode(" the").ids == [256]
    with pytest.raises(FormatError, match=message):
        huggingface.load(path)
    merges = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the")]
    shared = Vocab.build(merges, ["Ġthe"], special_tokens_first=True, reuse_tokens=True)
    [path] = huggingface.save(TokenizerSpec(shared, whole_tokens=True), tmp_path / "tokenizer.json")
    assert open_huggingface(path).encode(" the").ids == Tokenizer.load(path).encode(" the") == [0]


def test_ignore_merges_makes_tokens_of_whole_pre_tokens(tmp_path: Path) -> None:
    vocab = Vocab((*(bytes([byte]) for byte in range(256)), b"xyz", b"xy"), {}, ((b"x", b"y"),))
    for whole_tokens, ids in ((True, [256]), (False, [257, *b"z"])):
        [path] = huggingface.save(TokenizerSpec(vocab, "gpt2", whole_tokens), tmp_path / "tokenizer.json")
        assert (
            Tokenizer.from_spec(huggingface.load(path)).encode("xyz") == open_huggingface(path).encode("xyz").ids == ids
        )


def test_two_merges_that_make_one_token_are_read(edited: Callable[..., Path], spec: TokenizerSpec) -> None:
    def edit(content: Content) -> None:
        content["model"]["merges"].append(["Ġt", "he"])
        content["model"]["vocab"]["Ġt"] = 1000

    path = edited(edit)
    again = huggingface.load(path)
    assert again.vocab.merges == (*spec.vocab.merges, (b" t", b"he"))
    assert again.vocab.merge_ids[-1, 2] == spec.vocab.tokens.index(b" the")


@pytest.mark.parametrize("name", NAMED_PATTERNS)
@pytest.mark.parametrize("behavior", [("Isolated", False), ("Removed", True)])
def test_named_patterns_are_recognised(name: str, behavior: tuple[str, bool], edited: Callable[..., Path]) -> None:
    regex = NAMED_PATTERNS[name].replace("{1,3}+", "{1,3}")
    path = edited(lambda content: content.update(pre_tokenizer=split(regex, *behavior)))
    assert huggingface.load(path).pattern == name


def split(regex: str, behavior: str = "Isolated", invert: bool = False) -> Content:
    step = {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}
    return {"type": "Sequence", "pretokenizers": [step, BYTE_LEVEL]}


def test_the_original_pattern_of_gpt2_is_recognised(edited: Callable[..., Path]) -> None:
    regex = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    assert huggingface.load(edited(lambda content: content.update(pre_tokenizer=split(regex)))).pattern == "gpt2"


@pytest.mark.parametrize(("behavior", "invert"), [("Isolated", False), ("Isolated", True), ("Removed", True)])
def test_a_custom_pattern_splits_as_in_huggingface(
    behavior: str, invert: bool, edited: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Text that the pattern does not match is left out or becomes pre-tokens, as the file says."""
    path = edited(lambda content: content.update(pre_tokenizer=split(r"[a-z]+|,", behavior, invert)))
    with caplog.at_level(logging.WARNING):
        ours = Tokenizer.from_spec(huggingface.load(path))
    assert "Oniguruma and bpeflow's regex module may read this custom pattern differently" in caplog.text
    theirs = open_huggingface(path)
    for text in ("the then,, AND the", "THE", " the", "the "):
        assert ours.encode(text) == theirs.encode(text).ids


def test_byte_level_without_a_pattern_does_not_split(edited: Callable[..., Path]) -> None:
    def edit(content: Content) -> None:
        content["pre_tokenizer"] = BYTE_LEVEL
        content["model"]["merges"].append(["e", "Ġ"])
        content["model"]["vocab"]["eĠ"] = 999

    path = edited(edit)
    ids = Tokenizer.from_spec(huggingface.load(path)).encode("e the\n e ")
    assert ids == open_huggingface(path).encode("e the\n e ").ids
    assert ids[-1] == 999  # a token that would cross two pre-tokens of a pattern


def test_a_post_processor_is_ignored_with_a_warning(
    edited: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    template = {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
    steps = {"type": "Sequence", "processors": [BYTE_LEVEL, template]}
    change = {
        "post_processor": steps,
        "padding": {"direction": "Right"},
    }
    with caplog.at_level(logging.WARNING):
        huggingface.load(edited(lambda content: content.update(change)))
    assert "post-processor, 'Sequence of ByteLevel, TemplateProcessing', is ignored" in caplog.text
    assert "padding is ignored" in caplog.text


SINGLE = [{"Sequence": {"id": "A", "type_id": 0}}]
TEMPLATE = {"type": "TemplateProcessing", "single": SINGLE, "pair": [*SINGLE, *SINGLE], "special_tokens": {}}
ADDING = {**TEMPLATE, "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, *SINGLE]}


@pytest.mark.parametrize(
    ("processor", "changes_ids"),
    [
        (None, False),
        (BYTE_LEVEL, False),
        (TEMPLATE, False),
        ({"type": "Sequence", "processors": [BYTE_LEVEL, TEMPLATE]}, False),
        (ADDING, True),
        ({**TEMPLATE, "single": [*SINGLE, *SINGLE]}, True),
        ({**TEMPLATE, "single": 7}, True),
        ({"type": "Sequence", "processors": [BYTE_LEVEL, ADDING]}, True),
        ({"type": "Sequence"}, True),
        ({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}, True),
    ],
)
def test_only_a_post_processor_that_changes_ids_causes_a_warning(
    processor: object, changes_ids: bool, edited: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        huggingface.load(edited(lambda content: content.update(post_processor=processor)))
    assert ("is ignored" in caplog.text) is changes_ids


CHANGES: list[tuple[str, Content, str]] = [
    ("normalizer", {"normalizer": {"type": "StripAccents"}}, "normalizer: 'StripAccents' is not supported"),
    (
        "normalizers",
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Prepend"}]}},
        "'Prepend' is not supported",
    ),
    ("no pre-tokenizer", {"pre_tokenizer": None}, "pre_tokenizer: None is not supported: bpeflow needs ByteLevel"),
    ("Metaspace", {"pre_tokenizer": {"type": "Metaspace"}}, "pre_tokenizer: 'Metaspace' is not supported"),
    (
        "Punctuation",
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, BYTE_LEVEL]}},
        r"pre_tokenizer\.pretokenizers\[0\]: 'Punctuation' is not supported",
    ),
    ("prefix space", {"pre_tokenizer": {**BYTE_LEVEL, "add_prefix_space": True}}, "add_prefix_space: True is not"),
    ("merging splits", {"pre_tokenizer": split("a", "MergedWithNext")}, ".behavior: 'MergedWithNext' is not"),
    ("removing splits", {"pre_tokenizer": split("a", "Removed")}, ".behavior: 'Removed' is not"),
    ("possessive", {"pre_tokenizer": split(r"\d{1,3}+|\D")}, r"Oniguruma and the regex module read '\{1,3\}\+'"),
    ("lines", {"pre_tokenizer": split(r"\s+$|\S")}, r"read '\$' differently"),
    ("bad regex", {"pre_tokenizer": split("(")}, "invalid regular expression"),
    ("decoder", {"decoder": {"type": "WordPiece"}}, "decoder: 'WordPiece' is not supported"),
    ("model.dropout", {"dropout": 0.1}, r"model\.dropout: 0\.1 is not supported"),
    ("model.suffix", {"end_of_word_suffix": "</w>"}, r"model\.end_of_word_suffix: '</w>' is not supported"),
    ("model.prefix", {"continuing_subword_prefix": "##"}, r"model\.continuing_subword_prefix: '##' is not supported"),
    ("model.fallback", {"byte_fallback": True}, "SentencePiece BPE"),
    (
        "model.type",
        {"type": "WordPiece"},
        "a 'WordPiece' model, which HuggingFace's tokenizers read; bpeflow reads byte-level BPE only",
    ),
    (
        "model.unigram",
        {"type": "Unigram"},
        "a 'Unigram' model, which HuggingFace's tokenizers read; bpeflow reads byte-level BPE only",
    ),
]


@pytest.mark.parametrize(("part", "change", "message"), CHANGES, ids=[part for part, _, _ in CHANGES])
def test_unsupported_parts_are_refused_by_name(
    part: str, change: Content, message: str, edited: Callable[..., Path]
) -> None:
    def edit(content: Content) -> None:
        (content["model"] if part.startswith("model.") else content).update(change)

    with pytest.raises(FormatError, match=rf"tokenizer\.json: .*{message}"):
        huggingface.load(edited(edit))


def test_a_mask_token_that_takes_the_space_before_it_is_loaded_with_a_warning(
    edited: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """As that of ModernBERT."""
    spec = huggingface.load(edited(lambda content: content["added_tokens"][1].update({"lstrip": True})))
    assert "<pad token>" in spec.vocab.special_tokens
    assert "'<pad token>' takes the white space before it" in caplog.text


def test_the_model_of_bert_has_a_name(edited: Callable[..., Path]) -> None:
    def edit(content: Content) -> None:
        content["model"] = {"unk_token": "[UNK]", "max_input_chars_per_word": 100, "vocab": {}}

    with pytest.raises(FormatError, match="a 'WordPiece or Unigram' model, which"):
        huggingface.load(edited(edit))


@pytest.mark.parametrize("option", ["rstrip", "single_word"])
def test_options_of_added_tokens_that_affect_matching_are_refused(option: str, edited: Callable[..., Path]) -> None:
    with pytest.raises(FormatError, match=rf"added_tokens\[1\]\.{option}: '<pad token>' is not supported"):
        huggingface.load(edited(lambda content: content["added_tokens"][1].update({option: True})))


@pytest.mark.parametrize(
    ("text", "overlaps"),
    [("  ", False), ("<|end", True), ("a<|endoftext|>b", True), ("x<|", True), ("|>x", False), ("<think>", False)],
)  # fmt: skip
def test_normalized_added_tokens_are_refused_if_they_can_overlap_with_others(
    text: str, overlaps: bool, edited: Callable[..., Path]
) -> None:
    entry = {"id": 900, "content": text, "normalized": True, "special": False}
    path = edited(lambda content: content["added_tokens"].append(entry))
    if overlaps:
        with pytest.raises(FormatError, match="is normalized, and overlaps"):
            huggingface.load(path)
    else:
        assert huggingface.load(path).vocab.special_tokens[text] == 900


def test_a_special_token_that_is_also_a_merge_is_refused(tmp_path: Path) -> None:
    vocab = Vocab.build([(b"t", b"h"), (b"th", b"e")], ["the"])
    with pytest.raises(FormatError, match=r"special token 'the' \(id 256\) is also the form of a token \(id 258\)"):
        huggingface.save(TokenizerSpec(vocab), tmp_path / "tokenizer.json")
    assert list(tmp_path.iterdir()) == []


def test_in_huggingfaces_mode_a_special_token_and_a_merge_share_an_id(tmp_path: Path) -> None:
    vocab = Vocab.build(
        [(b"t", b"h"), (b"th", b"e"), (b" ", b"the")], ["the", "Ġ"], special_tokens_first=True, reuse_tokens=True
    )
    [path] = huggingface.save(TokenizerSpec(vocab), tmp_path / "tokenizer.json")
    assert huggingface.load(path).vocab == vocab
    tokenizer = Tokenizer.from_spec(huggingface.load(path))
    for text in (" the", "the", "athe Ġ "):
        assert tokenizer.encode(text) == open_huggingface(path).encode(text).ids


def test_one_string_with_two_ids_is_refused(tmp_path: Path) -> None:
    tokens = (*(bytes([byte]) for byte in range(256)), b"ab", b"ab")
    with pytest.raises(FormatError, match=r"b'ab' has the ids 256 and 257"):
        huggingface.save(TokenizerSpec(Vocab(tokens, {}, ((b"a", b"b"),))), tmp_path / "tokenizer.json")


def test_a_special_token_that_the_decoder_garbles_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        [path] = huggingface.save(TokenizerSpec(Vocab.build([], ["<é>", "<日>", "<s>"])), tmp_path / "tokenizer.json")
    assert len(caplog.records) == 1
    assert "HuggingFace's tokenizers encode special token '<é>' as bpeflow does, but their ByteLevel" in caplog.text
    theirs = open_huggingface(path)
    assert [theirs.decode([i], skip_special_tokens=False) for i in (256, 257, 258)] == ["<\ufffd>", "<日>", "<s>"]


@pytest.mark.parametrize("pattern", [r"\p{N}{1,3}+", r"\w+$", r"(?s).", r"[a[b]]"])
def test_a_pattern_that_oniguruma_reads_differently_is_refused(
    pattern: str, tmp_path: Path, spec: TokenizerSpec
) -> None:
    with pytest.raises(FormatError, match=r"tokenizer\.json: pattern .* Oniguruma and the regex module read"):
        huggingface.save(TokenizerSpec(spec.vocab, pattern), tmp_path / "tokenizer.json")
