"""Counting in tasks gives the counts of the local engine, whatever happens to tasks and to the driver."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inline_ray import InlineRay
from word_corpus import write_words

import bpeflow
from bpeflow.cli.main import main
from bpeflow.config import CountSettings, EngineSettings, make_settings
from bpeflow.counting.cluster import connect
from bpeflow.counting.count import CorpusCounter, CorpusCounts
from bpeflow.counting.ray_tasks import ClusterCounting
from bpeflow.counting.segments import SegmentRecord, count_segment
from bpeflow.errors import ConfigError, CorpusError, InvalidUtf8Error, TaskLostError
from bpeflow.flow import MonitorSample

SMALL = {"segment_size": "40kb", "chunk_size": "10kb"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_words(tmp_path_factory.mktemp("data") / "corpus")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> InlineRay:
    inline = InlineRay()
    inline.use(monkeypatch)
    return inline


@pytest.fixture
def several_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sum in several tasks, however little there is to sum."""
    monkeypatch.setattr("bpeflow.counting.ray_tasks._TASK_BYTES", 20_000)


@pytest.fixture(scope="module")
def whole(corpus: Path) -> CorpusCounts:
    """The counts by the local engine."""
    return counter(corpus, None).count()


def counter(corpus: Path | str, run: Path | None, **options: Any) -> CorpusCounter:
    if run is not None:
        run.mkdir(exist_ok=True)
    settings = make_settings(CountSettings, {"input": str(corpus), **SMALL, **options})
    return CorpusCounter(settings, run and run / "segments", scratch_in=run)


def count(corpus: Path | str, run: Path, engine: dict[str, Any] | None = None, **options: Any) -> CorpusCounts:
    """Count on the cluster."""
    with connect(make_settings(EngineSettings, {"kind": "ray", **(engine or {})})) as cluster:
        return counter(corpus, run, **options).count(cluster=ClusterCounting(cluster))


def assert_equal(counted: CorpusCounts, whole: CorpusCounts, total: int) -> None:
    assert counted.counts == whole.counts
    assert counted.documents == whole.documents
    assert counted.counting.stages["counter"].bytes == total


def size_of(corpus: Path) -> int:
    return sum(path.stat().st_size for path in corpus.iterdir())


# ---- the counts ----


@pytest.mark.parametrize("repeated", [(), (0, 3, 4, 9)])
def test_counts_are_those_of_the_local_engine(
    corpus: Path, whole: CorpusCounts, tmp_path: Path, ray: InlineRay, several_sums: None, repeated: tuple[int, ...]
) -> None:
    """Also if tasks run twice: their node was thought dead, but they continued and wrote their files."""
    ray.repeated = repeated
    counted = count(corpus, tmp_path / "run", {"cpus_per_task": 1})
    assert_equal(counted, whole, size_of(corpus))
    assert counted.counting.segments is not None
    assert counted.counting.segments.segments >= 5
    assert counted.counting.engine is not None
    assert counted.counting.engine.tasks == len(ray.names) > counted.counting.segments.segments
    counter(corpus, tmp_path / "run").forget_segments()
    assert not list((tmp_path / "run").iterdir())


def test_a_small_sum_is_one_task(corpus: Path, whole: CorpusCounts, tmp_path: Path, ray: InlineRay) -> None:
    assert_equal(count(corpus, tmp_path / "run"), whole, size_of(corpus))
    assert [name for name in ray.names if "sum" in name] == ["sum 1 of 1"]


@pytest.mark.parametrize(
    "options",
    [
        {"pattern": r"\w+|\W", "invalid_utf8": "skip"},
        {"pattern": "(?i:a)", "unmatched": "drop", "normalizer": "nfkc", "separator": "日"},
        {"memory_limit": "16mb"},
    ],
    ids=str,
)
def test_settings_are_those_of_the_run(
    corpus: Path, tmp_path: Path, ray: InlineRay, several_sums: None, options: dict[str, Any]
) -> None:
    whole = counter(corpus, None, **options).count()
    assert_equal(count(corpus, tmp_path / "run", **options), whole, size_of(corpus))


def test_streams_and_sources_are_counted(
    corpus: Path, tmp_path: Path, ray: InlineRay, several_sums: None, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with connect(EngineSettings(kind="ray")) as cluster:
        counted = CorpusCounter(counting, Path("segments")).count(cluster=ClusterCounting(cluster))
    assert counted.counts == whole.counts
    assert counted.documents == whole.documents


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
def test_slots_have_as_many_segments_each(ray: InlineRay, slots: int, total: int, wanted: int, size: int) -> None:
    ray.slots = slots
    with connect(EngineSettings(kind="ray")) as cluster:
        assert ClusterCounting(cluster).segment_size(total, wanted) == size


# ---- errors ----


def test_an_error_of_the_input_names_file_and_node(corpus: Path, tmp_path: Path, ray: InlineRay) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes((corpus / "a").read_bytes() + b"\xff")
    with pytest.raises(InvalidUtf8Error, match=rf"^on node .*{bad} is not UTF-8 at byte"):
        count(bad, tmp_path / "run", segment_size="1gb")


@pytest.mark.parametrize("change", [Path.unlink, Path.touch])
def test_a_file_that_changes_before_its_task_is_an_error(
    tmp_path: Path, corpus: Path, ray: InlineRay, change: Callable[[Path], object]
) -> None:
    file = tmp_path / "text"
    file.write_bytes((corpus / "c").read_bytes())
    ray.before = lambda number: change(file)
    with pytest.raises(CorpusError, match=rf"^on node .*{file}.*every node must see the same files"):
        count(file, tmp_path / "run", segment_size="1gb")


def test_what_only_this_process_can_read_is_refused_before_work(tmp_path: Path, corpus: Path) -> None:
    settings: dict[str, Any] = {"vocab_size": 300, "engine": {"kind": "ray"}}
    out = str(tmp_path / "run")
    with pytest.raises(ConfigError, match="out_dir is missing: engines other than local"):
        bpeflow.train({**settings, "input": str(corpus)})
    for values in ({"input": iter(["low lower"])}, {"input": "-"}):
        with pytest.raises(ConfigError, match=r"standard input, iterables .* engine='local'"):
            bpeflow.train({**settings, "out_dir": out, **values})
    assert not (tmp_path / "run").exists()


# ---- resuming ----


def test_a_task_that_is_always_lost_is_named_with_its_file_and_the_run_resumed(
    corpus: Path, tmp_path: Path, ray: InlineRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.slots, ray.lost = 1, {2, 3}
    with pytest.raises(TaskLostError, match=r"^count segment \d \(.*/corpus/[ac].*\) was lost 2 times: The worker"):
        count(corpus, tmp_path / "run", {"retries": 1})
    InlineRay().use(monkeypatch)
    counted = count(corpus, tmp_path / "run")
    assert counted.counting.segments is not None
    assert counted.counting.segments.resumed >= 1


def interrupt(tasks: int) -> Callable[[int], None]:
    """Return a function that interrupts this task."""

    def before(number: int) -> None:
        if number >= tasks:
            raise KeyboardInterrupt

    return before


@pytest.mark.parametrize("first", ["cluster", "local"])
def test_a_run_is_resumed_on_another_engine(
    corpus: Path,
    whole: CorpusCounts,
    tmp_path: Path,
    ray: InlineRay,
    first: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And on yet another, where one engine continues the work of the other."""
    ray.slots, ray.before = 1, interrupt(4)
    with pytest.raises(KeyboardInterrupt):
        count(corpus, tmp_path / "run")
    assert "keeps finished segments" in caplog.text
    if first == "cluster":
        counted = counter(corpus, tmp_path / "run").count()
    else:
        counted_segments: list[SegmentRecord] = []

        def fail_after_two(path: Path, *arguments: Any) -> SegmentRecord:
            if len(counted_segments) == 2:
                raise ZeroDivisionError
            counted_segments.append(count_segment(path, *arguments))
            return counted_segments[-1]

        monkeypatch.setattr("bpeflow.counting.segments.count_segment", fail_after_two)
        with pytest.raises(ZeroDivisionError):
            counter(corpus, tmp_path / "run", segment_size="30kb").count()
        InlineRay().use(monkeypatch)
        counted = count(corpus, tmp_path / "run", segment_size="33kb")
    assert_equal(counted, whole, size_of(corpus))
    assert counted.counting.segments is not None
    assert counted.counting.segments.resumed >= 2
    assert counted.counting.seconds > counted.counting.segments.resumed_seconds > 0


def test_damaged_segments_are_counted_again(
    corpus: Path, whole: CorpusCounts, tmp_path: Path, ray: InlineRay, caplog: pytest.LogCaptureFixture
) -> None:
    ray.slots, ray.before = 1, interrupt(5)
    with pytest.raises(KeyboardInterrupt):
        count(corpus, tmp_path / "run")
    shard = next((tmp_path / "run/segments").glob("000001-*.shard"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    ray.before = lambda number: None
    counted = count(corpus, tmp_path / "run")
    assert_equal(counted, whole, size_of(corpus))
    assert counted.counting.segments is not None
    assert counted.counting.segments.recounted == 1
    assert f"{shard.name} is damaged or missing" in caplog.text


# ---- whole runs ----


def arguments(corpus: Path, out: Path, *more: str) -> list[str]:
    flags = ["--input", str(corpus), "--vocab_size", "300", "--out_dir", str(out), "--backend", "python", "--quiet"]
    return [*flags, "--set", "segment_size=20kb", *more]


def results(out: Path) -> dict[str, bytes]:
    assert not (out / "unfinished").exists()
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name in ("vocab.json", "merges.txt")}


@pytest.mark.slow
def test_a_training_on_tasks(corpus: Path, tmp_path: Path, ray: InlineRay, several_sums: None) -> None:
    assert main(arguments(corpus, tmp_path / "local")) == 0
    flags = ["--engine", "ray", "--do_monitor", "--set", "monitor.interval=0.01"]
    assert main(arguments(corpus, tmp_path / "tasks", *flags)) == 0
    assert results(tmp_path / "tasks") == results(tmp_path / "local")
    report = json.loads((tmp_path / "tasks/run.json").read_text())
    assert report["counting"]["in_process"] is False
    engine = report["counting"]["engine"]
    assert (engine["kind"], len(engine["nodes"])) == ("ray", 1)
    assert engine["tasks"] > report["counting"]["segments"]["segments"] > 5
    (node,) = engine["nodes"].values()
    assert node["tasks"] == engine["tasks"]
    assert node["peak_memory_bytes"] > node["cpu_seconds"] > 0
    assert json.loads((tmp_path / "local/run.json").read_text())["counting"]["engine"] is None
    samples = [json.loads(line) for line in (tmp_path / "tasks/monitor.jsonl").read_text().splitlines()]
    assert samples[-1]["stages"]["counter"]["weight_done"] <= size_of(corpus)
    assert set(samples[-1]["stages"]) == {"counter"}


def test_samples_have_the_rates_of_all_tasks(corpus: Path, tmp_path: Path, ray: InlineRay, several_sums: None) -> None:
    samples: list[MonitorSample] = []
    with connect(EngineSettings(kind="ray")) as cluster:
        counter(corpus, tmp_path / "run").count(None, samples.append, 0.0, ClusterCounting(cluster))
    counting = [sample for sample in samples if sample.stages["counter"].weight_done]
    assert counting[-1].stages["counter"].weight_done == size_of(corpus)
    assert counting[-1].stages["counter"].items > 1
    assert max(sample.stages["counter"].weight_per_second for sample in counting) > 0
    assert "task_queue: " in counting[0].line()
