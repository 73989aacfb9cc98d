"""`Tokenizer`: results of its methods, vocabularies it accepts, and errors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from small import BYTES, MERGES, SPECIALS, small, small_spec, small_vocab

import bpeflow
from bpeflow.errors import (
    ConfigError,
    FormatError,
    InputTypeError,
    PatternError,
)
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab


@pytest.fixture
def tokenizer(encoder: str) -> Tokenizer:
    return small(encoder)


def the(encoder: str) -> Tokenizer:
    """Return a tokenizer that all formats can hold."""
    merges = [(b"t", b"h"), (b"th", b"e")]
    return Tokenizer(Vocab.build(merges, ["<a>"]), merges, encoder=encoder)


def test_missing_special_tokens_are_appended_in_order() -> None:
    tokenizer = Tokenizer(BYTES | {300: b"<s>"}, [], ["<b>", "<s>", "<a>", "<b>"])
    assert tokenizer.special_tokens == {"<b>": 301, "<s>": 300, "<a>": 302}
    assert tokenizer.vocab_size == 303
    assert tokenizer.encode("<a><b><s>") == [302, 301, 300]


def test_a_special_token_may_also_be_an_ordinary_token(encoder: str) -> None:
    tokenizer = Tokenizer(BYTES | {256: b" a", 257: b"the"}, [(b" ", b"a")], [" a", "b", "the"], encoder=encoder)
    assert tokenizer.encode(" a") == tokenizer.encode_ordinary(" a") == [256]
    assert tokenizer.encode("ab") == [97, 98]
    assert tokenizer.encode_ordinary("the") == list(b"the")
    assert tokenizer.encode("the") == [257]


def test_a_trained_vocab_includes_its_special_tokens(encoder: str) -> None:
    vocab = small_vocab(*SPECIALS)
    tokenizer = Tokenizer(vocab, vocab.merges, encoder=encoder)
    assert tokenizer.special_tokens == vocab.special_tokens
    assert tokenizer.vocab == vocab
    more = Tokenizer(vocab, vocab.merges, ["<new>"], encoder=encoder)
    assert more.special_tokens == {**vocab.special_tokens, "<new>": len(vocab)}


def test_merges_may_be_lists_as_in_json() -> None:
    assert Tokenizer(BYTES | {256: b"ab"}, [[b"a", b"b"]]).merges == ((b"a", b"b"),)  # type: ignore[list-item]


def test_properties_and_repr(tokenizer: Tokenizer, encoder: str) -> None:
    assert tokenizer.merges == tuple(MERGES)
    assert tokenizer.pattern == "gpt2"
    assert tokenizer.encoder == encoder
    expected = f"Tokenizer({256 + len(SPECIALS) + len(MERGES)} tokens, {len(SPECIALS)} special, pattern='gpt2', "
    assert repr(tokenizer) == f"{expected}encoder='{encoder}')"
    assert repr(Tokenizer(BYTES, [], encoder="python")) == "Tokenizer(256 tokens, pattern='gpt2', encoder='python')"
    assert Tokenizer.from_spec(tokenizer.to_spec()).to_spec() == tokenizer.to_spec()


def test_special_tokens_are_a_copy(tokenizer: Tokenizer) -> None:
    tokenizer.special_tokens.clear()
    assert tokenizer.special_tokens


@pytest.mark.parametrize("pattern", ["o200k", r"\w+|\W"])
def test_a_tokenizer_can_be_pickled(encoder: str, pattern: str) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(pattern, whole_tokens=True), encoder=encoder, cache_bytes=5000)
    before = pickle.dumps(tokenizer)
    text = "word abab <|endoftext|>'ll 123"
    ids = tokenizer.encode(text)
    copy = pickle.loads(before)
    assert (copy.encode(text), copy.encoder, copy.to_spec()) == (ids, encoder, tokenizer.to_spec())
    assert len(pickle.dumps(tokenizer)) == len(before)  # without what has been cached since


@pytest.mark.parametrize("cache_bytes", [-1, 1 << 64, 1e6, "8mb"])
def test_an_invalid_cache_size_is_rejected(encoder: str, cache_bytes: Any) -> None:
    with pytest.raises(ConfigError, match=f"cache_bytes is {cache_bytes!r}; it must be an integer number of bytes"):
        Tokenizer(BYTES, [], encoder=encoder, cache_bytes=cache_bytes)


@pytest.mark.parametrize(
    ("vocab", "merges", "error", "message"),
    [
        ({0: b"a"}, [], FormatError, "no token for 255 of the 256 bytes, the first of them 0x00"),
        ({}, [], FormatError, "256 of the 256 bytes"),
        (BYTES, [(b"a", b"b")], FormatError, "merge 0, b'a' [+] b'b', does not fit .* no token b'ab'"),
        (BYTES | {-1: b"x"}, [], FormatError, "has the id -1; ids of 257 tokens must be from 0 to 1000256"),
        (BYTES | {2**31: b"x"}, [], FormatError, "has the id 2147483648; ids of 257 tokens must be from 0 to 1000256"),
        (BYTES | {"256": b"x"}, [], InputTypeError, "the id '256' in the vocabulary is str"),
        (BYTES | {256: "x"}, [], InputTypeError, "token 256 is 'x'; it must be bytes"),
        ([(b"a", b"b")], BYTES, InputTypeError, "vocab must be a mapping from id to bytes, not list"),
        ("vocab.json", "merges.txt", InputTypeError, "from id to bytes, not str"),
        (BYTES, ["ab"], InputTypeError, "merge 0 is 'ab'; it must be a pair of bytes"),
        (BYTES, [(b"a", b"b", b"c")], InputTypeError, "merge 0"),
        (BYTES, [("a", "b")], InputTypeError, r"merge 0 is \('a', 'b'\)"),
    ],
)
def test_invalid_vocabularies_and_merges_are_rejected(
    encoder: str, vocab: Any, merges: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Tokenizer(vocab, merges, encoder=encoder)


def test_other_invalid_arguments_are_rejected() -> None:
    with pytest.raises(InputTypeError, match="special_tokens is b'<s>'; it must be a list"):
        Tokenizer(BYTES, [], b"<s>")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="empty"):
        Tokenizer(BYTES, [], [""])
    with pytest.raises(InputTypeError, match="7 is int, not str"):
        Tokenizer(BYTES, [], [7])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="not valid Unicode"):
        Tokenizer(BYTES, [], ["\ud800"])
    with pytest.raises(PatternError, match="did you mean 'gpt2'"):
        Tokenizer(BYTES, [], pattern="gtp2")
    with pytest.raises(ConfigError, match="unknown encoder 'C'"):
        Tokenizer(BYTES, [], encoder="C")
    for specials, message in ((5, "special_tokens is 5"), ([["<s>"]], r"\['<s>'\] is list, not str")):
        with pytest.raises(InputTypeError, match=message):
            Tokenizer(BYTES, [], specials)  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="merges must be a list of pairs of bytes, not NoneType"):
        Tokenizer(BYTES, None)  # type: ignore[arg-type]
    with pytest.raises(
        PatternError, match=r"must be a str \(a name or a regular expression\) or a list of them, not int"
    ):
        Tokenizer(BYTES, [], pattern=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="dtype is 'nonsense'; it must be uint16 or uint32"):
        Tokenizer(BYTES, []).encode_to_numpy("a", dtype="nonsense")
    for threads in (0, -1, 1.5):
        with pytest.raises(ConfigError, match=f"threads is {threads}"):
            Tokenizer(BYTES, []).encode_batch(["a"], num_threads=threads)  # type: ignore[arg-type]


def test_a_tokenizer_can_be_trained_saved_and_loaded(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("low lower lowest<|endoftext|>newer wider", encoding="utf-8")
    trained = Tokenizer.train(corpus, vocab_size=270, pattern="o200k", out_dir=tmp_path / "run")
    assert trained.vocab.to_dict() == bpeflow.train_bpe(corpus, 270, ["<|endoftext|>"], pattern="o200k")[0]
    loaded = bpeflow.Tokenizer.load(tmp_path / "run")
    trained.save(tmp_path / "saved")
    again = Tokenizer.load(str(tmp_path / "saved"))
    assert loaded.to_spec() == again.to_spec() == trained.to_spec()
    assert loaded.pattern == "o200k"
    assert loaded.decode(loaded.encode("lowest<|endoftext|>")) == "lowest<|endoftext|>"
    with pytest.raises(ConfigError, match="skip_merge"):
        Tokenizer.train([corpus], vocab_size=270, skip_merge=True)


def test_gpt2_files_are_read(encoder: str, tmp_path: Path) -> None:
    the(encoder).save(tmp_path)
    paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
    tokenizer = Tokenizer.from_files(*map(str, paths), encoder=encoder)
    assert tokenizer == the(encoder)
    known = next(iter(tokenizer.special_tokens))
    more = Tokenizer.from_files(*paths, special_tokens=["<new>", known], pattern="qwen2", encoder=encoder)
    assert more.special_tokens["<new>"] == tokenizer.vocab_size
    assert (more.special_tokens[known], more.pattern) == (tokenizer.special_tokens[known], "qwen2")


def test_the_ending_of_a_file_is_its_format(tmp_path: Path) -> None:
    tokenizer = the("auto")
    written = {
        "tokenizer.json": {"tokenizer.json"},
        "x.json": {"x.json"},
        "x.tiktoken": {"x.tiktoken", "x.tiktoken.json"},
        "folder": {"folder"},
        "vocab.json": {"vocab.json", "merges.txt", "bpeflow.json"},
    }
    for number, (name, files) in enumerate(written.items()):
        folder = tmp_path / str(number)
        paths = tokenizer.save(folder / name)
        assert {path.name for path in folder.iterdir()} == files
        assert Tokenizer.from_file(folder / name) == Tokenizer.load(paths[0])
        assert Tokenizer.load(paths[0]) == tokenizer
    with pytest.raises(ConfigError, match=r"x\.json is not the name of a file in the tiktoken format"):
        tokenizer.save(tmp_path / "x.json", format="tiktoken")
    assert not (tmp_path / "x.json").exists()
    (tmp_path / "folder.json").mkdir()
    assert tokenizer.save(tmp_path / "folder.json")[0] == tmp_path / "folder.json" / "vocab.json"
    with pytest.raises(ConfigError, match="unknown format 'sentencepiece'"):
        tokenizer.save(tmp_path / "x", format="sentencepiece")


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_truncated_files_are_named(encoder: str, tmp_path: Path, name: str) -> None:
    the(encoder).save(tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2 + 1])
    with pytest.raises(FormatError, match=name):
        Tokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt")


def test_a_vocab_with_missing_bytes_is_rejected() -> None:
    with pytest.raises(FormatError, match="256 bytes"):
        Tokenizer(Vocab((b"a",), {}, ()), [])


def test_an_iterator_may_yield_batches() -> None:
    flat = ["low low", b"lower", {"text": "lowest"}, "newest"]
    batches = [["low low", b"lower"], {"text": "lowest"}, ("newest",)]
    assert Tokenizer.train_from_iterator(batches, 262) == Tokenizer.train(iter(flat), 262)
    for wrong in ("corpus.txt", 7):
        with pytest.raises(InputTypeError, match=r"for files use Tokenizer.train\(path\)"):
            Tokenizer.train_from_iterator(wrong, 262)  # type: ignore[arg-type]


def test_defaults_and_forms_of_special_tokens_are_the_same_everywhere() -> None:
    """What reads a corpus removes <|endoftext|>, and what makes a vocabulary has it."""
    documents, end = ["low<|endoftext|>low"], ["<|endoftext|>"]
    assert bpeflow.count(iter(documents)) == bpeflow.count(iter(documents), special_tokens=end)
    counts = bpeflow.count(iter(documents))
    assert bpeflow.learn_merges(counts, 259).tokenizer() == bpeflow.learn_merges(counts, 259, end).tokenizer()
    assert bpeflow.train_bpe(iter(documents), 259) == bpeflow.train_bpe(iter(documents), 259, end)
    assert list(bpeflow.Tokenizer.train(iter(documents), 259).special_tokens) == end
    made = Tokenizer(BYTES, [], "<s>")
    assert made == Tokenizer(BYTES, []).with_special_tokens("<s>") == Tokenizer(BYTES, [], ["<s>"])
    assert bpeflow.learn_merges(counts, 259, "<s>").tokenizer().special_tokens == {"<s>": 256}
    assert bpeflow.count(iter(documents), special_tokens="low").most_common() != counts.most_common()
