"""Finding a command: the list of commands, help, the version, and names that are nearly right."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

from bpeflow.cli.commands import COMMANDS
from bpeflow.cli.main import main


@pytest.mark.parametrize("argv", [["-h"], ["--help"], ["help"], []], ids=" ".join)
def test_the_commands_are_listed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == (0 if argv else 2)
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines() if line.startswith("  ") and "bpeflow" not in line] == [
        *COMMANDS,
        "help",
    ]
    assert "--chunk_size" not in listed  # flags only with each command
    assert max(map(len, listed.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_help_describes_each_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pages = []
    for argv in (["help", name], [name, "--help"]):
        with pytest.raises(SystemExit) as caught:
            main(argv)
        assert caught.value.code == 0
        pages.append(capsys.readouterr().out)
    assert pages[0] == pages[1]
    assert pages[0].startswith(f"usage: bpeflow {name}")


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"bpeflow {version('bpeflow')}\n"


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
        (["help", "covnert"], "unknown command 'covnert'; did you mean 'convert'?"),
        (["corpus.txt"], f"unknown command 'corpus.txt'; there are: {', '.join(COMMANDS)}"),
        (["train"], "nothing to train on: give --input PATH or --config FILE (see bpeflow train --help)"),
        (["train", "corpus.txt"], "unexpected argument 'corpus.txt' (see bpeflow train --help)"),
    ],
    ids=str,
)
def test_a_wrong_command_is_one_line(argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.removeprefix("bpeflow: ") == complaint + "\n"


def test_the_list_needs_no_library() -> None:
    """So that it appears at once, and in a clone without its dependencies."""
    script = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("numpy", "psutil", "pydantic", "regex", "rich", "yaml"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
sys.argv = ["bpeflow", *sys.argv[1:]]
from bpeflow.__main__ import run
run()
"""
    listing = subprocess.run([sys.executable, "-c", script, "help"], capture_output=True, text=True, check=False)
    assert (listing.returncode, listing.stderr) == (0, "")
    training = subprocess.run([sys.executable, "-c", script, "train"], capture_output=True, text=True, check=False)
    assert training.returncode == 1
    assert "bpeflow's dependencies are not installed for " in training.stderr
    assert len(training.stderr.splitlines()) == 1
