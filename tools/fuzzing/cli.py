"""Fuzz the native code: libFuzzer searches for inputs that reach new code, and Python code checks the results.

    tools/fuzz scanner --seconds 600
    tools/fuzz all --seconds 30
    tools/fuzz scanner --input build/fuzz/findings/scanner-crash-…

Targets: scanner, patterns (compiled ones), table (counting), shards (sorted shards of counts, including damaged
files), merge (backends c and omp), encoder, and border (arguments that break the rules of bpeflow.h). Each target is
a module in this folder with a function `check`, which takes bytes and raises an error if native code and Python
differ. AddressSanitizer and
UndefinedBehaviorSanitizer detect invalid memory accesses and undefined behaviour.
Requires Clang and atheris (pip install 'bpeflow[fuzz]').
All files are in build/fuzz: the libraries, the corpus of each target, which later sessions extend, and the findings.
Exit status 1: a finding; 2: a missing requirement.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from fuzzing.build import MissingToolError, build, runtime
from fuzzing.campaign import Result, fuzz, run_input

TARGETS = ("scanner", "patterns", "table", "shards", "merge", "encoder", "border")


def main(arguments: list[str] | None = None) -> int:
    options = _make_parser().parse_args(arguments)
    try:
        preloaded, libraries = runtime(), build()
    except MissingToolError as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2
    if options.input:
        result = run_input(options.target, libraries, preloaded, options.input)
        print(result.output)
        return int(result.status != 0)
    targets = TARGETS if options.target == "all" else (options.target,)
    passed = [_fuzz(target, options.seconds, options.seed, libraries, preloaded) for target in targets]
    return int(not all(passed))


def _fuzz(target: str, seconds: int, seed: int, libraries: Path, preloaded: Path) -> bool:
    """Fuzz one target and print the outcome. Return whether it passed."""
    started = time.monotonic()
    result = fuzz(target, libraries, preloaded, seconds, seed)
    print(f"{target}: {_describe(result, time.monotonic() - started)}", flush=True)
    if result.status:
        print(result.output[-6000:])
        if result.found:
            print(f"{target}: to reproduce: tools/fuzz {target} --input {result.found}")
    return result.status == 0 and result.guided


def _describe(result: Result, seconds: float) -> str:
    if result.status == 0 and not result.guided:
        return "libFuzzer saw no coverage of the native code: the libraries are not instrumented for it"
    before, after = result.edges
    verdict = "no finding" if result.status == 0 else f"FINDING, exit status {result.status}"
    return (
        f"{verdict}; {result.inputs:,} inputs in {seconds:.0f} s, {before:,} edges at first and {after:,} at the end, "
        f"corpus of {result.corpus:,}"
    )


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=(*TARGETS, "all"), help="the code to fuzz")
    parser.add_argument("--seconds", type=int, default=60, metavar="N", help="seconds per target (60)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="libFuzzer's seed (default: 0, a new one each time)"
    )
    parser.add_argument("--input", type=Path, metavar="FILE", help="run the target on this input only")
    return parser
