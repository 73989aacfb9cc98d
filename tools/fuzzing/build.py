"""What fuzzing needs: the native libraries, built by Clang for libFuzzer, and atheris, which has libFuzzer in it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "fuzz"

#: Clang with the runtimes of its sanitizers, as systems name it; any of these does.
_CLANGS = ("clang", *(f"clang-{version}" for version in range(22, 12, -1)))


class Missing(Exception):  # a state of affairs
    """Something that fuzzing needs is not here; says what to do."""


def runtime() -> Path:
    """The library with libFuzzer and AddressSanitizer in it, which is loaded before Python. Raises `Missing`."""
    spec = importlib.util.find_spec("atheris")
    path = Path(spec.origin or "").parents[1] / "asan_with_fuzzer.so" if spec else None
    if path is None or not path.is_file():
        raise Missing("atheris is missing: pip install 'bpeflow[fuzz]' (Linux; for which Python, PyPI tells)")
    return path


def build() -> Path:
    """Build the libraries, or what has changed of them. Returns their folder. Raises `Missing`.

    Exits with what the compiler says if it does not take the sources: then nothing is missing.
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
            raise Missing(f"libbpeflow_{name} was not built, as {libraries}/build.json explains")
    return libraries


def _find_clang() -> str:
    """The name of a Clang that has its C++ compiler beside it, and the newest of several."""
    named = os.environ.get("CC", "")
    for name in (named, *_CLANGS) if "clang" in Path(named).name else _CLANGS:
        if shutil.which(name) and shutil.which(name.replace("clang", "clang++")):
            return name
    raise Missing("Clang is missing: apt install clang libclang-rt-dev libomp-dev (or clang-16 libclang-rt-16-dev …)")


def _find(program: str, remedy: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise Missing(f"{program} is missing: {remedy}")
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
