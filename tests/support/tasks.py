"""Random tasks for backends, and the comparison of their merges with the naive recount."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import strategies as st
from oracle import Merge, naive_merges

from bpeflow.backends.base import MergeBackend, MergeTask
from bpeflow.backends.native_backend import NativeBackend
from bpeflow.counting.counts import PretokenCounts

BYTES = tuple(bytes([byte]) for byte in range(256))


def make_task(words: dict[bytes, int], merges: int, **options: object) -> MergeTask:
    counts = PretokenCounts.from_mapping(words)
    task = MergeTask(counts, tokens=BYTES, byte_ids=tuple(range(256)), max_tokens=256 + merges)
    return replace(task, **options)  # type: ignore[arg-type]


def with_specials(task: MergeTask, specials: tuple[bytes, ...]) -> MergeTask:
    """Put special tokens before the bytes, and let merges reuse them, as HuggingFace does."""
    shift = len(specials)
    return replace(
        task,
        tokens=specials + BYTES,
        byte_ids=tuple(range(shift, shift + 256)),
        max_tokens=task.max_tokens + shift,
        reuse_tokens=True,
    )


def with_strips(backend: NativeBackend, positions: int) -> NativeBackend:
    """Return the backend with strips of at most this many positions, but of at least one pre-token."""
    divided = copy.copy(backend)
    divided.max_strip_positions = positions
    return divided


def learn(backend: MergeBackend, task: MergeTask, step: int = 1000) -> list[Merge]:
    with backend.start(task) as session:
        learned: list[Merge] = []
        while True:
            records = session.step(step).tolist()
            learned.extend(records)
            if len(records) < step:
                return learned


def assert_equal_to_the_naive_recount(backends: Iterable[MergeBackend], task: MergeTask, step: int = 1000) -> None:
    """Compare every backend with the naive recount, which is done only once because it takes longest."""
    expected = naive_merges(task)
    for backend in backends:
        assert learn(backend, task, step) == expected, (backend.name, vars(backend))


# Small alphabets, periodic words and equal counts make overlapping occurrences and ties likely. The last ones have the
# bytes of U+00A0, U+0085, U+2003, U+2028 and U+3000, white space of Unicode, and of characters that are none.
letters = st.sampled_from(
    [
        b"a", b"ab", b"a ", b"a: \n", b"abc", b"\x00\xff", bytes(range(97, 123)),
        b"a \x1d\xc2\xa0\x85", b"a\xe2\x80\x83\xa8", b"a\xe2\x80\xa8\xe3\xed\xf0",
    ]
)  # fmt: skip
periodic = st.builds(lambda unit, times: unit * times, st.binary(min_size=1, max_size=3), st.integers(1, 12))


@st.composite
def words(draw: st.DrawFn) -> dict[bytes, int]:
    alphabet = draw(letters)
    word = st.lists(st.sampled_from(alphabet), min_size=1, max_size=14).map(bytes)
    repeated = st.builds(lambda unit, times: unit[:3] * times, word, st.integers(1, 8))
    counts = draw(st.sampled_from([st.just(1), st.integers(1, 3), st.integers(1, 2**40)]))
    return draw(st.dictionaries(st.one_of(word, repeated, periodic), counts, max_size=10))


options = st.fixed_dictionaries(
    {
        "order": st.sampled_from(["greatest_bytes", "smallest_ids"]),
        "min_frequency": st.sampled_from([1, 1, 2, 5]),
        "max_token_length": st.sampled_from([None, None, 1, 2, 3, 5]),
        "max_words": st.sampled_from([None, None, 1, 2]),
        "colon_rule": st.sampled_from([False, False, True]),
        "max_search": st.sampled_from(["heap", "scan"]),
        "threads": st.sampled_from([1, 2, 3, 4, 7]),
    }
)
colliding = st.lists(
    st.sampled_from([b"", b"ab", b"aa", b"aab", b"abab", b"ba", b"bc", b"aaaa"]), max_size=4, unique=True
).map(tuple)

# The same as settings. No merge can yield "a b", because it contains a space. "Āÿ" is the printable form of two bytes.
tie_breaks = st.sampled_from(["greatest_bytes", "smallest_ids", "huggingface"])
special_tokens = st.lists(
    st.sampled_from(["<|endoftext|>", "ab", "aa", "aab", "abab", "a b", "Āÿ", "ba"]), max_size=3, unique=True
).map(tuple)
limits = st.fixed_dictionaries(
    {"min_frequency": st.sampled_from([1, 1, 2, 5]), "max_token_length": st.sampled_from([None, None, 2, 3, 5])}
)
