"""Long pre-tokens are merged by rank, too: those in which a merge applies in many places, and all others."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_vocabularies import merge_as_defined

from bpeflow import Tokenizer, Vocab

pytestmark = pytest.mark.usefixtures("native_library")


@pytest.mark.slow
@settings(max_examples=50)
@example(seed=0, unit="-", noise=0.0, length=400, swapped=False)
@given(
    seed=st.integers(0, 2**32),
    unit=st.sampled_from(["a", "ab", "aab", "abc", "abcdabce", "é"]),
    noise=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    length=st.integers(120, 400),
    swapped=st.booleans(),
)
def test_long_pretokens_are_merged_by_rank(seed: int, unit: str, noise: float, length: int, swapped: bool) -> None:
    """With `swapped`, a merge has a lower rank than one that makes a part of it, as no training yields."""
    choose = random.Random(seed)
    letters = sorted(set(unit) | {"a", "b"})
    text = "".join(choose.choice(letters) if choose.random() < noise else unit[i % len(unit)] for i in range(length))
    known = [bytes([byte]) for byte in sorted(set("".join(letters).encode()))]
    merges: dict[bytes, tuple[bytes, bytes]] = {}
    for _ in range(choose.randrange(2, 40)):
        pair = choose.choice(known), choose.choice(known)
        if b"".join(pair) not in known:
            merges[b"".join(pair)] = pair
            known.append(b"".join(pair))
    ordered = list(merges.values())
    if swapped and len(ordered) > 1:
        ordered[0], ordered[-1] = ordered[-1], ordered[0]
    tokens = (*(bytes([byte]) for byte in range(256)), *(left + right for left, right in ordered))
    vocab = Vocab(tokens, {}, tuple(ordered))
    tokenizer = Tokenizer(vocab, ordered, pattern=r"[\s\S]+", encoder="native")
    assert tokenizer.encode(text) == merge_as_defined(text.encode(), tokenizer.to_spec())
