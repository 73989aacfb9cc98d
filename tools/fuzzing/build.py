"""The requirements of fuzzing: native libraries built by Clang for libFuzzer, and atheris, which contains libFuzzer."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "fuzz"

#: Common names of Clang. Any version works, if the runtimes of its sanitizers are installed.
_CLANGS = ("clang", *(f"clang-{version}" for version in range(22, 12, -1)))


class MissingToolError(Exception):
    """A requirement of fuzzing is not installed. The message says how to install it."""


def runtime() -> Path:
    """Return the library with libFuzzer and AddressSanitizer, to preload. Raises `MissingToolError`."""
    spec = importlib.util.find_spec("atheris")
    path = Path(spec.origin or "").parents[1] / "asan_with_fuzzer.so" if spec else None
    if path is None or not path.is_file():
        raise MissingToolError(
            "atheris is missing: pip install 'bpeflow[fuzz]' (Linux only; see PyPI for Python versions)"
        )
    return path


def build() -> Path:
    """Build the libraries, as far as sources have changed, and return their folder.

    Raises:
        MissingToolError: if a requirement is not installed.
        SystemExit: if the build fails, with the compiler's output.
    """
    clang = _find_clang()
    cmake = _find("cmake", "apt install cmake, or pip install cmake")
    libraries = FOLDER / "libraries"
    compilers = [f"-DCMAKE_C_COMPILER={clang}", f"-DCMAKE_CXX_COMPILER={clang.replace('clang', 'clang++')}"]
    options = ["-DBPEFLOW_SANITIZE=address,undefined", "-DBPEFLOW_FUZZ=ON", "-DBPEFLOW_PARALLEL_THRESHOLD=1"]
    _run([cmake, "-S", str(ROOT), "-B", str(libraries), *compilers, *options])
    _run([cmake, "--build", str(libraries), "--parallel", "2"])
    for name in ("count", "c", "omp", "encode"):
        if not (libraries / f"libbpeflow_{name}.so").is_file():
            raise MissingToolError(f"libbpeflow_{name} was not built: {libraries}/build.json gives the reason")
    return libraries


def _find_clang() -> str:
    """Return the name of the newest Clang that also has a C++ compiler; the one in CC has precedence."""
    named = os.environ.get("CC", "")
    for name in (named, *_CLANGS) if "clang" in Path(named).name else _CLANGS:
        if shutil.which(name) and shutil.which(name.replace("clang", "clang++")):
            return name
    raise MissingToolError(
        "Clang is missing: apt install clang libclang-rt-dev libomp-dev (or clang-16 libclang-rt-16-dev …)"
    )


def _find(program: str, remedy: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise MissingToolError(f"{program} is missing: {remedy}")
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
