"""``python -m bpeflow`` with a checkpoint after every few merges: small runs do not last the usual half minute."""

from __future__ import annotations

import runpy
import sys


def _checkpoint_often() -> None:
    from bpeflow.run_dir import run_files
    from bpeflow.training import learn

    run_files.INTERVAL = 0.0
    learn.FIRST_STEP = 8


if __name__ == "__main__":
    try:
        _checkpoint_often()
    except BaseException:  # an import of numpy or pydantic can turn Ctrl-C into any exception
        sys.exit(130)  # if there was no Ctrl-C, the soak reports this status
    runpy.run_module("bpeflow", run_name="__main__", alter_sys=True)
