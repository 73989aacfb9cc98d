"""Names with line breaks, and names of devices and folders: a correct result or a clear error."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

import bpeflow
from bpeflow.cli.main import main

NEWLINE = "two\nlines \x1b[31m[bold].txt"
ESCAPED = r"two\nlines \x1b[31m[bold].txt"


@pytest.mark.parametrize("listed", [False, True])
def test_files_whose_names_contain_newlines_are_counted(tmp_path: Path, listed: bool) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / NEWLINE).write_text("some text", encoding="utf-8")
    (tmp_path / "list").write_bytes(os.fsencode(folder / NEWLINE) + b"\0")
    assert dict(bpeflow.count(f"@{tmp_path}/list" if listed else folder)) == {b"some": 1, b" text": 1}


@pytest.mark.parametrize("command", ["train", "encode"])
def test_an_error_message_is_one_line_for_any_file_name(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / NEWLINE).write_bytes(b"some \xff text")
    bpeflow.Tokenizer.train(iter(["text"]), 257).save(tmp_path / "tokenizer")
    arguments = {
        "train": ["--vocab_size", "260", "--out_dir", str(tmp_path / "run")],
        "encode": ["--tokenizer", str(tmp_path / "tokenizer"), "--out", str(tmp_path / "ids.bin")],
    }[command]
    prefix = [] if command == "train" else [command]
    assert main([*prefix, "--input", str(tmp_path / NEWLINE), *arguments]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("bpeflow: ")
    assert f"{ESCAPED} is not UTF-8 at byte 5" in last


def test_the_summary_and_warnings_are_one_line_each_for_any_folder_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_bytes(b"some text")
    assert main(["--input", str(tmp_path / "text"), "--vocab_size", "260", "--out_dir", str(tmp_path / NEWLINE)]) == 0
    logging.getLogger("bpeflow").warning("%s is damaged", tmp_path / NEWLINE)
    out, err = capfd.readouterr()
    assert f"written  {tmp_path}/{ESCAPED}: counts.npz" in out
    assert f"WARNING: {tmp_path}/{ESCAPED} is damaged" in err.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "."], "cannot read the config .: Is a directory"),
        (["--input", "/dev/zero", "--vocab_size", "260"], "the input /dev/zero is not a regular file (a device"),
        (["--input", "@/dev/zero", "--vocab_size", "260"], "the list of inputs /dev/zero is a device; save its"),
        (["--input", "@.", "--vocab_size", "260"], "cannot read the list of inputs .: Is a directory"),
        (["merge", "--counts", "/dev/zero", "--vocab_size", "260"], "no counts at /dev/zero"),
        (["convert", "/dev/zero", "made", "--to", "gpt2"], "/dev/zero: is neither a regular file nor a folder"),
        (
            ["encode", "--tokenizer", "t", "--input", "text", "--out", "."],
            "--out: .: is a folder; output can only create",
        ),
        (
            ["encode", "--tokenizer", "t", "--input", "text", "--out", "/dev/full"],
            "--out: /dev/full: is a device, a pipe",
        ),
        (["decode", "--tokenizer", "t", "--input", ".", "--out", "made"], ".: is a folder, not a token file"),
    ],
)
def test_devices_and_folders_where_files_belong_are_errors(
    tmp_path: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    bpeflow.Tokenizer.train(iter(["text"]), 257).save("t")
    Path("text").write_text("text", encoding="utf-8")
    capsys.readouterr()
    assert main([*arguments, *(["--out_dir", "made"] if "260" in arguments else [])]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"bpeflow: {message}")
    assert not Path("made").exists()


#: A name that fits with its ending, while the temporary name, with a dot, the process number and ``.part``, does not.
LONG, VERY_LONG = "a" * (245 - len(str(os.getpid()))), "a" * 260


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["encode", "--tokenizer", "t", "--input", "broken", "--out", f"{LONG}.bin"], f"{LONG}.bin"),
        (["encode", "--tokenizer", "t", "--input", "broken", "--out", f"{LONG}.npy", "--index"], f"{LONG}.npy"),
        (
            ["encode", "--tokenizer", "t", "--input", "broken", "--out", f"{LONG}.bin", "--shard_tokens", "9"],
            f"{LONG}.bin",
        ),
        (
            ["encode", "--tokenizer", "t", "--input", "broken", "--out", f"{LONG[:-4]}.bin", "--shard_tokens", "9"],
            f"{LONG[:-4]}_000000.bin",
        ),
        (["decode", "--tokenizer", "t", "--input", "ids.bin", "--out", f"{LONG}.txt"], f"{LONG}.txt"),
        (["convert", "t", f"{LONG}.json"], f"{LONG}.json"),
        (["convert", "t", f"{LONG}.tiktoken"], f"{LONG}.tiktoken.json"),
        (["convert", "t", f"{LONG[:-8]}.tiktoken"], f"{LONG[:-8]}.tiktoken.json"),  # only the sidecar's is too long
        (["counts", "nothing.npz", f"{LONG}.tsv"], f"{LONG}.tsv"),
        (["report", "nothing", "--out", f"{LONG}.html"], f"{LONG}.html"),
        (["show", "nothing", "text", "--html", f"{LONG}.html"], f"{LONG}.html"),
        (["--input", "broken", "--vocab_size", "260", "--out_dir", VERY_LONG], f"{VERY_LONG}/unfinished/done.json"),
        (
            ["merge", "--counts", "run", "--vocab_size", "260", "--out_dir", LONG * 2],
            f"{LONG * 2}/unfinished/done.json",
        ),
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, list) else "",
)
def test_a_name_too_long_for_a_temporary_file_fails_before_the_work(
    tmp_path: Path,
    arguments: list[str],
    named: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The inputs are missing or broken, so the work would be another error."""
    monkeypatch.chdir(tmp_path)
    tokenizer = bpeflow.Tokenizer.train(iter(["text"]), 257)
    tokenizer.save("t")
    bpeflow.train_bpe(iter(["text"]), 257, out_dir="run")
    Path("broken").write_bytes(b"\xff" * 9)
    tokenizer.encode_documents(["text"] * 9, "ids.bin")
    with Path("ids.bin").open("r+b") as ids:
        ids.write(b"damaged!")
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    assert main(arguments) in (1, 2)
    assert capsys.readouterr().err.splitlines()[-1] == f"bpeflow: {named}: File name too long"
    assert sorted(tmp_path.rglob("*")) == before
