"""`save` and `convert` replace files only with `overwrite`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpeflow import Tokenizer
from bpeflow.cli.main import main
from bpeflow.errors import AlreadyExistsError, ConfigError
from bpeflow.formats.any_format import FORMATS, RUN_MARKS
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.vocab import Vocab

ONE = Tokenizer.from_spec(TokenizerSpec(Vocab.build([(b"a", b"b"), (b"ab", b"c")], ["<s>"]), "cl100k"))
OTHER = Tokenizer.from_spec(TokenizerSpec(Vocab.build([(b"x", b"y")], ["<s>"]), "cl100k"))
NAMES = [known.name for known in FORMATS]
FILES = {"gpt2": "vocab.json", "huggingface": "mine.json", "tiktoken": "mine.tiktoken"}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("place", ["folder", "file"])
@pytest.mark.parametrize("name", NAMES)
def test_a_tokenizer_is_replaced_only_on_request(tmp_path: Path, name: str, place: str) -> None:
    target = tmp_path / FILES[name] if place == "file" else tmp_path
    OTHER.save(target, name)
    expected = contents(tmp_path)
    ONE.save(target, name, overwrite=True)
    before = contents(tmp_path)
    assert before != expected
    verb = "is" if place == "file" else "holds"
    with pytest.raises(AlreadyExistsError, match=rf"{verb} a tokenizer \(259 entries, .*{name}.*overwrite=True"):
        OTHER.save(target, name)
    assert contents(tmp_path) == before
    OTHER.save(target, name, overwrite=True)
    assert contents(tmp_path) == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("other", NAMES)
def test_a_folder_has_one_tokenizer_whatever_its_formats(tmp_path: Path, name: str, other: str) -> None:
    ONE.save(tmp_path, other)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(AlreadyExistsError, match="holds a tokenizer"):
        ONE.save(tmp_path, name)
    ONE.save(tmp_path, name, overwrite=True)
    assert Tokenizer.load(tmp_path).merges == ONE.merges
    written = {path.name for path in ONE.save(tmp_path / "fresh", name)}
    assert {path.name for path in tmp_path.iterdir()} == {*written, "config.json", "fresh"}


def test_a_folder_with_a_part_of_a_tokenizer_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(AlreadyExistsError, match="holds a tokenizer, or a part of one"):
        ONE.save(tmp_path)
    assert contents(tmp_path) == {"tokenizer_config.json": b"{}"}


def test_files_that_are_no_tokenizer_stay_too(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("{}")
    with pytest.raises(AlreadyExistsError, match=r"notes\.json is another file"):
        ONE.save(tmp_path / "notes.json", "huggingface")
    assert (tmp_path / "notes.json").read_text() == "{}"


def test_convert_has_a_flag_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ONE.save(tmp_path / "one")
    OTHER.save(tmp_path / "other.json", "huggingface")
    arguments = ["convert", str(tmp_path / "one"), str(tmp_path / "other.json"), "--to", "huggingface"]
    assert main(arguments) == 2
    assert "write to another place, or give --overwrite to replace it\n" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 0
    assert Tokenizer.load(tmp_path / "other.json").merges == ONE.merges


@pytest.mark.parametrize("name", ["p.txt", "x.model", "x.foo"])
def test_a_folder_does_not_get_the_name_of_a_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not the name of a file in the gpt2 format: name a folder"):
        ONE.save(tmp_path / name)
    (tmp_path / name).mkdir()
    ONE.save(tmp_path / name)
    ONE.save(tmp_path / "llama-3.1")
    assert Tokenizer.load(tmp_path / name) == ONE


def test_a_file_of_another_kind_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("text", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"corpus.txt is not the name of a file in the gpt2 format: name a folder"):
        ONE.save(tmp_path / "corpus.txt", overwrite=True)
    assert (tmp_path / "corpus.txt").read_text(encoding="utf-8") == "text"


@pytest.mark.parametrize("mark", RUN_MARKS)
@pytest.mark.parametrize("target", ["", "tokenizer.json", "mine.tiktoken"])
def test_the_folder_of_a_run_gets_no_other_tokenizer(tmp_path: Path, target: str, mark: str) -> None:
    """A resumed run would replace it, and a report would describe another one."""
    (tmp_path / mark).mkdir()
    for overwrite in (False, True):
        with pytest.raises(AlreadyExistsError, match="is the folder of a training run: write to another folder"):
            ONE.save(tmp_path / target, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == [mark]
    ONE.save(tmp_path / "other")
