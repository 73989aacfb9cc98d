"""Fuzz the native code: libFuzzer makes inputs that go new ways through it, Python says what is right.

    tools/fuzz scanner --seconds 600
    tools/fuzz all --seconds 30
    tools/fuzz scanner --input build/fuzz/findings/scanner-crash-…

Targets: scanner, table (counting), runs (of counts, broken files too), merge (backends c and omp), encoder, and border
(arguments that break the rules of bpeflow.h). Each is a module beside this one, whose `check` takes bytes and raises
where native code and Python differ; AddressSanitizer and UndefinedBehaviorSanitizer look for the rest. Needs Clang and
atheris (pip install 'bpeflow[fuzz]'), and says so.
Everything lies in build/fuzz: the libraries, each target's corpus, from which the next run goes on, and the findings.
Exit status 1: something was found; 2: something is missing.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from fuzzing.build import Missing, build, runtime
from fuzzing.campaign import Result, fuzz, run_input

TARGETS = ("scanner", "table", "runs", "merge", "encoder", "border")


def main(arguments: list[str] | None = None) -> int:
    options = _make_parser().parse_args(arguments)
    try:
        preloaded, libraries = runtime(), build()
    except Missing as missing:
        print(f"fuzz: {missing}", file=sys.stderr)
        return 2
    if options.input:
        result = run_input(options.target, libraries, preloaded, options.input)
        print(result.output)
        return int(result.status != 0)
    targets = TARGETS if options.target == "all" else (options.target,)
    sound = [_fuzz(target, options.seconds, options.seed, libraries, preloaded) for target in targets]
    return int(not all(sound))


def _fuzz(target: str, seconds: int, seed: int, libraries: Path, preloaded: Path) -> bool:
    """Fuzz one target and tell the outcome. Returns whether all is well."""
    started = time.monotonic()
    result = fuzz(target, libraries, preloaded, seconds, seed)
    print(f"{target}: {_describe(result, time.monotonic() - started)}", flush=True)
    if result.status:
        print(result.output[-6000:])
        if result.found:
            print(f"{target}: to see it again: tools/fuzz {target} --input {result.found}")
    return result.status == 0 and result.guided


def _describe(result: Result, seconds: float) -> str:
    if result.status == 0 and not result.guided:
        return "libFuzzer has seen nothing of the native code: the libraries are not built for it"
    before, after = result.edges
    verdict = "no finding" if result.status == 0 else f"FOUND, exit status {result.status}"
    return (
        f"{verdict}; {result.inputs:,} inputs in {seconds:.0f} s, {before:,} edges at first and {after:,} at the end, "
        f"corpus of {result.corpus:,}"
    )


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=(*TARGETS, "all"), help="what to fuzz")
    parser.add_argument("--seconds", type=int, default=60, metavar="N", help="for each target (60)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of libFuzzer; 0 (the default): another each time"
    )
    parser.add_argument("--input", type=Path, metavar="FILE", help="run the target on this input only")
    return parser
