"""The main script of a pipeline's main process, in its workers: they run it only if they need something in it."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import FlowError

#: Whether this process is running the main script of its pipeline's main process.
_running = False


class MainModule(ModuleType):
    """Stands for `__main__` in a worker, and runs the main script when something in it is needed.

    So a plain script needs no guard. The script is run under another name: code under its guard does not run.
    """

    def __init__(self, run: Callable[[], dict[str, Any]] | None) -> None:
        super().__init__("__main__")
        vars(self)["__run__"] = run

    def __getattr__(self, name: str) -> Any:
        """Return a function or class of the main script. It is not run for names such as `__file__`."""
        global _running
        if name.startswith("__") or "__run__" not in vars(self):
            raise AttributeError(f"module '__main__' has no attribute {name!r}")
        if (run := vars(self).pop("__run__")) is None:
            raise FlowError(
                "a stage function is defined in __main__, which workers cannot import here (an interactive session, "
                "python -c, or standard input): move it to a module, or run the pipeline in threads"
            )
        _running = True
        vars(self).update(run())
        _running = False
        return getattr(self, name)


def find_main_script() -> Callable[[], dict[str, Any]] | None:
    """Return a function that runs the main script of this process in a worker; None if that is not possible."""
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):
        return partial(runpy.run_module, spec.name, run_name="__mp_main__", alter_sys=True)
    file = Path(getattr(main, "__file__", None) or "")
    return partial(runpy.run_path, str(file.absolute()), run_name="__mp_main__") if file.is_file() else None


def check_not_running() -> None:
    """Raise `FlowError` in a worker that runs a main script without a guard, which would start workers again."""
    if _running:
        raise FlowError(
            "a pipeline was started while a worker was importing the main script. Put the code that starts it "
            'under\n    if __name__ == "__main__":\n'
            "or move the stage functions to a separate module"
        )
