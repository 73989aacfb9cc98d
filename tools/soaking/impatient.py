"""``python -m bpeflow`` with a checkpoint after every few merges and every chunk encoded.

Small runs do not last the usual half minute.
"""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Mapping
from typing import Any


def _checkpoint_often() -> None:
    if sys.argv[1:2] == ["encode"]:
        from bpeflow.dataset import journal
        from bpeflow.dataset.token_writer import TokenSetWriter

        def save_slowly(writer: TokenSetWriter, state: Mapping[str, Any]) -> None:
            time.sleep(0.05)  # small encodings would end before anything can happen to them
            save(writer, state)

        journal.INTERVAL = 0.0
        save = TokenSetWriter.checkpoint
        TokenSetWriter.checkpoint = save_slowly  # type: ignore[method-assign, assignment]
        return
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
