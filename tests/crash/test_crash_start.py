"""The crash matrix of starting: processes and threads that cannot be started, and the fork server."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import psutil
import pytest
from crash_run import Fault, Train, contents


@pytest.mark.parametrize(
    ("where", "call"),
    [
        ("bpeflow.flow.processes:subprocess.Popen", 1),
        ("bpeflow.flow.processes:os.fork", 1),
        ("bpeflow.flow.processes:os.fork", 3),
    ],
    ids=["no fork server", "no worker", "too few workers"],
)
def test_a_system_without_further_processes(train: Train, where: str, call: int, out: Path, earlier: Path) -> None:
    run = train(Fault(where, "no process", call)).end()
    assert run.status == 1
    assert run.err.startswith("bpeflow: cannot start the worker processes (Resource temporarily unavailable): ")
    assert "ulimit -u" in run.err
    assert "Traceback" not in run.err
    run.assert_clean()
    assert contents(out) == contents(earlier)


def test_a_system_without_further_threads(train: Train, out: Path, earlier: Path) -> None:
    run = train(Fault("bpeflow.flow.processes:threading.Thread.start", "no thread")).end()
    assert run.status == 1
    assert "can't start new thread" in run.err
    run.assert_clean()
    assert contents(out) == contents(earlier)


def test_a_killed_fork_server_ends_the_run(train: Train, out: Path, earlier: Path) -> None:
    run = train(Fault("bpeflow.counting.counter:ChunkCounter._count", "wait"))
    fork_server = psutil.Process(run.wait_for_fault()).ppid()
    assert fork_server != run.process.pid
    os.kill(fork_server, signal.SIGKILL)
    run.end()
    assert run.status == 1
    assert re.search(r"(?m)^bpeflow: the process that starts the workers \(the fork server\) was killed", run.err)
    assert "Traceback" not in run.err
    run.assert_clean()
    assert contents(out) == contents(earlier)
