"""Nothing is left, whichever process is killed or interrupted, and at whatever moment.

Scripts run in a process and a session of their own, and print what their test checks.
"""

import json
import os
import resource
import signal
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import flow_workers as w
import psutil
import pytest
from flow_checks import Script, ends_soon, leftover_workers, servers, wait_until

from bpeflow.flow import FlowError, Pipeline, QueueSpec, Source, Stage, WorkerDiedError

#: The workers are in all states: blocked in put, in get, busy, and asleep in Python. The main process waits for a
#: result. If it alone is to be killed, one sleeps in native code, and a child that other code has forked lives on.
ALL_STATES = """
import json, os, sys, time, warnings
from functools import partial
from pathlib import Path
import flow_workers as w
from flow_checks import pids, wait_until
from bpeflow.flow import Pipeline, QueueSpec, Source, Stage

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn about a fork with threads
folder = Path(sys.argv[1])
folder.mkdir()
(folder / "file").touch()
main_only = sys.argv[2] == "main"
hang = partial(w.one_then_hang, w.hold_the_interpreter if main_only else w.sleep_forever, w.spin_forever)
stages = [
    Stage("blocked", w.pass_on, QueueSpec("first", 3), workers=2),
    Stage("hanging", hang, QueueSpec("second", 3, route=w.identity), workers=2),
    Stage("waiting", w.pass_on, QueueSpec("third"), workers=2),
]
pipeline = Pipeline(Source("source", w.endless), stages, temporary=[folder])
run = pipeline.run()
next(run), next(run)
if main_only and not os.fork():
    time.sleep(1000)
assert wait_until(lambda: len(pids(pipeline)) == 7)
print(json.dumps(pids(pipeline)["blocked", 1]), flush=True)
next(run)
"""


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["main", "server", "main server", "worker", "main server worker"])
def test_a_kill_leaves_no_process_and_no_file(killed: str, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    (tmp_path / "script.py").write_text(ALL_STATES)
    with Script(tmp_path, "script.py", str(scratch), killed) as script:
        worker = psutil.Process(json.loads(script.read_line()))
        main, server = psutil.Process(script.process.pid), worker.parent()
        assert server is not None and server.ppid() == main.pid
        assert len(script.family()) == (10 if killed == "main" else 9)
        assert script.named_files() == []
        if killed == "main":
            [child] = [child for child in main.children() if child != server]
        for name in killed.split():
            with suppress(psutil.NoSuchProcess):  # a worker ends soon after the main process
                {"main": main, "server": server, "worker": worker}[name].kill()
        with ends_soon():
            if killed == "main":
                assert wait_until(lambda: script.family() == [child]), "a fork by other code lives on, and is alone"
                child.kill()
            _, errors = script.end()
    if not killed.startswith("main server"):  # in which case it depends on who dies first
        assert scratch.exists() == (killed != "main"), "only the server removes it"
    if "main" in killed:
        assert errors == ""
    else:
        assert errors.count("Traceback") == 1
        text = "stage 'blocked': worker 1 of 2" if killed == "worker" else "(the fork server) was killed"
        assert text in errors.splitlines()[-1]


def test_a_killed_server_fails_its_run_alone() -> None:
    runs = [w.simple_pipeline(w.endless, w.pass_on).run() for _ in range(2)]
    next(runs[0])
    [server] = servers()
    next(runs[1])
    server.kill()
    with ends_soon(), pytest.raises(WorkerDiedError, match=r"\(the fork server\) was killed"):
        list(runs[0])
    next(runs[1])
    runs[1].close()


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0, 0.05, 0.1, 0.15, 0.2, 0.25])
def test_a_server_killed_while_it_starts_fails_the_run(delay: float) -> None:
    def kill_next() -> None:
        assert wait_until(lambda: bool(servers()))
        time.sleep(delay)
        servers()[0].kill()

    thread = threading.Thread(target=kill_next)
    thread.start()
    with ends_soon(), pytest.raises(WorkerDiedError, match=r"\(the fork server\) was killed"):
        list(w.simple_pipeline(w.endless, w.pass_on).run())
    thread.join()
    assert not leftover_workers()


def test_what_stages_need_is_imported_once_by_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "heavy_module.py").write_text(
        "import os\npid = os.getpid()\n\ndef where(item): return pid, os.getppid()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import heavy_module  # type: ignore[import-not-found]

    stage = partial(w.map_each, heavy_module.where)
    [(imported_by, parent)] = w.simple_pipeline(partial(w.numbers, 1), stage).run()
    assert imported_by == parent


def test_a_limit_of_open_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 12, hard))  # noqa: PTH208
    try:
        with pytest.raises(FlowError, match=r"Too many open files.*ulimit -n"):
            list(w.simple_pipeline(w.endless, w.pass_on, workers=9).run())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_a_stage_may_have_hundreds_of_workers() -> None:
    stage = Stage("stage", w.collect, QueueSpec("in", route=w.identity), workers=300)
    run = Pipeline(Source("source", partial(w.numbers, 600)), [stage]).run()
    assert sorted(sorted(items) for items in run) == [[number, number + 300] for number in range(300)]


# ---- forks by other code


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_that_other_code_forks_does_not_keep_the_run_from_ending_or_end_it() -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 100), w.square)
    run = pipeline.run()
    next(run)
    living, closing = os.fork(), 0
    if living:
        closing = os.fork()
    if not living:
        time.sleep(60)
        os._exit(0)
    if not closing:
        with suppress(BaseException):
            run.close()
        os._exit(0)
    try:
        assert os.waitpid(closing, 0)[1] == 0
        with ends_soon():
            assert len(list(run)) == 99
    finally:
        os.kill(living, signal.SIGKILL)
        os.waitpid(living, 0)


# ---- Ctrl-C and SIGTERM

ENDLESS = """
import signal, sys
import flow_workers as w

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
run = w.simple_pipeline(w.endless, w.pass_on, w.pass_on).run(sys.argv[1])
print("starting", flush=True)
for item in run:
    if item == 10:
        print("running", flush=True)
        if sys.argv[2] == "exit":
            break
"""

#: Runs are interrupted at more and more moments of their start, and of their life.
MANY_MOMENTS = """
import os, signal, sys, threading, time
import flow_workers as w
from flow_checks import leftover_workers, wait_until

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

def interrupt():
    time.sleep(delay)
    os.killpg(os.getpgrp(), number)

for moment in range(20):
    delay, number = 0.012 * moment, (signal.SIGINT, signal.SIGTERM)[moment // 2 % 2]
    thread = threading.Thread(target=interrupt)
    try:
        try:
            thread.start()
            for _ in w.simple_pipeline(w.endless, w.pass_on).run():
                pass
        finally:
            thread.join()
    except (KeyboardInterrupt, SystemExit):
        print("interrupted")
    if not wait_until(lambda: not leftover_workers()):  # at once, unless the server was just being started
        print(moment, leftover_workers())
"""


@pytest.mark.slow
def test_signals_at_many_moments_reach_the_caller_and_leave_no_worker(tmp_path: Path) -> None:
    with Script(tmp_path, "-c", MANY_MOMENTS) as script:
        output, errors = script.end()
    assert errors == ""
    assert output == "interrupted\n" * 20


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["processes", "threads"])
@pytest.mark.parametrize(("number", "status", "tracebacks"), [(signal.SIGINT, -2, 1), (signal.SIGTERM, 143, 0)])
def test_a_signal_to_the_process_group_ends_a_script_at_once(
    number: signal.Signals, status: int, tracebacks: int, executor: str, tmp_path: Path
) -> None:
    with Script(tmp_path, "-c", ENDLESS, executor, "loop") as script:
        assert [script.read_line(), script.read_line()] == ["starting\n", "running\n"]
        os.killpg(script.process.pid, number)
        with ends_soon():
            _, errors = script.end()
    assert script.process.returncode == status
    assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == tracebacks


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0, 0.01])
def test_a_second_ctrl_c_during_cleanup_leaves_nothing(pause: float, tmp_path: Path) -> None:
    with Script(tmp_path, "-c", ENDLESS, "processes", "loop") as script:
        assert [script.read_line(), script.read_line()] == ["starting\n", "running\n"]
        for _ in range(5):
            with suppress(ProcessLookupError):
                os.killpg(script.process.pid, signal.SIGINT)
            time.sleep(pause)
        script.end()


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["processes", "threads"])
def test_a_script_may_exit_in_the_middle_of_a_run(executor: str, tmp_path: Path) -> None:
    """Its variable `run` keeps the generator open."""
    with Script(tmp_path, "-c", ENDLESS, executor, "exit") as script, ends_soon():
        assert script.end() == ("starting\nrunning\n", "")
    assert script.process.returncode == 0
