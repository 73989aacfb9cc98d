"""Interruptions at random moments: a few of those that `tools/interrupts.py` makes by the thousand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is that of Linux")

SCRIPT = Path(__file__).parents[2] / "tools" / "interrupts.py"


# Rounds of which one or two may end in the rare ways: of fewer than 20, none could.
@pytest.mark.parametrize(
    "flags",
    [["--rounds", "80", "pipeline", "count", "encode", "train"], ["--rounds", "40", "encode_batch", "processes"]],
)
def test_every_call_ends(flags: list[str]) -> None:
    done = subprocess.run([sys.executable, SCRIPT, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
