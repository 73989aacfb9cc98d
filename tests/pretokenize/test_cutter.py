"""Safe cuts keep the pre-tokens of texts, with every compiled pattern and every policy."""

from __future__ import annotations

import pickle
import random
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise

import pytest
from adversarial import adversarial_text
from hypothesis import given, settings
from hypothesis import strategies as st
from normalized_text import NORMALIZERS, changed_text
from split_patterns import HOT, SPLIT_PATTERNS, nasty_text, random_pattern

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.errors import PatternError
from bpeflow.pretokenize.cutter import LOOK_AHEAD, LOOK_BEHIND, Cutter, NativeCutter, PythonCutter, load_cutter
from bpeflow.pretokenize.normalizer import load_normalizer
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.published import DEEPSEEK_V3
from bpeflow.pretokenize.regex import load_pretokenizer

SEQUENCES = [
    DEEPSEEK_V3,
    (SPLIT_PATTERNS["starcoder_digits"], "gpt2"),
    (SPLIT_PATTERNS["falcon_punctuation"], "gpt2", "[0-9][0-9][0-9]"),
    (r"\p{N}{1,3}", SPLIT_PATTERNS["superbpe_second"]),
    (r"\s", r"[\s\S]"),
]
PATTERNS: list[str | tuple[str, ...]] = [*SPLIT_PATTERNS.values(), *SEQUENCES]
any_pattern = st.sampled_from(PATTERNS)
policies = st.sampled_from(["isolate", "drop"])

some_bytes = st.lists(
    st.sampled_from([character.encode() for character in HOT])
    | st.sampled_from([b"\x80", b"\xbf", b"\xc2", b"\xe1", b"\xe2\x80", b"\xe3\x80", b"\xe6\x97", b"\xf0\x90", b"\xff"])
    | st.sampled_from(
        [b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xf5", b"\xc0\x80", b"\xf8\x80\x80\x80\x80"]
    ),
    max_size=24,
).map(b"".join)


@cache
def cutter(
    pattern: str | tuple[str, ...], unmatched: UnmatchedPolicy = "isolate", normalizer: tuple[str, ...] = ()
) -> PairCutter:
    pretokenizer = load_pretokenizer(pattern, unmatched, normalizer)
    return PairCutter(pretokenizer.automaton(), unmatched, bool(normalizer))


def cuts_of(found: Cutter, data: bytes) -> list[int]:
    cuts, start = [], 0
    while (cut := found.find_cut(data, start)) is not None:
        cuts.append(cut)
        start = cut + 1
    return cuts


def assert_cuts_keep_the_pretokens(
    pattern: str | tuple[str, ...], unmatched: UnmatchedPolicy, data: bytes, normalizer: tuple[str, ...] = ()
) -> None:
    pretokens = load_pretokenizer(pattern, unmatched).pretokens
    normalize = load_normalizer(normalizer)
    text = data.decode(errors="replace")
    whole = pretokens(normalize(text))
    for cut in cuts_of(cutter(pattern, unmatched, normalizer), data):
        left, right = data[:cut].decode(errors="replace"), data[cut:].decode(errors="replace")
        assert left + right == text
        assert normalize(left) + normalize(right) == normalize(text)
        assert pretokens(normalize(left)) + pretokens(normalize(right)) == whole


@settings(max_examples=300)
@given(
    pattern=any_pattern,
    unmatched=policies,
    data=st.text(st.sampled_from(HOT), max_size=25).map(str.encode) | some_bytes,
)
def test_every_cut_keeps_the_pretokens(pattern: str | tuple[str, ...], unmatched: UnmatchedPolicy, data: bytes) -> None:
    assert_cuts_keep_the_pretokens(pattern, unmatched, data)


@settings(max_examples=300)
@given(pattern=any_pattern, normalizer=st.sampled_from(NORMALIZERS), unmatched=policies, data=st.data())
def test_every_cut_keeps_the_pretokens_of_normalized_text(
    pattern: str | tuple[str, ...], normalizer: tuple[str, ...], unmatched: UnmatchedPolicy, data: st.DataObject
) -> None:
    texts = (adversarial_text | changed_text | st.text(st.sampled_from(HOT), max_size=25)).map(str.encode)
    assert_cuts_keep_the_pretokens(pattern, unmatched, data.draw(texts | some_bytes), normalizer)


@pytest.mark.slow
def test_cuts_of_random_sequences_keep_the_pretokens() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    chance = random.Random(seed)
    tried = 0
    while tried < 25:
        steps = tuple(random_pattern(chance, 1) for _ in range(chance.choice((2, 3))))
        try:
            load_pretokenizer(steps).automaton()
        except (UnsupportedPattern, PatternError):
            continue
        tried += 1
        for _ in range(20):
            for unmatched in ("isolate", "drop"):
                assert_cuts_keep_the_pretokens(steps, unmatched, nasty_text(chance, chance.randrange(12)).encode())


@given(pattern=any_pattern, data=some_bytes)
def test_a_cut_depends_only_on_the_documented_number_of_bytes(pattern: str | tuple[str, ...], data: bytes) -> None:
    allowed = cuts_of(cutter(pattern), data)
    for position in range(1, len(data)):
        start = max(position - LOOK_BEHIND, 0)
        window = data[start : position + LOOK_AHEAD]
        assert (cutter(pattern).find_cut(window, position - start) == position - start) == (position in allowed)
    assert cutter(pattern).find_last_cut(data) == (allowed[-1] if allowed else None)


@pytest.mark.parametrize("name", NAMED_PATTERNS)
def test_cuts_by_pairs_include_the_rules(name: str) -> None:
    """Every place that the rules of a named pattern allow, between characters of all kinds, is found by pairs, too."""
    rules = re.compile(NAMED_PATTERNS[name].cut)
    found = NativeCutter(load_pretokenizer(name))
    kinds = HOT + "asStlreZ1²'/!-.<=>の。「，’…—５一龥가힣éД\u093e\u200b"
    others = [*map(chr, range(128)), *(chr(code) for code in range(0x80, 0x10000, 97) if not 0xD800 <= code < 0xE000)]
    for one in kinds:
        for other in [*kinds, *others]:
            for x, w in ((one, other), (other, one)):
                data, position = (x + w).encode(), len(x.encode())
                if rules.match(data, position):
                    assert found.find_cut(data, position) == position, (x, w)


def test_a_pattern_that_is_not_compiled_has_no_cutter() -> None:
    assert load_cutter(load_pretokenizer(r"\b\w+|\W|\w")) is None


@pytest.mark.parametrize(
    ("pattern", "unmatched", "text"),  # | marks each cut
    [
        (r"\w+|\W", "isolate", "one| |two|,| |3"),
        (r"\w+", "isolate", "one| |two|, |3"),
        (r"\w+", "drop", "one| |two|,| |3"),
        (SPLIT_PATTERNS["kimi_k2"], "isolate", "中文|abc| def|,| x|\n|y"),
        ((r"\d", r"\w+"), "isolate", "ab|1|2|cd|, |x"),
        ("[a-z]+|[A-Z]+|.", "isolate", "ab|CD|.|.|é|e"),
    ],
)
def test_positions_of_cuts(pattern: str, unmatched: UnmatchedPolicy, text: str) -> None:
    data = text.replace("|", "").encode()
    cuts = [0, *cuts_of(cutter(pattern, unmatched), data), len(data)]
    assert "|".join(data[start:end].decode() for start, end in pairwise(cuts)) == text


def test_a_letter_that_can_be_composed_is_not_cut_off_where_that_changes_its_kind() -> None:
    pattern = "[ae]+|[^ae]"  # normalizing may make é of the e
    assert cuts_of(cutter(pattern), b"-e") == [1]
    assert cuts_of(cutter(pattern, "isolate", ("nfc",)), b"-e") == [1]
    assert cuts_of(cutter("[ae]+|[é-]+", "isolate"), b"-e") == [1]
    assert cuts_of(cutter("[ae]+|[é-]+", "isolate", ("nfc",)), b"-e") == []


# ---- what travels to other processes


def test_the_tables_travel_with_the_pretokenizer() -> None:
    pretokenizer = load_pretokenizer(SPLIT_PATTERNS["tekken"])
    pretokenizer.automaton()
    pickled = pickle.dumps([pretokenizer, load_pretokenizer([r"\d", r"\w+"], "drop", ["nfc"])])
    assert 10_000 < len(pickled) < 40_000
    program = """
import pickle, sys
tekken, sequence = pickle.loads(sys.stdin.buffer.read())
from bpeflow.pretokenize.cutter import load_cutter
print(load_cutter(tekken).find_cut(b"one two", 1), len(tekken.automaton().steps), sequence.unmatched, sequence.regex)
"""
    result = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, check=True)
    assert result.stdout.decode() == "3 1 drop ('\\\\d', '\\\\w+')\n"


def test_another_process_never_asks_the_regex_module() -> None:
    pretokenizer = load_pretokenizer([r"\p{L}+", r"\s"], "drop")
    pretokenizer.automaton()
    refused = load_pretokenizer(r"\b\w+|\W")
    with pytest.raises(UnsupportedPattern):
        refused.automaton()
    program = """
import pickle, sys
sys.modules["regex"] = None
compiled, refused = pickle.loads(sys.stdin.buffer.read())
from bpeflow.pretokenize.cutter import load_cutter
print(load_cutter(compiled).find_cut(b"one two", 1), load_cutter(refused))
"""
    pickled = pickle.dumps([pretokenizer, refused])
    result = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, check=True)
    assert result.stdout.decode() == "3 None\n"
