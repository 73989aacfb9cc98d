"""What the command line says at its end, and with which exit status."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from bpeflow.endings import end_on_signals, exit_status


@pytest.fixture
def signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    end_on_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    end_on_signals()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_an_error_that_a_signal_became_is_that_signal(capsys: pytest.CaptureFixture[str]) -> None:
    """numpy, interrupted while it is imported, says that its installation is broken."""
    try:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt as error:
            raise ImportError("importing the C-extensions failed") from error
    except ImportError as error:
        status = exit_status(error)
    assert (status, capsys.readouterr().err) == (143, "bpeflow: ended by SIGTERM\n")


@pytest.mark.usefixtures("signals")
def test_an_incomplete_installation_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(ImportError("No module named numpy")) == 1
    assert "the installation is not complete" in capsys.readouterr().err
