"""Completion scripts."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from bpeflow.cli.main import COMMANDS, main
from bpeflow.pretokenize.patterns import NAMED_PATTERNS, PUBLISHED_PATTERNS

pytest.importorskip("shtab")

#: Completes a command line in bash, as the shell does when Tab is pressed, and prints the suggestions.
COMPLETE = """
read -d '' -ra line
COMP_WORDS=("${line[@]}" "$1"); COMP_CWORD=${#line[@]}
$(complete -p bpeflow | sed 's/.*-F \\([^ ]*\\).*/\\1/') bpeflow "$1" "${line[-1]}"
echo "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def bash_script() -> str:
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()) as output:
        assert main(["completion", "bash"]) == 0
    return output.getvalue()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_script_has_commands_flags_and_values(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in [*COMMANDS, "vocab_size", "tie_break", "o200k", "smallest_ids", "monitor.interval=", "tiktoken"]:
        assert word in script
    if path := shutil.which(shell):
        subprocess.run([path, "-n"], input=script, text=True, check=True)


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize(
    ("line", "word", "suggested"),
    [
        ("bpeflow", "", [*COMMANDS, "help"]),
        ("bpeflow", "e", ["encode", "evaluate"]),
        ("bpeflow", "--vo", ["--vocab_size", "--vocab_sizes"]),
        ("bpeflow encode", "--tok", ["--tokenizer"]),
        ("bpeflow train --pattern", "", [*NAMED_PATTERNS, *PUBLISHED_PATTERNS]),
        ("bpeflow merge --backend", "", ["auto", "omp", "c", "python"]),
        ("bpeflow merge --set", "monitor.", ["monitor.enabled=", "monitor.interval="]),
        ("bpeflow encode --invalid_utf8", "", ["error", "replace", "skip"]),
        ("bpeflow evaluate --bad_records", "", ["error", "skip"]),
        ("bpeflow convert a b --to", "t", ["tiktoken"]),
        ("bpeflow --config", "/dev/nul", ["/dev/null"]),
        ("bpeflow show", "/dev/nul", ["/dev/null"]),
        ("bpeflow diff /dev/null", "/dev/nul", ["/dev/null"]),
        ("bpeflow help", "conv", ["convert"]),
    ],
)
def test_bash_completes(bash_script: str, line: str, word: str, suggested: list[str]) -> None:
    command = ["bash", "--norc", "-c", bash_script + COMPLETE, "bash", word]
    done = subprocess.run(command, input=line, capture_output=True, text=True, check=True)
    assert done.stdout.split() == suggested


def test_the_missing_library_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'bpeflow[completion]'" in capsys.readouterr().err
