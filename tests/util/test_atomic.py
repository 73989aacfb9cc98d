"""`atomic_path` leaves the complete new file or the old one, and replaces regular files only."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from bpeflow._util.atomic import atomic_path, make_folder, remove_parts, sync_folder
from bpeflow.errors import FormatError


def write(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text)


def test_a_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    with atomic_path(path) as temporary:
        temporary.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_raises_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    with pytest.raises(KeyError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_written(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    if exists:
        target.write_text("before")
    link.symlink_to(Path("elsewhere") / "file")
    write(link, "after")
    assert link.is_symlink()
    assert target.read_text() == "after"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_pipe_is_refused_and_stays(tmp_path: Path, through_a_link: bool) -> None:
    path = pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    if through_a_link:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    with pytest.raises(FormatError, match="a device, a pipe or a socket") as caught:
        write(path, "text")
    assert str(caught.value).startswith(f"{path}: ")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert {*tmp_path.iterdir()} == {path, pipe}


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is a folder"):
        write(tmp_path, "text")


def test_a_missing_folder_is_created_and_removed_again_after_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "too" / "out"
    with pytest.raises(ValueError, match="mine"), atomic_path(path) as temporary:
        temporary.write_text("text")
        raise ValueError("mine")
    assert [*tmp_path.iterdir()] == []
    write(path, "text")
    assert path.read_text() == "text"
    with pytest.raises(ValueError, match="mine"), atomic_path(path.with_name("other")):
        raise ValueError("mine")
    assert path.read_text() == "text"


def test_a_file_in_the_place_of_a_folder_is_an_error_that_names_the_requested_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    beneath_a_file = tmp_path / "file" / "out"
    with pytest.raises(NotADirectoryError) as in_file:
        write(beneath_a_file, "text")
    assert in_file.value.filename == str(beneath_a_file)


def test_a_link_into_a_missing_folder_creates_it(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "missing" / "out")
    write(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "missing" / "out").read_text() == "text"


def test_a_link_to_itself_is_an_error_that_names_it(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    with pytest.raises(OSError, match="symbolic links") as caught:
        write(link, "text")
    assert str(caught.value.filename) == str(link)


def test_temporary_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    ours = [".out.1.part", ".out.77.part", "inner/.out.1.part"]
    others = ["out", ".out", "out.1.part", ".part", "inner/out"]
    for name in (*ours, *others):
        (tmp_path / name).touch()
    remove_parts(tmp_path)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == sorted(others)


def test_a_folder_that_cannot_be_synced_is_ignored(tmp_path: Path) -> None:
    sync_folder(tmp_path)
    sync_folder(tmp_path / "missing")


@pytest.mark.parametrize(("code", "raises"), [(errno.EIO, True), (errno.ENOSPC, True), (errno.EINVAL, False)])
def test_a_failing_disk_is_an_error_but_a_system_that_cannot_sync_folders_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, raises: bool
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    if not raises:
        sync_folder(tmp_path)
        return
    with pytest.raises(OSError, match=str(tmp_path)) as caught:
        sync_folder(tmp_path)
    assert caught.value.errno == code


def test_a_file_in_the_place_of_a_folder_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="exists, but is not a folder"):
        make_folder(tmp_path / "file")
