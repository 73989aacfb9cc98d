"""Counting and encoding on a Ray cluster of two nodes: the results of the local engine, whatever is killed."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from available import skip_missing
from crash_run import Fault, wait_for
from inline_ray import STEPS, die, run_and_die
from small_tokenizer import save_tokenizer
from word_corpus import write_words

from bpeflow.cli.main import main
from bpeflow.config import CountSettings, EngineSettings, make_settings
from bpeflow.corpus.files import InputFile
from bpeflow.corpus.plan import SegmentPart
from bpeflow.counting import ray_tasks
from bpeflow.counting.cluster import Cluster, connect
from bpeflow.counting.count import CorpusCounter, CorpusCounts
from bpeflow.counting.ray_tasks import ClusterCounting, CountTasks
from bpeflow.counting.segments import SegmentFolder, SegmentRecord
from bpeflow.counting.shards import Shard
from bpeflow.dataset import encode_tasks
from bpeflow.dataset.encode import encode_file
from bpeflow.dataset.encode_tasks import EncodeTasks
from bpeflow.errors import CorpusError, InvalidUtf8Error, TaskLostError
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.training import cut
from bpeflow.training.train import train

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

#: Room for tasks on each node.
NODE: dict[str, Any] = {"num_cpus": 1, "memory": 4_000_000_000, "object_store_memory": 100_000_000}

#: A node that is gone is missed after some four seconds. With less patience, a busy machine loses nodes that are well.
HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 10_000,
    "health_check_failure_threshold": 4,
}

SMALL = {"segment_size": "40kb", "chunk_size": "10kb"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_words(tmp_path_factory.mktemp("data") / "corpus")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Two nodes with a core each."""
    yield from start_nodes()


def start_nodes() -> Iterator[Any]:
    skip_missing("ray", None if find_spec("ray") else "not installed")
    from ray.cluster_utils import Cluster as Nodes

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # workers import the functions of tests
        head = {**NODE, "include_dashboard": False, "_system_config": HEALTH}
        nodes = Nodes(initialize_head=True, head_node_args=head)
        nodes.add_node(**NODE)
        yield nodes
        nodes.shutdown()


@pytest.fixture(scope="module")
def cluster(nodes: Any) -> Iterator[Cluster]:
    """A connection to the cluster."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with connected(nodes) as cluster:
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
        yield cluster


def connected(nodes: Any, **settings: Any) -> Any:
    """Connect to the cluster, with the connection that this process has, if any."""
    return connect(make_settings(EngineSettings, {"kind": "ray", "address": nodes.address, **settings}))


def counter(inputs: object, run: Path | None, **options: Any) -> CorpusCounter:
    if run is not None:
        run.mkdir(exist_ok=True)
    settings = make_settings(CountSettings, {"input": inputs, **SMALL, **options})
    return CorpusCounter(settings, run and run / "segments", scratch_in=run)


def count(nodes: Any, inputs: object, run: Path, retries: int = 3, **options: Any) -> CorpusCounts:
    counting = counter(inputs, run, **options)
    with connected(nodes, task_memory="1gb", retries=retries) as cluster:
        counted = counting.count(cluster=ClusterCounting(cluster))
    counting.forget_segments()
    assert not list(run.iterdir())
    return counted


@pytest.fixture
def several_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sum in several tasks, however little there is to sum."""
    monkeypatch.setattr("bpeflow.counting.ray_tasks._TASK_BYTES", 20_000)


def assert_equal(counted: CorpusCounts, whole: CorpusCounts) -> None:
    assert counted.counts == whole.counts
    assert counted.documents == whole.documents


# ---- the cluster ----


def test_slots_and_nodes(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.slots == 2
    calls = [(number, f"nap {number}", ()) for number in range(8)]
    reports = [report for _, report in cluster.run(None, nap, calls, tmp_path)]
    assert len({report.process for report in reports}) == 2


def test_workers_bounds_the_tasks_at_the_same_time(nodes: Any, cluster: Cluster, tmp_path: Path) -> None:
    with connected(nodes, workers=1) as single:
        assert single.slots == 1
        calls = [(number, f"nap {number}", ()) for number in range(3)]
        spans = sorted(report.value for _, report in single.run(None, nap, calls, tmp_path))
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def nap(_work: object) -> tuple[float, float]:
    begin = time.monotonic()
    time.sleep(0.2)
    return begin, time.monotonic()


def test_stopping_kills_tasks_that_run(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "process"
    tasks = cluster.run(file, write_and_sleep, [(0, "write", ())], tmp_path, lambda: wait_until_running(file))
    with pytest.raises(KeyboardInterrupt):
        next(tasks)
    psutil.Process(int(file.read_text())).wait(20)


def write_and_sleep(file: Path) -> None:
    file.with_suffix(".new").write_text(str(os.getpid()))
    file.with_suffix(".new").rename(file)
    time.sleep(300)


def wait_until_running(file: Path) -> None:
    wait_until(file.exists)
    raise KeyboardInterrupt


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


LOSE_A_TASK = """
import sys, time
from pathlib import Path
from inline_ray import die
from bpeflow.config import EngineSettings
from bpeflow.counting.cluster import connect
from bpeflow.errors import TaskLostError

try:
    with connect(EngineSettings(kind="ray", address=sys.argv[1], retries=1)) as cluster:
        try:
            list(cluster.run(None, die, [(0, "die", ())], Path(sys.argv[2])))
        finally:
            time.sleep(2)
except TaskLostError as error:
    sys.exit(str(error))
"""


def test_ray_prints_nothing_about_a_loss(nodes: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOSE_A_TASK, nodes.address, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.stdout, ended.returncode) == ("", 1)
    [line] = ended.stderr.splitlines()
    assert line.startswith("die was lost 2 times: The worker died unexpectedly while executing this task.")


# ---- counting ----


def test_counts_are_those_of_the_local_engine(
    nodes: Any, cluster: Cluster, corpus: Path, tmp_path: Path, several_sums: None
) -> None:
    text = (corpus / "a").read_text(encoding="utf-8")
    (tmp_path / "c.gz").write_bytes(gzip.compress(text.encode()))
    lines = "".join(json.dumps({"text": part}) + "\n" for part in text.split("<|endoftext|>"))
    (tmp_path / "c.jsonl").write_text(lines, encoding="utf-8")
    sources = [
        {"name": "text", "path": str(corpus), "weight": 3},
        {"name": "streams", "path": [str(tmp_path / "c.gz"), str(tmp_path / "c.jsonl")]},
        {"name": "sample", "path": str(tmp_path / "c.jsonl"), "max_bytes": 5000},
    ]
    for options in ({}, {"pattern": r"\w+|\W", "invalid_utf8": "skip"}):
        whole = counter(sources, None, **options).count()
        assert_equal(count(nodes, sources, tmp_path / "run", **options), whole)


@dataclass(frozen=True)
class DyingTasks(CountTasks):
    """Tasks that die at each of some steps, once, and one of those that sum, too."""

    def count_segment(self, part: SegmentPart) -> SegmentRecord:
        step = next((step for step in STEPS if first_time(self.marks / step)), None)
        return run_and_die(step, super().count_segment, part) if step else super().count_segment(part)

    def sum_partitions(self, shards: Sequence[Shard]) -> Shard:
        dies = first_time(self.marks / "sum")
        return run_and_die("named", super().sum_partitions, shards) if dies else super().sum_partitions(shards)

    @property
    def marks(self) -> Path:
        return self.folder.parent.parent


def first_time(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def test_a_task_may_die_at_any_step(
    nodes: Any, cluster: Cluster, corpus: Path, tmp_path: Path, several_sums: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_tasks, "CountTasks", DyingTasks)
    assert_equal(count(nodes, str(corpus), tmp_path / "run"), counter(str(corpus), None).count())
    assert {path.name for path in tmp_path.iterdir()} == {"run", "sum", *STEPS}


@dataclass(frozen=True)
class DeadlyTasks(CountTasks):
    """Tasks that always die."""

    def count_segment(self, part: SegmentPart) -> SegmentRecord:
        die()
        raise AssertionError


def test_a_task_that_always_dies(
    nodes: Any, cluster: Cluster, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_tasks, "CountTasks", DeadlyTasks)
    with pytest.raises(TaskLostError, match=r"count segment \d .* was lost 2 times: The worker died unexpectedly"):
        count(nodes, str(corpus), tmp_path / "run", retries=1)


def test_bad_input_names_its_node(nodes: Any, cluster: Cluster, corpus: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes((corpus / "a").read_bytes() + b"\xff")
    with pytest.raises(InvalidUtf8Error, match=rf"^on node {socket.gethostname()}: {bad} is not UTF-8 at byte"):
        count(nodes, str(bad), tmp_path / "run")


@dataclass(frozen=True)
class Elsewhere(CountTasks):
    """Tasks on a node that has other files."""

    def count_segment(self, part: SegmentPart) -> SegmentRecord:
        (self.folder.parent.parent / "text").unlink(missing_ok=True)
        return super().count_segment(part)


def test_a_path_that_a_node_does_not_see(
    nodes: Any, cluster: Cluster, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_tasks, "CountTasks", Elsewhere)
    file = tmp_path / "text"
    file.write_bytes((corpus / "a").read_bytes())
    with pytest.raises(CorpusError, match=rf"^on node .*: cannot read {file}.*every node must see the same files"):
        count(nodes, str(file), tmp_path / "run", segment_size="1gb")


@dataclass(frozen=True)
class DyingEncoding(EncodeTasks):
    """Tasks that die when they have written their file, once."""

    def encode_part(self, entries: list[InputFile]) -> str:
        dies = first_time(self.folder.parent.parent / "died")
        return str(run_and_die("end", super().encode_part, entries)) if dies else super().encode_part(entries)


def test_encoding(nodes: Any, cluster: Cluster, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_tasks, "EncodeTasks", DyingEncoding)
    monkeypatch.setattr(encode_tasks, "_MIN_PART", 50_000)
    tokenizer = Tokenizer.load(save_tokenizer(tmp_path / "tokenizer"))
    files = [corpus / name for name in ("a", "b", "c")]
    on_ray: Any = {"kind": "ray", "address": nodes.address, "task_memory": "1gb"}
    for options in ({"index": True}, {"shard_tokens": 50_000, "val_fraction": 0.1}):
        for name, machines in (("local", {}), ("ray", on_ray)):
            (tmp_path / name).mkdir(exist_ok=True)
            encode_file(tokenizer, files, tmp_path / name / "train.bin", engine=machines, overwrite=True, **options)
        local, remote = (
            {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("local", "ray")
        )
        assert local == remote
    assert (tmp_path / "died").exists()


# ---- whole runs ----


def bpeflow(arguments: list[str], held: Path | None = None, **options: Any) -> subprocess.Popen[str]:
    """Start the program. With `held` it waits before it records the third segment, and creates this file."""
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    if held is not None:
        environment |= Fault("bpeflow.counting.segments:SegmentRecord.save", "wait", 3).environment(held)
    command = [sys.executable, "-m", "bpeflow", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, **options)


def training(corpus: Path, out: Path, *more: str) -> list[str]:
    flags = ["--input", str(corpus), "--vocab_size", "300", "--out_dir", str(out), "--backend", "python", "--quiet"]
    return [*flags, "--set", "segment_size=20kb", "--set", "engine.task_memory=1gb", *more]


def results(out: Path) -> dict[str, bytes]:
    assert not (out / "unfinished").exists()
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name in ("vocab.json", "merges.txt")}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_driver_is_killed_and_resumed(nodes: Any, corpus: Path, tmp_path: Path, number: int) -> None:
    out, on_ray = tmp_path / "run", ["--engine", "ray", "--engine_address", nodes.address]
    driver = bpeflow(training(corpus, out, *on_ray), held := tmp_path / "held")
    assert wait_for(held, driver) == driver.pid
    driver.send_signal(number)
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == (-number if number == signal.SIGKILL else 128 + number)
    last = {signal.SIGTERM: "bpeflow: ended by SIGTERM", signal.SIGINT: "bpeflow: interrupted"}.get(number)
    assert last is None or errors.splitlines()[-1] == last
    assert "Traceback" not in errors
    if number == signal.SIGKILL:
        resumed = bpeflow(training(corpus, out, "--resume", *on_ray))
        _, errors = resumed.communicate(timeout=120)
        assert resumed.returncode == 0, errors
        assert main(training(corpus, tmp_path / "local")) == 0
        assert results(out) == results(tmp_path / "local")
        assert json.loads((out / "run.json").read_text())["counting"]["segments"]["resumed"] == 2


def test_superwords(
    nodes: Any, cluster: Cluster, corpus: Path, tmp_path: Path, several_sums: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass is counted by tasks: words, cells of pairs, and fragments."""
    monkeypatch.setattr(cut, "CUT_FROM", 1)
    on_ray = {"segment_size": "40kb", "engine": {"kind": "ray", "address": nodes.address, "task_memory": "1gb"}}
    values = {"input": str(corpus), "vocab_size": 460, "transition_size": 400, "superwords": True}
    local = train({**values, "out_dir": tmp_path / "local"})
    remote = train({**values, "out_dir": tmp_path / "ray", **on_ray})
    assert results(tmp_path / "ray") == results(tmp_path / "local")
    assert remote.counts == local.counts and remote.counts.cut == local.counts.cut is not None
    first = json.loads((tmp_path / "ray" / "first_stage" / "run.json").read_text())
    for counting in (first["counting"], json.loads((tmp_path / "ray" / "run.json").read_text())["counting"]):
        assert counting["engine"]["kind"] == "ray" and counting["segments"]["segments"] > 2


def test_a_cluster_of_this_machine_alone_ends_with_the_run(corpus: Path, tmp_path: Path) -> None:
    skip_missing("ray", None if find_spec("ray") else "not installed")
    out = tmp_path / "run"
    before = ray_processes()
    on_ray = ["--engine", "ray", "--engine_address", "local"]
    driver = bpeflow(training(corpus, out, *on_ray), held := tmp_path / "held", start_new_session=True)
    wait_for(held, driver)
    started = [process for process in ray_processes() if process not in before]
    assert started
    workers = [child for process in started for child in process.children()]
    assert {worker.nice() for worker in workers} == {psutil.Process().nice()}  # they do not wait for other programs
    driver.send_signal(signal.SIGTERM)
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 128 + signal.SIGTERM
    assert errors.splitlines()[-1] == "bpeflow: ended by SIGTERM"
    assert psutil.wait_procs(started, timeout=20)[1] == []


def ray_processes() -> list[psutil.Process]:
    """The daemons of all clusters on this machine."""
    return [process for process in psutil.process_iter(["name"]) if process.info["name"] in ("gcs_server", "raylet")]


# ---- last, as these change the cluster ----


def test_a_node_is_removed(
    nodes: Any, cluster: Cluster, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = next(node for node in nodes.list_all_nodes() if node is not nodes.head_node)
    save = SegmentFolder._add
    saved: list[object] = []

    def remove_node(*arguments: Any) -> None:
        save(*arguments)
        saved.append(arguments)
        if len(saved) == 2:
            nodes.remove_node(node, allow_graceful=False)

    monkeypatch.setattr(SegmentFolder, "_add", remove_node)
    counted = count(nodes, str(corpus), tmp_path / "run")
    assert_equal(counted, counter(str(corpus), None).count())
    wait_until(lambda: cluster._count_slots() == 1)


def test_a_cluster_that_is_gone_is_one_sentence_and_the_run_is_resumed(corpus: Path, tmp_path: Path) -> None:
    """Two at a time, as most of it is waiting. The program runs in processes of its own, as Ray would end this one."""
    with ExitStack() as stack:
        lost = {}
        for name in ("gcs", "head"):
            nodes = stack.enter_context(contextmanager(start_nodes)())
            on_ray = ["--engine", "ray", "--engine_address", nodes.address]
            driver = bpeflow(training(corpus, tmp_path / name, *on_ray), held := tmp_path / f"{name}.held")
            wait_for(held, driver)
            lost[held] = nodes.head_node, nodes.address, driver
        for held, (head, _, _) in lost.items():
            if held.stem == "head":
                head.kill_raylet()
            head.kill_gcs_server()
            held.unlink()
        began = time.monotonic()
        for _, address, driver in lost.values():
            _, errors = driver.communicate(timeout=60)
            assert time.monotonic() - began < 20
            assert driver.returncode == 1
            *earlier, last = errors.splitlines()
            gone = rf"bpeflow: the Ray cluster is gone: its head node {re.escape(address)} does not answer \(.*\)"
            assert re.fullmatch(gone, last)
            assert [line for line in earlier if "Failed to push error to driver" not in line] == []  # Ray's native log
    assert main(training(corpus, tmp_path / "local")) == 0
    for held in lost:
        assert main(training(corpus, held.with_suffix(""), "--resume")) == 0
        assert results(held.with_suffix("")) == results(tmp_path / "local")
