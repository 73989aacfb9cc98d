"""The crash matrix of memory: native code without memory reports that, and does not crash.

Each script gets its data ready, and then runs into a limit of its address space (RLIMIT_AS).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from available import skip_missing

from bpeflow.backends import BACKENDS
from bpeflow.pretokenize.native import why_regex
from bpeflow.pretokenize.regex import load_pretokenizer

_PRELUDE = """
import random, resource, sys, tempfile
from pathlib import Path

def counts(words):
    from bpeflow.counting.counts import PretokenCounts
    choose = random.Random(1)
    return PretokenCounts.from_mapping({b"w%x" % choose.randrange(2**48): choose.randrange(1, 9) for _ in range(words)})

def fails_until_there_is_enough(work):
    more = 0
    while True:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, resource.RLIM_INFINITY))
        try:
            work()
            break
        except MemoryError as error:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            print(error)
        more = more * 5 // 4 + 500_000
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""

SCRIPTS = {
    "counting table": """
from bpeflow.counting.table import NativeTable
NativeTable().count(b"low")
text = " ".join(f"w{number:x}" for number in range(300_000)).encode()
fails_until_there_is_enough(lambda: NativeTable().count(text))
""",
    "k-way sum": """
from bpeflow.counting.merger import NativeSum
from bpeflow.counting.shards import Shard
folder = tempfile.TemporaryDirectory()
shard = Shard.pack([(b"%08x" % number, 1) for number in range(300_000)], Path(folder.name) / "shard")
parts = [shard.select(range(number, number + 1)) for number in shard.partitions]
def total(parts):
    NativeSum(parts, 1 << 20).counts()
total(parts[:0])
fails_until_there_is_enough(lambda: total(parts))
""",
    "backend": """
from bpeflow.backends import choose_backend
from bpeflow.config import MergeSettings, make_settings
from bpeflow.training.task import learning_task
settings = make_settings(MergeSettings, {"vocab_size": 2000, "threads": 2})
task = learning_task(counts(100_000), settings)
backend = choose_backend(sys.argv[1])
def learn():
    with backend.start(task) as session:
        session.step(2000)
learn()  # starts OpenMP's threads: libgomp ends the process if it gets none
fails_until_there_is_enough(learn)
""",
    "encoder": """
import numpy as np
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS
bytes_only = {byte: bytes([byte]) for byte in range(256)}
Tokenizer(bytes_only, []).encode("low")
text = " ".join(f"w{number:x}" for number in range(500_000)).encode()
def encode():  # with a new cache, which reserves its memory at the start
    Tokenizer(bytes_only, [])._encoder.encode_to_array(text, NO_SPECIAL_TOKENS, np.dtype(np.uint16))
fails_until_there_is_enough(encode)
""",
}


def run(script: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PRELUDE + script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"MALLOC_ARENA_MAX": "1"},  # glibc would take memory that it has reserved for other threads
    )
    assert done.returncode == 0, done.stderr
    assert "out of memory (in bpeflow_" in done.stdout


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc for the size of a process")
@pytest.mark.parametrize("what", ["counting table", "k-way sum", "encoder"])
def test_native_code_without_memory_is_an_error(what: str) -> None:
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    run(SCRIPTS[what])


@pytest.mark.parametrize("name", ["c", "omp"])
def test_a_native_backend_without_memory_is_an_error(name: str) -> None:
    [backend] = [backend for backend in BACKENDS if backend.name == name]
    skip_missing(name, backend.unavailable())
    run(SCRIPTS["backend"], name)
