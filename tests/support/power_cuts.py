"""What a power cut may leave on a disk: records what is done to the files in a folder, and tells in which states the
disk may be if the power goes at any moment of it.

A disk of two parts. Files have content, and names stand for files, or for folders. What is written to a file is on the
disk for certain when the file has been synced, and before that all of it may be there, or none, or some, or zeros in
its place. A change of names (a file that is made, renamed, removed) is on the disk for certain when the folder has been
synced (the one where the new name is, if a file changes folders), and before that it may be there or not, whatever
becomes of the changes before and after it; but a rename is done as a whole, or not at all. Real file systems promise
more, each of them something else: the vulnerabilities that come of relying on it are the subject of Pillai et al., "All
File Systems Are Not Created Equal", OSDI 2014.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: A file, by its number, or a folder; by its path beneath the root.
Names = dict[str, int]
FOLDER = -1

#: Changes of names that are done together or not at all; None for a name that is gone.
Change = dict[str, "int | None"]

#: What is on the disk: the content of files, None for folders.
Tree = dict[str, "bytes | None"]

#: What may be there of a file, of which this was on the disk and that was to be.
Loss = Callable[[bytes, bytes], bytes]

LOSSES: dict[str, Loss] = {
    "nothing written": lambda durable, now: durable,
    "zeros": lambda durable, now: bytes(len(now)),
    "cut in the middle": lambda durable, now: now[: len(now) // 2],
    "zeros from the middle on": lambda durable, now: now[: len(now) // 2] + bytes(len(now) - len(now) // 2),
}


@dataclass(frozen=True)
class Moment:
    """What has been done at a moment.

    Attributes:
        step: what is about to be done.
        durable: the names that are on the disk.
        pending: changes since then, in their order.
        synced: the content of files that is on the disk.
        written: the content that they have been given.
        promised: what the program has said is safe by now.
    """

    step: str
    durable: Names
    pending: list[Change]
    synced: dict[int, bytes]
    written: dict[int, bytes]
    promised: dict[str, int]

    def tree(self, happened: list[bool], loss: Mapping[int, Loss]) -> Tree:
        """The disk after a cut, of which these changes have happened, and these files have lost something."""
        names = {**self.durable}
        for change in (change for change, has in zip(self.pending, happened, strict=True) if has):
            apply(change, names)
        tree: Tree = {}
        for name, file in sorted(names.items()):
            if "/" in name and folder_of(name) not in tree:
                continue
            durable, now = self.synced.get(file, b""), self.written.get(file, b"")
            tree[name] = None if file == FOLDER else loss[file](durable, now) if file in loss else now
        return tree

    def trees(self, choose: random.Random, mixtures: int = 2) -> Iterator[tuple[str, Tree]]:
        """States in which a cut at this moment may leave the disk, with what has happened then, in words."""
        all_, none = [True] * len(self.pending), [False] * len(self.pending)
        unsynced = [file for file, content in self.written.items() if content != self.synced.get(file)]
        nothing_written = dict.fromkeys(unsynced, LOSSES["nothing written"])
        yield "all", self.tree(all_, {})
        yield "what was synced", self.tree(none, nothing_written)
        yield "contents only", self.tree(none, {})
        for what, loss in LOSSES.items():
            yield f"names first, {what}", self.tree(all_, dict.fromkeys(unsynced, loss))
        for late, change in enumerate(self.pending):
            yield f"all but {change}", self.tree([number != late for number in range(len(self.pending))], {})
        for _ in range(mixtures):
            happened = [choose.random() < 0.5 for _ in self.pending]
            losses = {file: choose.choice([*LOSSES.values()]) for file in unsynced if choose.random() < 0.7}
            yield f"a mixture, {happened}", self.tree(happened, losses)


@dataclass
class Recorder:
    """Writes down all that this process does to files beneath a folder, while the block runs.

    Audit hooks are told before a file is opened, renamed or removed. So it looks at the folder whenever anything is
    about to be done, and what is not as it was at the last look has happened in between: what native code writes, too.

    Attributes:
        root: the folder, which is on the disk with all that is in it.
        moments: one before each step, and the last one when the block has ended.
        promised: to be told of what the program has said is safe.
        syncs: how often something was synced.
    """

    root: Path
    moments: list[Moment] = field(default_factory=list)
    promised: dict[str, int] = field(default_factory=dict)
    syncs: int = 0

    def __enter__(self) -> Recorder:
        self._names: Names = {}
        self._inodes: dict[str, int] = {}
        self._pending: list[Change] = []
        self._written: dict[int, bytes] = {}
        self._look()
        self._durable, self._pending, self._synced = {**self._names}, [], {**self._written}
        self._looking, self._real_fsync, os.fsync = False, os.fsync, self._fsync
        sys.addaudithook(self._about_to)
        return self

    def __exit__(self, *_: object) -> None:
        self._take_down("the end")
        self._looking, os.fsync = True, self._real_fsync  # the hook, which cannot be taken back, does nothing now

    def _about_to(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._looking or event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            return
        if self._name(arguments[0]).startswith(".."):
            return
        self._take_down(f"{event} {self._name(arguments[0])}")
        if event == "os.rename" and (old := self._name(arguments[0])) in self._names:
            new = self._name(arguments[1])
            self._names[new], self._inodes[new] = self._names.pop(old), self._inodes.pop(old)
            self._pending.append({old: None, new: self._names[new]})

    def _fsync(self, descriptor: int) -> None:
        """Count it, and note what is on the disk now; the real disk need not know."""
        self.syncs += 1
        self._take_down("fsync")
        inode = os.fstat(descriptor).st_ino
        for name in (name for name, known in self._inodes.items() if known == inode):
            if self._names[name] != FOLDER:
                self._synced[self._names[name]] = self._written[self._names[name]]
        if inode in (self.root.stat().st_ino, *self._inodes.values()):
            folder = next((name for name, known in self._inodes.items() if known == inode), "")
            self._sync_names(folder)

    def _sync_names(self, folder: str) -> None:
        """Note that the names in a folder are on the disk; what was done in a folder that is gone no longer matters."""
        left: list[Change] = []
        for change in self._pending:
            if folder_of([*change][-1]) != folder:
                left.append(change)
                continue
            apply(change, self._durable)
            gone = [f"{name}/" for name, file in change.items() if file is None]
            left = [other for other in left if not [*other][-1].startswith(tuple(gone))]
        self._pending = left

    def _name(self, path: object) -> str:
        return os.path.relpath(os.fsdecode(path), self.root) if isinstance(path, (str, bytes, os.PathLike)) else ".."

    def _take_down(self, step: str) -> None:
        self._looking = True
        try:
            self._look()
        finally:
            self._looking = False
        written = {**self._written}
        moment = Moment(step, {**self._durable}, [*self._pending], {**self._synced}, written, {**self.promised})
        self.moments.append(moment)

    def _look(self) -> None:
        """Find out what has been made, written or removed."""
        found = read(self.root)
        inodes = {name: (self.root / name).stat().st_ino for name in found}
        for name in sorted(self._names, reverse=True):
            if inodes.get(name) != self._inodes[name]:
                del self._names[name], self._inodes[name]
                self._pending.append({name: None})
        for name, content in found.items():
            if name not in self._names:
                self._names[name] = FOLDER if content is None else len(self._written)
                self._inodes[name] = inodes[name]
                self._pending.append({name: self._names[name]})
            if content is not None and content != self._written.get(self._names[name]):
                self._written[self._names[name]] = content


def apply(change: Change, names: Names) -> None:
    """Do it. With a folder goes what was in it."""
    for name, file in change.items():
        if file is not None:
            names[name] = file
            continue
        for gone in [known for known in names if f"{known}/".startswith(f"{name}/")]:
            del names[gone]


def folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def read(root: Path) -> Tree:
    """What is on the disk now."""
    paths = sorted(root.rglob("*"))
    return {path.relative_to(root).as_posix(): None if path.is_dir() else path.read_bytes() for path in paths}


def put(tree: Tree, root: Path) -> None:
    """Make `root`, which is empty, what the disk is after a cut."""
    for name, content in tree.items():  # folders come before what is in them
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)
