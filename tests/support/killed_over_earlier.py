"""Script: start a run over the results of an earlier one, and kill it at its file operations, a few later each time.

`test_publish` runs this script in a process of its own (see `killed_runs`). After each kill, either the earlier results
are unchanged or all files of the new run are complete, and the next run finishes it.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from itertools import accumulate, count
from pathlib import Path
from typing import Any

from killed_runs import DONE, KILLED, REFUSED, is_recorded, train, warm_up

from bpeflow.run_dir.layout import DONE_FILE, UNFINISHED


def finished_files(folder: Path) -> dict[str, str]:
    """Return the contents of all files of finished runs. Of the report, which contains times, only the settings."""
    found = {}
    for path in (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"):
        name = path.relative_to(folder).as_posix()
        if name.startswith(f"{UNFINISHED}/"):
            continue
        if path.name == "run.json":
            settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
            found[name] = f"{settings['vocab_size']} {settings['vocab_sizes']}"
        else:
            found[name] = path.read_bytes().hex()
    return found


def awaits_publishing(folder: Path) -> bool:
    """Return whether a run in this folder is done, but has not finished publishing its results."""
    return (folder / UNFINISHED / DONE_FILE).exists()


def mixed(found: dict[str, str], earlier: dict[str, str], expected: dict[str, str]) -> bool:
    """Return whether there are files of both runs."""
    differing = [name for name in found if earlier.get(name) != expected.get(name)]
    of_earlier = {found[name] == earlier.get(name) for name in differing}
    return len(of_earlier) > 1


def main() -> None:
    work, earlier_settings, settings = (json.loads(argument) for argument in sys.argv[1:])
    folder, choose = Path(work["folder"]), random.Random(work["seed"])

    def run(out: Path, killed_at: int | None, **flags: Any) -> str:
        extra = {"counts": str(out)} if work["merge"] else {}
        return train({**settings, **extra, "out_dir": str(out), "overwrite": True, **flags}, killed_at)

    warm_up({**earlier_settings, "out_dir": str(folder / "earlier")})
    earlier = finished_files(folder / "earlier")
    shutil.copytree(folder / "earlier", folder / "unbroken")
    assert run(folder / "unbroken", None) == DONE
    expected = finished_files(folder / "unbroken")
    summary = {"steps": 0, "published": 0, "refused": 0}
    for step in accumulate(choose.randint(2, 14) for _ in count()):
        out = Path(shutil.copytree(folder / "earlier", folder / f"killed{step}"))
        outcome = run(out, step)
        found = finished_files(out)
        if awaits_publishing(out):
            summary["published"] += 1
            assert not mixed(found, earlier, expected), step
            assert "run.json" not in found or {*found} <= {*earlier}, step
        else:
            assert found in (earlier, expected), (step, {*found})
        summary["steps"] = step
        done, way = awaits_publishing(out), choose.random()
        if way < 0.3 and is_recorded(out) and not work["merge"]:
            again = train({"out_dir": str(out), "resume": True}, None)
        else:
            again = run(out, None, resume=way < 0.7)
        if again == REFUSED:
            summary["refused"] += 1
            assert not done and finished_files(out) == earlier, step
            again = run(out, None, restart=True)
        assert again == DONE, step
        assert finished_files(out) == expected, step
        assert not (out / UNFINISHED).exists(), step
        shutil.rmtree(out)
        if outcome != KILLED:
            break
    sys.stdout.write(json.dumps(summary))


if __name__ == "__main__":
    main()
