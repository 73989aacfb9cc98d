"""Tokenizers that are extended: exactly as the naive recount on the encoded corpus, in every backend; ids stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_extension import encode_words, naive_extension
from peers import huggingface_encoder, open_huggingface, published_spec, tiktoken_encoder
from real_data import real_data, real_text_start
from tasks import limits, tie_breaks, words

import bpeflow
from bpeflow._util.byte_level import mergeable_bytes
from bpeflow.backends.base import MergeBackend
from bpeflow.config import MergeSettings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import FormatError
from bpeflow.formats import any_format as formats
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.training.learn import LearnedMerges, learn_merges, learn_with_settings
from bpeflow.vocab import Merge, Vocab

BYTES = [bytes([byte]) for byte in range(256)]
SPECIALS = ["<s>", "ab", "a b", "Āÿ", "aab"]


def extend(base: TokenizerSpec, words: dict[bytes, int], size: int, **options: object) -> LearnedMerges:
    values = {"vocab_size": size, "special_tokens": (), **options}
    return learn_with_settings(PretokenCounts.from_mapping(words), MergeSettings(**values), base=base)  # type: ignore[arg-type]


def make_base(
    merges: list[Merge], specials: list[str], order: list[int], *, others: Iterable[bytes] = (), shared: bool = False
) -> TokenizerSpec:
    """Return a tokenizer whose ids are those that `order`, with a place for each token and for gaps, gives them."""
    ordinary = [*BYTES, *dict.fromkeys([left + right for left, right in merges] + [*others])]
    if shared:  # as in HuggingFace's files, where an added token is the one that merges make
        ordinary = [token for token in ordinary if len(token) == 1 or token not in map(mergeable_bytes, specials)]
    tokens = [b""] * (max(order[: len(ordinary) + len(specials)]) + 1)
    for place, token in zip(order, [*ordinary, *(special.encode() for special in specials)], strict=False):
        tokens[place] = token
    ids = dict(zip(specials, order[len(ordinary) :], strict=False))
    return TokenizerSpec(Vocab(tuple(tokens), ids, tuple(merges)), whole_tokens=bool(others))


@st.composite
def cases(draw: st.DrawFn) -> tuple[TokenizerSpec, dict[bytes, int]]:
    """Draw a tokenizer and words.

    Its ids are in any order, with gaps. Special tokens share strings or ids, and no merge makes some tokens, which are
    parts of words, or words.
    """
    occurring = draw(words())
    specials = draw(st.lists(st.sampled_from(SPECIALS), max_size=3, unique=True))
    size = 256 + draw(st.integers(0, 12))
    merges = [*learn_merges(draw(words()), size, (), tie_break="smallest_ids", backend="python")]
    made = {left + right for left, right in merges}
    others = []
    if draw(st.booleans()):
        parts = {word[start:] for word in occurring for start in range(3)} | {word[:4] for word in occurring}
        parts = {part for part in parts if len(part) > 1} - made
        others = draw(st.lists(st.sampled_from(sorted(parts) or [b"abcab"]), max_size=5, unique=True))
    number = 256 + len(merges) + len(others) + len(specials)
    order = [*range(number + draw(st.integers(0, 3)))]
    draw(st.randoms(use_true_random=False)).shuffle(order)
    return make_base(merges, specials, order, others=others, shared=draw(st.booleans())), occurring


@pytest.mark.slow
@settings(max_examples=60)
@given(
    case=cases(), options=limits, tie_break=tie_breaks, new=st.integers(0, 12),
    specials=st.lists(st.sampled_from(["<s>", "<pad>", "abab", "aab"]), max_size=2, unique=True),
    search=st.sampled_from(["heap", "scan"]),
)  # fmt: skip
def test_every_backend_extends_as_the_naive_recount_of_the_encoded_corpus_does(
    backends: list[MergeBackend],
    case: tuple[TokenizerSpec, dict[bytes, int]],
    options: dict[str, int | None],
    tie_break: str,
    new: int,
    specials: list[str],
    search: str,
) -> None:
    base, words = case
    huggingface = tie_break == "huggingface"
    start = base.vocab.extend((), specials, reuse_tokens=huggingface)
    values = {**options, "tie_break": tie_break, "max_search": search, "special_tokens": tuple(specials)}
    expected = naive_extension(base, words, MergeSettings(**values), new)  # type: ignore[arg-type]
    for backend in backends:
        learned = extend(base, words, len(start) + new, **values, backend=backend.name)
        old = len(base.vocab.merges)
        assert learned.pairs == (*base.vocab.merges, *expected.merges)
        assert list(learned.counts[old:]) == expected.counts
        vocab = learned.vocab()
        assert vocab.tokens[: len(base.vocab)] == base.vocab.tokens
        assert base.vocab.special_tokens.items() <= vocab.special_tokens.items()
        assert len(vocab) == len(start) + expected.new_tokens
        assert encode_words(replace(base, vocab=vocab), words) == expected.pieces
        smaller = learned.vocab(max_tokens=len(start) + new // 2)
        assert vocab.tokens[: len(smaller)] == smaller.tokens


# ---- examples ----


def test_a_token_that_no_merge_makes_keeps_its_id_if_a_new_merge_makes_it(
    backend: MergeBackend, tmp_path: Path
) -> None:
    """As a whole pre-token it has no pairs; in other words its parts are merged.

    tiktoken cannot express this: for it, every two parts of a token make that token.
    """
    base = make_base([(b"a", b"b")], ["<s>"], [*range(300)], others=[b"abcd"])
    words = {b"abcd": 100, b"abcde": 5, b"abcdf": 2, b"abc": 3}
    learned = extend(base, words, 261, backend=backend.name)
    assert learned.pairs == ((b"a", b"b"), (b"ab", b"c"), (b"abc", b"d"), (b"abcd", b"e"))
    assert learned.counts == (0, 10, 7, 5)
    vocab = learned.vocab()
    assert [vocab.token_ids[token] for token in (b"abcd", b"abc", b"abcde")] == [257, 259, 260]
    assert (vocab.special_tokens, len(vocab)) == ({"<s>": 258}, 261)
    tokenizer = learned.tokenizer(pattern=r".+")
    assert tokenizer.encode("abcd") == [257]
    formats.save(tokenizer.to_spec(), tmp_path, "huggingface")
    for text, ids in (("abcd", [257]), ("abcde", [260]), ("abcdabcd", [257, 257])):
        assert tokenizer.encode(text) == ids == huggingface_encoder(tmp_path / "tokenizer.json")(text)
    with pytest.raises(FormatError, match="tiktoken has only ranks, no list of merges, and would merge differently"):
        formats.save(tokenizer.to_spec(), tmp_path / "x.tiktoken")


def test_several_merges_of_one_token_are_extended(backend: MergeBackend) -> None:
    """HuggingFace's converter of tiktoken's files writes all pairs of a token."""
    merges = [(b"b", b"c"), (b"a", b"b"), (b"a", b"bc"), (b"ab", b"c")]
    learned = extend(make_base(merges, [], [*range(300)]), {b"abcd": 5}, 260, backend=backend.name)
    assert learned.pairs == (*merges, (b"abc", b"d"))
    assert learned.counts == (0, 0, 0, 0, 5)


def test_a_vocabulary_without_the_bytes_that_utf8_never_has_is_extended(backend: MergeBackend) -> None:
    without = [byte for byte in BYTES if byte not in (b"\xc0", b"\xff")]
    base = TokenizerSpec(Vocab([b"a", *(byte for byte in without if byte != b"a")], {}, ()))
    assert extend(base, {b"abc": 5, b"ab": 2}, 258, backend=backend.name).pairs[:2] == ((b"a", b"b"), (b"ab", b"c"))


def test_a_size_without_room_for_a_token_gives_the_same_tokenizer(backend: MergeBackend) -> None:
    base = make_base([(b"a", b"b")], ["<s>"], [*range(300)])
    learned = extend(base, {b"abc": 5}, 258, backend=backend.name)
    assert (learned.pairs, learned.vocab()) == (base.vocab.merges, base.vocab)


def test_ties_do_not_depend_on_ids() -> None:
    """With `smallest_ids`, byte b has number b; the ids of this tokenizer are in descending order."""
    base = make_base([(b"c", b"d")], [], [*range(256, -1, -1)])
    learned = extend(base, {b"ab": 5, b"ef": 5}, 258, tie_break="smallest_ids")
    assert learned.pairs[1:] == ((b"a", b"b"),)


# ---- formats ----

TEXT = "low lower lowest newest widest<|endoftext|>the lower the better, they said<|endoftext|>" * 20
MORE = "the newer, the wider: <|endoftext|>she said it's lower  lowest 123<pad>"


def save_special_tokens_first(spec: TokenizerSpec, folder: Path) -> None:
    vocab = Vocab.build(spec.vocab.merges, [*spec.vocab.special_tokens], special_tokens_first=True)
    formats.save(TokenizerSpec(vocab, spec.pattern), folder, "huggingface")


def save_descending_ids(spec: TokenizerSpec, folder: Path, name: str) -> None:
    """Save with the bytes in another order, and a gap and the special token in the middle of the ids."""
    order = [*range(255, -1, -1), *range(256, 256 + len(spec.vocab.merges)), 262]
    order = [place + (place >= 258) + (262 <= place < 300) * (i < len(order) - 1) for i, place in enumerate(order)]
    base = make_base([*spec.vocab.merges], ["<|endoftext|>"], order)
    formats.save(replace(base, pattern=spec.pattern), folder, name)


BASES: dict[str, Callable[[TokenizerSpec, Path], object]] = {
    "run folder": lambda spec, folder: formats.save(spec, folder, "gpt2"),
    "gpt2": lambda spec, folder: [formats.save(spec, folder, "gpt2"), (folder / "bpeflow.json").unlink()],
    "huggingface": lambda spec, folder: formats.save(spec, folder, "huggingface"),
    "special tokens first": save_special_tokens_first,
    "tiktoken": lambda spec, folder: save_descending_ids(spec, folder, "tiktoken"),
    "huggingface with gaps": lambda spec, folder: save_descending_ids(spec, folder, "huggingface"),
}


@pytest.fixture(params=BASES)
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A tokenizer of about 270 ids in each format and with each order of ids."""
    learned = learn_merges(bpeflow.count(iter(["the other text that she wrote then"])), 270, ["<|endoftext|>"])
    BASES[request.param](learned.tokenizer().to_spec(), tmp_path / "base")
    return tmp_path / "base"


def assert_extended(old: TokenizerSpec, run: Path, text: str) -> None:
    """Check that old ids have the same bytes, and that the tools give the same ids with each export."""
    extended = bpeflow.Tokenizer.load(run)
    assert extended.vocab.tokens[: len(old.vocab)] == old.vocab.tokens
    assert old.vocab.special_tokens.items() <= extended.special_tokens.items()
    assert extended.merges[: len(old.vocab.merges)] == old.vocab.merges
    ids = extended.encode(text)
    assert max(ids) >= len(old.vocab)
    assert tiktoken_encoder(run / "tokenizer.tiktoken")(text) == ids
    assert huggingface_encoder(run / "tokenizer.json")(text) == ids
    for name in ("tokenizer.tiktoken", "tokenizer.json"):
        assert bpeflow.Tokenizer.load(run / name).encode(text) == ids


def test_exports_of_an_extended_tokenizer_load_in_the_tools(base: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text(TEXT, encoding="utf-8")
    old = formats.load(base)
    tie_break = "huggingface" if (base / "tokenizer.json").exists() else "greatest_bytes"
    settings = {
        "input": str(tmp_path / "corpus.txt"), "init_from": base, "vocab_size": len(old.vocab) + 12,
        "special_tokens": ["<pad>"], "tie_break": tie_break, "out_dir": tmp_path / "run",
        "output": {"formats": ["huggingface", "tiktoken"]},
    }  # fmt: skip
    result = bpeflow.train(settings)
    assert result.vocab is not None and result.spec is not None
    assert len(result.vocab) == len(old.vocab) + 12
    assert (result.spec.pattern, result.spec.whole_tokens) == (old.pattern, old.whole_tokens)
    assert result.vocab.special_tokens["<pad>"] == len(old.vocab)
    assert result.tokenizer == bpeflow.Tokenizer.load(tmp_path / "run")
    assert bpeflow.train({"out_dir": tmp_path / "run", "resume": True}).tokenizer == result.tokenizer
    assert_extended(old, tmp_path / "run", TEXT[:300] + MORE)
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    files = tokenizers.models.BPE.from_file(str(tmp_path / "run/vocab.json"), str(tmp_path / "run/merges.txt"))
    theirs = open_huggingface(tmp_path / "run" / "tokenizer.json")
    theirs.model = files
    assert theirs.encode(MORE).ids == result.tokenizer.encode(MORE)


@pytest.mark.large
@pytest.mark.parametrize("name", ["gpt2", "r50k_base", "cl100k_base", "o200k_base"])
def test_published_tokenizers_are_extended_by_a_thousand_tokens(name: str, tmp_path: Path) -> None:
    if name == "gpt2":
        for ours, theirs in (("vocab.json", "gpt2.encoder.json"), ("merges.txt", "gpt2.vocab.bpe")):
            (tmp_path / ours).symlink_to(real_data(f"vocabs/{theirs}"))
        path, old = tmp_path, formats.load(tmp_path)
    else:
        path, old = real_data(f"vocabs/{name}.tiktoken"), published_spec(name)
    text = real_text_start("multilingual_20MB", 3_000_000)
    (tmp_path / "corpus.txt").write_text(text, encoding="utf-8", newline="")
    settings = {
        "input": str(tmp_path / "corpus.txt"), "init_from": path, "vocab_size": len(old.vocab) + 1_002,
        "special_tokens": ["<|im_start|>", "<|im_end|>"], "out_dir": tmp_path / "run",
        "output": {"formats": ["huggingface", "tiktoken"]},
    }  # fmt: skip
    result = bpeflow.train(settings)
    assert result.report.learning is not None
    assert (result.report.learning.learned, len(result.tokenizer)) == (1_000, len(old.vocab) + 1_002)
    assert_extended(old, tmp_path / "run", text[:1_000_000] + "<|im_end|><|endoftext|>")
    assert len(result.tokenizer.encode(text)) < len(bpeflow.Tokenizer.from_spec(old).encode(text))
