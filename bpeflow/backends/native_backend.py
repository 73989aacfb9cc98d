"""The native backends, `c` and `omp`: two libraries with the same functions, called through ctypes."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_uint64
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bpeflow._util import native
from bpeflow._util.packed import PackedBytes
from bpeflow.backends.base import MERGE_DTYPE, EncodedWords, MergeSession, MergeStatistics, MergeTask
from bpeflow.errors import NativeError, NativeUnavailableError

_WAIT_POLICY = "OMP_WAIT_POLICY"

#: How OpenMP threads wait for work: asleep. Active waiting spins. On a machine that is also busy otherwise
#: they keep threads that have work off the cores: with one of two cores busy, a run of 0.43 s took 1.21 s. But waking a
#: thread takes as long as a short list, so with GCC's OpenMP it spins for some 15 µs before it sleeps. On an idle
#: machine with two cores learning is 6 to 10 % faster so. With one or two of them busy no difference could be measured.
#: Ten times that count makes it another 3 % faster on an idle machine, and 9 % slower with one core busy.
_WAITING = {_WAIT_POLICY: "passive", "GOMP_SPINCOUNT": "1000"}

#: The values of `enum bpeflow_order`.
_ORDERS = {"greatest_bytes": 0, "smallest_ids": 1}


class NativeBackend:
    """A backend in a native library, which is loaded on first use.

    Attributes:
        max_strip_positions: upper bound on the positions in a strip (``ext/learn/corpus.h``), which does not affect the
            result; 0 for as many as fit, about 2^32. Tests lower it.
    """

    multithreaded = False
    max_strip_positions = 0

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self._description = description

    def unavailable(self) -> str | None:
        try:
            _ = self.library  # loads it
        except NativeUnavailableError as error:
            return str(error)
        return None

    def describe(self) -> str:
        return self._description

    def start(self, task: MergeTask) -> NativeSession:
        return NativeSession(self, task, task.threads or 0)

    @cached_property
    def library(self) -> ctypes.CDLL:
        return self._load()

    def _load(self) -> ctypes.CDLL:
        return native.load_library(self.name)


class OmpBackend(NativeBackend):
    """The OpenMP backend. It uses a single thread in a forked child of a process that has used several.

    A child of `fork` inherits the memory of OpenMP's thread pool but not its threads, and would wait for these threads
    forever in its first parallel region.
    """

    multithreaded = True
    _parallel_in: ClassVar[int | None] = None  # the id of the process that has used several threads

    def _load(self) -> ctypes.CDLL:
        """Load the library so that its threads wait as `_WAITING` says, unless the user has set a policy.

        The OpenMP runtime reads the environment only once, when it is loaded, so the variables are removed again.
        """
        if _WAIT_POLICY in os.environ:
            return super()._load()
        added = {name: value for name, value in _WAITING.items() if name not in os.environ}
        os.environ.update(added)
        try:
            return super()._load()
        finally:
            for name in added:
                os.environ.pop(name, None)

    def start(self, task: MergeTask) -> NativeSession:
        if self._parallel_in not in (None, os.getpid()):
            return NativeSession(self, task, 1)
        OmpBackend._parallel_in = os.getpid()
        return super().start(task)


C = NativeBackend("c", "C, one thread")
OMP = OmpBackend("omp", "C++ and OpenMP, several threads")


class NativeSession(MergeSession):
    """A task in progress. The native learner is freed by `close` or when the session is garbage-collected."""

    def __init__(self, backend: NativeBackend, task: MergeTask, threads: int) -> None:
        self._name, self._library = backend.name, backend.library
        native_task, _borrowed = _native_task(task, threads, backend.max_strip_positions)
        self._handle = native.Handle(self._library, "learner", byref(native_task))
        self._last_statistics = self._read_statistics()

    def step(self, max_merges: int) -> NDArray[np.void]:
        records = np.empty(max_merges, dtype=MERGE_DTYPE)
        learned = c_uint64()
        self._library.bpeflow_learner_step(self._open_handle(), max_merges, records.ctypes.data, byref(learned))
        return records[: learned.value]

    def statistics(self) -> MergeStatistics:
        if self._handle:
            self._last_statistics = self._read_statistics()
        return self._last_statistics

    def close(self) -> None:
        self.statistics()
        self._handle.free()

    def _open_handle(self) -> native.Handle:
        if not self._handle:
            raise NativeError("this merge session is closed")
        return self._handle

    def _read_statistics(self) -> MergeStatistics:
        read = native.MergeStatistics()
        self._library.bpeflow_learner_statistics(self._open_handle(), byref(read))
        return MergeStatistics(self._name, **{name: getattr(read, name) for name, _ in read._fields_})


def _native_task(
    task: MergeTask, threads: int, max_strip_positions: int
) -> tuple[native.MergeTask, list[NDArray[Any]]]:
    """Return the task as the header's struct, and the arrays that it points into, which must outlive the call."""
    words, tokens = task.counts, PackedBytes.of(task.tokens)
    units = {"ids": words.ids} if isinstance(words, EncodedWords) else {"data": words.data}
    arrays: dict[str, NDArray[Any]] = {
        **{name: np.ascontiguousarray(array) for name, array in units.items()},
        "offsets": np.ascontiguousarray(words.offsets),
        "counts": np.ascontiguousarray(words.counts),
        "token_data": np.frombuffer(tokens.data, dtype=np.uint8),
        "token_offsets": tokens.offsets,
        "byte_ids": np.array(task.byte_ids, dtype=np.uint32),
    }
    native_task = native.MergeTask(
        **{name: array.ctypes.data for name, array in arrays.items()},
        words=len(words),
        tokens=len(tokens),
        max_tokens=task.max_tokens,
        min_frequency=task.min_frequency,
        max_token_length=task.max_token_length or 0,
        max_words=task.max_words or 0,
        order=_ORDERS[task.order],
        reuse_tokens=task.reuse_tokens,
        scan=task.max_search == "scan",
        threads=threads,
        colon_rule=task.colon_rule,
        max_strip_positions=max_strip_positions,
    )
    return native_task, list(arrays.values())
