"""``python -m bpeflow``, but merges are saved every few instead of every half minute, which small runs do not have."""

from __future__ import annotations

import runpy
import sys


def _hurry() -> None:
    from bpeflow.run_dir import checkpoint
    from bpeflow.training import learn

    checkpoint.INTERVAL = 0.0
    learn.FIRST_STEP = 8


if __name__ == "__main__":
    try:
        _hurry()
    except BaseException:  # whatever becomes of Ctrl-C while numpy or pydantic is imported
        sys.exit(130)  # and should none have come, this is wrong
    runpy.run_module("bpeflow", run_name="__main__", alter_sys=True)
