"""A script that kills training runs at every step of their work on files, one step later each time, and resumes them.

`test_resume` runs it, in a process of its own: its children, of which each is a run, are forked from one that has no
threads. Python tells audit hooks of every file that is opened, renamed or removed, before that is done; so the
kill comes between any two such steps, in the middle of any file too, which is open and not yet renamed then.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path

import bpeflow
from bpeflow.cli.merge import merge as merge_command
from bpeflow.errors import ResumeError
from bpeflow.run_dir import checkpoint
from bpeflow.training import learn

KILLED, DONE, REFUSED = "killed", "done", "refused"
_STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}


def train(settings: dict[str, object], last_step: int | None) -> str:
    """Train, or learn from `counts`, in a child, which is killed at a step; return how that ended."""
    child = os.fork()
    if child == 0:
        status = 3
        try:
            if last_step is not None:
                kill_at(last_step, str(settings["out_dir"]))
            if "counts" in settings:
                merge(**settings)
            else:
                bpeflow.train(settings)
            status = 0
        except ResumeError:
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
    """The content of all files, but for the report, which tells of times."""
    return {
        str(path.relative_to(folder)): "" if path.name == "run.json" else path.read_bytes().hex()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def resume(settings: dict[str, object], choose: random.Random) -> None:
    """Go on to the end, and be killed on the way now and then."""
    for _ in range(choose.randrange(3)):
        train({**settings, "resume": True}, choose.randrange(1, 60))
    assert train({**settings, "resume": True}, None) == DONE


def main() -> None:
    settings, choose = json.loads(sys.argv[1]), random.Random(int(sys.argv[2]))
    checkpoint.INTERVAL = 0.0
    learn.FIRST_STEP = 8
    folder = Path(settings["out_dir"])
    assert train({**settings, "out_dir": str(folder / "unbroken"), "segment_size": "1gb"}, None) == DONE
    expected = files(folder / "unbroken")
    step, refused, outcome = 0, 0, KILLED
    while outcome == KILLED:
        step += 1
        settings["out_dir"] = str(folder / f"killed{step}")
        outcome = train(settings, step)
        if step % 5 == 0:
            refused += train(settings, None) == REFUSED
            train({**settings, "restart": True}, choose.randrange(1, 60))
        resume(settings, choose)
        found = files(Path(settings["out_dir"]))
        differing = {name for name in {*found, *expected} if found.get(name) != expected.get(name)}
        assert not differing, (step, outcome, differing)
    sys.stdout.write(json.dumps({"steps": step, "refused": refused}))


if __name__ == "__main__":
    main()
