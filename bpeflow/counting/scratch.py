"""The scratch folder: where runs of counts lie that memory has no room for."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from bpeflow.atomic import sync_folder
from bpeflow.errors import ScratchError

_SCRATCH_NAME = re.compile(r"(\.scratch|bpeflow)-[0-9a-f]{16}")


@dataclass(frozen=True)
class Spilled:
    """What has been written to the scratch folder; adds up.

    Attributes:
        runs: files, those of intermediate merges included.
        bytes: bytes in them.
    """

    runs: int = 0
    bytes: int = 0

    def __add__(self, other: Spilled) -> Spilled:
        return Spilled(self.runs + other.runs, self.bytes + other.bytes)


@dataclass(frozen=True)
class Scratch:
    """A folder that is not there until something is spilled: picklable, for the workers that write to it.

    Attributes:
        folder: its path, which nobody else uses.
    """

    folder: Path

    def new_path(self, writer: str) -> Path:
        """Return the path of a file that is not there yet, and see that its folder is. Raises `ScratchError`."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        return self.folder / f"{writer}-{token_hex(8)}.run"


def new_scratch(parent: Path | None) -> Scratch:
    """Name a scratch folder in `parent`, or in the system's temporary folder. The first worker that spills makes it."""
    name = f"bpeflow-{token_hex(8)}" if parent is None else f".scratch-{token_hex(8)}"
    return Scratch((parent or Path(tempfile.gettempdir())).absolute() / name)


@contextmanager
def removed_at_end(scratch: Scratch) -> Iterator[None]:
    """Remove the scratch folder when the block ends.

    The main process enters this, and leaves it when all workers have ended; so it also removes what a worker that died
    has left. Only if it is killed itself the folder stays, until the next run in the same run folder removes it.
    """
    try:
        yield
    finally:
        shutil.rmtree(scratch.folder, ignore_errors=True)


def remove_left_behind(folder: object) -> None:
    """Remove the scratch folder of a run that was killed, for good: nobody will remember it.

    Nothing that has another name than scratch folders have.
    """
    if isinstance(folder, str) and _SCRATCH_NAME.fullmatch(Path(folder).name) and not Path(folder).is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
        sync_folder(Path(folder).parent)


def cannot_write(path: Path, error: OSError) -> ScratchError:
    """Say that, why, and what to do."""
    return ScratchError(
        f"cannot write counts to {path}: {error.strerror}. Name a scratch_dir with more room, or raise memory_limit, "
        "so that less has to be written"
    )


def cannot_read(path: Path, error: OSError) -> ScratchError:
    """Say that and why."""
    return ScratchError(f"cannot read the counts in {path} again: {error.strerror}")


def damaged(path: Path) -> ScratchError:
    """Say that something else has been at work."""
    return ScratchError(
        f"the counts in {path} are damaged or cut short since they were written: see whether the disk works, and "
        "whether something else writes to the scratch folder"
    )
