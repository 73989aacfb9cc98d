"""The crash matrix of a training: every way to fail, at every stage.

After each: the exit status, a message that says where, why and what to do, an end in time, no process, no shared
memory, no temporary file, and what was in the run folder before. And the next run comes to the right result.
"""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from crash_run import Fault, Run, Train, arguments, contents, finished_files, tokenizer, unfinished_files
from places import MAIN, SUPERWORDS, WORKERS, Place

#: The message of a fault in a worker, after the name of the stage and the worker.
SAID = {
    "raise": r"worker \d: RuntimeError: the injected defect \(a bug in bpeflow: please report it",
    "exit": r"worker \d of \d \(pid \d+\) exited with status 7: os._exit or sys.exit",
    "exit0": r"worker \d of \d \(pid \d+\) exited with status 0 before finishing its work: os._exit",
    "segfault": r"worker \d of \d \(pid \d+\) was killed by SIGSEGV: a crash in native code: PYTHONFAULTHANDLER=1",
    "kill": r"worker \d of \d \(pid \d+\) was killed by SIGKILL: most likely .*out-of-memory killer: use fewer",
    "memory": r"worker \d: counting the corpus: out of memory: use fewer counters .* or add memory",
    "unpicklable": r"worker \d: TypeError: cannot pickle the injected item \(a bug in bpeflow: please report it",
}
DEFECTS = {"raise", "unpicklable"}


def fail(train: Train, place: Place, action: str) -> Run:
    fault = Fault(place.where, action, place.call)
    if action == "unpicklable" and place.yields:
        fault = Fault(place.yields, action)
    return train(fault, place.corpus, segment_size=place.segment_size).end()


def assert_next_run_succeeds(train: Train, place: Place, out: Path, expected: dict[str, bytes]) -> None:
    flags = ["--resume"] if place.counted or place.segment_size != "1gb" else []
    run = train(None, place.corpus, *flags, segment_size=place.segment_size).end()
    assert run.status == 0, run.err
    run.assert_clean()
    assert tokenizer(out) == expected
    assert {path.name for path in out.iterdir()} == {*expected, "run.json"}


# Every fault at one stage, and at every other stage an exception or a death, the two ways that a fault takes. How these
# go through a pipeline, whatever the stage, is tested with the framework.
CELLS = [("counter", action) for action in SAID]
CELLS += [("chunk reader", "unpicklable"), ("chunk reader", "kill"), ("stream reader", "raise")]
CELLS += [("merger", "memory"), ("merger", "raise"), ("segment reader", "kill")]


@pytest.mark.parametrize(("stage", "action"), CELLS)
def test_a_fault_in_a_worker(
    train: Train, stage: str, action: str, out: Path, earlier: Path, expected: dict[str, bytes]
) -> None:
    place = WORKERS[stage]
    run = fail(train, place, action)
    assert run.status == 1
    assert re.search(rf"^bpeflow: stage '{place.name}'[:,] {SAID[action]}", run.err, re.MULTILINE), run.err
    assert ("Traceback" in run.err) == (action in DEFECTS)
    run.assert_clean()
    assert finished_files(out) == contents(earlier)
    assert not unfinished_files(out)
    if action == "kill" and stage in ("counter", "segment reader"):
        assert_next_run_succeeds(train, place, out, expected)


MAIN_FAULTS = {
    "raise": (1, r"^bpeflow: RuntimeError: the injected defect \(a bug in bpeflow: please report it"),
    "memory": (1, r"^bpeflow: .*out of memory.*: .*add memory"),
    "segfault": (-11, r"^Fatal Python error: Segmentation fault"),
}
#: An exception leaves other files at every stage. No memory is one with a message of its own, of counting and of
#: learning. After a crash the next run cleans up, while it counts and when it only has to learn.
MAIN_CELLS = [(stage, "raise") for stage in MAIN if stage != "reducer"]
MAIN_CELLS += [("reducer", "memory"), ("learning", "memory"), ("segment", "segfault"), ("writing", "segfault")]


@pytest.mark.parametrize(("stage", "action"), MAIN_CELLS)
def test_a_fault_in_the_main_process(
    train: Train, stage: str, action: str, out: Path, earlier: Path, expected: dict[str, bytes]
) -> None:
    place, (status, said) = MAIN[stage], MAIN_FAULTS[action]
    run = fail(train, place, action)
    assert run.status == status, run.err
    assert re.search(said, run.err, re.MULTILINE), run.err
    assert ("Traceback" in run.err) == (action == "raise")
    run.assert_clean()
    left = finished_files(out)
    if action != "segfault":
        assert unfinished_files(out) == ({"counts.npz", "run.json"} if place.counted else set())
    else:  # the next run removes its lock and its spilled counts
        left = {name: content for name, content in left.items() if not name.startswith((".lock", ".scratch-"))}
    assert left == contents(earlier)
    if action == "segfault":
        assert_next_run_succeeds(train, place, out, expected)


def superwords(corpus: Path, out: Path, *flags: str) -> list[str]:
    # Many pipelines, one after another. Each would start a server of its own for processes, for half of the time.
    threads = ("--set", "chunk_size=1mb", "--set", "executor=threads")
    flags = ("--superwords", "--transition_size", "350", *threads, *flags)
    return arguments(corpus, out, *flags, segment_size="9mb")


@pytest.fixture(scope="module")
def large(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents many times, so that chunks are cut."""
    folder = tmp_path_factory.mktemp("large")
    texts = [path.read_text(encoding="utf-8") for path in sorted((corpora / "text").iterdir())]
    (folder / "text").write_text("<|endoftext|>".join(texts * 40), encoding="utf-8")
    run = Run(superwords(folder / "text", folder / "run"), folder).start().end()
    assert run.status == 0, run.err
    run.assert_clean()
    return folder


@pytest.mark.parametrize("stage", SUPERWORDS)
def test_a_training_with_superwords_that_is_killed_resumes(stage: str, large: Path, tmp_path: Path) -> None:
    place, out = SUPERWORDS[stage], tmp_path / "run"
    fault = Fault(place.where, "kill", place.call)
    killed = Run(superwords(large / "text", out), tmp_path, fault).start().end()
    assert killed.status == -signal.SIGKILL, killed.err
    killed.assert_clean()
    assert {path.name for path in out.iterdir()} == {".lock", "unfinished"}
    resumed = Run(["--resume", "--out_dir", str(out)], tmp_path).start().end()
    assert resumed.status == 0, resumed.err
    resumed.assert_clean()
    results, expected = contents(out), contents(large / "run")
    assert results.keys() == expected.keys()
    for name in expected:
        assert name.endswith("run.json") or results[name] == expected[name], name
    cut = json.loads(results["run.json"])["counting"]["cut"]
    assert cut == json.loads(expected["run.json"])["counting"]["cut"] and cut["cells"] > cut["frequent_cells"]
