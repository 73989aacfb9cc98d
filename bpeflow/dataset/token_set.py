"""`TokenSet`: the names of a corpus's token files, divided into splits and parts, and which of them exist already.

======  ===============================================================================================================
split   ``train.bin`` and, with a validation fraction, ``val.bin``. Document i of the corpus belongs to the validation
        split if number i of `numpy.random.PCG64(seed)`, in [0, 1), is less than the fraction. So the choice depends
        only on the seed and the number of the document.
part    ``train_000000.bin`` and so on, of at most `shard_tokens` ids; users call them shards. A part ends with a
        document, the last one that it has room for. Only a document that is longer than a part continues in the next
        one, and counts as one document in each. So the parts of a split, concatenated, are the ids of the split. End
        tokens do not matter.
======  ===============================================================================================================
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpeflow._util.atomic import check_replaceable
from bpeflow.dataset.token_file import (
    DtypeName,
    Layout,
    Split,
    index_path,
    part_path,
    read_sidecar,
    sidecar_path,
    split_path,
)
from bpeflow.errors import AlreadyExistsError, FormatError

if TYPE_CHECKING:
    from bpeflow.config.encoding import EncodeSettings  # pydantic, which decoding does without


@dataclass(frozen=True)
class TokenSet:
    """The token files to write for a corpus. The user gave their `path`."""

    path: Path
    layout: Layout
    dtype: DtypeName
    options: EncodeSettings

    @property
    def splits(self) -> dict[Split, Path]:
        """The paths of the splits, before they are divided into parts."""
        if not self.options.val_fraction:
            return {"train": self.path}
        return {"train": split_path(self.path, "train"), "val": split_path(self.path, "val")}

    @property
    def first(self) -> Path:
        """The token file that gets its name last. Where it is, the set is complete."""
        return self.file("train", 0)

    @property
    def has_index(self) -> bool:
        """Whether the token files have an index, as those for Megatron-LM always do."""
        return self.options.index or self.layout == "megatron"

    @property
    def divided(self) -> bool:
        """Whether the ids are divided into parts, even if there is only one."""
        return self.options.shard_tokens is not None

    def file(self, split: Split, part: int) -> Path:
        """Return the path of a token file."""
        return part_path(self.splits[split], part) if self.divided else self.splits[split]

    def files_of(self, path: Path) -> list[Path]:
        """Return the paths of all files of a token file, the ids first."""
        return [path, sidecar_path(path), *([index_path(path, self.layout)] if self.has_index else [])]

    def describe(self, split: Split, part: int, parts: int) -> dict[str, Any]:
        """Return what the sidecar of a token file says about its place in the set."""
        facts: dict[str, Any] = {"first": self.first.name}
        if self.options.val_fraction:
            facts |= {"split": split, "val_fraction": self.options.val_fraction, "seed": self.options.seed}
        if self.divided:
            facts |= {"shard": part, "shards": parts, "shard_tokens": self.options.shard_tokens}
        return {"set": facts} if len(facts) > 1 else {}

    # ---- earlier files ----

    def existing_files(self) -> list[Path]:
        """Return the token files of the set that have any file on disk, of all part numbers; the first one first.

        An undivided token file of the same name is one of them if the set is divided into parts, and parts are if it is
        not: readers would find both under that name.
        """
        stems = "|".join(re.escape(path.stem) for path in self.splits.values())
        endings = "|".join(re.escape(file.name.removeprefix(self.path.stem)) for file in self.files_of(self.path))
        names = re.compile(rf"((?:{stems})(_[0-9]{{6,}})?)(?:{endings})")
        folder, found = self.path.parent, set()
        for match in filter(None, map(names.fullmatch, os.listdir(folder) if folder.is_dir() else ())):  # noqa: PTH208
            path, is_part = folder / f"{match[1]}{self.path.suffix}", match[2] is not None
            if is_part == self.divided or _is_part(path) is is_part:
                found.add(path)
        return sorted(found, key=lambda path: (path != self.first, path))

    def stale_files(self, new: Container[Path]) -> Iterator[Path]:
        """Yield the earlier files to remove before `new` ones get their names, in that order.

        Ids go even if new ones replace them, as they could be read with a new sidecar, which may match their size by
        coincidence. An index goes if the sidecar shows that it is part of a token file.
        """
        for path in self.existing_files():
            yield path
            beside = [sidecar_path(path)]
            with suppress(FormatError, OSError):
                known = read_sidecar(path)
                if known.index:
                    beside.insert(0, index_path(path, known.layout))
            yield from (file for file in beside if file not in new)

    def refuse_to_replace(self) -> None:
        """Raise `AlreadyExistsError` if a token file of the set exists, and `FormatError` if the first is a folder."""
        check_replaceable(self.first)
        for path in self.existing_files():
            raise already_exists(next(file for file in self.files_of(path) if file.exists()))


def _is_part(path: Path) -> bool | None:
    """Return whether the sidecar of a token file says that it is a part of a set; None if it is missing or damaged."""
    try:
        return "shard" in read_sidecar(path).facts.get("set", {})
    except (FormatError, OSError):
        return None


def already_exists(path: Path, reason: str = "") -> AlreadyExistsError:
    """Return the error for an existing output file, with a reason why it cannot be resumed."""
    return AlreadyExistsError(
        f"{path}: already exists{reason}; write to another file, or give overwrite=True to replace it"
    )
