"""The process that runs libFuzzer: `python -m fuzzing.worker TARGET`, followed by libFuzzer's own arguments."""

from __future__ import annotations

import importlib
import sys

import atheris


def main() -> None:
    program, target, *options = sys.argv
    check = importlib.import_module(f"fuzzing.{target}").check
    check(b"")  # loads the libraries, which libFuzzer must know before it starts
    atheris.Setup([program, *options], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
