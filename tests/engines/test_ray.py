"""Counting and encoding on a Ray cluster of two nodes: the results of the local engine, whatever is killed."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from available import skip_missing
from crash_run import Fault, wait_for
from small_tokenizer import save_tokenizer
from task_engines import ChangedEngine, dying

from bpeflow.cli.main import main
from bpeflow.config import CountSettings, EngineSettings, make_settings
from bpeflow.counting.count import CorpusCounter, CorpusCounts
from bpeflow.dataset.encode import encode_file
from bpeflow.engines.distributed import DistributedCounting
from bpeflow.engines.engine import Call, Engine, TaskReport
from bpeflow.errors import CorpusError, EngineError, InvalidUtf8Error, TaskLostError
from bpeflow.tokenizer.tokenizer import Tokenizer

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
def cluster() -> Iterator[Any]:
    """Two nodes with a core each."""
    skip_missing("ray", None if find_spec("ray") else "not installed")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # workers import the functions of tests
        head = {**NODE, "include_dashboard": False, "_system_config": HEALTH}
        nodes = Cluster(initialize_head=True, head_node_args=head)
        nodes.add_node(**NODE)
        yield nodes
        nodes.shutdown()


@pytest.fixture(scope="module")
def engine(cluster: Any) -> Iterator[Engine]:
    """An engine that is connected to the cluster."""
    from bpeflow.engines.ray import RayEngine

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    connected = RayEngine(EngineSettings(kind="ray", address=cluster.address))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    yield connected
    connected.stop()
    connected.stop()


def another(cluster: Any, **settings: Any) -> Engine:
    """An engine in the process of `engine`, whose connection it uses."""
    from bpeflow.engines.ray import RayEngine

    return RayEngine(EngineSettings(kind="ray", address=cluster.address, **settings))


def counter(inputs: object, run: Path | None, **options: Any) -> CorpusCounter:
    if run is not None:
        run.mkdir(exist_ok=True)
    settings = make_settings(CountSettings, {"input": inputs, **SMALL, **options})
    return CorpusCounter(settings, run and run / "segments", scratch_in=run)


def distributed(engine: Engine, **options: Any) -> DistributedCounting:
    options = {"task_memory": "1gb", "partitions": 3, **options}
    return DistributedCounting(engine, make_settings(EngineSettings, {"kind": "ray", **options}))


def count(engine: Engine, inputs: object, run: Path, retries: int = 3, **options: Any) -> CorpusCounts:
    counting = counter(inputs, run, **options)
    counted = counting.count(distributor=distributed(engine, retries=retries))
    counting.forget_segments()
    assert not list(run.iterdir())
    return counted


def assert_equal(counted: CorpusCounts, whole: CorpusCounts) -> None:
    assert counted.counts == whole.counts
    assert counted.documents == whole.documents


# ---- the engine ----


def test_nodes_slots_and_names(engine: Engine) -> None:
    outcomes = engine.nodes(Call("probe", os.getpid))
    assert len({outcome.value for outcome in outcomes if isinstance(outcome, TaskReport)}) == 2
    assert engine.slots == 2


def test_workers_bounds_the_tasks_at_the_same_time(cluster: Any, engine: Engine) -> None:
    single = another(cluster, workers=1)
    assert single.slots == 1
    handles = [single.submit(Call(f"nap {number}", nap), 1, 0) for number in range(3)]
    spans = sorted(outcome.value for outcome in finish(single, handles))
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def nap() -> tuple[float, float]:
    begin = time.monotonic()
    time.sleep(0.2)
    return begin, time.monotonic()


def finish(engine: Engine, handles: list[Any]) -> list[Any]:
    outcomes = []
    while handles:
        for handle in engine.wait(handles, 5):
            handles.remove(handle)
            outcomes.append(engine.result(handle))
    return outcomes


def test_stopping_kills_tasks_that_run(cluster: Any, engine: Engine, tmp_path: Path) -> None:
    stopped = another(cluster)
    stopped.submit(Call("write", write_and_sleep, (tmp_path / "process",)), 1, 0)
    wait_until((tmp_path / "process").exists)
    process = psutil.Process(int((tmp_path / "process").read_text()))
    stopped.stop()
    process.wait(20)


def write_and_sleep(path: Path) -> None:
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(300)


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_no_room(cluster: Any, engine: Engine) -> None:
    message = r"task of 9 core\(s\) and 1\.0 GB: at most 1 and 4\.0 GB; lower engine\."
    with pytest.raises(EngineError, match=message):
        engine.submit(Call("large", os.getpid), 9, 10**9)
    with pytest.raises(EngineError, match=message):  # before any work
        another(cluster, cpus_per_task=9, task_memory="1gb").nodes(Call("probe", os.getpid))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://10.0.0.1:10001", "is an address of the Ray Client"),
        ("cluster", "is not of the form host:port"),
        ("localhost:1", r"no Ray cluster at localhost:1 \(Connection refused\)"),
    ],
)
def test_an_address_without_cluster(address: str, message: str) -> None:
    skip_missing("ray", None if find_spec("ray") else "not installed")
    from bpeflow.engines.ray import _connect

    began = time.monotonic()
    with pytest.raises(EngineError, match=message) as caught:
        _connect(EngineSettings(kind="ray", address=address))
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < 10


def test_a_loss_names_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    from ray import exceptions

    from bpeflow.engines.ray import _outcome

    out_of_memory = "Memory on the node (IP: 10.0.0.7, ID: 5f) was 7.9GB used / 8GB limit (0.98)"
    died = "The node it was running on is dead or unavailable. Node IP: 10.0.0.7, node ID: 5f. This can happen if"
    for error in (exceptions.OutOfMemoryError(out_of_memory), exceptions.NodeDiedError(died)):
        monkeypatch.setattr(ray, "get", Mock(side_effect=error))
        with pytest.raises(TaskLostError, match=r"^its node .* \(node 10\.0\.0\.7\)$"):
            _outcome(None)


LOSE_A_TASK = """
import os, sys, time
from bpeflow.config import EngineSettings
from bpeflow.engines.engine import Call
from bpeflow.engines.ray import RayEngine
from bpeflow.errors import TaskLostError

engine = RayEngine(EngineSettings(kind="ray", address=sys.argv[1]))
handle = engine.submit(Call("die", os._exit, (1,)), 1, 0)
while not engine.wait([handle], 1):
    pass
try:
    engine.result(handle)
except TaskLostError as error:
    time.sleep(2)
    engine.stop()
    sys.exit(str(error))
"""


def test_ray_prints_nothing_about_a_loss(cluster: Any) -> None:
    command = [sys.executable, "-c", LOSE_A_TASK, cluster.address]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.stdout, ended.returncode) == ("", 1)
    assert ended.stderr.splitlines()[-1].startswith("its worker process died")


# ---- counting ----


def test_counts_are_those_of_the_local_engine(engine: Engine, corpus: Path, tmp_path: Path) -> None:
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
        assert_equal(count(engine, sources, tmp_path / "run", **options), whole)


def test_a_worker_is_killed(engine: Engine, corpus: Path, tmp_path: Path) -> None:
    def change(number: int, call: Call) -> Call:
        step = {1: "begin", 3: "written"}.get(number)
        return dying(call, step, tmp_path / step) if step else call

    counted = count(ChangedEngine(engine, change), str(corpus), tmp_path / "run")
    assert_equal(counted, counter(str(corpus), None).count())
    assert (tmp_path / "begin").exists()
    assert (tmp_path / "written").exists()


def test_a_task_that_always_dies(engine: Engine, corpus: Path, tmp_path: Path) -> None:
    deadly = ChangedEngine(engine, lambda number, call: Call(call.name, os._exit, (1,)) if number >= 0 else call)
    with pytest.raises(TaskLostError, match=r"count segment \d .* was lost 2 time\(s\): its worker process died"):
        count(deadly, str(corpus), tmp_path / "run", retries=1)


def test_bad_input_names_its_node(engine: Engine, corpus: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes((corpus / "a").read_bytes() + b"\xff")
    with pytest.raises(InvalidUtf8Error, match=rf"^on node {socket.gethostname()}: {bad} is not UTF-8 at byte"):
        count(engine, str(bad), tmp_path / "run")


def test_a_path_that_a_node_does_not_see(engine: Engine, corpus: Path, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes((corpus / "a").read_bytes())

    def change(number: int, call: Call) -> Call:
        file.unlink()  # the driver has seen it, and the nodes will not
        return call

    with pytest.raises(CorpusError, match=rf"^on node .*: cannot read {file}.*every node must see the same files"):
        count(ChangedEngine(engine, change), str(file), tmp_path / "run")


def test_encoding(cluster: Any, engine: Engine, corpus: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(save_tokenizer(tmp_path / "tokenizer"))
    files = [corpus / name for name in ("a", "b", "c")]
    on_ray: Any = {"kind": "ray", "address": cluster.address, "task_memory": "1gb"}
    for options in ({"index": True}, {"shard_tokens": 50_000, "val_fraction": 0.1}):
        for name, machines in (("local", None), ("ray", on_ray)):
            (tmp_path / name).mkdir(exist_ok=True)
            encode_file(tokenizer, files, tmp_path / name / "train.bin", engine=machines, overwrite=True, **options)
        local, remote = (
            {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("local", "ray")
        )
        assert local == remote


# ---- whole runs ----


def bpeflow(arguments: list[str], held: Path | None = None, **options: Any) -> subprocess.Popen[str]:
    """Start the program. With `held` it waits before it records the third segment, and creates this file."""
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    if held is not None:
        environment |= Fault("bpeflow.counting.manifest:SegmentRecord.save", "wait", 3).environment(held)
    command = [sys.executable, "-m", "bpeflow", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, **options)


def training(corpus: Path, out: Path, *more: str) -> list[str]:
    flags = ["--input", str(corpus), "--vocab_size", "300", "--out_dir", str(out), "--backend", "python", "--quiet"]
    return [*flags, "--set", "segment_size=20kb", "--set", "engine.task_memory=1gb", *more]


def results(out: Path) -> dict[str, bytes]:
    assert not (out / "unfinished").exists()
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name in ("vocab.json", "merges.txt")}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_driver_is_killed_and_resumed(cluster: Any, corpus: Path, tmp_path: Path, number: int) -> None:
    out, on_ray = tmp_path / "run", ["--engine", "ray", "--engine_address", cluster.address]
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


# ---- last, as it changes the cluster ----


def test_a_node_is_removed(cluster: Any, engine: Engine, corpus: Path, tmp_path: Path) -> None:
    node = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)

    def change(number: int, call: Call) -> Call:
        if number == 4:
            cluster.remove_node(node, allow_graceful=False)
        return call

    counted = count(ChangedEngine(engine, change), str(corpus), tmp_path / "run")
    assert_equal(counted, counter(str(corpus), None).count())
    wait_until(lambda: engine.slots == 1)
