"""Published tokenizers: known by content or by name, with the ids of tiktoken and of their publishers."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from base64 import b64encode
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from gpt2_files import save_files
from hypothesis import given
from hypothesis import strategies as st
from peers import CHARACTERS, open_huggingface, read_ranks
from real_data import real_data, real_text, real_text_start

from bpeflow.errors import ConfigError, FormatError, PatternError
from bpeflow.formats import gpt2, published, tiktoken
from bpeflow.formats.published import PUBLISHED
from bpeflow.pretokenize.patterns import DEEPSEEK_V3, KIMI, KIMI_PUBLISHED, NAMED_PATTERNS
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab

BYTES = {bytes([byte]): byte for byte in range(256)}
RANKS = BYTES | {b"th": 256, b"the": 258}
CORPORA = ["c4_2MB", "code_20MB", "docs_30MB", "multilingual_20MB"]

#: The names of files in `vocabs`, and the patterns that their publishers use them with, by the name of the tokenizer.
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
FILES = {
    "p50k_base": ("p50k_base", NAMED_PATTERNS["gpt2"]),
    "p50k_edit": ("p50k_base", NAMED_PATTERNS["gpt2"]),
    "o200k_harmony": ("o200k_base", NAMED_PATTERNS["o200k"]),
    "qwen": ("qwen", QWEN),
}


def write(path: Path, ranks: dict[bytes, int] = RANKS) -> Path:
    sidecar = tiktoken.sidecar_path(path)
    path.write_bytes(b"".join(b"%s %d\n" % (b64encode(token), rank) for token, rank in ranks.items()))
    sidecar.unlink(missing_ok=True)
    return path


# ---- arguments ----


def test_a_bare_file_of_ranks_loads_with_its_pattern(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tiktoken")
    tokenizer = Tokenizer.load(path, "llama3", ["<s>", "the"])
    assert (tokenizer.pattern, tokenizer.special_tokens) == ("llama3", {"<s>": 259, "the": 258})
    assert tokenizer.encode("the<s>") == [258, 259]
    assert Tokenizer.from_file(path, pattern=[r"\d", "gpt2"]).pattern == (r"\d", "gpt2")
    assert Tokenizer.load(path, r"\w+").unmatched == "isolate"


def test_special_tokens_can_have_ids_in_gaps_and_beyond_the_end(tmp_path: Path) -> None:
    ids = {"<s>": 257, "<pad>": 300, "<next>": None}
    tokenizer = Tokenizer.load(write(tmp_path / "x.tiktoken"), "gpt2", ids)
    assert tokenizer.special_tokens == {"<s>": 257, "<pad>": 300, "<next>": 301}
    assert tokenizer.encode("<pad>the<s>") == [300, 258, 257]
    assert tokenizer.vocab_size == 302


def test_the_arguments_go_over_what_the_files_say(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    gpt2.save(Tokenizer.load(write(tmp_path / "x.tiktoken"), r"\w+", ["<s>"]).to_spec(), folder)
    tokenizer = Tokenizer.load(folder, "cl100k", ["<t>"])
    assert (tokenizer.pattern, tokenizer.special_tokens) == ("cl100k", {"<s>": 259, "<t>": 260})
    assert tokenizer.encode("the<s>") == [258, 259]
    assert Tokenizer.load(folder).pattern == r"\w+"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"pattern": "gtp2"}, PatternError, "did you mean 'gpt2'"),
        ({"pattern": "("}, PatternError, "invalid regular expression"),
        ({"known": "o200k_harmonie"}, ConfigError, "unknown tokenizer 'o200k_harmonie'; did you mean 'o200k_harmony'?"),
        ({"pattern": "gpt2", "special_tokens": {"<s>": 256}}, ConfigError, "'<s>': id 256 belongs to b'th'"),
        ({"pattern": "gpt2", "special_tokens": {"<s>": -1}}, ConfigError, "'<s>': need an id from 0 to"),
        ({"pattern": "gpt2", "special_tokens": {"<s>": 10**9}}, ConfigError, "'<s>': need an id from 0 to"),
        ({"pattern": "gpt2", "special_tokens": {"<s>": "5"}}, ConfigError, "'<s>': need an id from 0 to"),
        ({"pattern": "gpt2", "special_tokens": {"<s>": 257, "<t>": 257}}, ConfigError, "id 257 belongs to b'<s>'"),
        ({"known": "r50k_base", "special_tokens": {"<|endoftext|>": 9}}, ConfigError, "has id 50256, not 9"),
        ({}, FormatError, r"without a pattern, .* give the pattern .*\(known='NAME'\): r50k_base, p50k"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message) as caught:
        Tokenizer.load(write(tmp_path / "x.tiktoken"), **arguments)
    assert "\n" not in str(caught.value)


# ---- known by name and by content ----


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_tokenizer_is_known_by_name(name: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path / "tokenizer.model"), known=name)
    assert tokenizer.pattern == PUBLISHED[name].pattern
    assert tokenizer.special_tokens == PUBLISHED[name].special_tokens
    assert sorted(tokenizer.special_tokens) == sorted(tokenizer.decode([i]) for i in tokenizer.special_tokens.values())


def test_qwens_text_is_normalized(tmp_path: Path) -> None:
    for name in PUBLISHED:
        tokenizer = Tokenizer.load(write(tmp_path / "x.tiktoken"), known=name)
        assert (tokenizer.encode("e\u0301") == tokenizer.encode("\xe9")) == (name in ("qwen", "qwen2")), name


@pytest.mark.parametrize("name", ["r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony"])
def test_openais_special_tokens_are_tiktokens(name: str) -> None:
    public = pytest.importorskip("tiktoken_ext.openai_public", reason="tiktoken is not installed")
    with pytest.MonkeyPatch.context() as patch:  # no downloads
        patch.setattr(public, "load_tiktoken_bpe", lambda *_, **__: {})
        theirs = getattr(public, name)()
    specials = theirs["special_tokens"]
    if name == "o200k_harmony":
        assert specials.pop("<|reserved_200018|>") == specials["<|endofprompt|>"]  # an id has one text here
    assert PUBLISHED[name].special_tokens == specials
    pattern = PUBLISHED[name].pattern
    assert isinstance(pattern, str)
    assert NAMED_PATTERNS[pattern] == theirs["pat_str"]


def test_the_special_tokens_of_llama_and_kimi_fill_their_ranges() -> None:
    for name, first, size, some in (
        ("llama3", 128000, 256, {"<|eot_id|>": 128009, "<|reserved_special_token_245|>": 128255}),
        ("llama4", 200000, 2048, {"<|patch|>": 200092, "<|reserved_special_token_903|>": 202047}),
        ("kimi_k2", 163584, 256, {"<|im_end|>": 163586, "<|reserved_token_163600|>": 163600, "[PAD]": 163839}),
        ("qwen", 151643, 208, {"<|im_end|>": 151645, "<|extra_204|>": 151850}),
        ("o200k_harmony", 199998, 1090, {"<|call|>": 200012, "<|reserved_201087|>": 201087}),
    ):
        specials = PUBLISHED[name].special_tokens
        assert sorted(specials.values()) == [*range(first, first + size)], name
        assert specials.items() >= some.items()


@pytest.fixture
def kimi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file that has the content of Kimi's."""
    path = write(tmp_path / "tiktoken.model")
    monkeypatch.setitem(published._RANKS, hashlib.sha256(path.read_bytes()).hexdigest(), "kimi_k2")
    return path


def test_a_file_is_known_by_its_content(kimi: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in (kimi, kimi.parent):
        assert Tokenizer.load(path).pattern == Tokenizer.load(path, known="kimi_k2").pattern == KIMI
    assert "published" not in caplog.text
    assert Tokenizer.load(kimi, known="llama3").pattern == "llama3"
    assert "is a published file whose own pattern is" in caplog.text
    kimi.write_bytes(kimi.read_bytes().replace(b"\n", b"\r\n"))
    assert Tokenizer.load(kimi).special_tokens["[EOS]"] == 163585
    kimi.write_bytes(kimi.read_bytes() + b"YWI= 400\r\n")
    with pytest.raises(FormatError, match="ranks without a pattern"):
        Tokenizer.load(kimi)


def test_a_sidecar_and_arguments_go_over_the_content(kimi: Path) -> None:
    tiktoken.sidecar_path(kimi).write_text(json.dumps({"pat_str": NAMED_PATTERNS["o200k"]}), encoding="utf-8")
    assert (Tokenizer.load(kimi).pattern, Tokenizer.load(kimi).special_tokens) == ("o200k", {})
    assert Tokenizer.load(kimi, known="llama3").pattern == "llama3"
    assert Tokenizer.load(kimi, "gpt2", known="llama3").pattern == "gpt2"


def test_reserved_ids_have_the_names_of_the_config(kimi: Path) -> None:
    decoder = {"163584": {"content": "[START]"}, "163602": {"content": "<|media|>"}, "7": {"content": "<other>"}}
    config = kimi.with_name("tokenizer_config.json")
    config.write_text(json.dumps({"added_tokens_decoder": decoder}), encoding="utf-8")
    specials = Tokenizer.load(kimi).special_tokens
    assert (specials["[START]"], specials["<|media|>"]) == (163584, 163602)
    assert specials.keys().isdisjoint(["[BOS]", "<|reserved_token_163602|>", "<other>"])
    assert len(specials) == 256


@pytest.mark.parametrize(
    "decoder", [[], {"x": {"content": "a"}}, {"163584": "a"}, {"163584": {"content": ""}}, {"9" * 99: {"content": "a"}},
                {"163584": {"content": "\ud800"}}, {"163584": {"content": "a"}, "163585": {"content": "a"}}],
)  # fmt: skip
def test_a_broken_config_is_one_line(decoder: Any, kimi: Path) -> None:
    config = kimi.with_name("tokenizer_config.json")
    config.write_text(json.dumps({"added_tokens_decoder": decoder}), encoding="utf-8")
    with pytest.raises(FormatError, match=r"tokenizer_config\.json: added_tokens_decoder: need an object") as caught:
        Tokenizer.load(kimi)
    assert "\n" not in str(caught.value)


def test_qwens_two_files_are_known_by_their_merges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vocab = Vocab.build([(b"t", b"h"), (b"th", b"e")])
    monkeypatch.setattr(published, "_MERGES", {hashlib.sha256(b"t h\nth e\n").hexdigest(): "qwen2"})
    save_files(vocab, tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.pattern == "qwen2"
    assert tokenizer.special_tokens == {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}
    decoder = {"151646": {"content": "<think>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}), encoding="utf-8")
    assert Tokenizer.load(tmp_path).special_tokens["<think>"] == 151646
    save_files(Vocab.build(vocab.merges, ["<own>"]), tmp_path)
    assert Tokenizer.load(tmp_path).special_tokens == {"<own>": 256}
    save_files(Vocab.build([(b"t", b"h"), (b"h", b"e")]), tmp_path)
    assert Tokenizer.load(tmp_path).pattern == "gpt2"


@given(text=st.text(st.sampled_from(CHARACTERS + "漢字かなA"), max_size=24))
def test_kimis_pattern_splits_as_published(text: str) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    theirs = tokenizers.pre_tokenizers.Split(tokenizers.Regex(KIMI_PUBLISHED), "isolated")
    ours = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], pattern=KIMI)._pretokenizer
    assert ours.pretokens(text) == [piece for piece, _ in theirs.pre_tokenize_str(text)]


# ---- the published files ----


@cache
def both(name: str) -> tuple[Tokenizer, Any]:
    """Return our tokenizer and tiktoken's."""
    openai = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    file, pattern = FILES[name]
    path = real_data(f"vocabs/{file}.tiktoken")
    ours = Tokenizer.load(path, known=None if name == file else name)
    theirs = openai.Encoding(
        name, pat_str=pattern, mergeable_ranks=read_ranks(path), special_tokens=ours.special_tokens
    )
    return ours, theirs


def compare(name: str, text: str) -> None:
    ours, theirs = both(name)
    text = unicodedata.normalize("NFC", text) if name == "qwen" else text
    ids = ours.encode(text)
    assert ids == theirs.encode(text, allowed_special="all")
    assert ours.decode(ids) == text


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("corpus", CORPORA)
def test_published_files_give_tiktokens_ids(name: str, corpus: str) -> None:
    ours, _ = both(name)
    compare(name, real_text_start(corpus, 100_000) + " ".join([*ours.special_tokens][:300]))


@pytest.mark.large
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("corpus", CORPORA)
def test_published_files_give_tiktokens_ids_on_whole_corpora(name: str, corpus: str) -> None:
    for document in real_text(corpus).decode().split("<|endoftext|>"):
        compare(name, document)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@given(
    text=st.lists(st.sampled_from([*CHARACTERS, "<|endoftext|>", "<|fim_prefix|>", "<|call|>", " the"])).map("".join)
)
def test_published_files_give_tiktokens_ids_for_any_text(name: str, text: str) -> None:
    compare(name, text)


@pytest.mark.slow
def test_kimis_pattern_gives_tiktokens_ids() -> None:
    """With Qwen's ranks: the test data has none of Kimi."""
    openai = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    path = real_data("vocabs/qwen.tiktoken")
    ours = Tokenizer.load(path, KIMI)
    theirs = openai.Encoding(
        "x", pat_str=KIMI_PUBLISHED, mergeable_ranks=read_ranks(path), special_tokens=ours.special_tokens
    )
    for corpus in CORPORA:
        text = unicodedata.normalize("NFC", real_text_start(corpus, 100_000))  # as for Qwen
        assert ours.encode(text) == theirs.encode(text, allowed_special="all")


def test_another_normalizer_than_that_of_the_known_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks and merges of Qwen are also those of others, who use them without its normalizer."""
    ranks = write(tmp_path / "others.tiktoken")
    monkeypatch.setattr(published, "_RANKS", {hashlib.sha256(ranks.read_bytes()).hexdigest(): "qwen"})
    monkeypatch.setattr(published, "_MERGES", {hashlib.sha256(b"t h\nth e\n").hexdigest(): "qwen2"})
    save_files(Vocab.build([(b"t", b"h"), (b"th", b"e")]), tmp_path / "others")
    for path in (ranks, tmp_path / "others"):
        assert Tokenizer.load(path).normalizer == ("nfc",)
        plain = Tokenizer.load(path, normalizer=None)
        assert (plain.pattern, plain.normalizer) == ("qwen2", ())
        assert plain.decode(plain.encode("e\u0301")) == "e\u0301"
        assert Tokenizer.load(path, normalizer=["nfd"]).normalizer == ("nfd",)
        with pytest.raises(ConfigError, match="unknown normalizer 'NFD'; did you mean 'nfd'"):
            Tokenizer.load(path, normalizer="NFD")
    assert Tokenizer.load(ranks, known="qwen", normalizer=None).normalizer == ()


@pytest.mark.slow
def test_qwen2s_two_files_are_known(tmp_path: Path) -> None:
    """The tokens of Qwen2 are those of Qwen, so its files can be made from Qwen's."""
    qwen = Tokenizer.load(real_data("vocabs/qwen.tiktoken"))
    save_files(Vocab(qwen.vocab.tokens[:151643], {}, qwen.merges), tmp_path)
    content = (tmp_path / "merges.txt").read_bytes()
    # Qwen/Qwen2.5-7B, merges.txt
    assert hashlib.sha256(content).hexdigest() == "8831e4f1a044471340f7c0a83d7bd71306a5b867e95fd870f74d0c5308a904d5"
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.pattern, len(tokenizer.special_tokens)) == ("qwen2", 3)
    text = real_text_start("multilingual_20MB", 100_000)
    assert tokenizer.encode(text) == qwen.encode(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["p50k_edit", "qwen"])
@pytest.mark.parametrize("format_", ["gpt2", "huggingface", "tiktoken"])
def test_published_tokenizers_survive_every_format(name: str, format_: str, tmp_path: Path) -> None:
    ours, _ = both(name)
    if name == "qwen" and format_ == "tiktoken":
        with pytest.raises(FormatError, match="normalizer"):
            ours.save(tmp_path, format_)
        return
    ours.save(tmp_path, format_)
    again = Tokenizer.load(tmp_path, ours.pattern)
    text = real_text_start("code_20MB", 50_000) + "".join([*ours.special_tokens][:50])
    assert again.encode(text) == ours.encode(text)
    if format_ == "huggingface":
        assert open_huggingface(tmp_path / "tokenizer.json").encode(text, add_special_tokens=False).ids == ours.encode(
            text
        )


@pytest.mark.slow
def test_deepseeks_pattern_with_real_ranks(tmp_path: Path) -> None:
    ours = Tokenizer.load(real_data("vocabs/p50k_base.tiktoken"), DEEPSEEK_V3)
    with TemporaryDirectory() as folder:
        path, *_ = ours.save(folder, "huggingface")
        theirs = open_huggingface(path)
    for corpus in CORPORA:
        text = real_text_start(corpus, 100_000)
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids
