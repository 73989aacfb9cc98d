"""The live view, and what plain lines say of the monitor."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from bpeflow.flow import MonitorSample, ProcessUse, QueueDepth, StageRate
from bpeflow.progress import observer
from bpeflow.progress.observer import PlainObserver, bottleneck_line, describe_amount
from bpeflow.progress.terminal import TerminalObserver


def sample(
    bottleneck: str | None = "counter", cpu: float = 45.0, *, measured: bool = True, alive: int = 2
) -> MonitorSample:
    queues = {"chunk_queue": QueueDepth(60, 3000), "counter_queue": QueueDepth(3, 10), "merged_queue": QueueDepth(0, 0)}
    stages = {
        "chunk reader": StageRate(190.2, 0, 5000, 0, 1),
        "counter": StageRate(180, 412.14e6, 4300, 10**9, alive, 1.9, 1_234_567, 2),
        "merger": StageRate(0, 0, 0, 0, 1),
    }
    processes = (
        ProcessUse("chunk reader", 0, 10, 1.0, 20_000_000),
        ProcessUse("counter", 0, 11, cpu, 60_000_000),
        ProcessUse("counter", 1, 12, cpu, 60_000_000),
        ProcessUse("merger", 0, 13, 0.0, 30_000_000),
        ProcessUse("main", 0, 9, 1.0, 80_000_000),
    )
    bounds = dict.fromkeys(queues, QueueDepth(64, 256_000_000))
    return MonitorSample(1.0, queues, stages, processes if measured else (), bounds, bottleneck)


def new_view(columns: int) -> TerminalObserver:
    return TerminalObserver(Console(file=io.StringIO(), width=columns))


def drawn(view: TerminalObserver) -> list[str]:
    with view.console.capture() as screen:
        view.console.print(view.get_renderable())
    return [line.rstrip() for line in screen.get().splitlines() if line.strip()]


def drawn_samples(*samples: MonitorSample, columns: int = 120) -> list[str]:
    view = new_view(columns)
    for one in samples:
        view.working(one)
    return drawn(view)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "available_cores", lambda: 2)


def test_the_table_has_depths_rates_and_busy_workers() -> None:
    lines = drawn_samples(sample(measured=False))
    assert lines[0].split() == ["stage", "queue", "rate", "busy"]
    assert re.split("  +", lines[2]) == ["counter", "60 (94%)", "412.1 MB/s", "1.9 of 2"]
    assert lines[-2:] == ["at least 1,234,567 distinct pre-tokens so far", "bottleneck: counter, all 2 cores are busy"]


def test_the_monitor_adds_cores_and_memory() -> None:
    lines = drawn_samples(sample(measured=False), sample(), sample(measured=False))
    assert lines[0].split()[-2:] == ["cores", "memory"]
    assert re.split("  +", lines[2])[-2:] == ["0.9", "120.0 MB"]


def test_a_queue_is_as_full_as_its_items_or_its_bytes() -> None:
    whole = sample()
    full = replace(whole, queues={**whole.queues, "counter_queue": QueueDepth(3, 256_000_000)})
    assert re.split("  +", drawn_samples(full)[3])[:2] == ["merger", "3 (100%)"]


def test_the_table_fits_a_narrow_terminal() -> None:
    lines = drawn_samples(sample(), columns=70)
    assert max(map(len, lines)) <= 70
    assert not any("…" in line for line in lines)


def test_rates_are_averaged_over_some_seconds() -> None:
    def at(elapsed: float, done: int) -> MonitorSample:
        whole = sample()
        stages = {**whole.stages, "counter": replace(whole.stages["counter"], weight_done=done)}
        return replace(whole, elapsed=elapsed, stages=stages)

    assert "10.0 MB/s" in drawn_samples(at(1.0, 10**6), at(2.0, 10**6), at(3.0, 21 * 10**6))[2]
    forgotten = [at(float(second), second * 10**6) for second in range(20)]
    assert "1.0 MB/s" in drawn_samples(at(-100.0, 0), *forgotten)[2]


def test_a_short_bottleneck_is_not_shown() -> None:
    usual = [sample(None), sample(None), sample(None)]
    assert not any("bottleneck" in line for line in drawn_samples(*usual, sample("merger")))
    assert "bottleneck: merger, add -m" in drawn_samples(sample("merger"), sample("merger"), sample(None))


@pytest.mark.parametrize("columns", [60, 100, 160])
def test_the_newest_merges_come_first(columns: int) -> None:
    view = new_view(columns)
    for rank in range(1, 20):
        view.merged(rank * 1000, b" inter", b"national" * rank, 100_000 // rank)
    lines = drawn(view)
    assert lines[0] == "newest merges"
    assert lines[1].startswith("  19,000  5,263 ×  ' inter' + ")
    assert len(lines) == 7
    assert max(map(len, lines)) <= columns


def test_a_low_terminal_gets_fewer_lines() -> None:
    screen = io.StringIO()
    with TerminalObserver(Console(file=screen, width=80, height=5, force_terminal=True)) as view:
        view.advance_to("counting", 1, 2)
        view.working(sample())
        screen.truncate(0)
        view.refresh()
        assert screen.getvalue().count("\n") == 4


def test_a_bar_shows_the_rate_of_late_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    view = new_view(100)
    monkeypatch.setattr(view, "get_time", lambda: now)
    for second in range(21):  # slow at first
        now = float(second)
        view.advance_to("counting", second * 10**6 if second < 10 else 10**7 + (second - 10) * 10**7, 210 * 10**6)
    [line] = drawn(view)
    assert re.fullmatch(r"counting ━.* +52% 110.0 MB of 210.0 MB  10.0 MB/s  0:10 left", line)


def test_what_an_earlier_run_did_does_not_count_for_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    view = new_view(100)
    monkeypatch.setattr(view, "get_time", lambda: now)
    for second in range(3):
        now = float(second)
        view.advance_to("counting", 10**9 + second * 10**6, 2 * 10**9)
    assert " 1.0 MB/s" in drawn(view)[0]


def test_an_amount_without_a_total() -> None:
    view = new_view(80)
    view.advance_to("counting", 5000, None)
    [line] = drawn(view)
    assert "%" not in line
    assert re.match("counting .* 5.0 kB", line)


def test_long_times_have_hours() -> None:
    assert describe_amount("counting", 0, 62, 1 / 60) == ("0 bytes of 62 bytes", "0 bytes/s", "1:02:00 left")
    assert describe_amount("learning", 1000, 2000, 0.0) == ("1,000 of 2,000 merges", "", "")


def test_the_remedy_of_a_bottleneck() -> None:
    assert bottleneck_line(sample(None)) == ""
    assert bottleneck_line(sample("merger")) == "bottleneck: merger, add -m"
    assert bottleneck_line(sample("main")) == "bottleneck: main"
    assert bottleneck_line(sample("counter")) == "bottleneck: counter"  # there are as many as cores
    assert bottleneck_line(sample("counter", alive=1)) == "bottleneck: counter"  # one has ended
    assert bottleneck_line(sample(cpu=99.0)) == "bottleneck: counter, all 2 cores are busy"


def test_a_stage_may_have_as_many_workers_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "available_cores", lambda: 3)
    assert bottleneck_line(sample("counter")) == "bottleneck: counter, add -c"


def test_a_log_gets_a_line_with_the_time() -> None:
    screen = io.StringIO()
    observer = PlainObserver(screen)
    observer.counting(0, 100)
    observer.counting(50, 100)
    observer.monitored(sample())
    time, queues = screen.getvalue().split(" ", 1)
    assert len(time) == len("12:00:00")
    assert queues.startswith("chunk_queue: 60, counter_queue: 3, merged_queue: 0 | chunk reader: 190 items/s, ")
    assert queues.endswith("| 50%, 0:00 left | bottleneck: counter\n")


def test_the_pipeline_is_shown_while_it_runs() -> None:
    screen = io.StringIO()
    with TerminalObserver(Console(file=screen, width=60, force_terminal=True)) as view:
        view.counting(50, 100)
        view.monitored(sample())
        view.refresh()
        seen = screen.getvalue()
        assert seen.rindex("counting") < seen.rindex("60 (94%)") < seen.rindex("bottleneck: counter")
        view.learning(0, 3)
        view.merged(1, b"l", b"o", 7)
        screen.truncate(0)
        view.refresh()
        assert "'l' + 'o'" in screen.getvalue() and "60 (94%)" not in screen.getvalue()
        screen.truncate(0)
    assert "learning" in screen.getvalue() and "'l' + 'o'" not in screen.getvalue(), "the bars stay"


def test_messages_appear_above_the_view() -> None:
    screen = io.StringIO()
    with TerminalObserver(Console(file=screen, width=60, force_terminal=True)) as view:
        view.counting(50, 100)
        view.refresh()
        screen.truncate(0)
        view.console.print("a message")
        assert screen.getvalue().index("a message") < screen.getvalue().index("counting")
