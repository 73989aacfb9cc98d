"""Scripts as users write them: with and without a guard, piped, interrupted by Ctrl-C, killed, or exiting mid-run.

Each script runs in its own process and session, and prints the values that its test checks.
"""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import flow_workers as w
import psutil
import pytest
from flow_checks import START_METHODS, wait_until

from bpeflow.flow import FlowError

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PRINT_PIDS = "print(json.dumps(list(pipeline.snapshot().pids.values())), flush=True)"
PRELUDE = f"""
import json, sys, time
sys.path[:0] = [{str(ROOT)!r}, {str(HERE)!r}]
from functools import partial
import flow_workers as w
"""

UNGUARDED = f"""
{PRELUDE}
pipeline = w.simple_pipeline(partial(w.numbers, 9), w.check_main_script, start_method=START_METHOD)
print(json.dumps(list(pipeline.run())))
"""

ENDLESS = f"""
{PRELUDE}
pipeline = w.simple_pipeline(w.endless, FUNCTION, w.pass_on, start_method=START_METHOD)
run = pipeline.run()
next(run)
{PRINT_PIDS}
for item in run:
    BODY
"""

NAME_OF_MAIN_IN_AN_ARGUMENT = f"""
{PRELUDE}
source = partial(w.numbers_named, "lib/__main__.py", 9)
twin = partial(w.numbers_named, "__main__", 9)
for function in (source, twin):
    pipeline = w.simple_pipeline(function, w.check_main_script, start_method=START_METHOD)
    print(json.dumps(list(pipeline.run())))
"""

USE_OF_MAIN = f"""
{PRELUDE}
class Scale:
    def __init__(self, name):
        self.name = name

    def __call__(self, item):
        return 2 * item

def double(item):
    return 2 * item

pipeline = w.simple_pipeline(partial(w.numbers_named, "__main__", 5), partial(w.map_each, FUNCTION))
list(pipeline.run())
"""

USE_OF_MAIN_AFTER = f"""
{PRELUDE}
from bpeflow.flow import FlowError

def double(item):
    return 2 * item

refused = 0
for length in LENGTHS:
    try:
        w.simple_pipeline(partial(w.numbers, 5), partial(print, "x" * length, double)).run()
    except FlowError:
        refused += 1
print(refused)
"""

MANY_THREADS = f"""
{PRELUDE}
import pickle, threading
from multiprocessing import spawn

class OfMain:
    pass

def run_pipelines():
    for _ in range(4):
        pipeline = w.simple_pipeline(partial(w.numbers, 9), w.check_main_script, start_method=START_METHOD)
        results.extend(pipeline.run())

if __name__ == "__main__":
    results, wrong = [], []
    main, prepare = sys.modules["__main__"], spawn.get_preparation_data
    threads = [threading.Thread(target=run_pipelines) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        pickle.dumps(OfMain())
        if sys.modules["__main__"] is not main:
            wrong.append("main")
        if spawn.get_preparation_data("mine").get("init_main_from_path") != main.__file__:
            wrong.append("preparation")
        time.sleep(0.0005)
    if spawn.get_preparation_data is not prepare:
        wrong.append("patch")
    print(json.dumps([wrong, [imported_main for _, imported_main in results]]))
"""

FORK_MEANWHILE = f"""
{PRELUDE}
import os, threading, warnings
from multiprocessing import spawn

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn about a fork with threads

def run_pipelines():
    while not ended:
        list(w.simple_pipeline(partial(w.numbers, 3), w.square, start_method="spawn").run())

if __name__ == "__main__":
    ended, prepare, statuses = [], spawn.get_preparation_data, []
    thread = threading.Thread(target=run_pipelines)
    thread.start()
    for _ in range(20):
        time.sleep(0.013)
        pid = os.fork()
        if not pid:
            os._exit(spawn.get_preparation_data is not prepare)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    ended.append(True)
    thread.join()
    print(json.dumps(statuses))
"""

FUNCTION_IN_MAIN = f"""
{PRELUDE}
def double(items):
    for item in items:
        yield 2 * item

def main():
    pipeline = w.simple_pipeline(partial(w.numbers, 5), double, start_method=START_METHOD)
    print(json.dumps(sorted(pipeline.run())))

"""


def fill(script: str, **names: str) -> str:
    for name, value in names.items():
        script = script.replace(name, value)
    return script


def python(*arguments: str | Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=50, check=False
    )


@contextmanager
def started(script: str, path: Path) -> Iterator["subprocess.Popen[str]"]:
    path.write_text(script)
    with subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_pids(process: "subprocess.Popen[str]") -> list[int]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise AssertionError(process.communicate()[1])
    return list(json.loads(line))


def all_gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)


# ---- the main script


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
@pytest.mark.parametrize("run_as", ["file", "stdin", "-c"])
def test_a_plain_script_needs_no_guard_and_is_not_imported_by_workers(
    run_as: str, start_method: str, tmp_path: Path
) -> None:
    script = fill(UNGUARDED, START_METHOD=repr(start_method))
    if run_as == "file":
        (tmp_path / "plain.py").write_text(script)
        done = python(tmp_path / "plain.py")
    else:
        done = python("-", stdin=script) if run_as == "stdin" else python("-c", script)
    assert done.stderr == ""
    assert [imported_main for _, imported_main in json.loads(done.stdout)] == [False, False]


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_stage_function_in_the_main_script_works_with_the_guard(start_method: str, tmp_path: Path) -> None:
    path = tmp_path / "guarded.py"
    path.write_text(
        fill(FUNCTION_IN_MAIN, START_METHOD=repr(start_method)) + 'if __name__ == "__main__":\n    main()\n'
    )
    done = python(path)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_the_error_for_a_stage_function_in_an_unguarded_main_script_explains_the_guard(
    start_method: str, tmp_path: Path
) -> None:
    path = tmp_path / "unguarded.py"
    path.write_text(fill(FUNCTION_IN_MAIN, START_METHOD=repr(start_method)) + "main()\n")
    done = python(path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "FlowError: a pipeline was started while a worker was importing the main script" in done.stderr
    assert "WorkerDiedError" in done.stderr.splitlines()[-1]
    assert 'if __name__ == "__main__":' in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("arguments", [["-"], ["-c"]])
def test_a_stage_function_in_a_piped_script_is_rejected_with_the_remedy(arguments: list[str]) -> None:
    script = fill(FUNCTION_IN_MAIN, START_METHOD="'spawn'") + "main()\n"
    done = python("-", stdin=script) if arguments == ["-"] else python("-c", script)
    assert done.returncode == 1
    assert "move it to a module" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
@pytest.mark.parametrize("run_as", ["file", "-c"])
def test_an_argument_that_contains_the_name_of_main_is_not_a_use_of_main(
    run_as: str, start_method: str, tmp_path: Path
) -> None:
    script = fill(NAME_OF_MAIN_IN_AN_ARGUMENT, START_METHOD=repr(start_method))
    (tmp_path / "plain.py").write_text(script)
    done = python("-c", script) if run_as == "-c" else python(tmp_path / "plain.py")
    assert done.stderr == ""
    for line in done.stdout.splitlines():
        assert [imported_main for _, imported_main in json.loads(line)] == [False, False]
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    "function",
    [
        "double",
        "Scale('a')",
        "Scale('__main__')",
        "partial(isinstance, Scale('a'))",
        "partial(print, '__main__', Scale('a'))",
        "partial(print, ['y' * 100_000, '__main__'], double)",
    ],
)
def test_a_use_of_main_is_found_wherever_it_occurs_in_the_job(function: str) -> None:
    done = python("-c", fill(USE_OF_MAIN, FUNCTION=function))
    assert done.returncode == 1
    assert "a stage function is defined in __main__" in done.stderr.splitlines()[-1]


def test_a_use_of_main_is_found_across_the_frames_of_a_pickle() -> None:
    """A pickle is divided into frames of about 64 KiB. For some of these lengths, module and name are in two frames."""
    lengths = range(65_300, 65_536)
    done = python("-c", fill(USE_OF_MAIN_AFTER, LENGTHS=repr(lengths)))
    assert done.stderr == ""
    assert json.loads(done.stdout) == len(lengths)


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_pipelines_in_many_threads_leave_the_main_module_and_multiprocessing_unchanged(
    start_method: str, tmp_path: Path
) -> None:
    path = tmp_path / "threads.py"
    path.write_text(fill(MANY_THREADS, START_METHOD=repr(start_method)))
    done = python(path)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [[], [False] * 4 * 4 * 2]


def test_a_fork_in_another_thread_does_not_inherit_the_hidden_main_script(tmp_path: Path) -> None:
    path = tmp_path / "fork.py"
    path.write_text(FORK_MEANWHILE)
    done = python(path)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [0] * 20


# ---- processes that may not start others


def test_a_pipeline_in_a_daemonic_process_is_rejected_with_the_remedy() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with pytest.raises(FlowError, match=r"daemonic process .*run\(inline=True\)"):
            pool.apply(w.squares_of_five, (False,))
        assert pool.apply(w.squares_of_five, (True,)) == [0, 1, 4, 9, 16]
        pool.close()
        pool.join()


def test_a_pipeline_runs_in_a_child_process_that_is_not_daemonic() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        assert executor.submit(w.squares_of_five, False).result() == [0, 1, 4, 9, 16]


def test_a_pipeline_runs_in_an_interactive_session() -> None:
    lines = [line for line in fill(UNGUARDED, START_METHOD="'forkserver'").splitlines() if line]
    done = python("-i", "-q", stdin="\n".join(lines) + "\n")
    assert json.loads(done.stdout)
    assert "Error" not in done.stderr


# ---- Ctrl-C, death of the main process, exit in the middle of a run


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.parametrize("waiting", [False, True], ids=["in the loop body", "waiting for a result"])
def test_ctrl_c_ends_the_script_at_once_and_workers_print_nothing(
    start_method: str, waiting: bool, tmp_path: Path
) -> None:
    function, body = ("w.one_then_sleep", "pass") if waiting else ("w.pass_on", "time.sleep(1000)")
    script = fill(ENDLESS, START_METHOD=repr(start_method), FUNCTION=function, BODY=body)
    with started(script, tmp_path / "script.py") as process:
        pids = read_pids(process)
        start = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
        assert time.monotonic() - start < 5
    assert process.returncode == -signal.SIGINT
    assert stderr.count("KeyboardInterrupt") == 1
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    assert len(pids) == 5
    assert wait_until(lambda: all_gone(pids))


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_ctrl_c_at_any_moment_of_startup_leaves_no_worker_and_no_worker_traceback(
    start_method: str, tmp_path: Path
) -> None:
    script = fill(ENDLESS, START_METHOD=repr(start_method), FUNCTION="w.pass_on", BODY="pass")
    script = script.replace("run = pipeline.run()", "run = pipeline.run(); print('starting', flush=True)")
    for delay in (0, 0.03, 0.1, 0.2, 0.4):
        with started(script, tmp_path / "script.py") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "starting\n"
            time.sleep(delay)
            os.killpg(process.pid, signal.SIGINT)
            _, stderr = process.communicate(timeout=20)
        assert process.returncode == -signal.SIGINT, stderr
        assert stderr.count("KeyboardInterrupt") == 1, stderr
        assert wait_until(lambda session=process.pid: not session_members(session))


def test_sigterm_at_any_moment_of_startup_leaves_no_worker_and_no_worker_traceback(tmp_path: Path) -> None:
    """With a handler that raises an exception, as in the command line."""
    script = fill(ENDLESS, START_METHOD="'forkserver'", FUNCTION="w.pass_on", BODY="pass")
    set_handler = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); "
    script = script.replace("run = pipeline.run()", set_handler + "run = pipeline.run(); print('starting', flush=True)")
    for delay in (0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4):
        with started(script, tmp_path / "script.py") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "starting\n"
            time.sleep(delay)
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate(timeout=20)
        assert (process.returncode, stderr) == (143, "")
        assert wait_until(lambda session=process.pid: not session_members(session))


@pytest.mark.parametrize("body", ["pass", "break"], ids=["in the run", "at exit"])
def test_a_second_ctrl_c_during_cleanup_leaves_nothing_behind(body: str, tmp_path: Path) -> None:
    script = fill(ENDLESS, START_METHOD="'forkserver'", FUNCTION="w.pass_on", BODY=body)
    for pause in (0, 0.002, 0.01):
        with started(script, tmp_path / "script.py") as process:
            pids = read_pids(process)
            for _ in range(5):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)
                time.sleep(pause)
            process.communicate(timeout=20)
        assert wait_until(lambda pids=pids, session=process.pid: all_gone(pids) and not session_members(session))


def session_members(session: int) -> list[int]:
    members = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(pid) == session and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                members.append(pid)
    return members


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.parametrize("function", ["w.pass_on", "w.one_then_sleep", "w.one_then_spin"])
def test_workers_do_not_outlive_a_killed_main_process(function: str, start_method: str, tmp_path: Path) -> None:
    """Workers blocked in put and in get, asleep, and in a busy loop."""
    script = fill(ENDLESS, START_METHOD=repr(start_method), FUNCTION=function, BODY="time.sleep(1000)")
    with started(script, tmp_path / "script.py") as process:
        pids = read_pids(process)
        process.kill()
        assert wait_until(lambda: all_gone(pids)), [pid for pid in pids if psutil.pid_exists(pid)]


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_script_may_exit_in_the_middle_of_a_run(start_method: str, tmp_path: Path) -> None:
    script = fill(ENDLESS, START_METHOD=repr(start_method), FUNCTION="w.pass_on", BODY="break")
    with started(script, tmp_path / "script.py") as process:  # the variable `run` keeps the generator open
        pids = read_pids(process)
        _, stderr = process.communicate(timeout=20)
    assert (process.returncode, stderr) == (0, "")
    assert wait_until(lambda: all_gone(pids))
