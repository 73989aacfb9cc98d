"""The C backend: one thread, C11, in `ext/learn/learn.c`."""

from __future__ import annotations

from bpeflow.backends.native import NativeBackend

C = NativeBackend("c", "C, one thread")
