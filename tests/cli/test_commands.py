"""Finding a command: the list of commands, help, the version, and names that are nearly right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from available import skip_missing

from bpeflow._util import native
from bpeflow._util.native import library_folders
from bpeflow.backends.native_backend import OMP
from bpeflow.cli.main import COMMANDS, load_command, main
from bpeflow.pretokenize.native import native_instructions
from bpeflow.pretokenize.regex import unicode_version

TRAIN = "usage: bpeflow train --input PATH ... --vocab_size N --out_dir FOLDER [flags]"
COUNTS = "give a run folder with counts, or counts as .npz or .tsv"

#: The end of the message about an unknown command.
LISTED = f"there are: {', '.join(COMMANDS)}; to train on a file: bpeflow --input FILE"

NO_SIZE = "vocab_size is missing: the number of entries, for instance 32000"


@pytest.mark.parametrize("argv", [["-h"], ["--help"], ["help"], ["help", "--help"], []], ids=" ".join)
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
    for argv in (["help", name], [name, "--help"], ["--help", name], ["-h", name]):
        with pytest.raises(SystemExit) as caught:
            main(argv)
        assert caught.value.code == 0
        pages.append(capsys.readouterr().out)
    assert pages == [pages[0]] * 4
    assert pages[0].startswith(f"usage: bpeflow {name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_usage_line_shows_what_is_required(name: str) -> None:
    parser, _ = load_command(name)
    for argument in parser.arguments:
        if argument.required and argument.option_strings:
            assert f" {argument.option_strings[0]} {argument.metavar}" in f"{parser.usage}"


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"bpeflow {version('bpeflow')}\n"


def test_backends_describes_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    skip_missing("omp", OMP.unavailable())
    assert main(["backends", "--verbose"]) == 0
    lines = (line.strip() for line in capsys.readouterr().out.splitlines())
    details = dict(re.split("  +", line, maxsplit=1) for line in lines)
    assert details["bpeflow"] == version("bpeflow")
    assert sys.executable in details["Python"]
    assert f"Unicode {unicode_version()}" in details["regex"]
    folder, libraries = details["libraries"].split(": ")
    assert next(library_folders()).parts[-1] == Path(folder).name
    assert {"c", "count", "encode", "omp"} <= set(libraries.split(", "))
    assert re.match(r"C \w+ [\d.]+, C\+\+ \w+ [\d.]+, \w+", details["built with"])
    compiled, usable, _ = details["instructions"].split("; ")
    assert set(compiled.removeprefix("compiled: ").split()) >= set(usable.removeprefix("usable here: ").split())
    assert set(usable.removeprefix("usable here: ").split()) == set(native_instructions())
    assert re.match(r"\d\.\d", details["OpenMP"])
    assert details["counting"] == f"native, {native_instructions()[0]}"
    assert details["omp"] == f"yes        {OMP.describe()}"


def test_backends_says_what_was_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"build_type": "Release", "c_compiler": "GNU 12", "cxx_compiler": " ", "instructions": "", "openmp": ""}
    (tmp_path / "build.json").write_text(json.dumps({**record, "missing": {"omp": "no compiler was found"}}))
    monkeypatch.setattr(native, "library_folders", lambda: [tmp_path])
    native.load_library.cache_clear()  # as in a fresh process
    monkeypatch.delitem(vars(OMP), "library", raising=False)
    assert main(["backends", "--verbose"]) == 0
    lines = [
        line.rstrip() for line in capsys.readouterr().out.splitlines()
    ]  # padded if c is missing in this process, too
    assert f"libraries      {tmp_path}: none" in lines
    assert "OpenMP         not compiled" in lines
    assert "omp      no         no compiler was found, then reinstall bpeflow" in lines


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["help", "covnert"], f"unknown command 'covnert'; did you mean 'convert'? {LISTED}"),
        (["corpora/*"], f"unknown command 'corpora/*'; {LISTED}"),
        (
            ["train"],
            f"input is missing: name at least one file, folder or glob; {NO_SIZE}",
        ),
        (["--input", "a", "--out_dir", "b"], NO_SIZE),
        (["--input", "a", "--skip_merge"], "no output folder: give --out_dir FOLDER, or name one in the config"),
        (["--config", "/dev/null"], f"input is missing: name at least one file, folder or glob; {NO_SIZE}"),
        (
            ["train", "corpus.txt"],
            f"unexpected argument 'corpus.txt' ({TRAIN})",
        ),
        (
            ["counts", "none.npz", "x.tsv"],
            "no counts at none.npz: give a run folder with counts, or counts as .npz or .tsv",
        ),
        (["--weight", "3"], f"unknown flag --weight ({TRAIN})"),
        (["backends", "c"], "unexpected argument 'c' (usage: bpeflow backends [flags])"),
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
