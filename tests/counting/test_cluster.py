"""Tasks on a cluster, and what is said of nodes and clusters that cannot run them."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from available import skip_missing
from inline_ray import InlineRay

from bpeflow.config import EngineSettings
from bpeflow.counting import cluster
from bpeflow.counting.cluster import Cluster, TaskReport, connect, task_folder
from bpeflow.errors import CorpusError, EngineError, EngineUnavailableError, OutOfMemoryError, TaskLostError

NODE = socket.gethostname()


def multiply(factor: int, number: int) -> int:
    return factor * number


def fail(_work: object, error: BaseException) -> None:
    raise error


def squares(count: int) -> list[tuple[int, str, tuple[int]]]:
    return [(number, f"square {number}", (number,)) for number in range(count)]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> InlineRay:
    inline = InlineRay()
    inline.use(monkeypatch)
    return inline


def run(folder: Path, calls: Any, function: Any = multiply, **settings: Any) -> dict[int, Any]:
    with connect(EngineSettings(kind="ray", **settings)) as connected:
        reports = {index: report.value for index, report in connected.run(3, function, calls, folder)}
    assert list(folder.iterdir()) == []
    return reports


def test_tasks_end_in_any_order(ray: InlineRay, tmp_path: Path) -> None:
    assert run(tmp_path, squares(20)) == {number: 3 * number for number in range(20)}
    assert run(tmp_path, []) == {}


@pytest.mark.parametrize(("settings", "in_flight"), [({}, 6), ({"cpus_per_task": 2}, 2), ({"workers": 4}, 4)])
def test_calls_are_asked_for_when_there_is_room(
    ray: InlineRay, tmp_path: Path, settings: dict[str, Any], in_flight: int
) -> None:
    asked = []

    def calls() -> Iterator[tuple[int, str, tuple[int]]]:
        for call in squares(20):
            asked.append(call)
            yield call

    ray.slots = 3
    with connect(EngineSettings(kind="ray", **settings)) as connected:
        results = connected.run(3, multiply, calls(), tmp_path)
        next(results)
        assert len(asked) == in_flight
        assert len(list(results)) == 19
    assert ray.most_in_flight == in_flight


def test_a_task_that_was_lost_too_often_ends_the_run(ray: InlineRay, tmp_path: Path) -> None:
    ray.lost = {0}
    with pytest.raises(
        TaskLostError, match=r"^square 0 was lost 3 times: The worker died unexpectedly\. If memory is short, lower"
    ) as caught:
        run(tmp_path, squares(4), retries=2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (CorpusError("bad.txt is not UTF-8"), CorpusError, f"^on node {NODE}: bad.txt is not UTF-8$"),
        (MemoryError(), OutOfMemoryError, f"^on node {NODE}, fail: out of memory; give tasks more memory"),
        (OSError(5, "Input/output error", "x"), EngineError, f"^on node {NODE}, fail: x: Input/output error"),
        (ZeroDivisionError("by zero"), EngineError, rf"{NODE}, fail: ZeroDivisionError\('by zero'\), raised in .*line"),
    ],
    ids=repr,
)
def test_errors_of_tasks_name_the_node(
    ray: InlineRay, tmp_path: Path, error: Exception, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        run(tmp_path, [(0, "bad", (error,))], fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", list(cluster._versions()))
def test_a_node_with_other_software_is_refused(
    ray: InlineRay, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_other(number: int) -> None:
        monkeypatch.setattr(cluster, "_versions", lambda: {**versions, name: "other"})

    versions = cluster._versions()
    ray.before = be_other
    with pytest.raises(EngineError, match=rf"^on node {NODE}: {name} is other, but .*: install the same version"):
        run(tmp_path, squares(1))


def test_a_node_that_does_not_share_the_folder_is_refused(ray: InlineRay, tmp_path: Path) -> None:
    def move(number: int) -> None:
        tmp_path.rename(tmp_path.with_name("elsewhere"))
        tmp_path.mkdir()

    ray.before = move
    with pytest.raises(EngineError, match=rf"^on node {NODE}: {tmp_path} does not exist, or has other files: the outp"):
        run(tmp_path, squares(1))


def test_reports_have_the_work_of_a_task(ray: InlineRay, tmp_path: Path) -> None:
    with connect(EngineSettings(kind="ray")) as connected:
        [(_, report)] = connected.run(3, multiply, squares(1), tmp_path)
    assert report == TaskReport(0, NODE, os.getpid(), report.seconds, report.cpu_seconds, report.peak_memory)
    assert report.peak_memory > 1e6


def test_a_cluster_without_room_is_refused(ray: InlineRay) -> None:
    ray.memory = 10**9
    settings = EngineSettings(kind="ray", cpus_per_task=9)
    with pytest.raises(EngineError, match=r"task of 9 cores and 2\.0 GB: at most 2 and 1\.0 GB; lower engine\."):
        connect(settings).__enter__()


def test_a_head_node_that_does_not_answer_for_some_time_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("localhost", 0)) as server:
        head = Cluster(InlineRay(), EngineSettings(kind="ray"))
        head._head = f"localhost:{server.getsockname()[1]}"
        assert head._answers()
    assert not head._answers(), "it may be restarting"
    monkeypatch.setattr(cluster, "_GONE_SECONDS", 0)
    with pytest.raises(EngineError, match=r"^the Ray cluster is gone: its head node localhost:\d+ does not answer \(C"):
        head._answers()


def test_a_head_node_that_answers_again_gets_tasks(
    ray: InlineRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, True, False, *[True] * 20])
    monkeypatch.setattr(Cluster, "_answers", lambda cluster: next(answers))
    assert run(tmp_path, squares(5)) == {number: 3 * number for number in range(5)}


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
    began = time.monotonic()
    with pytest.raises(EngineError, match=message) as caught:
        connect(EngineSettings(kind="ray", address=address)).__enter__()
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("imported", [None, ModuleType("ray")], ids=["nothing", "a folder"])
def test_a_missing_library_is_named_with_its_extra(imported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", imported)
    with pytest.raises(EngineUnavailableError, match=r"pip install 'bpeflow\[ray\]'"):
        connect(EngineSettings(kind="ray")).__enter__()


def test_a_task_folder_is_removed_also_by_those_who_come_later(tmp_path: Path) -> None:
    dead = tmp_path / "name.0123.tasks"
    dead.mkdir()
    (dead / "lock").touch()
    with task_folder(tmp_path, "name") as first, task_folder(tmp_path, "name") as second:
        assert sorted([first, second]) == sorted(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []
