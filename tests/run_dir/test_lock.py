"""The lock of a run folder: one run at a time, and the lock of a dead run does no harm."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bpeflow.errors import ConfigError, FolderInUseError
from bpeflow.run_dir.layout import LOCK_FILE
from bpeflow.run_dir.lock import RunLock

#: Takes the lock, prints that, and keeps it until it is killed.
HOLDER = """
import sys, time
from pathlib import Path
from bpeflow.run_dir.lock import RunLock
with RunLock(Path(sys.argv[1])) as lock:
    lock.sign(scratch="somewhere")
    print("locked", flush=True)
    time.sleep(60)
"""


def hold(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


@pytest.mark.slow
def test_a_second_run_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    with hold(tmp_path) as process:
        try:
            expected = rf"process {process.pid} on {socket.gethostname()}, since 20.* is at work in {tmp_path}"
            with pytest.raises(FolderInUseError, match=expected), RunLock(tmp_path):
                pass
        finally:
            process.kill()


@pytest.mark.slow
def test_a_dead_runs_lock_does_no_harm_and_its_notes_are_found(tmp_path: Path) -> None:
    with hold(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / LOCK_FILE).exists()
    for _ in range(2):  # the notes stay until the next run has signed
        with RunLock(tmp_path) as mine:
            assert mine.left_behind["scratch"] == "somewhere"
            assert mine.left_behind["pid"] == process.pid
            (tmp_path / "copy").write_bytes((tmp_path / LOCK_FILE).read_bytes())
        (tmp_path / "copy").rename(tmp_path / LOCK_FILE)
    with RunLock(tmp_path) as mine:
        mine.sign()
        assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_the_lock_is_released_at_the_end_and_after_a_failure(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), RunLock(tmp_path) as mine:
            assert mine.left_behind == {}
            raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_it_holds_within_one_process_too(tmp_path: Path) -> None:
    with RunLock(tmp_path), pytest.raises(FolderInUseError, match="another run is at work"), RunLock(tmp_path):
        pass


def test_a_lock_file_that_is_replaced_while_it_is_opened_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder ends and removes it between opening and locking: a lock on the removed file would be worthless."""
    tries = []
    flock = fcntl.flock

    def remove_first(file: Any, operation: int) -> None:
        tries.append(file)
        if len(tries) < 3:
            (tmp_path / LOCK_FILE).unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with RunLock(tmp_path), pytest.raises(FolderInUseError), RunLock(tmp_path):
        pass
    assert len(tries) == 4


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"null"])
def test_the_content_of_the_file_does_not_matter(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOCK_FILE).write_bytes(content)
    with RunLock(tmp_path) as mine:
        assert mine.left_behind == {}


@pytest.mark.slow
def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    script = """
import os, sys, time
from pathlib import Path
from bpeflow.run_dir.lock import RunLock
lock = RunLock(Path(sys.argv[1])).__enter__()
if not os.fork():
    print("the child has started", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "the child has started\n"
            process.kill()
            process.wait()
            with RunLock(tmp_path):
                pass
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_without_locks_on_this_file_system_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with caplog.at_level(logging.WARNING), RunLock(tmp_path):
        pass
    assert "No locks available" in caplog.text


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).mkdir()
    with pytest.raises(ConfigError, match=r"cannot lock the run folder .*: \.lock: Is a directory"), RunLock(tmp_path):
        pass
