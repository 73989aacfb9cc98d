"""The OpenMP backend: C++17, several threads, in `ext/learn/learn_omp.cpp`."""

from __future__ import annotations

import os
from ctypes import CDLL

from bpeflow.backends.base import MergeTask
from bpeflow.backends.native import NativeBackend, NativeSession

#: How threads wait for work: active ones spin. On a machine that does something else, too, those that spin keep those
#: that have work off their cores: with one of two cores busy a run of 0.43 s took 1.21 s. On an idle one it makes no
#: difference that could be told from noise.
_WAIT_POLICY = "OMP_WAIT_POLICY"


class OmpBackend(NativeBackend):
    """Uses one thread in a forked child of a process that has used several.

    A child of `fork` inherits the memory of OpenMP's thread pool but not its threads, and would wait for them for ever
    in its first parallel region.
    """

    several_threads = True
    _parallel_in: int | None = None

    def _load(self) -> CDLL:
        """Load the library so that its threads wait passively, unless the user has said otherwise.

        The OpenMP runtime reads the environment once, when it is loaded, which is the last we see of the variable.
        """
        if _WAIT_POLICY in os.environ:
            return super()._load()
        os.environ[_WAIT_POLICY] = "passive"
        try:
            return super()._load()
        finally:
            os.environ.pop(_WAIT_POLICY, None)

    def start(self, task: MergeTask) -> NativeSession:
        if self._parallel_in not in (None, os.getpid()):
            return NativeSession(self._library, task, threads=1)
        self._parallel_in = os.getpid()
        return super().start(task)


OMP = OmpBackend("omp", "C++ and OpenMP, several threads")
