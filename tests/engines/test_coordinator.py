"""The coordinator: every task succeeds once, whatever is lost; tasks that fail are not repeated.

The choice of an engine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from task_engines import ChangedEngine, InlineEngine

from bpeflow.config import EngineSettings
from bpeflow.engines import coordinator as coordinator_module
from bpeflow.engines.coordinator import Coordinator, start_engine
from bpeflow.engines.engine import Call, Engine, run_call
from bpeflow.errors import CorpusError, EngineError, EngineUnavailableError, OutOfMemoryError, TaskLostError


def square(number: int) -> int:
    return number * number


def fail(error: BaseException) -> None:
    raise error


def squares(count: int) -> list[Call]:
    return [Call(f"square {number}", square, (number,)) for number in range(count)]


def run(engine: Engine, calls: Any, retries: int = 3) -> dict[int, Any]:
    return {index: report.value for index, report in Coordinator(engine, 1, 0, retries).run(calls)}


def losing(numbers: set[int]) -> ChangedEngine:
    """Lose these attempts, after they have run."""
    return ChangedEngine(InlineEngine(), outcome=lambda n, out: TaskLostError(f"node n{n}") if n in numbers else out)


def test_tasks_end_in_any_order() -> None:
    assert run(InlineEngine(), squares(20)) == {number: number * number for number in range(20)}
    assert run(InlineEngine(), []) == {}


def test_calls_are_asked_for_when_there_is_room() -> None:
    engine = InlineEngine(slots=3)
    asked = 0

    def calls() -> Iterator[Call]:
        nonlocal asked
        for call in squares(20):
            asked += 1
            yield call

    results = Coordinator(engine, 1, 0, 0).run(calls())
    next(results)
    assert asked == 6
    assert len(list(results)) == 19
    assert engine.most_in_flight == 6


def test_lost_tasks_are_repeated(caplog: pytest.LogCaptureFixture) -> None:
    engine = losing({0, 3, 4, 9})
    assert run(engine, squares(8)) == {number: number * number for number in range(8)}
    assert engine.submitted == 12
    assert "was lost and is repeated: node n0" in caplog.text


def test_a_task_that_is_always_lost_ends_the_run() -> None:
    engine = losing(set(range(100)))
    with pytest.raises(TaskLostError, match=r"^square 0 was lost 3 time\(s\): node n0; node n1; node n2\. .*--resume"):
        run(engine, squares(1), retries=2)
    assert engine.submitted == 3


def test_errors_of_tasks_are_not_repeated_and_name_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpeflow.engines.engine.host_name", lambda: "node7")
    engine = InlineEngine()
    with pytest.raises(CorpusError, match=r"^on node node7: bad\.txt is not UTF-8$"):
        run(engine, [*squares(3), Call("bad", fail, (CorpusError("bad.txt is not UTF-8"),)), *squares(3)])
    assert [call.name for call in engine.calls].count("bad") == 1
    for error, kind, message in (
        (MemoryError(), OutOfMemoryError, "on node node7, bad: out of memory; give tasks more memory"),
        (OSError(5, "Input/output error", "x"), EngineError, "on node node7, bad: x: Input/output error"),
        (ZeroDivisionError("by zero"), EngineError, r"node7, bad: ZeroDivisionError\('by zero'\), raised in .*line"),
    ):
        outcome = run_call(Call("bad", fail, (error,)))
        assert isinstance(outcome, kind)
        with pytest.raises(kind, match=message):
            raise outcome


def test_the_tally_adds_up() -> None:
    coordinator = Coordinator(losing({1, 2}), 1, 0, 3)
    waits = 0

    def count() -> None:
        nonlocal waits
        waits += 1

    assert len(list(coordinator.run(squares(5), count))) == 5
    tally = coordinator.tally
    assert (tally.tasks, tally.attempts, tally.in_flight) == (5, 7, 0)
    assert [node.tasks for node in tally.nodes.values()] == [5]
    assert waits >= 7


def test_stragglers_are_named_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    clock = iter(range(0, 100_000, 100))
    monkeypatch.setattr(coordinator_module, "monotonic", lambda: next(clock))
    run(InlineEngine(), squares(12))
    lines = [message for message in caplog.messages if message.startswith("square 0 has not ended for")]
    assert len(lines) == 1


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "bpeflow.engines.ray", raising=False)
    with pytest.raises(EngineUnavailableError, match=r"pip install 'bpeflow\[ray\]'"):
        start_engine(EngineSettings(kind="ray"))
