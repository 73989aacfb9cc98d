"""Importing the package: its public names, and the modules that workers import."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import bpeflow
from bpeflow import errors


def test_all_public_names_can_be_imported() -> None:
    for name in bpeflow.__all__:
        assert name == "__version__" or getattr(bpeflow, name).__name__ == name
        assert name in dir(bpeflow)


def test_every_exception_is_a_public_name() -> None:
    for name in errors.__all__:
        assert name in bpeflow.__all__
        assert getattr(bpeflow, name) is getattr(errors, name)


def test_the_version_is_that_of_the_installed_package() -> None:
    assert bpeflow.__version__ == version("bpeflow")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tokenise'"):
        bpeflow.tokenise  # noqa: B018


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("from_pretrained", "; use bpeflow.Tokenizer.from_pretrained"),
        ("get_encoding", "; use bpeflow.Tokenizer.from_pretrained"),
        ("train_from_iterator", "; use bpeflow.Tokenizer.train_from_iterator"),
        ("encode", "; use bpeflow.Tokenizer.encode"),
        ("Tokeniser", "; did you mean 'Tokenizer'?"),
        ("trainbpe", "; did you mean 'train_bpe'?"),
        ("_tokenizer", ""),
    ],
)
def test_an_unknown_name_has_a_hint(name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(bpeflow, name)
    assert str(caught.value) == f"module 'bpeflow' has no attribute {name!r}{hint}"


def test_the_package_shows_its_public_names_and_how_to_use_them() -> None:
    assert dir(bpeflow) == sorted(bpeflow.__all__)
    shown = pydoc.plain(pydoc.render_doc(bpeflow))
    assert 'tokenizer = Tokenizer.train("corpus.txt", vocab_size=32_000)' in shown


def test_a_tokenizer_is_imported_without_the_models_of_settings() -> None:
    code = "import sys; from bpeflow import Tokenizer; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    unused = {"pydantic", "regex", "yaml", "rich", "bpeflow.flow.pipeline", "bpeflow.tokenizer.python_encoder"}
    assert not unused & set(modules)


def test_a_training_imports_no_encoder_and_no_format_that_it_does_not_write(tmp_path: Path) -> None:
    settings = {"vocab_size": 258, "out_dir": str(tmp_path)}
    code = f"import sys, bpeflow; bpeflow.train({{'input': iter(['low low']), **{settings}}}); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "bpeflow.formats.gpt2" in modules
    rooms = {name for name in modules if name.startswith(("bpeflow.tokenizer", "bpeflow.look", "bpeflow.dataset"))}
    unused = {f"bpeflow.formats.{name}" for name in ("huggingface", "tiktoken", "published", "hub", "live")}
    unused |= {"bpeflow.training.cut", "bpeflow.counting.units"}  # only superwords need them
    assert not rooms | (unused & set(modules))


def test_workers_import_neither_settings_nor_the_command_line() -> None:
    """Every worker process pays the import time of the counting stages' modules."""
    code = "import sys, bpeflow.corpus.reader, bpeflow.counting.counter, bpeflow.counting.merger; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "pydantic", "yaml", "rich", "bpeflow.training.train"} & set(modules)


def test_missing_files_are_errors_of_python_too(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nope\.txt does not exist"):
        bpeflow.train_bpe(tmp_path / "nope.txt", 300)
    with pytest.raises(FileNotFoundError, match=r"nope\.bin: no such token file"):
        bpeflow.load_tokens(tmp_path / "nope.bin")


def test_files_that_look_binary(tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0\xff" * 9)
    with pytest.raises(
        bpeflow.errors.InvalidUtf8Error, match=r"not UTF-8 at byte 0 .*; it looks binary: exclude it, or"
    ):
        bpeflow.train_bpe(tmp_path / "image.png", 300)
    (tmp_path / "old.txt").write_bytes(b"caf\xe9 au lait")
    with pytest.raises(bpeflow.errors.InvalidUtf8Error, match=r"not UTF-8 at byte 3 .*; convert it \(iconv"):
        bpeflow.train_bpe(tmp_path / "old.txt", 300)


def test_a_flood_of_shards_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("low lower " * 20_000)
    tokenizer = bpeflow.Tokenizer.train(iter(["low"]), 256, special_tokens=())
    out = tmp_path / "out" / "a.bin"
    said = "shard_tokens: 5 would divide 200.0 kB into about 10,000 pieces, .*, such as 100m"
    with pytest.raises(errors.ConfigError, match=said):
        tokenizer.encode_file(tmp_path / "a.txt", out, shard_tokens=5)
    assert not out.parent.exists()
    encoded = tokenizer.encode_file(tmp_path / "a.txt", out, shard_tokens=1000)
    assert len(encoded.written) == 400
