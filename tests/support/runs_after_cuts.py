"""A script that records a training run, and resumes it from every state in which a power cut may leave the disk.

`test_power_cut` runs it, in a process of its own: its children, of which each is a run, are forked from one that has no
threads. A resumed run must end with the bytes of an unbroken one, and must not do again what was promised to be safe.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from killed_runs import DONE, KILLED, train
from power_cuts import Moment, Recorder, Tree, put, read

import bpeflow
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.manifest import Manifest
from bpeflow.counting.segments import SegmentFolder
from bpeflow.errors import ResumeError
from bpeflow.run_dir import checkpoint
from bpeflow.run_dir.checkpoint import MergeCheckpoint
from bpeflow.run_dir.layout import DONE_FILE
from bpeflow.training import learn

#: The run folder, beneath the disk; that above it is new, too.
RUN = "new/run"

#: In it, what there is of a run that is not finished.
UNFINISHED = "unfinished/"

#: MemoryBudget of a counter and of a merger, in bytes: so little that each spills now and then.
SHARES = (20_000, 20_000)


def in_child(work: Callable[[], object]) -> Any:
    """Do it in a child, and return what it returns."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(work(), pipe)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0
    return pickle.loads(told)


def record(settings: dict[str, object], disk: Path) -> tuple[list[Moment], int]:
    """Train, and return all moments, and how often something was synced."""
    recorder = Recorder(disk)
    save_manifest, save_merges = Manifest.save, MergeCheckpoint.save

    def promise_segments(manifest: Manifest) -> None:
        save_manifest(manifest)
        recorder.promised["segments"] = len(manifest.segments)

    def promise_merges(partial: MergeCheckpoint, merges: Any) -> None:
        save_merges(partial, merges)
        recorder.promised["merges"] = len(merges)

    Manifest.save, MergeCheckpoint.save = promise_segments, promise_merges  # type: ignore[method-assign]
    with recorder:
        bpeflow.train(settings)
        recorder.promised["done"] = 1
    return recorder.moments, recorder.syncs


def resume(settings: dict[str, object]) -> dict[str, Any] | None:
    """Go on, and return what was done again; None if that was refused."""
    os.fsync = lambda descriptor: None  # there is no other cut, and it takes most of the time
    counted: list[object] = []
    count = SegmentFolder._count

    def note(folder: SegmentFolder, number: int, *rest: Any) -> None:
        counted.append(number)
        count(folder, number, *rest)

    SegmentFolder._count = note  # type: ignore[method-assign]
    try:
        result = bpeflow.train({**settings, "resume": True})
    except ResumeError:
        return None
    return {"counted": len(counted), "merges": result.learned.resumed if result.learned else None}


@dataclass(frozen=True)
class Case:
    """A state of the disk, at a moment of the run: which change has happened and which has not is told in words."""

    moment: Moment
    what: str
    tree: Tree


def cases(moments: list[Moment], choose: random.Random, most: int) -> list[Case]:
    """So many different ones: what is certainly on the disk at each moment, all of the end, and some of the others."""
    found: dict[object, Case] = {}
    wanted: dict[object, None] = {}
    for moment in moments:
        for what, tree in moment.trees(choose):
            key = (frozenset(tree.items()), frozenset(moment.promised.items()))
            found.setdefault(key, Case(moment, what, tree))
            if what == "what was synced" or moment is moments[-1]:
                wanted[key] = None
    others = [key for key in found if key not in wanted]
    chosen = [*wanted, *choose.sample(others, max(min(most - len(wanted), len(others)), 0))]
    return [found[key] for key in chosen]


def complaint_of(case: Case, told: dict[str, Any] | None, segments: int, old: Tree, expected: Tree, found: Tree) -> str:
    """What is not as it should be, once the run was resumed."""
    promised, left = case.moment.promised, of_run(case.tree)
    results = {name: content for name, content in left.items() if content is not None and name in expected}
    of_old = [name for name, content in results.items() if content == old.get(name) != expected[name]]
    of_new = [name for name, content in results.items() if content == expected[name] != old.get(name)]
    if of_old and of_new:
        return f"{of_old} are of the earlier run, {of_new} of this one"
    earlier, finished = finished_of(old), finished_of(left)
    if f"{UNFINISHED}{DONE_FILE}" not in left and finished not in (earlier, expected):
        return f"of the earlier run there is {[*finished]}"
    if "done" in promised:
        again = told is None or told["counted"] or told["merges"] is not None
        if again or {*left} - {".lock"} != {*expected}:
            return f"the run was done: {told}, {[*left]}"
    if scratch := [name for name in found if name.startswith(".scratch-")]:
        return f"nobody removes {scratch}"
    if told is None:
        counted = f"{UNFINISHED}run.json" in left and f"{UNFINISHED}counts.npz" in left
        return "" if earlier and finished == earlier and not counted else "refused"
    if told["counted"] > segments - promised.get("segments", 0):
        return f"{told['counted']} of {segments} segments are counted again, {promised} were safe"
    if told["merges"] is not None and told["merges"] < promised.get("merges", 0):
        return f"{told['merges']} merges taken over, {promised} were safe"
    names = [name for name in {*found, *expected} if found.get(name) != expected.get(name)]
    return f"other bytes: {names}" if names else ""


def finished_of(tree: Tree) -> Tree:
    """What a run that is finished has left in the run folder."""
    return {name: content for name, content in tree.items() if not f"{name}/".startswith((UNFINISHED, "."))}


def of_run(tree: Tree) -> Tree:
    """What is in the run folder; of the report, which tells of times, the settings."""
    inside = {name[len(RUN) + 1 :]: content for name, content in tree.items() if name.startswith(f"{RUN}/")}
    with suppress(KeyError, TypeError, ValueError):  # there is none, or it is damaged
        settings = json.loads(inside["run.json"] or b"")["settings"]
        inside["run.json"] = json.dumps({**settings, "resume": False}).encode()
    return inside


def main() -> None:
    settings, earlier, most = json.loads(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
    choose = random.Random(int(sys.argv[4]))
    checkpoint.INTERVAL = 0.0
    learn.FIRST_STEP = 32
    MemoryBudget.share = classmethod(lambda cls, *_: cls(*SHARES))  # type: ignore[method-assign, assignment]
    disk = Path("disk").absolute()
    disk.mkdir()
    settings["out_dir"] = str(disk / RUN)
    if earlier:
        outcome = train({**settings, **earlier["settings"]}, earlier["killed_at"])
        assert outcome == (KILLED if earlier["killed_at"] else DONE)
    old = of_run(read(disk))
    moments, syncs = in_child(lambda: record(settings, disk))
    expected, segments = of_run(read(disk)), max(moment.promised.get("segments", 0) for moment in moments)
    wrong, refused = [], 0
    chosen = cases(moments, choose, most)
    for case in chosen:
        shutil.rmtree(disk)
        disk.mkdir()
        put(case.tree, disk)
        told = in_child(lambda: resume(settings))
        refused += told is None
        if complaint := complaint_of(case, told, segments, old, expected, of_run(read(disk))):
            wrong.append(f"before {case.moment.step}; {case.what}: {complaint}")
    report = {"moments": len(moments), "cases": len(chosen), "refused": refused, "syncs": syncs, "wrong": wrong}
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()
