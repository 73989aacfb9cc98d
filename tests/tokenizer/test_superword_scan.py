"""Encoding with the pattern of superwords cuts texts as the `regex` module does.

Merges of any two bytes, in random order, show where pre-tokens begin.
"""

from __future__ import annotations

import random
from functools import cache
from itertools import product

import pytest
from characters import CHARACTERS
from how_many import one_in
from real_data import real_text_start
from small import spec_of
from split_patterns import nasty_text
from test_native_encoder import INSTRUCTIONS

from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.tokenizer.native_encoder import NativeEncoder
from bpeflow.tokenizer.python_encoder import PythonEncoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS

pytestmark = pytest.mark.usefixtures("native_library")

#: What the pattern distinguishes, and the characters for which the scanner goes another way.
UNITS = [*(" ", "  ", "\t", "\n", "\r\n", "\n/", "\u3000", "\u00a0"), *(".", "--", "/", " .", "—", "…x", "\u0301")]
UNITS += ["a", "bc", "é", "中", "\U0001f600", "1", "12345", "٣", "½½"]


@cache
def spec(seed: int) -> TokenizerSpec:
    merges = [(bytes([left]), bytes([right])) for left, right in product(range(256), repeat=2)]
    random.Random(seed).shuffle(merges)
    return spec_of(merges, "superbpe")


@cache
def native(seed: int, instructions: str) -> NativeEncoder:
    return NativeEncoder(spec(seed), 1 << 20, instructions)


@cache
def python(seed: int) -> PythonEncoder:
    return PythonEncoder(spec(seed))


def assert_same(choose: random.Random, text: str) -> None:
    seed, instructions = choose.randrange(4), choose.choice(INSTRUCTIONS)
    encoder = native(seed, instructions)
    expected = python(seed).encode(text.encode(), NO_SPECIAL_TOKENS)
    equal = encoder.encode(text.encode(), NO_SPECIAL_TOKENS) == expected  # pytest would compare long lists for minutes
    assert equal, (seed, instructions, text[:2000])


def randomness() -> random.Random:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    return random.Random(seed)


def test_random_texts() -> None:
    choose = randomness()
    for _ in range(one_in(1500)):
        assert_same(choose, nasty_text(choose, choose.randrange(300), choose.choice((2, 5, 70))))
        assert_same(choose, "".join(choose.choice(UNITS) for _ in range(choose.randrange(200))))


def test_each_pair_at_each_end_of_a_block() -> None:
    """Blocks have 64 bytes. The text may end anywhere, too."""
    choose = randomness()
    all_of_them = [*product(UNITS, UNITS, ["", "y", "-", "--z", " ", "\n"], range(59, 66))]
    for left, right, end, before in choose.sample(all_of_them, one_in(len(all_of_them))):
        assert_same(choose, "x" * before + left + right + end)


def test_long_gaps_end_where_a_match_begins() -> None:
    choose = random.Random(0)
    for length in [*range(60, 70), 1000, 5000]:
        for stop in ("٣", " --\n/x", "½ --", "٣٣٣٣", "  y", ""):
            assert_same(choose, "12٣" + "word " * length + stop + "word, " * 50 + "1")


@pytest.mark.slow
def test_characters_and_real_text() -> None:
    choose = random.Random(0)
    characters = choose.sample([*CHARACTERS], 20_000)
    assert_same(choose, "".join(f"{one} {one}{one}-" for one in characters))
    for name in ("wiki_150MB", "code_20MB", "multilingual_20MB"):
        assert_same(choose, real_text_start(name, 200_000))
