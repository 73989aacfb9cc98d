"""A model of power cuts: record the file operations in a folder, and list the states that a power cut may leave.

The model has two parts: files with content, and names that refer to files or folders.

* Content is durable once the file has been synced. Of what is appended after that, a power cut may leave all, none, a
  part, or zeros in its place. What is overwritten or cut off may be as it was before.
* A change of names (a file is created, renamed or removed) is durable once the folder has been synced; for a file that
  moves between folders, the folder of the new name. Before that, the change may be lost or kept, independently of the
  changes before and after it. But a rename is atomic.

Real file systems guarantee more, each of them something different. Pillai et al., "All File Systems Are Not Created
Equal", OSDI 2014, describe the vulnerabilities of programs that rely on it.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: Files (as numbers) and folders (as `FOLDER`), by path relative to the root.
Names = dict[str, int]
FOLDER = -1

#: An atomic change of names. None marks a removed name.
Change = dict[str, "int | None"]

#: The contents of a disk by path: bytes for files, None for folders.
Tree = dict[str, "bytes | None"]

#: A function from the durable and the latest content of a file to the content that a power cut leaves.
Loss = Callable[[bytes, bytes], bytes]

LOSSES: dict[str, Loss] = {
    "nothing written": lambda durable, now: durable,
    "overwritten only": lambda durable, now: now[: len(durable)],
    "zeros": lambda durable, now: _damaged(durable, now, 0, zeros=True),
    "cut in the middle": lambda durable, now: _damaged(durable, now, 0.5, zeros=False),
    "zeros from the middle on": lambda durable, now: _damaged(durable, now, 0.5, zeros=True),
}


def _damaged(durable: bytes, now: bytes, written: float, *, zeros: bool) -> bytes:
    """Return the durable content and the fraction of what was appended that was `written`."""
    appended = now[len(durable) :]
    kept = appended[: int(len(appended) * written)]
    return durable[: len(now)] + kept + bytes(len(appended) - len(kept) if zeros else 0)


@dataclass(frozen=True)
class Moment:
    """The state of all operations at one moment.

    Attributes:
        step: The next operation.
        durable: The names that are durable.
        pending: The changes of names since then, in order.
        synced: The durable content of each file.
        written: The latest content of each file.
        promised: The amounts of work that the program has promised to be durable by now.
    """

    step: str
    durable: Names
    pending: list[Change]
    synced: dict[int, bytes]
    written: dict[int, bytes]
    promised: dict[str, int]

    def tree(self, happened: list[bool], loss: Mapping[int, Loss]) -> Tree:
        """Return the disk after a cut that kept the changes marked in `happened` and damaged the files in `loss`."""
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
        """Yield states in which a cut at this moment may leave the disk, each with a description."""
        all_, none = [True] * len(self.pending), [False] * len(self.pending)
        unsynced = [file for file, content in self.written.items() if content != self.synced.get(file)]
        nothing_written = dict.fromkeys(unsynced, LOSSES["nothing written"])
        yield "all", self.tree(all_, {})
        yield "what was synced", self.tree(none, nothing_written)
        yield "contents only", self.tree(none, {})
        for kind, loss in LOSSES.items():
            yield f"names first, {kind}", self.tree(all_, dict.fromkeys(unsynced, loss))
        for late, change in enumerate(self.pending):
            yield f"all but {change}", self.tree([number != late for number in range(len(self.pending))], {})
        for _ in range(mixtures):
            happened = [choose.random() < 0.5 for _ in self.pending]
            losses = {file: choose.choice([*LOSSES.values()]) for file in unsynced if choose.random() < 0.7}
            yield f"a mixture, {happened}", self.tree(happened, losses)


@dataclass
class Recorder:
    """Records all operations of this process on files in a folder, while the block runs.

    Python calls audit hooks before a file is opened, renamed or removed. The recorder scans the folder at each
    call. All differences from the previous scan have happened in between. This also covers files that native code
    writes.

    Attributes:
        root: The folder. All of its contents are durable at the start.
        moments: One before each operation, and a last one at the end of the block.
        promised: Filled by the caller: the amounts of work that the program has promised to be durable.
        syncs: The number of syncs.
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
        self._scan()
        self._durable, self._pending, self._synced = {**self._names}, [], {**self._written}
        self._scanning, self._real_fsync, os.fsync = False, os.fsync, self._fsync
        sys.addaudithook(self._about_to)
        return self

    def __exit__(self, *_: object) -> None:
        self._record("the end")
        self._scanning, os.fsync = True, self._real_fsync  # the hook cannot be removed, but does nothing now

    def _about_to(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._scanning or event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            return
        if self._name(arguments[0]).startswith(".."):
            return
        self._record(f"{event} {self._name(arguments[0])}")
        if event == "os.rename" and (old := self._name(arguments[0])) in self._names:
            new = self._name(arguments[1])
            self._names[new], self._inodes[new] = self._names.pop(old), self._inodes.pop(old)
            self._pending.append({old: None, new: self._names[new]})

    def _fsync(self, descriptor: int) -> None:
        """Count the call and record what is durable now. The real disk is not synced."""
        self.syncs += 1
        self._record("fsync")
        inode = os.fstat(descriptor).st_ino
        for name in (name for name, known in self._inodes.items() if known == inode):
            if self._names[name] != FOLDER:
                self._synced[self._names[name]] = self._written[self._names[name]]
        if inode in (self.root.stat().st_ino, *self._inodes.values()):
            folder = next((name for name, known in self._inodes.items() if known == inode), "")
            self._sync_names(folder)

    def _sync_names(self, folder: str) -> None:
        """Record that the names in a folder are durable. Changes in a folder that is removed no longer matter."""
        remaining: list[Change] = []
        for change in self._pending:
            if folder_of([*change][-1]) != folder:
                remaining.append(change)
                continue
            apply(change, self._durable)
            removed = [f"{name}/" for name, file in change.items() if file is None]
            remaining = [other for other in remaining if not [*other][-1].startswith(tuple(removed))]
        self._pending = remaining

    def _name(self, path: object) -> str:
        return os.path.relpath(os.fsdecode(path), self.root) if isinstance(path, (str, bytes, os.PathLike)) else ".."

    def _record(self, step: str) -> None:
        self._scanning = True
        try:
            self._scan()
        finally:
            self._scanning = False
        written = {**self._written}
        moment = Moment(step, {**self._durable}, [*self._pending], {**self._synced}, written, {**self.promised})
        self.moments.append(moment)

    def _scan(self) -> None:
        """Find the files that have been created, written or removed since the last scan."""
        found = read_tree(self.root)
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
    """Apply a change to `names`. Removing a folder also removes its contents."""
    for name, file in change.items():
        if file is not None:
            names[name] = file
        elif names.pop(name, FOLDER) == FOLDER:  # or a folder whose own name was lost
            for inside in [known for known in names if known.startswith(f"{name}/")]:
                del names[inside]


def folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def read_tree(root: Path) -> Tree:
    """Return the contents of a folder."""
    paths = sorted(root.rglob("*"))
    return {path.relative_to(root).as_posix(): None if path.is_dir() else path.read_bytes() for path in paths}


def write_tree(tree: Tree, root: Path) -> None:
    """Fill the empty folder `root` with the contents of a disk."""
    for name, content in tree.items():  # folders come before their contents
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)
