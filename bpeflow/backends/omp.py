"""The OpenMP backend: C++17, several threads, in `ext/merge/merge_omp.cpp`."""

from __future__ import annotations

import os

from bpeflow.backends.base import MergeTask
from bpeflow.backends.native import NativeBackend, NativeSession


class OmpBackend(NativeBackend):
    """Uses one thread in a forked child of a process that has used several.

    A child of `fork` inherits the memory of OpenMP's thread pool but not its threads, and would wait for them for ever
    in its first parallel region.
    """

    _parallel_in: int | None = None

    def start(self, task: MergeTask) -> NativeSession:
        if self._parallel_in not in (None, os.getpid()):
            return NativeSession(self._library, task, threads=1)
        self._parallel_in = os.getpid()
        return super().start(task)


OMP = OmpBackend("omp", "C++ and OpenMP, several threads")
