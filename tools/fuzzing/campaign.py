"""Fuzz one target for some time in a separate process, or run it on one input."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzzing.build import FOLDER, ROOT

#: The largest input in bytes. With more, the specification takes most of the time; with less, no repetition is longer
#: than a block.
_MAX_LENGTH = 700
#: Seconds allowed for one input, which normally takes milliseconds, and for a process beyond its fuzzing time.
_TIMEOUT, _GRACE = 60, 120

_PROGRESS = re.compile(r"^#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """The result of a fuzzing session.

    Attributes:
        inputs: the number of inputs that were run.
        edges: the covered edges of the native code at the start (with the existing corpus) and at the end.
        corpus: the number of inputs that are kept, since each reaches code that the others do not.
        found: the input of the finding, if any.
        output: the output of the process.
        status: the exit status of the process.
    """

    inputs: int
    edges: tuple[int, int]
    corpus: int
    found: Path | None
    output: str
    status: int

    @property
    def guided(self) -> bool:
        """Whether libFuzzer saw the coverage of the native code."""
        return self.edges[1] > 0


def fuzz(target: str, libraries: Path, runtime: Path, seconds: int, seed: int) -> Result:
    """Fuzz a target, starting from its existing corpus."""
    corpus, findings = FOLDER / "corpus" / target, FOLDER / "findings"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    _sow(corpus)
    return _run(
        target,
        libraries,
        runtime,
        [
            str(corpus),
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            f"-max_len={_MAX_LENGTH}",
            f"-artifact_prefix={findings}/{target}-",
            "-print_final_stats=1",
        ],
        seconds + _GRACE,
    )


def run_input(target: str, libraries: Path, runtime: Path, path: Path) -> Result:
    """Run a target on one input."""
    return _run(target, libraries, runtime, [str(path.absolute())], _GRACE)


def _sow(corpus: Path) -> None:
    """Add a few fixed inputs of various lengths to an empty corpus, which otherwise would grow slowly."""
    if not any(corpus.iterdir()):
        source = random.Random(1)
        for number in range(64):
            (corpus / f"seed-{number:02}").write_bytes(source.randbytes(4 * number))


def _run(target: str, libraries: Path, runtime: Path, options: Sequence[str], limit: int) -> Result:
    command = [sys.executable, "-m", "fuzzing.worker", target, f"-timeout={_TIMEOUT}", "-rss_limit_mb=3000", *options]
    # With malloc as Python's allocator, AddressSanitizer also puts red zones around Python's own bytes.
    environment = os.environ | {
        "LD_PRELOAD": str(runtime),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("tools", "tests/support", ".")),
        "BPEFLOW_LIBRARY_PATH": str(libraries),
    }
    environment.pop("BPEFLOW_INSTRUCTIONS", None)
    if symbolizer := _symbolizer():
        environment["ASAN_SYMBOLIZER_PATH"] = symbolizer
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
            check=False,
        )
        output, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = (error.stdout or b"").decode(errors="replace") + f"\nstill running after {limit} s", 1
    return _read(output, status)


def _symbolizer() -> str | None:
    """Return the program that maps addresses to source lines. Debian installs it outside of PATH."""
    installed = sorted(Path("/usr/lib").glob("llvm-*/bin/llvm-symbolizer"))
    return shutil.which("llvm-symbolizer") or (str(installed[-1]) if installed else None)


def _read(output: str, status: int) -> Result:
    progress = [tuple(map(int, match)) for match in _PROGRESS.findall(output)] or [(0, 0, 0, 0)]
    found = re.search(r"Test unit written to (\S+)", output)
    executed = re.search(r"stat::number_of_executed_units:\s+(\d+)", output)
    return Result(
        inputs=int(executed[1]) if executed else progress[-1][0],
        edges=(progress[0][1], progress[-1][1]),
        corpus=progress[-1][3],
        found=Path(found[1]) if found else None,
        output=output,
        status=status,
    )
