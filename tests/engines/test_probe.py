"""The probe refuses nodes that cannot take part, before any work, with the node and the remedy."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from task_engines import ChangedEngine, InlineEngine

from bpeflow.corpus.files import InputFile
from bpeflow.engines import engine
from bpeflow.engines.engine import Call
from bpeflow.engines.probe import check_nodes, own_versions
from bpeflow.errors import CorpusError, EngineError


@pytest.fixture(autouse=True)
def _on_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "host_name", lambda: "n1")


def entry(path: Path) -> InputFile:
    status = path.stat()
    return InputFile(str(path), status.st_size, plain=True, modified=status.st_mtime_ns)


@pytest.fixture
def files(tmp_path: Path) -> list[InputFile]:
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text("low lower")
    return [entry(path) for path in paths]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_nodes_that_are_like_this_machine_take_part(files: list[InputFile], folder: Path) -> None:
    assert check_nodes(InlineEngine(), folder, files, "remedy") == ["n1"]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", list(own_versions()))
def test_other_software_is_refused(files: list[InputFile], folder: Path, name: str) -> None:
    def other(number: int, outcome: Any) -> Any:
        return replace(outcome, value=replace(outcome.value, versions={**outcome.value.versions, name: "other"}))

    with pytest.raises(EngineError, match=rf"^node n1 has {name} other, this machine .*install the same version"):
        check_nodes(ChangedEngine(InlineEngine(), outcome=other), folder, files, "remedy")
    assert list(folder.iterdir()) == []


def moved(argument: int, value: object) -> ChangedEngine:
    """An engine on whose nodes the probe has another argument, as if other files were there."""

    def change(number: int, call: Call) -> Call:
        arguments = [*call.arguments]
        arguments[argument] = value
        return replace(call, arguments=tuple(arguments))

    return ChangedEngine(InlineEngine(), change)


def test_a_folder_that_is_not_shared_is_refused(files: list[InputFile], folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"^on node n1: .*nowhere does not exist here.*storage that all nodes share"):
        check_nodes(moved(0, folder / "nowhere"), folder, files, "remedy")
    (tmp_path / "other").mkdir()
    with pytest.raises(EngineError, match=r"^on node n1: .*other does not exist here, or has other files"):
        check_nodes(moved(0, tmp_path / "other"), folder, files, "remedy")
    with pytest.raises(EngineError, match=r"^on node n1: .*has other files here"):
        check_nodes(moved(2, "other text"), folder, files, "remedy")
    assert list(folder.iterdir()) == []


def test_a_node_that_writes_elsewhere_is_refused(files: list[InputFile], folder: Path) -> None:
    def elsewhere(number: int, outcome: Any) -> Any:
        (folder / outcome.value.answer).unlink()
        return outcome

    with pytest.raises(EngineError, match=rf"^node n1 writes to another {folder} than this machine"):
        check_nodes(ChangedEngine(InlineEngine(), outcome=elsewhere), folder, files, "remedy")


def test_other_inputs_are_refused(files: list[InputFile], folder: Path) -> None:
    with pytest.raises(CorpusError, match=r"^on node n1: cannot read .*nowhere: No such file.*; remedy"):
        check_nodes(InlineEngine(), folder, [*files, replace(files[0], name="/nowhere")], "remedy")
    os.utime(files[1].name, ns=(1, 1))
    with pytest.raises(CorpusError, match=r"^on node n1: .*/b has another size or modification time .*; remedy"):
        check_nodes(InlineEngine(), folder, files, "remedy")
    assert list(folder.iterdir()) == []


def test_a_cluster_without_nodes_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InlineEngine, "nodes", lambda *_: [])
    with pytest.raises(EngineError, match="no nodes"):
        check_nodes(InlineEngine(), folder, [], "remedy")
