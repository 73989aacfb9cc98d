"""Learning merges: every backend learns the same merges as the naive recount of the tests, for any task and steps."""

from __future__ import annotations

import copy
from typing import Any

from oracle import naive_merges  # type: ignore[import-not-found]  # in tests/support

from bpeflow.backends import BACKENDS
from bpeflow.backends.base import MergeBackend, MergeTask
from bpeflow.backends.native_backend import NativeBackend
from bpeflow.backends.python_backend import PythonBackend
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import CountOverflowError, NativeError
from fuzzing.choices import Choices
from fuzzing.difference import REFUSED, must_equal, outcome

_BYTES = tuple(bytes([byte]) for byte in range(256))
_ALPHABETS = (b"a", b"ab", b"a ", b"a: ", b"abc", b"\x00\xff", bytes(range(97, 123)))
#: Tokens that merges of few letters can also make, and one that no merge can make.
_SPECIALS = (b"", b"ab", b"aa", b"aab", b"abab", b"ba", b"aaaa")
#: Upper bounds of the text and the merges. The time of the recount is proportional to both.
_MAX_BYTES, _MAX_MERGES = 600, 48


def check(data: bytes) -> None:
    choices = Choices(data)
    steps = [choices.below(5) + 1 for _ in range(choices.below(4))] + [1000]
    # Only one of the native backends: testing both would take twice the time.
    native = copy.copy(choices.one_of([backend for backend in BACKENDS if isinstance(backend, NativeBackend)]))
    native.max_strip_positions = choices.one_of((0, 1, 8, 40))
    unknown_token = choices.below(16) == 15
    task = _make_task(choices, unknown_token)
    case = f"{native.name}, strips of {native.max_strip_positions}, steps {steps}: {list(task.counts.items())}, {task}"
    learned = outcome((CountOverflowError, NativeError), _learn, native, task, steps)
    if unknown_token:
        must_equal(f"an initial merge of an unknown token: {case}", learned, REFUSED)
        return
    python = outcome((CountOverflowError,), _learn, PythonBackend(), task, steps)
    must_equal(case, learned, python)
    if python != REFUSED:
        must_equal(f"python, {case}", python, naive_merges(task))


def _learn(backend: MergeBackend, task: MergeTask, steps: list[int]) -> list[Any]:
    with backend.start(task) as session:
        return [merge for step in steps for merge in session.step(step).tolist()]


def _make_task(choices: Choices, unknown_token: bool) -> MergeTask:
    specials = tuple(dict.fromkeys(choices.one_of(_SPECIALS) for _ in range(choices.below(4))))
    tokens, first = specials + _BYTES, len(specials)
    reuse_tokens, alphabet = choices.flag(), choices.one_of(_ALPHABETS)
    initial: list[tuple[int, int]] = []
    if choices.flag():
        initial = _make_initial_merges(choices, list(tokens), [first + byte for byte in alphabet[:3]], reuse_tokens)
    if unknown_token:
        initial.insert(choices.below(len(initial) + 1), (first + 97, 2**32 - 1 - choices.below(2**16)))
    return MergeTask(
        tokens=tokens,
        byte_ids=tuple(range(first, first + 256)),
        max_tokens=len(tokens) + len(initial) + choices.below(_MAX_MERGES),
        order=choices.one_of(("greatest_bytes", "smallest_ids")),
        reuse_tokens=reuse_tokens,
        min_frequency=choices.one_of((1, 1, 2, 5)),
        max_token_length=choices.one_of((None, None, 1, 2, 3, 5)),
        max_words=choices.one_of((None, None, 1, 2)),
        colon_rule=choices.flag(),
        max_search=choices.one_of(("heap", "scan")),
        threads=choices.below(4) + 1,
        initial_merges=tuple(initial),
        counts=PretokenCounts.from_mapping(_make_words(choices, alphabet)),
    )


def _make_initial_merges(
    choices: Choices, tokens: list[bytes], known: list[int], reuse_tokens: bool
) -> list[tuple[int, int]]:
    """Make merges of letters and of earlier merges, in any order, including many that counts would never lead to."""
    pairs: list[tuple[int, int]] = []
    for _ in range(choices.below(12)):
        left, right = pair = choices.one_of(known), choices.one_of(known)
        if pair in pairs:
            continue
        pairs.append(pair)
        made = tokens[left] + tokens[right]
        token = tokens.index(made) if reuse_tokens and made in tokens else len(tokens)
        if token == len(tokens):
            tokens.append(made)
        known.append(token)
    return pairs


def _make_words(choices: Choices, alphabet: bytes) -> dict[bytes, int]:
    """Make words of few letters, some of them repeated, with counts that often tie and sometimes are enormous."""
    words: dict[bytes, int] = {}
    room = _MAX_BYTES
    while choices.left and room > 0:
        shape = choices.below(256)
        unit = bytes(choices.one_of(alphabet) for _ in range(shape % 8 + 1))
        word = (unit * (1 if shape < 128 else choices.below(80) + 1))[:room]
        words[word] = choices.count() if choices.flag() else 1
        room -= len(word)
    return words
