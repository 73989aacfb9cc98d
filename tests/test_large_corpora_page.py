"""The commands of docs/large_corpora.md run, with other words in place of a large corpus."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from distinct_words import distinct_words

from bpeflow.cli.main import main

PAGE = Path(__file__).parents[1] / "docs" / "large_corpora.md"


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("train.txt", "held_out.txt")):
        Path(name).write_text("<|endoftext|>".join(distinct_words(seed + n, 20) for n in range(50)), encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) == 6
    for program, *arguments in commands:
        assert (program, main(arguments)) == ("bpeflow", 0)
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in ("exact", "thinned5", "without_1", "sample"))
