"""The native scanner and the `regex` module agree on every text, with all vector instructions."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import accumulate, product

import pytest
from available import skip_missing
from characters import CHARACTERS, edges
from hypothesis import example, given, settings
from hypothesis import strategies as st
from real_data import real_text_start
from rules import opened_text, rules, texts_of

from bpeflow.corpus.documents import Delimiters
from bpeflow.counting.table import NativeTable, RegexTable
from bpeflow.errors import ConfigError
from bpeflow.pretokenize.native import (
    INSTRUCTIONS_VARIABLE,
    chosen_instructions,
    native_instructions,
    native_unicode_version,
    why_regex,
)
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer, unicode_version

# Everything that the patterns distinguish: case, contractions and similar text, digits of several scripts, marks, all
# kinds of white space and line ends, other characters, and characters of every length in UTF-8.
ATOMS = [
    *"aAbzsStTdmlLvVrReE'''  \n\r\t/.,!-_0123456789\x00\x0b\x0c\x1c\x1f\x85\xa0",
    *["'s", "'S", "'ll", "'LL", "'Ve", "'rE", "'ſ", "ſ", "K", "İ", "ı", "é", "É", "ß", "Ǆ", "ǅ", "ǆ", "ʰ", "ª"],
    *["²", "½", "٣", "Ⅷ", "中", "日本", "ひ", "ア", "ع", "א", "я", "Я", "\u0301", "\u0903", "\u200b", "\u0378"],
    *["\ue000", "\U0001d7d8", "\U0001f600", "\U0001f1e6", "\U000e0100", "\U0010ffff"],
    *["\u1680", "\u2003", "\u2028", "\u3000", "\r\n", "\n\n", "  "],
]
patterned = st.lists(st.sampled_from(ATOMS), max_size=30).map("".join)


def long_text(atoms: list[str]) -> st.SearchStrategy[str]:
    """Texts of several blocks of 64 bytes. Drawing a seed is much cheaper than drawing each atom."""
    return st.builds(
        lambda seed, size: "".join(random.Random(seed).choices(atoms, k=size)),
        st.integers(0, 2**32),
        st.integers(60, 250),
    )


# Tokens continue from one block into the next.
blocks = long_text(ATOMS)
# Mostly ordinary text, which rarely makes the scanner treat a whole block token by token.
prose = long_text([*"aZ '1\n\t.,(/é–中", " the", "don't", "HTMLParser", "1234567", "\n\n", ";\n", "   ", "'ſ", "'LL"])


@pytest.fixture(params=NAMED_PATTERNS)
def pattern(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def native(pattern: str) -> str:
    """Return the pattern, or skip the test without a native scanner of the `regex` module's Unicode version."""
    skip_missing("count", why_regex(load_pretokenizer(pattern)))
    if native_unicode_version() != unicode_version():
        pytest.skip(
            f"the native tables have Unicode {native_unicode_version()}, the installed regex {unicode_version()}: "
            "regenerate them with python tools/make_unicode_tables.py"
        )
    return pattern


def assert_equal(pattern: str, text: str) -> None:
    reference = RegexTable(load_pretokenizer(pattern))
    data = text.encode()
    reference.count(data)
    expected = reference.shard()
    for instructions in native_instructions():
        table = NativeTable(pattern, instructions)
        table.count(data)
        assert table.shard() == expected, f"{instructions}: {text!r}"


@pytest.mark.slow
@settings(max_examples=400)
@given(text=st.one_of(patterned, blocks, blocks, prose, prose, st.text(max_size=30), st.text(min_size=60)))
@example(text="")
@example(text="a\n  ")
@example(text="'ſ'S don'T I'LL")
def test_native_counts_equal_regex(native: str, text: str) -> None:
    assert_equal(native, text)


CONTEXTS = [("", ""), ("A", "b"), ("a", "B"), (" ", " "), ("'", ""), ("1", "2"), ("\n", "\n"), (".", ".\n")]
CONTEXTS += [(" ", "a"), ("\u0301", "A"), ("中", "A"), ("'", "e"), ("  ", "\n"), ("A'", "t")]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), CONTEXTS)
def test_characters_at_the_edges_of_classes_equal_regex_in_many_contexts(native: str, before: str, after: str) -> None:
    assert_equal(native, "|".join(f"{before}{character}{after}" for character in edges()))


@pytest.mark.slow
@pytest.mark.not_sanitized
def test_every_character_has_the_class_of_regex(native: str) -> None:
    """Around each character are others with which it makes a token in one class, and does not in another."""
    assert_equal(native, "".join(f"a{character}b-{character}Bc" for character in CHARACTERS))


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["c4_2MB", "wikitext2_2MB", "tinystories_3MB", "code_20MB", "multilingual_20MB"])
def test_real_text_equals_regex(native: str, corpus: str) -> None:
    assert_equal(native, real_text_start(corpus, 200_000))


def test_long_runs_equal_regex(native: str) -> None:
    for unit in ("a", "A", " ", "\n", "\r\n", "1", ".", "'", "\u0301", "中", " \n", "aA"):
        assert_equal(native, unit * 100_000)


@pytest.mark.parametrize("shift", [0, 1, 63])
def test_blocks_with_any_number_of_tokens_equal_regex(native: str, shift: int) -> None:
    """Of each number there are blocks in which tokens start anywhere: a token is a run of letters or of other marks."""
    draw = random.Random(shift)
    text = "x" * shift
    for number in range(65):
        starts = draw.sample(range(64), number)
        kinds = accumulate(place in starts for place in range(64))
        text += "".join("a:"[kind % 2] for kind in kinds)
    assert_equal(native, text)


@pytest.mark.slow
def test_tokens_longer_than_blocks_equal_regex(native: str) -> None:
    """Cover runs of lengths around that of a block, at many positions in a block, after anything they may follow."""
    for unit in ("a", "A", " ", "\n", "\t", "1", ".", "中", "é", "\u3000", "\u0301", "'s"):
        for length in (1, 2, 3, 4, 31, 62, 63, 64, 65, 66, 127, 128, 130, 200):
            text = "".join(
                f"{'x' * shift} {before}{unit * length}{after}"
                for shift in (0, 1, 2, 3, 40, 61)
                for before, after in RUNS
            )
            assert_equal(native, text + "x" * 130)
            assert_equal(native, text)


RUNS = [("", "b"), ("(", "b"), ("1", " b"), ("\n", "\n"), ("'", "'s"), (";\n", "/b"), ("b", "B"), ("  ", "  c")]

DELIMITERS = Delimiters("<|end|>", ["<|end", "<s>", "é", "||"])
pieces = st.sampled_from(
    [b"<|end|>", b"<|end", b"<s>", "é".encode(), b"||", b"<", b"|", b">", b"end", b" a", b"b.", b"\n"]
)
broken = st.sampled_from([b"\xff", b"\xc3", b"\xe4\xb8", b"\xa9", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"])


@pytest.mark.slow
@given(data=st.lists(st.one_of(pieces, pieces, pieces, broken, st.binary(max_size=3)), max_size=40).map(b"".join))
@example(data=b"")
@example(data=b"a<|end|>")
@example(data=b"a<|end|>b\xff")
def test_documents_are_counted_up_to_the_first_that_is_not_utf8(native: str, data: bytes) -> None:
    """The reference finds delimiters, decodes and counts text by text in Python."""
    table, reference = NativeTable(native), NativeTable(native)
    counted = table.count_documents(memoryview(bytearray(data)), DELIMITERS)
    documents = list(DELIMITERS.documents(data))
    good = []
    for document in documents:
        if not all(is_utf8(data[start:end]) for start, end in document.pieces):
            break
        good.append(document)
    for document in good:
        for start, end in document.pieces:
            reference.count(data[start:end])
    assert table.shard() == reference.shard()
    assert counted.documents == len(good)
    assert counted.open == (bool(good) and not good[-1].closed)
    assert (counted.bytes == len(data)) == (len(good) == len(documents))
    assert list(DELIMITERS.documents(data[: counted.bytes])) == good


# The first and the last byte of every range that the definition of UTF-8 distinguishes.
UTF8_EDGES = bytes.fromhex("00 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")


@pytest.mark.parametrize("after", [b"", b"\x80", b"\x80x", b"x"])
def test_the_same_bytes_are_valid_utf8_as_in_python(after: bytes) -> None:
    """Three bytes, whatever follows, at the borders of vectors, at the end of the text and behind wide characters."""
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    surroundings = [(b"x" * before, b"x" * behind) for before in (0, 61, 62, 63, 64, 127) for behind in (0, 70)]
    surroundings += [("中é".encode() * 13 + b"x" * extra, "😀я".encode() * 12) for extra in range(3)]
    tables = {instructions: NativeTable("gpt2", instructions) for instructions in native_instructions()}
    for some in choose.sample([*product(UTF8_EDGES, repeat=3)], 4000):
        before, behind = choose.choice(surroundings)
        data = before + bytes(some) + after + behind
        for instructions, table in tables.items():
            counted = table.count_documents(memoryview(bytearray(data)), Delimiters(None))
            assert (counted.bytes == len(data)) == is_utf8(data), f"{instructions}: {data!r}"


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    "delimiters", [Delimiters(None), Delimiters("\n"), Delimiters("<s>"), Delimiters("\n\n", ["the", "<s>"])]
)
def test_real_documents_have_the_same_counts_as_in_python(native: str, delimiters: Delimiters) -> None:
    data = real_text_start("multilingual_20MB", 300_000).encode()
    data = data[: data.rindex(b"\n")]
    table, reference = NativeTable(native), NativeTable(native)
    counted = table.count_documents(memoryview(bytearray(data)), delimiters)
    texts, statistics = texts_of(opened_text(data, replace(rules(), delimiters=delimiters)))
    for text in texts:
        reference.count(text)
    assert table.shard() == reference.shard()
    assert (counted.bytes, counted.documents) == (len(data), statistics.documents)


def test_instructions_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    assert native_instructions()[-1] == "scalar"
    monkeypatch.delenv(INSTRUCTIONS_VARIABLE, raising=False)
    assert chosen_instructions() == native_instructions()[0]
    monkeypatch.setenv(INSTRUCTIONS_VARIABLE, "scalar")
    assert chosen_instructions() == "scalar"
    monkeypatch.setenv(INSTRUCTIONS_VARIABLE, "regex")
    assert chosen_instructions() == native_instructions()[0], "encoding stays native"
    assert why_regex(load_pretokenizer("gpt2")) == "BPEFLOW_INSTRUCTIONS is regex"
    monkeypatch.setenv(INSTRUCTIONS_VARIABLE, "abacus")
    with pytest.raises(ConfigError, match=r"BPEFLOW_INSTRUCTIONS=abacus is not available; choose from .*scalar"):
        NativeTable()
