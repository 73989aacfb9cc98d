"""The crash matrix of starting: workers that cannot be started, and the fork server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from crash_run import Fault, Run, Train, arguments, contents


@pytest.mark.parametrize(
    ("where", "call", "worker"),
    [
        ("multiprocessing.util:spawnv_passfds", 2, r"stage 'chunk reader': worker 0 of 1"),  # 1: the resource tracker
        ("multiprocessing.forkserver:connect_to_new_process", 1, r"stage 'chunk reader': worker 0 of 1"),
        ("multiprocessing.forkserver:connect_to_new_process", 3, r"stage 'counter': worker 1 of 2"),
    ],
    ids=["no fork server", "no worker", "too few workers"],
)
def test_a_system_without_further_processes(
    train: Train, where: str, call: int, worker: str, out: Path, earlier: Path
) -> None:
    run = train(Fault(where, "no process", call)).end()
    assert run.status == 1
    assert re.search(rf"^bpeflow: {worker} could not be started \(Resource temporarily unavailable\): ", run.err)
    assert "ulimit -u" in run.err
    assert "Traceback" not in run.err
    run.assert_clean()
    assert contents(out) == contents(earlier)


def test_a_system_without_any_process(train: Train, out: Path, earlier: Path) -> None:
    run = train(Fault("multiprocessing.util:spawnv_passfds", "no process")).end()  # the resource tracker
    assert run.status == 1
    assert run.err.startswith("bpeflow: ")
    assert "Resource temporarily unavailable" in run.err
    assert "ulimit -u" in run.err
    assert "Traceback" not in run.err
    run.assert_clean()
    assert contents(out) == contents(earlier)


def test_a_system_without_further_threads(train: Train, out: Path, earlier: Path) -> None:
    run = train(Fault("bpeflow.flow.supervisor:Supervisor.start", "no thread")).end()
    assert run.status == 1
    assert run.err == (
        "bpeflow: counting the corpus: out of memory (can't start new thread): use fewer counters (num_counter), a "
        "smaller chunk_size or memory_limit; or add memory\n"
    )
    run.assert_clean()
    assert contents(out) == contents(earlier)


def test_a_killed_fork_server_ends_the_run(train: Train, out: Path, earlier: Path) -> None:
    run = train(Fault("bpeflow.counting.counter:ChunkCounter._count", "wait"))
    fork_server = psutil.Process(run.wait_for_fault()).ppid()
    assert fork_server != run.process.pid
    os.kill(fork_server, signal.SIGKILL)
    run.end()
    assert run.status == 1
    assert re.search(r"stage '.*': worker \d of \d \(pid \d+\) exited with status 255.*fork server was killed", run.err)
    assert "Traceback" not in run.err
    run.assert_clean()
    assert contents(out) == contents(earlier)


def test_a_long_name_of_the_temporary_folder_is_reported(corpora: Path, tmp_path: Path) -> None:
    run = Run(arguments(corpora / "text", tmp_path / "run"), tmp_path, temporary=tmp_path / ("long" * 25)).start().end()
    assert run.status == 1
    assert "AF_UNIX path too long" in run.err
    assert "set TMPDIR to a shorter path" in run.err
    run.assert_clean()
    assert not (tmp_path / "run").exists()


def test_a_full_dev_shm_is_reported_with_the_remedy(corpora: Path, tmp_path: Path) -> None:
    small = 'mount -t tmpfs -o size=4k tmpfs /dev/shm && head -c 4096 /dev/zero > /dev/shm/full && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", small, "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small /dev/shm")
    run = Run(arguments(corpora / "text", tmp_path / "run"), tmp_path, prefix=prefix).start().end()
    assert run.status == 1
    assert run.err.startswith("bpeflow: cannot create the queues between processes (No space left on device): ")
    assert "--shm-size" in run.err
    run.assert_clean()
    assert not (tmp_path / "run").exists()
