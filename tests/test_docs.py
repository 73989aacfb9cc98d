"""The examples in the documentation run unchanged."""

from __future__ import annotations

import ast
import doctest
import pkgutil
import re
import shlex
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

import bpeflow
from bpeflow import errors
from bpeflow.cli.main import COMMANDS, load_command, main
from bpeflow.config import Settings, make_settings, reading

ROOT = Path(__file__).parents[1]
PACKAGE = Path(bpeflow.__file__).parent  # elsewhere if a wheel is tested


def python_blocks(document: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def text_blocks(document: str) -> list[str]:
    return re.findall(r"^```text\n(.*?)^```", (ROOT / document).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def sh_blocks(document: str) -> str:
    text = (ROOT / document).read_text(encoding="utf-8")
    return "".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def run(script: str, folder: Path, *arguments: str) -> str:
    (folder / "example.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "example.py", *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_word_count_of_hacking_runs(tmp_path: Path) -> None:
    module, script = python_blocks("HACKING.md")
    (tmp_path / "words.py").write_text(module, encoding="utf-8")
    for name in ("a", "b"):
        (tmp_path / name).write_text("to be or not to be", encoding="utf-8")
    assert run(script, tmp_path, "a", "b") == "[('to', 4), ('be', 4), ('or', 2), ('not', 2)]\n"


@pytest.mark.parametrize("document", ["README.md", "docs/python.md"])
def test_the_python_of_a_page_runs(document: str, tmp_path: Path) -> None:
    script = "\n".join(python_blocks(document))
    (tmp_path / "corpus.txt").write_text("low lower lowest<|endoftext|>newer wider", encoding="utf-8")
    for size in ("10_000", "32_000"):
        script = script.replace(f"vocab_size={size}", "vocab_size=260")
    assert "Tokenizer(" in run(script.replace('"omp"', '"auto"'), tmp_path)


def test_the_first_commands_of_the_home_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/index.md").read_text(encoding="utf-8").partition("## The first three things to do")[2]
    commands = re.findall(r"^    bpeflow (.*)$", page, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert main(shlex.split(command)) == 0
    assert "border of pre-tokens" in capsys.readouterr().out


def test_the_home_page_shows_what_its_example_prints(tmp_path: Path) -> None:
    page = dedent((ROOT / "docs/index.md").read_text(encoding="utf-8").partition("3. Use it in Python:")[2])
    script, shown = re.findall(r"^    ```(?:python|text)\n(.*?)^    ```", page, re.MULTILINE | re.DOTALL)
    assert run(dedent(script), tmp_path) == dedent(shown)


@pytest.mark.slow
def test_the_tutorial_is_followed_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its commands run, and what they print is as shown, up to figures."""
    monkeypatch.chdir(tmp_path)
    make_corpus, load = python_blocks("docs/tutorial.md")
    run(make_corpus, tmp_path)
    *commands, loop = sh_blocks("docs/tutorial.md").splitlines()
    for line in commands:
        assert main(shlex.split(line)[1:]) == 0
    printed = "".join(capsys.readouterr())
    *shown, loaded, encoded, losses = text_blocks("docs/tutorial.md")
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "error")  # it would warn that PyTorch is missing
    if find_spec("transformers"):
        assert run(load, tmp_path) == loaded
    assert loop == "python path/to/bpeflow/examples/random_windows.py train.bin val.bin"
    if find_spec("torch"):
        example = (ROOT / "examples" / "random_windows.py").read_text(encoding="utf-8")
        printed += run(example, tmp_path, "train.bin", "val.bin", "--steps", "0")
        shown.append(losses)
    for line in "".join([*shown, encoded]).splitlines():
        assert without_figures(line).split(": ")[0] in without_figures(printed)


def without_figures(text: str) -> str:
    """Return text without numbers, units and marks of the best, which differ from run to run."""
    return re.sub(r" +", " ", re.sub(r"[\d,.]+( ?[kMG]?B)?", "#", text.replace("*", "")))


@pytest.mark.slow
def test_the_examples_in_docstrings_are_right() -> None:
    """Every example in the package runs, and the public functions and classes have some."""
    tried = {}
    for module in (import_module(info.name) for info in pkgutil.walk_packages(bpeflow.__path__, "bpeflow.")):
        if not module.__name__.endswith("__main__"):
            failed, tried[module.__name__] = doctest.testmod(module)
            assert failed == 0, module.__name__
    assert sum(tried.values()) > 30
    for name in {*bpeflow.__all__} - {*errors.__all__, "__version__"}:
        assert ">>> " in (getattr(bpeflow, name).__doc__ or ""), f"{name} has no example"


def test_all_commands_that_are_shown_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the README and the docs, in help, in configs, and at the end of `make quickstart`."""
    documents = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    texts = [
        block for path in documents for block in re.findall(r"^```sh\n(.*?)^```", path.read_text("utf-8"), re.M | re.S)
    ]
    others = [ROOT / "Makefile", *ROOT.glob("configs/*.yaml"), *PACKAGE.glob("cli/*.py")]
    texts += [path.read_text("utf-8") for path in others]
    commands = "|".join(["-[-a-z]", *COMMANDS])
    shown = re.findall(
        rf'^(?:#?\s+"?)?(?:python -m |\$\(BIN\)/)?bpeflow ((?:{commands}).*?)(?: > |  |"|$)', "\n".join(texts), re.M
    )
    assert len(shown) > 30
    parsers = {name: load_command(name)[0] for name in COMMANDS}
    monkeypatch.setattr(reading, "read_config", lambda _: {"tokenizer": "a", "out": "b"})  # the configs are not here
    for line in shown:
        name, *arguments = shlex.split(line, comments=True)
        arguments, name = (arguments, name) if name in COMMANDS else ([name, *arguments], "train")
        parsers[name].parse(arguments)


def test_all_configs_that_are_shown_are_valid() -> None:
    """Settings, and the job for Kubernetes, whose command is valid."""
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob("docs/*.md")]
    blocks = re.findall(r"^```yaml\n(.*?)^```", "\n".join(texts), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for values in map(yaml.safe_load, blocks):
        if values.get("kind") == "RayJob":
            program, *arguments = shlex.split(values["spec"]["entrypoint"])
            assert program == "bpeflow"
            load_command("train")[0].parse(arguments)
        else:
            make_settings(Settings, {"vocab_size": 1000, **values})


def test_the_layout_is_the_docstrings_of_the_rooms() -> None:
    page = (ROOT / "HACKING.md").read_text(encoding="utf-8")
    rooms = {
        path.parent.name: ast.get_docstring(ast.parse(path.read_text("utf-8")))
        for path in PACKAGE.glob("*/__init__.py")
    }
    lines = {room: (docstring or "").splitlines()[0] for room, docstring in rooms.items()}
    section = page.partition("## Layout")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)/` \| (.*) \|$", section, re.MULTILINE)
    assert {room: line for room, line in listed if room != "ext"} == lines


def test_every_public_name_is_in_the_reference() -> None:
    shown = re.findall(r"^(?:##+|\|) `(\w+)`", (ROOT / "docs/api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(shown) == sorted({*bpeflow.__all__} - {"__version__"})


def test_every_page_is_in_the_navigation() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert pages == {*re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)}


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="argparse and annotations differ between versions of Python"
)
def test_generated_pages_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_docs

    for name, make in make_docs.generated().items():
        assert (ROOT / name).read_text(encoding="utf-8") == make(), f"{name}: run python tools/make_docs.py"


def test_pages_have_no_directives_that_only_the_site_knows() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^(--8<--|::: )", text, re.MULTILINE), path
        assert len(text.splitlines()) > 1, path
