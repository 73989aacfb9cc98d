"""Counting on an engine gives the counts of the local one, whatever happens to tasks, workers and the driver."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from crash_run import Fault, wait_for
from task_engines import STEPS, ChangedEngine, InlineEngine, dying

import bpeflow
from bpeflow.cli.main import main
from bpeflow.config import CountSettings, EngineSettings, make_settings
from bpeflow.counting.count import CorpusCounter, CorpusCounts
from bpeflow.counting.segments import SegmentFolder
from bpeflow.engines.distributed import DistributedCounting
from bpeflow.engines.engine import Call, Engine
from bpeflow.engines.local import ProcessEngine
from bpeflow.errors import ConfigError, CorpusError, InvalidUtf8Error, TaskLostError
from bpeflow.flow import MonitorSample

SMALL = {"segment_size": "40kb", "chunk_size": "10kb"}


def counter(corpus: Path | str, run: Path | None, **options: Any) -> CorpusCounter:
    if run is not None:
        run.mkdir(exist_ok=True)
    settings = make_settings(CountSettings, {"input": str(corpus), **SMALL, **options})
    return CorpusCounter(settings, run and run / "segments", scratch_in=run)


def distributed(engine: Engine, **options: Any) -> DistributedCounting:
    return DistributedCounting(engine, EngineSettings(kind="processes", partitions=3, **options))


def count(engine: Engine, corpus: Path | str, run: Path, retries: int = 3, **options: Any) -> CorpusCounts:
    return counter(corpus, run, **options).count(distributor=distributed(engine, retries=retries))


def assert_equal(counted: CorpusCounts, whole: CorpusCounts, total: int) -> None:
    assert counted.counts == whole.counts
    assert counted.documents == whole.documents
    assert sum(worker.weight_done for worker in counted.workers if worker.stage == "counter") == total


def size_of(corpus: Path) -> int:
    return sum(path.stat().st_size for path in corpus.iterdir())


@pytest.fixture(scope="module")
def whole(corpus: Path) -> CorpusCounts:
    """The counts by the local engine."""
    return counter(corpus, None).count()


# ---- the counts ----


def test_counts_are_those_of_the_local_engine(
    corpus: Path, whole: CorpusCounts, processes: ProcessEngine, tmp_path: Path
) -> None:
    distribution = distributed(processes, cpus_per_task=2)
    counting = counter(corpus, tmp_path / "run")
    counted = counting.count(distributor=distribution)
    assert_equal(counted, whole, size_of(corpus))
    assert counted.counting.segments is not None
    assert counted.counting.segments.segments >= 5
    assert distribution.tally.tasks == distribution.tally.attempts == counted.counting.segments.segments + 3
    assert {worker.worker for worker in counted.workers if worker.stage == "counter"} <= {0, 1, 2, 3}
    counting.forget_segments()
    assert not list((tmp_path / "run").iterdir())


def test_small_sums_are_not_worth_tasks(
    corpus: Path, whole: CorpusCounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EngineSettings(kind="processes")
    for run, tasks_of_sum in ("small", []), ("large", ["sum", "sum"]):
        engine = InlineEngine()
        counted = counter(corpus, tmp_path / run).count(distributor=DistributedCounting(engine, settings))
        assert_equal(counted, whole, size_of(corpus))
        assert [call.name.split()[0] for call in engine.calls if not call.name.startswith("count")] == tasks_of_sum
        assert bool(list((tmp_path / run).glob("segments/range-*"))) == bool(tasks_of_sum)
        monkeypatch.setattr("bpeflow.engines.distributed._SMALL_SUM", 1000)


@pytest.mark.parametrize(
    "options",
    [
        {"pattern": r"\w+|\W", "invalid_utf8": "skip"},
        {"normalizer": "nfkc", "separator": "日"},
        {"memory_limit": "16mb"},
    ],
    ids=str,
)
def test_settings_are_those_of_the_run(corpus: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    whole = counter(corpus, None, **options).count()
    assert_equal(count(InlineEngine(), corpus, tmp_path / "run", **options), whole, size_of(corpus))


def test_streams_and_sources_are_counted(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (corpus / "a").read_text(encoding="utf-8")
    (tmp_path / "c.gz").write_bytes(gzip.compress(text.encode()))
    lines = "".join(json.dumps({"text": part}) + "\n" for part in text.split("<|endoftext|>"))
    (tmp_path / "c.jsonl").write_text(lines, encoding="utf-8")
    monkeypatch.chdir(tmp_path)  # paths may be relative
    sources = [
        {"name": "text", "path": str(corpus), "weight": 3},
        {"name": "streams", "path": ["c.gz", "c.jsonl"]},
        {"name": "sample", "path": "c.jsonl", "max_bytes": 5000},
    ]
    counting = make_settings(CountSettings, {"input": sources, **SMALL})
    whole = CorpusCounter(counting).count()
    other = CorpusCounter(counting, Path("segments"))

    def elsewhere(number: int, call: Call) -> Call:
        return replace(call, function=InAnotherFolder(call.function))

    counted = other.count(distributor=distributed(ChangedEngine(InlineEngine(), elsewhere)))
    assert counted.counts == whole.counts
    assert counted.documents == whole.documents


class InAnotherFolder:
    """Call a function as a worker would that was started elsewhere."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        here = Path.cwd()
        os.chdir("/")
        try:
            return self._function(*arguments)
        finally:
            os.chdir(here)


# ---- losses ----


@pytest.mark.slow
def test_a_task_may_die_at_any_step(
    corpus: Path, whole: CorpusCounts, processes: ProcessEngine, tmp_path: Path
) -> None:
    """Each step in another task, and the same steps in the tasks that sum."""
    deaths: list[str] = []

    def change(number: int, call: Call) -> Call:
        kind = call.name.split()[0]
        steps = [step for step in STEPS if f"{kind} {step}" not in deaths and kind in ("count", "sum")]
        if not steps or (kind == "sum" and len(deaths) > len(STEPS)):  # one of those is enough
            return call
        deaths.append(f"{kind} {steps[0]}")
        return dying(call, steps[0], tmp_path / deaths[-1])

    engine = ChangedEngine(processes, change)
    counting = counter(corpus, tmp_path / "run")
    counted = counting.count(distributor=distributed(engine))
    assert_equal(counted, whole, size_of(corpus))
    assert len(deaths) == len(STEPS) + 1
    assert all((tmp_path / death).exists() for death in deaths)
    assert counted.counting.segments is not None
    assert engine.submitted == counted.counting.segments.segments + 3 + len(deaths)
    counting.forget_segments()
    assert not list((tmp_path / "run").iterdir())


def test_tasks_may_run_twice_at_the_same_time(
    corpus: Path, whole: CorpusCounts, processes: ProcessEngine, tmp_path: Path
) -> None:
    counting = counter(corpus, tmp_path / "run")
    assert_equal(counting.count(distributor=distributed(ChangedEngine(processes, twice=True))), whole, size_of(corpus))
    processes.wait([processes.submit(Call("last", os.getpid), 1, 0)], 30)  # the second attempts have ended, too
    counting.forget_segments()
    assert not list((tmp_path / "run").iterdir())


def test_results_of_lost_tasks_do_not_count(corpus: Path, whole: CorpusCounts, tmp_path: Path) -> None:
    """The node was thought dead, but the task continued and wrote its file."""
    lost = {0, 2, 3}
    engine = ChangedEngine(InlineEngine(), outcome=lambda n, out: TaskLostError("gone") if n in lost else out)
    counting = counter(corpus, tmp_path / "run")
    assert_equal(counting.count(distributor=distributed(engine)), whole, size_of(corpus))
    counting.forget_segments()
    assert not list((tmp_path / "run").iterdir())


def test_a_task_that_always_dies_is_named_with_its_file(corpus: Path, tmp_path: Path) -> None:
    def outcome(number: int, found: Any) -> Any:
        return TaskLostError("node n: killed") if number > 2 else found

    engine = ChangedEngine(InlineEngine(slots=1), outcome=outcome)
    with pytest.raises(
        TaskLostError, match=r"^count segment \d \(.*/corpus/[ac].*\) was lost 2 time\(s\): node n: kill"
    ):
        count(engine, corpus, tmp_path / "run", retries=1)
    counted = count(InlineEngine(), corpus, tmp_path / "run")
    assert counted.counting.segments is not None
    assert counted.counting.segments.resumed == 2


@pytest.mark.parametrize(
    ("slots", "total", "wanted", "size"),
    [
        (2, 30_000_000, 10**10, 64_000_000),  # one segment: a second task would not pay
        (2, 600_000_001, 10**10, 300_000_001),
        (2, 1_000_000_000, 10**10, 500_000_000),
        (2, 2_100_000_000, 10**10, 525_000_000),
        (3, 600_000_000, 10**10, 200_000_000),
        (1, 1_400_000_000, 10**10, 1_400_000_000),  # nothing to balance
        (1, 1_600_000_000, 10**10, 800_000_000),
        (2, 5_000_000_000, 10**10, 625_000_000),
        (2, 10**12, 10**11, 10**9),
        (2, 10**12, 1000, 1000),
    ],
)
def test_slots_have_as_many_segments_each(slots: int, total: int, wanted: int, size: int) -> None:
    assert distributed(InlineEngine(slots=slots)).segment_size(total, wanted) == size


# ---- errors of the input ----


def test_an_error_of_the_input_is_not_repeated_and_names_file_and_node(corpus: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes((corpus / "a").read_bytes() + b"\xff")
    engine = InlineEngine()
    with pytest.raises(InvalidUtf8Error, match=rf"^on node .*{bad} is not UTF-8 at byte"):
        count(engine, bad, tmp_path / "run", segment_size="1gb")
    assert len(engine.calls) == 1


@pytest.mark.parametrize("change", [Path.unlink, Path.touch])
def test_a_file_that_changes_before_its_task_is_an_error(
    tmp_path: Path, corpus: Path, change: Callable[[Path], object]
) -> None:
    file = tmp_path / "text"
    file.write_bytes((corpus / "c").read_bytes())

    def changing(number: int, call: Call) -> Call:
        if number == 0:
            change(file)
        return call

    with pytest.raises(CorpusError, match=rf"^on node .*{file}.*every node must see the same files"):
        count(ChangedEngine(InlineEngine(), changing), file, tmp_path / "run", segment_size="1gb")


def test_what_only_this_process_can_read_is_refused_before_work(tmp_path: Path, corpus: Path) -> None:
    settings: dict[str, Any] = {"vocab_size": 300, "engine": {"kind": "processes"}}
    out = str(tmp_path / "run")
    with pytest.raises(ConfigError, match="out_dir is missing: engines other than local"):
        bpeflow.train({**settings, "input": str(corpus)})
    for values in ({"input": iter(["low lower"])}, {"input": "-"}):
        with pytest.raises(ConfigError, match=r"standard input, iterables .* engine\.kind: local"):
            bpeflow.train({**settings, "out_dir": out, **values})
    assert not (tmp_path / "run").exists()


# ---- resuming ----


def failing_after(segments: int) -> ChangedEngine:
    """An engine that is gone after this number of tasks."""

    def change(number: int, call: Call) -> Call:
        if number >= segments:
            raise KeyboardInterrupt
        return call

    return ChangedEngine(InlineEngine(slots=1), change)


@pytest.mark.parametrize("first", ["tasks", "local"])
def test_a_run_is_resumed_on_another_engine(
    corpus: Path,
    whole: CorpusCounts,
    tmp_path: Path,
    first: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And on yet another, where one engine continues the work of the other."""
    with pytest.raises(KeyboardInterrupt):
        count(failing_after(3), corpus, tmp_path / "run")
    assert "keeps finished segments" in caplog.text
    if first == "tasks":
        counted = counter(corpus, tmp_path / "run").count()
    else:
        counted_segments: list[object] = []

        def fail_after_two(self: SegmentFolder, *arguments: Any) -> None:
            counted_segments.append(count_segment(self, *arguments))
            if len(counted_segments) == 2:
                raise ZeroDivisionError

        count_segment = SegmentFolder._count
        monkeypatch.setattr(SegmentFolder, "_count", fail_after_two)
        with pytest.raises(ZeroDivisionError):
            counter(corpus, tmp_path / "run", segment_size="30kb").count()
        counted = count(InlineEngine(), corpus, tmp_path / "run", segment_size="33kb")
    assert_equal(counted, whole, size_of(corpus))
    assert counted.counting.segments is not None
    assert counted.counting.segments.resumed >= 2
    assert counted.counting.seconds > counted.counting.segments.resumed_seconds > 0


def test_damaged_segments_are_counted_again(
    corpus: Path, whole: CorpusCounts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyboardInterrupt):
        count(failing_after(5), corpus, tmp_path / "run")
    shard = next((tmp_path / "run/segments").glob("000001-*.shard"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    counted = count(InlineEngine(), corpus, tmp_path / "run")
    assert_equal(counted, whole, size_of(corpus))
    assert counted.counting.segments is not None
    assert counted.counting.segments.recounted == 1
    assert f"{shard.name} is damaged or missing" in caplog.text


# ---- whole runs ----


def arguments(corpus: Path, out: Path, *more: str) -> list[str]:
    flags = ["--input", str(corpus), "--vocab_size", "300", "--out_dir", str(out), "--backend", "python", "--quiet"]
    return [*flags, "--set", "segment_size=20kb", "--set", "executor=threads", *more]


def results(out: Path) -> dict[str, bytes]:
    assert not (out / "unfinished").exists()
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name in ("vocab.json", "merges.txt")}


ON_PROCESSES = ("--engine", "processes", "--set", "engine.workers=2")


@pytest.mark.slow
def test_a_training_on_tasks(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(corpus, tmp_path / "local")) == 0
    flags = ["--do_monitor", "--set", "monitor.interval=0.01", "--set", "engine.partitions=2"]
    assert main(arguments(corpus, tmp_path / "tasks", *ON_PROCESSES, *flags)) == 0
    assert results(tmp_path / "tasks") == results(tmp_path / "local")
    report = json.loads((tmp_path / "tasks/run.json").read_text())
    assert report["counting"]["in_process"] is False
    engine = report["counting"]["engine"]
    assert (engine["kind"], len(engine["nodes"])) == ("processes", 1)
    assert engine["tasks"] == engine["attempts"] > report["counting"]["segments"]["segments"] > 5
    (node,) = engine["nodes"].values()
    assert node["tasks"] == engine["tasks"]
    assert node["peak_memory_bytes"] > node["cpu_seconds"] > 0
    assert json.loads((tmp_path / "local/run.json").read_text())["counting"]["engine"] is None
    samples = [json.loads(line) for line in (tmp_path / "tasks/monitor.jsonl").read_text().splitlines()]
    assert samples[-1]["stages"]["counter"]["weight_done"] <= size_of(corpus)
    assert set(samples[-1]["stages"]) == {"segment plan", "counter", *(f"node {name}" for name in engine["nodes"])}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_driver_that_is_killed_is_resumed_on_the_other_engine(corpus: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "bpeflow", *arguments(corpus, out, *ON_PROCESSES)]
    third_record = Fault("bpeflow.counting.manifest:SegmentRecord.save", "wait", 3)
    environment = {**os.environ, **third_record.environment(tmp_path / "held")}
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert wait_for(tmp_path / "held", driver) == driver.pid
    workers = psutil.Process(driver.pid).children(recursive=True)
    os.kill(driver.pid, number)
    _, errors = driver.communicate()
    assert driver.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert number == signal.SIGKILL or errors.splitlines()[-1] == "bpeflow: ended by SIGTERM"
    assert "Traceback" not in errors
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    assert main(arguments(corpus, out, "--resume", "--engine", "local")) == 0
    assert main(arguments(corpus, tmp_path / "local")) == 0
    assert results(out) == results(tmp_path / "local")
    assert json.loads((out / "run.json").read_text())["counting"]["segments"]["resumed"] == 2


def test_samples_have_rates_by_node(corpus: Path, tmp_path: Path) -> None:
    samples: list[MonitorSample] = []
    counter(corpus, tmp_path / "run").count(None, samples.append, 0.0, distributor=distributed(InlineEngine()))
    counting = [sample for sample in samples if sample.stages["counter"].weight_done]
    assert counting[-1].stages["counter"].weight_done == size_of(corpus)
    node = next(name for name in counting[-1].stages if name.startswith("node "))
    assert sum(sample.stages[node].items for sample in counting[-1:]) == counting[-1].stages["counter"].items
    assert max(sample.stages[node].weight_per_second for sample in counting) > 0
    assert "task_queue: " in counting[0].line()
