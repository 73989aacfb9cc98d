from __future__ import annotations

import os
import socket
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bpeflow.corpus.files import InputFile
from bpeflow.corpus.find import InputRules, find_inputs
from bpeflow.errors import CorpusError


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder of files of different sizes the current folder."""
    names = ["b.txt", "a.txt", "deep/c.txt", "deep/deeper/d.txt", "deep/e.log", ".hidden", ".git/f.txt"]
    for size, name in enumerate(names):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _find(inputs: Sequence[str | Path], exclude: Sequence[str] = ()) -> list[InputFile]:
    return [file for entry in find_inputs(inputs, InputRules(exclude, invalid_utf8="replace")) for file in entry.files]


def _names(*inputs: str | Path, exclude: list[str] | None = None) -> list[str]:
    return [file.name for file in _find(inputs, exclude or [])]


def test_a_folder_means_all_its_files_but_hidden_ones_in_order(tree: Path) -> None:
    assert _names(".") == ["a.txt", "b.txt", "deep/c.txt", "deep/deeper/d.txt", "deep/e.log"]


def test_files_have_their_sizes(tree: Path) -> None:
    assert [file.size for file in _find(["deep", "b.txt"])] == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.txt", ["a.txt", "b.txt"]),
        ("?.txt", ["a.txt", "b.txt"]),
        ("[b-z].txt", ["b.txt"]),
        ("*", ["a.txt", "b.txt"]),
        ("*/*.txt", ["deep/c.txt"]),
        ("**/*.txt", ["a.txt", "b.txt", "deep/c.txt", "deep/deeper/d.txt"]),
        ("**", ["a.txt", "b.txt", "deep/c.txt", "deep/deeper/d.txt", "deep/e.log"]),
        ("deep/**", ["deep/c.txt", "deep/deeper/d.txt", "deep/e.log"]),
        ("de*/**/d.txt", ["deep/deeper/d.txt"]),
        ("**/deeper/**/*.txt", ["deep/deeper/d.txt"]),
        ("**/c.*", ["deep/c.txt"]),
        (".git/*", [".git/f.txt"]),
        (".hid*", [".hidden"]),
    ],
)
def test_a_glob_finds_the_files_that_it_matches(tree: Path, pattern: str, names: list[str]) -> None:
    assert _names(pattern) == names
    assert _names(tree / pattern) == [str(tree / name) for name in names]


def test_all_inputs_are_sorted_together_without_duplicates(tree: Path) -> None:
    assert _names("deep/e.log", "b.txt", "*.txt", "./a.txt", "b.txt") == ["a.txt", "b.txt", "deep/e.log"]


def test_a_file_and_links_to_it_count_once(tree: Path) -> None:
    (tree / "deep" / "again.txt").symlink_to(tree / "b.txt")
    (tree / "linked").symlink_to(tree / "deep")
    assert _names("b.txt", "deep/again.txt") == ["b.txt"]
    assert _names("deep/c.txt", "linked/c.txt", tree / "deep" / "c.txt") == [str(tree / "deep/c.txt")]


def test_training_runs_are_included_if_they_are_named(tree: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A run over `.` with its folder in it would otherwise learn from its own vocabulary the next time."""
    for name in ("merged/run.json", "merged/bpeflow.json", "merged/vocab_300/vocab.json", "counted/run.json",
                 "counted/counts.npz", "killed/.lock", "killed/unfinished/settings.json", "data/run.json"):  # fmt: skip
        path = tree / "runs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    caplog.set_level("INFO")
    assert _names("runs") == ["runs/data/run.json"]
    assert caplog.messages == ["runs: 3 training runs left out, such as runs/counted"]
    assert _names("runs/**/*.json") == ["runs/data/run.json"]
    named = ["runs/merged/bpeflow.json", "runs/merged/run.json", "runs/merged/vocab_300/vocab.json"]
    assert _names("runs/merged") == _names("runs/merged/**") == named
    assert _names("runs/killed/unfinished", "runs/killed/**") == ["runs/killed/unfinished/settings.json"]


def test_hidden_files_are_included_if_they_are_named(tree: Path) -> None:
    assert _names(".hidden", ".git") == [".git/f.txt", ".hidden"]


def test_a_file_whose_name_looks_like_a_glob_is_a_file(tree: Path) -> None:
    Path("[ab].txt").touch()
    assert _names("[ab].txt") == ["[ab].txt"]


def test_the_tilde_is_the_home_folder(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree))
    assert _names("~/a.txt", "~/deep/*.log") == [str(tree / "a.txt"), str(tree / "deep/e.log")]
    assert _names("~/*.txt", exclude=["~/a*"]) == [str(tree / "b.txt")]


@pytest.mark.parametrize(
    ("exclude", "names"),
    [
        (["*.log"], ["a.txt", "b.txt", "deep/c.txt", "deep/deeper/d.txt"]),
        (["**/deeper/**"], ["a.txt", "b.txt", "deep/c.txt", "deep/e.log"]),
        (["deep/*"], ["a.txt", "b.txt"]),
        (["**/deep/**", "a.txt"], ["b.txt"]),
        (["eep/c.txt"], ["a.txt", "b.txt", "deep/c.txt", "deep/deeper/d.txt", "deep/e.log"]),
    ],
)
def test_excluded_files_are_left_out(tree: Path, exclude: list[str], names: list[str]) -> None:
    assert _names(".", exclude=exclude) == names


def test_loops_of_links_are_not_followed(tree: Path) -> None:
    (tree / "deep" / "up").symlink_to(tree)
    (tree / "deep" / "here").symlink_to(tree / "deep")
    names = ["deep/c.txt", "deep/deeper/d.txt", "deep/e.log"]
    assert _names("deep") == names
    assert _names("deep/**") == names


def test_special_files_in_a_folder_are_skipped(tree: Path) -> None:
    os.mkfifo(tree / "deep" / "pipe")
    assert "deep/pipe" not in _names("deep", "deep/*")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)  # by its name, because the length of a socket's path is limited


@pytest.mark.parametrize("make", [_fifo, _socket])
def test_a_special_file_that_is_named_is_an_error(tree: Path, make: Callable[[Path], None]) -> None:
    make(tree / "special")
    with pytest.raises(CorpusError, match="special is not a regular file"):
        _find(["special"])


def test_a_device_is_an_error() -> None:
    with pytest.raises(CorpusError, match="/dev/null is not a regular file"):
        _find(["/dev/null"])


@pytest.mark.parametrize(
    ("inputs", "exclude", "message"),
    [
        ([], [], "no input"),
        (["missing.txt"], [], r"missing\.txt does not exist"),
        (["a.txt", "*.missing"], [], r"\*\.missing matches no file"),
        (["deep/deep*"], [], "matches no file"),  # only a folder
        (["."], ["*"], r"all 5 input files are excluded by '\*'"),
        (["empty"], [], "empty contains no files"),
        (["dangling"], [], "dangling does not exist"),
        (["links"], [], "cannot read the input links/dangling"),
    ],
)
def test_inputs_without_files_are_errors(tree: Path, inputs: list[str], exclude: list[str], message: str) -> None:
    (tree / "empty").mkdir()
    (tree / "links").mkdir()
    for link in (tree / "dangling", tree / "links" / "dangling"):
        link.symlink_to("nowhere")
    if "." in inputs:
        (tree / "dangling").unlink()
        (tree / "links" / "dangling").unlink()
    with pytest.raises(CorpusError, match=message):
        _find(inputs, exclude)


def test_a_dangling_link_can_be_excluded(tree: Path) -> None:
    (tree / "deep" / "dangling").symlink_to("nowhere")
    assert "deep/dangling" not in _names("deep", exclude=["**/dangling"])


def test_an_unreadable_file_is_an_error(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:  # not by its mode: tests may run as root, who can read everything
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(InputFile, "open", refuse)
    with pytest.raises(CorpusError, match=r"cannot read a\.txt: Permission denied"):
        _find(["a.txt"])


def test_an_unreadable_folder_is_an_error(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(CorpusError, match=r"cannot read the folder deep \(Permission denied\)"):
        _find(["deep"])


@pytest.mark.slow
def test_all_of_thousands_of_files_in_a_tree_are_found() -> None:
    root = Path(sysconfig.get_path("stdlib"))
    found = [Path(file.name) for file in _find([root], ["**/site-packages/**", "**/__pycache__/**"])]
    assert len(found) > 1000
    assert root / "asyncio" / "base_events.py" in found
    assert not any("site-packages" in path.parts for path in found)
