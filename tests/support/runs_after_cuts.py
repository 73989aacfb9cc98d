"""Script: record a training run, and resume it from states in which a power cut may leave the disk.

`test_power_cut` runs this script in a process of its own, because each run is a forked child and the parent must not
have threads. A resumed run must produce the same bytes as an uninterrupted one, and must not repeat work that was
promised to be durable.
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

from killed_runs import DONE, KILLED, train, warm_up
from power_cuts import Moment, Recorder, Tree, read_tree, write_tree

import bpeflow
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.segments import SegmentRecord, count_segment
from bpeflow.errors import ResumeError
from bpeflow.run_dir import run_files
from bpeflow.run_dir.layout import DONE_FILE
from bpeflow.run_dir.run_files import MergeCheckpoint
from bpeflow.training import learn

#: The run folder, relative to the disk. Its parent folder is new, too.
RUN = "new/run"

#: The part of the run folder that belongs to an unfinished run.
UNFINISHED = "unfinished/"

#: MemoryBudget of a counter and of a merger, in bytes: small enough that each spills now and then.
SHARES = (20_000, 20_000)


def in_child(work: Callable[[], object]) -> Any:
    """Call `work` in a forked child, and return its result."""
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
        pickled = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0
    return pickle.loads(pickled)


def record(settings: dict[str, object], disk: Path) -> tuple[list[Moment], int]:
    """Train, and return all moments and the number of syncs."""
    recorder = Recorder(disk)
    save_segment, save_merges = SegmentRecord.save, MergeCheckpoint.save

    def record_segments(segment: SegmentRecord, folder: Path) -> None:
        save_segment(segment, folder)
        recorder.promised["segments"] = recorder.promised.get("segments", 0) + 1

    def record_merges(merge_checkpoint: MergeCheckpoint, merges: Any, merge_counts: Any) -> None:
        save_merges(merge_checkpoint, merges, merge_counts)
        recorder.promised["merges"] = len(merges)

    SegmentRecord.save, MergeCheckpoint.save = record_segments, record_merges  # type: ignore[method-assign]
    with recorder:
        bpeflow.train(settings)
        recorder.promised["done"] = 1
    return recorder.moments, recorder.syncs


def resume(settings: dict[str, object]) -> dict[str, Any] | None:
    """Resume the run. Return the work that it repeated or took over, or None if it refused to resume."""
    os.fsync = lambda descriptor: None  # no second power cut follows, and syncing takes most of the time
    counted: list[object] = []

    def record_count(path: Path, *rest: Any) -> SegmentRecord:
        counted.append(path)
        return count_segment(path, *rest)

    bpeflow.counting.segments.count_segment = record_count
    try:
        result = bpeflow.train({**settings, "resume": True})
    except ResumeError:
        return None
    learned = result.learned
    return {"counted": len(counted), "merges": learned.replayed + learned.resumed if learned else None}


@dataclass(frozen=True)
class Case:
    """A state of the disk after a power cut at a moment of the run, with a description of the kept changes."""

    moment: Moment
    description: str
    tree: Tree


def cases(moments: list[Moment], choose: random.Random, most: int) -> list[Case]:
    """Choose `most` different cases, of four times as many moments.

    The first is the state before the run. Half are durable states of moments or states of the end, which matter most.
    """
    found: dict[object, Case] = {}
    wanted: dict[object, None] = {}
    between = choose.sample(moments[1:-1], min(4 * most, len(moments) - 2))
    for moment in (moments[0], *between, moments[-1]):
        for description, tree in moment.trees(choose):
            key = (frozenset(tree.items()), frozenset(moment.promised.items()))
            found.setdefault(key, Case(moment, description, tree))
            if description == "what was synced" or moment is moments[-1]:
                wanted[key] = None
    chosen = [first := next(iter(found))]
    wanted.pop(first, None)
    chosen += choose.sample([*wanted], min(most // 2, len(wanted)))
    others = [key for key in found if key not in wanted and key != first]
    chosen += choose.sample(others, min(most - len(chosen), len(others)))
    return [found[key] for key in chosen]


def problem_of(
    case: Case, outcome: dict[str, Any] | None, segments: int, old: Tree, expected: Tree, found: Tree
) -> str:
    """Return a description of the first problem after the run was resumed, or an empty string."""
    promised, on_disk = case.moment.promised, of_run(case.tree)
    results = {name: content for name, content in on_disk.items() if content is not None and name in expected}
    of_old = [name for name, content in results.items() if content == old.get(name) != expected[name]]
    of_new = [name for name, content in results.items() if content == expected[name] != old.get(name)]
    if of_old and of_new:
        return f"{of_old} are from the earlier run, {of_new} from this one"
    earlier, finished = finished_of(old), finished_of(on_disk)
    if f"{UNFINISHED}{DONE_FILE}" not in on_disk and finished not in (earlier, expected):
        return f"only a part of the earlier run is left: {[*finished]}"
    if "done" in promised:
        repeated = outcome is None or outcome["counted"] or outcome["merges"] is not None
        if repeated or {*on_disk} - {".lock"} != {*expected}:
            return f"the run was already done: {outcome}, {[*on_disk]}"
    if scratch := [name for name in found if name.startswith(".scratch-")]:
        return f"{scratch} were not removed"
    if outcome is None:
        counted = f"{UNFINISHED}run.json" in on_disk and f"{UNFINISHED}counts.npz" in on_disk
        return "" if earlier and finished == earlier and not counted else "refused"
    if outcome["counted"] > segments - promised.get("segments", 0):
        return f"{outcome['counted']} of {segments} segments were counted again, {promised} were durable"
    if outcome["merges"] is not None and outcome["merges"] < promised.get("merges", 0):
        return f"{outcome['merges']} merges were taken over, {promised} were durable"
    names = [name for name in {*found, *expected} if found.get(name) != expected.get(name)]
    return f"different bytes: {names}" if names else ""


def finished_of(tree: Tree) -> Tree:
    """Return the files of finished runs in the run folder."""
    return {name: content for name, content in tree.items() if not f"{name}/".startswith((UNFINISHED, "."))}


def of_run(tree: Tree) -> Tree:
    """Return the contents of the run folder. Of reports, which contain times, only the settings."""
    inside = {name[len(RUN) + 1 :]: content for name, content in tree.items() if name.startswith(f"{RUN}/")}
    for report in ("run.json", "first_stage/run.json"):
        with suppress(KeyError, TypeError, ValueError):  # it is missing or damaged
            settings = json.loads(inside[report] or b"")["settings"]
            inside[report] = json.dumps({**settings, "resume": False}).encode()
    return inside


def main() -> None:
    settings, earlier, most = json.loads(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
    choose = random.Random(int(sys.argv[4]))
    run_files.INTERVAL = 0.0
    learn.FIRST_STEP = 32
    MemoryBudget.share = classmethod(lambda cls, *_: cls(*SHARES))  # type: ignore[method-assign, assignment]
    warm_up({"input": settings["input"], "vocab_size": 300, "backend": "python", "out_dir": "warm"})
    disk = Path("disk").absolute()
    disk.mkdir()
    settings["out_dir"] = str(disk / RUN)
    if earlier:
        outcome = train({**settings, **earlier["settings"], "overwrite": False}, earlier["killed_at"])
        assert outcome == (KILLED if earlier["killed_at"] else DONE)
    old = of_run(read_tree(disk))
    moments, syncs = in_child(lambda: record(settings, disk))
    expected, segments = of_run(read_tree(disk)), max(moment.promised.get("segments", 0) for moment in moments)
    wrong, refused = [], 0
    chosen = cases(moments, choose, most)
    for case in chosen:
        shutil.rmtree(disk)
        disk.mkdir()
        write_tree(case.tree, disk)
        outcome = in_child(lambda: resume(settings))
        refused += outcome is None
        if problem := problem_of(case, outcome, segments, old, expected, of_run(read_tree(disk))):
            wrong.append(f"before {case.moment.step}; {case.description}: {problem}")
    report = {"moments": len(moments), "cases": len(chosen), "refused": refused, "syncs": syncs, "wrong": wrong}
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()
