"""A run folder that is renamed, removed or replaced during the run: the run says so and writes nothing elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import bpeflow
from bpeflow.errors import ConfigError
from bpeflow.training.train import train


def rename(folder: Path) -> None:
    folder.rename(folder.with_name("renamed"))


def replace(folder: Path) -> None:
    rename(folder)
    shutil.copytree(folder.with_name("renamed"), folder)


class Once(bpeflow.Observer):
    """Does something to a folder when learning begins."""

    def __init__(self, action: Callable[[Path], object], folder: Path) -> None:
        self._actions, self._folder = [action], folder

    def learning(self, learned: int, wanted: int) -> None:
        while self._actions:
            self._actions.pop()(self._folder)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("action", [rename, shutil.rmtree, replace])
def test_the_run_says_so(action: Callable[[Path], object], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    left: list[dict[Path, bytes]] = []

    def act(folder: Path) -> None:
        action(folder)
        left.append(contents(tmp_path))

    with pytest.raises(ConfigError, match="was renamed, removed or replaced during the run"):
        train({"input": __file__, "vocab_size": 300, "out_dir": str(folder)}, Once(act, folder))
    assert left == [contents(tmp_path)]


def test_a_renamed_run_can_be_resumed_under_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(ConfigError, match="resume"):
        train({"input": __file__, "vocab_size": 300, "out_dir": str(folder)}, Once(rename, folder))
    folder.with_name("renamed").rename(folder)
    assert train({"out_dir": str(folder), "resume": True}).report.resumed
    assert (folder / "vocab.json").exists()
