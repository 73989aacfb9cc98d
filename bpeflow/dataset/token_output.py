"""`new_token_set`: writes the token files of a set with their sidecars and indexes, all of them or none."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.atomic import atomic_path, check_replaceable, hold_part, remove_dead_parts, sync_file, sync_folder
from bpeflow.dataset.encode_options import already_exists
from bpeflow.dataset.token_file import Ids, index_path, read_sidecar, sidecar_path
from bpeflow.dataset.token_set import ShardWriter, SplitWriter, TokenSet
from bpeflow.dataset.token_writer import NO_ENDS, ArrayFile, TokenWriter, name_errors, sidecar_text
from bpeflow.errors import FormatError


def existing_files(tokens: TokenSet) -> list[Path]:
    """Return the token files of a set, with any number of a shard, of which any file exists. The first one is first.

    An undivided token file of the same name is one of them if the set is divided into shards, and shards are if it is
    not: readers would find both under that name.
    """
    names, other = _names_in(tokens.path.parent), tokens.in_other_form()
    paths = {path for name in names if (path := tokens.owner(name))}
    paths |= {path for name in names if (path := other.owner(name)) and _is_part_of(other, path)}
    existing = (path for path in paths if any(file.exists() for file in tokens.files_of(path)))
    return sorted(existing, key=lambda path: (path != tokens.first, path))


def refuse_to_replace(tokens: TokenSet) -> None:
    """Raise `AlreadyExistsError` if a token file of the set exists, and `FormatError` if its first file is a folder.

    Exempt is what a process left that was killed while its files got their names: the first token file is missing, and
    the sidecars of all others name it.
    """
    check_replaceable(tokens.first)
    existing = existing_files(tokens)
    if tokens.first.exists() or not all(_first_of_set(path) == tokens.first.name for path in existing):
        files = (file for path in existing for file in tokens.files_of(path) if file.exists())
        file = next(files, tokens.first)
        raise already_exists(file)


@contextmanager
def new_output(tokens: TokenSet, facts: Mapping[str, Any]) -> Iterator[TokenSetWriter | ShardSet]:
    """Write the token files of a set: as complete shards if their number is given, else by a writer of ids."""
    with new_token_set(tokens, facts) if tokens.shards is None else new_shard_set(tokens, facts) as writer:
        yield writer


@contextmanager
def new_token_set(tokens: TokenSet, facts: Mapping[str, Any]) -> Iterator[TokenSetWriter]:
    """Write the token files of a set: all files, or none if the block raises.

    Whoever finds the ids of the first token file finds all other files of the set, too, even if the process is killed
    at any time:

    1. Temporary files of killed processes are removed before the block.
    2. After the block, the ids of earlier token files of these names are removed, once the new files are durable.
       Otherwise they could be read with the new sidecars, which may match their sizes by coincidence. Earlier shards
       that have no successor are removed altogether, and so is an undivided file that gives way to shards.
    3. An earlier index is removed if the new file has none, while the earlier sidecar still shows that the index is
       part of a token file.
    4. The new files get their names. The sidecars are first, because they say whether there is an index. The ids of
       the first token file are last.

    Args:
        tokens: the set.
        facts: further content of the sidecars, at least ``{"tokenizer": {"sha256": tokenizer_hash(…)}}``.

    Yields:
        A writer to append to.

    Raises:
        FormatError: as for `atomic_path`.
        OSError: as for `atomic_path`.
    """
    with _all_or_none(tokens) as files:

        def new_array(path: Path) -> ArrayFile:
            array = ArrayFile(files.new(path), path)
            files.streams.callback(array.close)
            return array

        def new_shard(path: Path) -> TokenWriter:
            ids = new_array(path)
            if path == tokens.first:
                files.hold(files.parts[path])
            index = new_array(index_path(path, tokens.layout)) if tokens.has_index else None
            return TokenWriter(ids, index, tokens.layout, tokens.dtype)

        writer = TokenSetWriter(tokens, facts, new_shard)
        yield writer
        files.write_sidecars(writer.finish())


@contextmanager
def new_shard_set(tokens: TokenSet, facts: Mapping[str, Any]) -> Iterator[ShardSet]:
    """Write the token files of a set from complete shards: all files, or none, as `new_token_set` does."""
    with _all_or_none(tokens) as files:
        first = files.new(tokens.first)
        first.touch()
        files.hold(first)
        shards = ShardSet(tokens, facts, files)
        yield shards
        files.write_sidecars(shards.finish())


class _SetFiles:
    """The new files of a set, under their temporary names.

    Attributes:
        parts: the temporary names by the files' own.
        streams: closes open files, after the files have got their names.
    """

    def __init__(self, names: ExitStack, streams: ExitStack) -> None:
        self.parts: dict[Path, Path] = {}
        self.streams = streams
        self._names = names

    def new(self, path: Path) -> Path:
        """Return the temporary name of a file, which gets its own at the end."""
        if path not in self.parts:
            self.parts[path] = self._names.enter_context(atomic_path(path))
        return self.parts[path]

    def hold(self, file: Path) -> None:
        """Lock a file until the end, for others to see that the set is being written."""
        hold_part(self.streams.enter_context(file.open("rb")))

    def write_sidecars(self, sidecars: Iterable[tuple[Path, str]]) -> None:
        """Write the sidecar of each token file."""
        for path, sidecar in sidecars:
            with name_errors(sidecar_path(path)):
                # Bytes of a file name that are not UTF-8 become \udcXX, which JSON reads back as the same surrogates.
                self.new(sidecar_path(path)).write_text(sidecar, encoding="utf-8", errors="backslashreplace")


@contextmanager
def _all_or_none(tokens: TokenSet) -> Iterator[_SetFiles]:
    """Give the files of a set their names at the end of the block, as `new_token_set` describes."""
    remove_dead_parts(tokens.first, *_unfinished_files(tokens))
    inodes: dict[Path, int] = {}  # of all new files, the ids of the first token file last

    def undo_names(error: type[BaseException] | None, *_: object) -> None:
        """Remove the files that already have their names if the last one does not get its own (Ctrl-C, full disk)."""
        if error is not None and inodes:
            *others, (last, last_inode) = inodes.items()
            if not _has_inode(last, last_inode):  # Ctrl-C can also arrive when everything is done
                for name, inode in others:
                    with suppress(OSError):
                        if _has_inode(name, inode):
                            name.unlink()

    # The files get their names when `names` unwinds, in reverse order. `streams` keeps the lock until after that.
    with ExitStack() as streams, ExitStack() as names:
        names.push(undo_names)
        files = _SetFiles(names, streams)
        yield files
        parts = files.parts
        inodes |= {Path(os.path.realpath(path)): parts[path].stat().st_ino for path in reversed(parts)}
        _remove_earlier(tokens, parts)


class ShardSet:
    """Collects the shards of a set, which others have written. Made by `new_shard_set`.

    Attributes:
        set: the set.
        facts: further content of the sidecars. May be changed until the files are complete.
        tokens: number of ids so far.
        documents: number of documents so far.
    """

    def __init__(self, tokens: TokenSet, facts: Mapping[str, Any], files: _SetFiles) -> None:
        self.set = tokens
        self.facts = dict(facts)
        self.tokens = self.documents = 0
        self._files = files
        self._shards: list[tuple[int, int]] = []

    def paths(self) -> Iterator[Path]:
        """Yield the paths of the token files."""
        return (self.set.file("train", number) for number in range(len(self._shards)))

    def add(self, ids: Path, index: Path | None, tokens: int, documents: int) -> None:
        """Add the next shard.

        Args:
            ids: a complete file of ids in the layout of the set, in the same file system. It is moved.
            index: its index, which is moved, too; None if the set has none.
            tokens: number of its ids.
            documents: number of its documents.

        Raises:
            OSError: a file cannot be moved.
        """
        path = self.set.file("train", len(self._shards))
        if not self._shards:
            self._files.hold(ids)
        ids.replace(self._files.new(path))
        if index is not None:
            index.replace(self._files.new(index_path(path, self.set.layout)))
        self._shards.append((tokens, documents))
        self.tokens += tokens
        self.documents += documents

    def finish(self) -> Iterator[tuple[Path, str]]:
        """Yield the path of each token file and its sidecar."""
        for number, (path, (tokens, documents)) in enumerate(zip(self.paths(), self._shards, strict=True)):
            facts = {**self.set.describe("train", number, len(self._shards)), **self.facts}
            if number:
                facts.pop("input", None)  # may be long
            sidecar = sidecar_text(self.set.layout, self.set.dtype, tokens, documents, self.set.has_index, facts)
            yield path, sidecar


class TokenSetWriter:
    """Appends to the token files of a set. Made by `new_token_set`.

    Attributes:
        facts: further content of the sidecars. May be changed until the files are complete.
        splits: the writers of the splits.
    """

    def __init__(self, tokens: TokenSet, facts: Mapping[str, Any], new_shard: Callable[[Path], TokenWriter]) -> None:
        self.facts = dict(facts)
        self._set = tokens
        self.splits = {
            split: ShardWriter(partial(tokens.file, split), new_shard, tokens.shard_tokens) for split in tokens.splits
        }
        self._writer: ShardWriter | SplitWriter = self.splits["train"]
        if "val" in self.splits:
            self._writer = SplitWriter(self.splits["train"], self.splits["val"], tokens.val_fraction, tokens.seed)

    @property
    def tokens(self) -> int:
        """Number of ids written so far."""
        return sum(split.tokens for split in self.splits.values())

    @property
    def documents(self) -> int:
        """Number of documents that have ended so far."""
        return sum(split.documents for split in self.splits.values())

    def paths(self) -> Iterator[Path]:
        """Yield the paths of the token files."""
        for split in self.splits.values():
            yield from (shard.path for shard in split.shards)

    def write(self, ids: Ids, ends: NDArray[np.int64] = NO_ENDS) -> None:
        """Append ids, as `TokenWriter.write` does."""
        self._writer.write(ids, ends)

    def finish(self) -> Iterator[tuple[Path, str]]:
        """Complete the files, and yield the path of each token file and its sidecar."""
        for split, writer in self.splits.items():
            writer.finish()
            for number, shard in enumerate(writer.shards):
                facts = {**self._set.describe(split, number, len(writer.shards)), **self.facts}
                if shard.path != self._set.first:
                    facts.pop("input", None)  # may be long
                yield shard.path, shard.sidecar(facts)


def _names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def _unfinished_files(tokens: TokenSet) -> list[Path]:
    """Return the paths of the files of a set that have temporary files, of living or dead processes."""
    folder = Path(os.path.realpath(tokens.first)).parent
    parts = (re.fullmatch(r"\.(.*)\.[0-9]+\.part", name, re.DOTALL) for name in _names_in(folder))
    return [folder / part[1] for part in parts if part and tokens.owner(part[1])]


def _first_of_set(path: Path) -> object:
    """Return the name of the first token file of the set that an existing one belongs to, according to its sidecar."""
    try:
        part = read_sidecar(path).facts.get("set", {"first": path.name})
    except (FormatError, OSError):
        return None
    return part.get("first")


def _is_part_of(tokens: TokenSet, path: Path) -> bool:
    """Return whether a file is a token file, of a set in shards if that is the form of `tokens`."""
    try:
        facts = read_sidecar(path).facts
    except (FormatError, OSError):
        return not tokens.divided and sidecar_path(path).exists()
    return ("shard" in facts.get("set", {})) == tokens.divided


def _has_inode(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except OSError:
        return False


def _remove_earlier(tokens: TokenSet, parts: Mapping[Path, Path]) -> None:
    """Remove the ids that new ones replace, and token files that none replace, durably.

    The new files are made durable first. After that only their renaming is left to do.

    Args:
        tokens: the set.
        parts: the new files, and their temporary names.
    """
    earlier = [path for path in existing_files(tokens) if path not in parts or sidecar_path(path).exists()]
    if earlier:
        for part in parts.values():
            sync_file(part)
    for path in earlier:
        with name_errors(path):
            try:
                known = read_sidecar(path)
                index = index_path(path, known.layout) if known.index else None
            except (FormatError, OSError):
                index = None
            _remove(path)
            if index is not None and index not in parts:
                _remove(index)
            if path not in parts:
                _remove(sidecar_path(path))


def _remove(path: Path) -> None:
    """Remove a file, or the target of a symbolic link, durably."""
    file = Path(os.path.realpath(path))
    file.unlink(missing_ok=True)
    sync_folder(file.parent)
