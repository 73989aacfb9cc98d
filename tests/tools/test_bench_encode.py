"""Tests of tools/bench.py encode: bpeflow and its peers give the same results in each kind of work."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from gpt2_files import save_files

import bench
from benchmarks import encode
from benchmarks.peers import encode as tools
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.tokenizer import parallel
from bpeflow.vocab import Vocab

pytestmark = pytest.mark.slow

SEPARATOR = "<|endoftext|>"
TEXT = f"low lower lowest{SEPARATOR}newer wider\n  it's 42, 日本 é\n\nlower new\n" * 50
MERGES = [(b"l", b"o"), (b"lo", b"w"), (b" ", b"low"), (b"e", b"r"), (b"n", b"e"), (b"ne", b"w"), (b" low", b"er")]
PEERS = [name for name, package in (("gigatoken",) * 2, ("tiktoken",) * 2, ("huggingface", "tokenizers"))
         if importlib.util.find_spec(package)]  # fmt: skip
NAMES = ["bpeflow", "bpeflow-python", *PEERS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    save_files(Vocab.build(MERGES, [SEPARATOR]), path)
    (path / "corpus.txt").write_text(TEXT, encoding="utf-8", newline="")
    return path


def run(folder: Path, work: str, *more: str) -> tuple[int, dict[str, Any]]:
    target = folder / "out.json"
    arguments = ["--input", str(folder / "corpus.txt"), "--tokenizer", str(folder), "--work", work, "--rounds", "1"]
    status = bench.main(["encode", *arguments, "--json", str(target), *more])
    return status, json.loads(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize("work", encode.WORKS)
def test_all_tools_give_the_same_result(
    folder: Path, work: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: to start one for each tool takes most of the time."""
    outcomes = []
    for name in NAMES:
        (tmp_path / name).mkdir()
        folders = [str(folder), str(tmp_path / name)]
        tools.main(name, work, "2", NAMED_PATTERNS["gpt2"], *folders, str(folder / "corpus.txt"))
        outcomes.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
        assert outcomes[-1].pop("seconds") > 0
    assert outcomes == outcomes[:1] * len(NAMES)
    if work == "decode":
        assert outcomes[0]["bytes"] == len(TEXT.encode())
    else:
        assert outcomes[0]["ids"] > 100


@pytest.mark.parametrize("work", ["file", "decode"])
def test_the_table_has_the_seconds_of_each_tool(folder: Path, work: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = run(folder, work, "--only", ",".join(NAMES))
    printed = capsys.readouterr()
    assert status == 0, printed
    assert f"{', '.join(NAMES)} agree: " in printed.out
    assert f"{work} s" in printed.out
    assert report["settings"]["work"] == work
    for entry in report["contenders"]:
        assert 0 < entry["step_seconds"] < entry["median_seconds"]
        assert entry["outcome"]["bytes" if work == "decode" else "ids"] > 100


def test_wrong_ids_change_the_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(tools.Bpeflow):
        def short(self, text: str) -> list[int]:  # type: ignore[override]
            return [0]

    right = tools.do(tools.Bpeflow(folder, "gpt2", [folder / "corpus.txt"], 1), "short", [folder / "corpus.txt"])
    monkeypatch.setattr(tools.Bpeflow, "__init__", lambda *_: None)
    wrong = tools.do(Wrong(folder, "gpt2", [], 1), "short", [folder / "corpus.txt"])
    assert right[1:] != wrong[1:]


def test_the_time_to_a_file_is_that_of_a_complete_token_file(folder: Path, tmp_path: Path) -> None:
    files = [folder / "corpus.txt"] * 2
    tool = tools.Bpeflow(folder, "gpt2", files, 1)
    in_memory = tools.do(tool, "first", files)
    assert tools.do(tool, "file", files, tmp_path)[1:] == in_memory[1:]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.bin", "0.bin.json", "1.bin", "1.bin.json"]


def test_cutting_the_text_changes_no_id(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "PART_BYTES", 64)
    files = [folder / "corpus.txt"]
    pieces = tools._pieces(folder, "gpt2", files)
    assert len(pieces) > 20
    assert "".join(pieces) == TEXT
    tool = tools.Bpeflow(folder, "gpt2", files, 1)
    assert [i for piece in pieces for i in tool.short(piece)] == list(tool.short(TEXT))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["encode", "--input", __file__, "--tokenizer", str(tmp_path)])
    assert f"vocab.json not found in {tmp_path}" in capsys.readouterr().err


def test_peers_with_one_pattern_are_skipped_with_another() -> None:
    skipped = {one.name for one in encode.SUBJECT.contenders if one.unavailable("cl100k") and not one.on_request}
    installed = {one.name for one in encode.SUBJECT.contenders if not one.unavailable("gpt2")}
    assert skipped & installed == {"gigatoken", "huggingface"} & installed
