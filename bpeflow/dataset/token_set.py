"""`TokenSet`: the token files of a corpus, divided into splits and shards, and how documents are divided among them.

======  ===============================================================================================================
split   ``train.bin`` and, with a validation fraction, ``val.bin``. Document i of the corpus belongs to the validation
        split if number i of `numpy.random.PCG64(seed)`, in [0, 1), is less than the fraction. So the choice depends
        only on the seed and the number of the document.
shard   ``train_000000.bin`` and so on, of at most `shard_tokens` ids. A shard ends with a document, the last one that
        it has room for. Only a document that is longer than a shard continues in the next one, and counts as one
        document in each. So the shards of a split, concatenated, are the ids of the split. End tokens play no part.
        Or a number of `shards`, each with about the same part of the corpus. Such a shard ends with a document, however
        long that is, and some may be empty.
======  ===============================================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bpeflow.dataset.token_file import DtypeName, Ids, Layout, index_path, shard_path, sidecar_path
from bpeflow.dataset.token_writer import TokenWriter
from bpeflow.errors import ConfigError

Split = Literal["train", "val"]

#: Upper bound on the number of shards. More are a mistake: each is several files.
MOST_SHARDS = 100_000


@dataclass(frozen=True)
class TokenSet:
    """The token files to write for a corpus.

    Attributes:
        path: the path that the user gave.
        layout: the layout of the files.
        dtype: the dtype of the ids.
        index: whether to write indexes.
        shard_tokens: upper bound on the ids in a file; None for no such bound.
        val_fraction: share of the documents in the validation split; 0 for no such split.
        seed: chooses other documents for it.
        shards: number of files; None for one, or for as many as `shard_tokens` makes.

    Raises:
        ConfigError: a value is out of range, or two do not fit each other.
    """

    path: Path
    layout: Layout = "bin"
    dtype: DtypeName = "uint16"
    index: bool = False
    shard_tokens: int | None = None
    val_fraction: float = 0.0
    seed: int = 0
    shards: int | None = None

    def __post_init__(self) -> None:
        if self.shard_tokens is not None and not (isinstance(self.shard_tokens, int) and self.shard_tokens >= 1):
            raise ConfigError(f"shard_tokens: must be an integer of at least 1, not {self.shard_tokens!r}")
        if not 0 <= self.val_fraction < 1:
            raise ConfigError(f"val_fraction: must be at least 0 and less than 1, not {self.val_fraction}")
        if not (isinstance(self.seed, int) and self.seed >= 0):
            raise ConfigError(f"seed: must be an integer of at least 0, not {self.seed!r}")
        if self.shards is not None:
            if not (isinstance(self.shards, int) and 1 <= self.shards <= MOST_SHARDS):
                raise ConfigError(f"shards: must be an integer from 1 to {MOST_SHARDS:,}, not {self.shards!r}")
            if self.shard_tokens is not None or self.val_fraction:
                other = "val_fraction" if self.val_fraction else "shard_tokens"
                raise ConfigError(f"shards: not together with {other}, which depends on the ids of all shards before")

    @property
    def splits(self) -> dict[Split, Path]:
        """The paths of the splits, before they are divided into shards."""
        if not self.val_fraction:
            return {"train": self.path}
        return {"train": split_path(self.path, "train"), "val": split_path(self.path, "val")}

    @property
    def first(self) -> Path:
        """The token file that gets its name last. Where it is, the set is complete."""
        return self.file("train", 0)

    @property
    def has_index(self) -> bool:
        """Whether the token files have an index, as those for Megatron-LM always do."""
        return self.index or self.layout == "megatron"

    @property
    def divided(self) -> bool:
        """Whether the ids are divided into shards, even if it is only one."""
        return self.shard_tokens is not None or self.shards is not None

    def in_other_form(self) -> TokenSet:
        """Return the same set undivided if it is divided into shards, and else in shards."""
        return replace(self, shards=None, shard_tokens=None if self.divided else 1)

    def file(self, split: Split, shard: int) -> Path:
        """Return the path of a token file."""
        return shard_path(self.splits[split], shard) if self.divided else self.splits[split]

    def files_of(self, path: Path) -> list[Path]:
        """Return the paths of all files of a token file, the ids first."""
        return [path, sidecar_path(path), *([index_path(path, self.layout)] if self.has_index else [])]

    def owner(self, name: str) -> Path | None:
        """Return the token file, with any number of a shard, that has a file of this name; None if there is none."""
        for path in self.splits.values():
            number = "_[0-9]{6,}" if self.divided else ""
            ending = re.escape(path.suffix)
            index = r"\.idx" if self.layout == "megatron" else rf"{ending}\.idx"
            known = rf"({re.escape(path.stem)}{number})(?:{ending}|{ending}\.json|{index})"
            if match := re.fullmatch(known, name):
                return path.parent / f"{match[1]}{path.suffix}"
        return None

    def describe(self, split: Split, shard: int, shards: int) -> dict[str, Any]:
        """Return what the sidecar of a token file says about its place in the set."""
        facts: dict[str, Any] = {"first": self.first.name}
        if self.val_fraction:
            facts |= {"split": split, "val_fraction": self.val_fraction, "seed": self.seed}
        if self.divided:
            facts |= {"shard": shard, "shards": shards}
        if self.shard_tokens is not None:
            facts |= {"shard_tokens": self.shard_tokens}
        return {"set": facts} if len(facts) > 1 else {}


def split_path(path: Path, split: Split) -> Path:
    """Return the path of a split: ``train`` at the end of the name becomes the split; to others the split is appended.

    >>> [split_path(Path(name), "val").name for name in ("train.bin", "owt_train.bin", "owt.bin")]
    ['val.bin', 'owt_val.bin', 'owt_val.bin']
    """
    stem, replaced = re.subn(r"(^|[^0-9A-Za-z])train$", rf"\1{split}", path.stem)
    return path.parent / f"{stem if replaced else f'{stem}_{split}'}{path.suffix}"


class ShardWriter:
    """Writes ids to token files of bounded length.

    Args:
        path_of: returns the path of the token file with a number.
        new_shard: creates a token file.
        limit: upper bound on the ids in a file; None for one file.

    Attributes:
        shards: the token files so far. All but the last are complete.
        tokens: number of ids written so far.
        documents: number of documents that have ended so far.
    """

    def __init__(
        self, path_of: Callable[[int], Path], new_shard: Callable[[Path], TokenWriter], limit: int | None
    ) -> None:
        self._path_of, self._new_shard, self._limit = path_of, new_shard, limit
        self.shards = [new_shard(path_of(0))]
        self.tokens = self.documents = 0

    def write(self, ids: Ids, ends: NDArray[np.int64]) -> None:
        """Append ids, as `TokenWriter.write` does."""
        self.tokens += len(ids)
        self.documents += len(ends)
        while self._limit is not None and len(ids) > (room := self._limit - self.shards[-1].tokens):
            shard = self.shards[-1]
            fitting = int(np.searchsorted(ends, room, "right"))
            cut = int(ends[fitting - 1]) if fitting else 0
            if not fitting and shard.last_end:  # the document that does not fit began in this shard, or comes next
                self._begin_shard(shard.take_unfinished())
                continue
            if shard.tokens + cut == 0 or not fitting:  # it is longer than a shard
                cut = room
            shard.write(ids[:cut], ends[:fitting])
            ids, ends = ids[cut:], ends[fitting:] - cut
            self._begin_shard()
        self.shards[-1].write(ids, ends)

    def finish(self) -> None:
        """Complete the last file. Raises `OSError` if writing fails."""
        self.shards[-1].finish()

    def _begin_shard(self, ids: Iterable[Ids] = ()) -> None:
        """Complete a shard and begin the next one, with ids from its end."""
        shard = self._new_shard(self._path_of(len(self.shards)))
        for part in ids:
            shard.write(part)
        self.shards[-1].finish()
        self.shards.append(shard)


class SplitWriter:
    """Divides documents at random between two splits.

    Args:
        train: one split.
        val: the other split.
        fraction: the probability with which a document belongs to `val`.
        seed: chooses other documents.
    """

    def __init__(self, train: ShardWriter, val: ShardWriter, fraction: float, seed: int) -> None:
        self._train, self._val = train, val
        self._numbers = np.random.PCG64(seed)  # its stream is the same in all versions of numpy
        self._threshold = np.uint64(int(fraction * 2.0**64))
        self._open = self._draw(1)  # whether the document that has not ended belongs to `val`

    def write(self, ids: Ids, ends: NDArray[np.int64]) -> None:
        """Append ids, as `TokenWriter.write` does."""
        in_val = np.concatenate([self._open, self._draw(len(ends))])  # of the documents that end, and of the last one
        self._open = in_val[-1:]
        if not in_val.any():
            self._train.write(ids, ends)
            return
        lengths = np.diff(ends, prepend=0)
        runs = np.split(ids, ends[in_val[1:] != in_val[:-1]])  # of documents of one split, in turns
        for split, chosen in ((self._train, ~in_val), (self._val, in_val)):
            own = runs[0 if chosen[0] else 1 :: 2]
            if own:
                split.write(np.concatenate(own), np.cumsum(lengths[chosen[:-1]]))

    def _draw(self, count: int) -> NDArray[np.bool_]:
        chosen: NDArray[np.bool_] = self._numbers.random_raw(count) < self._threshold
        return chosen
