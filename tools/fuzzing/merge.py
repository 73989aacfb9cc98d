"""Learning merges: every backend learns the same merges as the naive recount of the tests, for any task and steps."""

from __future__ import annotations

import copy
from typing import Any

from oracle import naive_merges  # type: ignore[import-not-found]  # in tests/support

from bpeflow.backends import BACKENDS
from bpeflow.backends.base import EncodedWords, MergeBackend, MergeTask
from bpeflow.backends.native_backend import NativeBackend
from bpeflow.backends.python_backend import PythonBackend
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import CountOverflowError, NativeError
from bpeflow.training.task import after_merges
from bpeflow.vocab import Merge
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
    alphabet = choices.one_of(_ALPHABETS)
    initial = _make_initial_merges(choices, alphabet) if choices.flag() else []
    counts = PretokenCounts.from_mapping(_make_words(choices, alphabet))
    task = _make_task(choices, counts, len(initial))
    rest = after_merges(task, counts, initial)
    if unknown_token and isinstance(rest.counts, EncodedWords):
        rest.counts.ids[choices.below(len(rest.counts.ids))] = 2**32 - 1 - choices.below(2**16)
    case = f"{native.name}, strips of {native.max_strip_positions}, steps {steps}: {dict(counts)}, {initial}, {task}"
    learned = outcome((CountOverflowError, NativeError), _learn, native, rest, steps)
    if unknown_token and isinstance(rest.counts, EncodedWords):
        must_equal(f"an unknown token: {case}", learned, REFUSED)
        return
    python = outcome((CountOverflowError,), _learn, PythonBackend(), rest, steps)
    must_equal(case, learned, python)
    if python != REFUSED:
        numbers = {token: number for number, token in reversed([*enumerate(rest.tokens)])}
        replayed = naive_merges(task, [(numbers[left], numbers[right]) for left, right in initial])
        must_equal(f"python, {case}", python, replayed[len(initial) :])


def _learn(backend: MergeBackend, task: MergeTask, steps: list[int]) -> list[Any]:
    with backend.start(task) as session:
        return [merge for step in steps for merge in session.step(step).tolist()]


def _make_task(choices: Choices, counts: PretokenCounts, initial: int) -> MergeTask:
    reuse_tokens = choices.flag()
    specials = tuple(dict.fromkeys(choices.one_of(_SPECIALS) for _ in range(choices.below(4)))) if reuse_tokens else ()
    tokens, first = specials + _BYTES, len(specials)
    return MergeTask(
        counts=counts,
        tokens=tokens,
        byte_ids=tuple(range(first, first + 256)),
        max_tokens=len(tokens) + initial + choices.below(_MAX_MERGES),
        order=choices.one_of(("greatest_bytes", "smallest_ids")),
        reuse_tokens=reuse_tokens,
        min_frequency=choices.one_of((1, 1, 2, 5)),
        max_token_length=choices.one_of((None, None, 1, 2, 3, 5)),
        max_words=choices.one_of((None, None, 1, 2)),
        colon_rule=choices.flag(),
        max_search=choices.one_of(("heap", "scan")),
        threads=choices.below(4) + 1,
    )


def _make_initial_merges(choices: Choices, alphabet: bytes) -> list[Merge]:
    """Make merges of letters and of earlier merges, in any order, including many that counts would never lead to."""
    merges: list[Merge] = []
    known = [bytes([byte]) for byte in alphabet[:3]]
    for _ in range(choices.below(12)):
        left, right = choices.one_of(known), choices.one_of(known)
        if left + right not in known:
            merges.append((left, right))
            known.append(left + right)
    return merges


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
