"""Script: kill a training run at its file operations, a few operations later each time, and resume it.

`test_resume` runs this script in a process of its own, because each run is a forked child and the parent must not have
threads. Python calls audit hooks before a file is opened, renamed or removed. So the kill can fall between any two such
steps, and also in the middle of writing a file, when it is open and not yet renamed.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import sys
from pathlib import Path

import bpeflow
from bpeflow.cli.merge import merge as merge_command
from bpeflow.errors import AlreadyExistsError, ResumeError
from bpeflow.run_dir import run_files
from bpeflow.run_dir.layout import DONE_FILE, REPORT_FILE, SETTINGS_FILE, UNFINISHED
from bpeflow.training import cut, learn

KILLED, DONE, REFUSED = "killed", "done", "refused"
_STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}


def train(settings: dict[str, object], last_step: int | None) -> str:
    """Train, or learn from `counts`, in a child that is killed at `last_step`. Return the outcome."""
    child = os.fork()
    if child == 0:
        status = 3
        try:
            os.fsync = lambda descriptor: None  # the system survives, and syncing takes most of the time
            if last_step is not None:
                kill_at(last_step, str(settings["out_dir"]))
            if "counts" in settings:
                merge(**settings)
            else:
                bpeflow.train(settings)
            status = 0
        except (ResumeError, AlreadyExistsError):
            status = 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return KILLED
    return {0: DONE, 2: REFUSED}[os.WEXITSTATUS(status)]


def merge(counts: str, **settings: object) -> None:
    merge_command(Path(counts), None, settings, quiet=True)


def kill_at(last_step: int, folder: str) -> None:
    steps = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal steps
        if event in _STEPS and any(str(argument).startswith(folder + "/") for argument in arguments[:2]):
            steps += 1
            if steps == last_step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def files(folder: Path) -> dict[str, str]:
    """Return the contents of all files, except for the report, which contains times."""
    return {
        str(path.relative_to(folder)): "" if path.name == "run.json" else path.read_bytes().hex()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def resume(settings: dict[str, object], choose: random.Random) -> None:
    """Resume the run until it is done, killing it up to twice on the way; if it is known there, by its folder alone."""
    folder = Path(str(settings["out_dir"]))
    for last_step in [*(choose.randrange(1, 60) for _ in range(choose.randrange(3))), None]:
        known = is_recorded(folder) or (folder / REPORT_FILE).exists()
        given = {"out_dir": settings["out_dir"]} if known and choose.random() < 0.7 else settings
        outcome = train({**given, "resume": True}, last_step)
    assert outcome == DONE


def is_recorded(folder: Path) -> bool:
    """Return whether there is an unfinished run that can be resumed by its folder alone."""
    return any((folder / UNFINISHED / name).exists() for name in (SETTINGS_FILE, DONE_FILE))


def warm_up(settings: dict[str, object]) -> None:
    """Train and resume here, so that no child has to import modules or to build the models of reports."""
    bpeflow.train(settings)
    bpeflow.train({**settings, "resume": True})
    gc.freeze()  # a collection in a child would copy the memory that it shares


def main() -> None:
    settings, choose = json.loads(sys.argv[1]), random.Random(int(sys.argv[2]))
    run_files.INTERVAL = 0.0
    learn.FIRST_STEP = 8
    cut.CUT_FROM = settings.pop("cut_from", cut.CUT_FROM)
    folder = Path(settings["out_dir"])
    warm_up({**settings, "out_dir": str(folder / "unbroken"), "segment_size": "1gb"})
    expected = files(folder / "unbroken")
    step, kills, refused, outcome = 0, 0, 0, KILLED
    farthest = 24 if settings.get("superwords") else 12  # two runs, with twice as many steps
    while outcome == KILLED:
        step += choose.randint(2, farthest)
        kills += 1
        settings["out_dir"] = str(folder / f"killed{step}")
        outcome = train(settings, step)
        if kills % 3 == 0:
            refused += train(settings, None) == REFUSED
            train({**settings, "restart": True}, choose.randrange(1, 60))
        resume(settings, choose)
        found = files(Path(settings["out_dir"]))
        differing = {name for name in {*found, *expected} if found.get(name) != expected.get(name)}
        assert not differing, (step, outcome, differing)
    sys.stdout.write(json.dumps({"steps": step, "refused": refused}))


if __name__ == "__main__":
    main()
