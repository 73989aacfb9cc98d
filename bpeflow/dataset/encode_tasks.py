"""Encoding in tasks on an engine.

The corpus is divided into parts, each encoded by a task of its own into a file: a sequence of chunks that the calling
process joins in order, as if it had encoded them itself, so everything that a token set can be works on an engine, too.

Tasks write files with names of their own into a folder next to the output, so a task that runs twice does no harm.
"""

from __future__ import annotations

import glob
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from bpeflow._util.atomic import hold_part, is_unlocked, name_errors
from bpeflow.config import EngineSettings
from bpeflow.corpus.chunk import CorpusFile
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.reader import check_unchanged
from bpeflow.corpus.sources import Corpus, CorpusEntry, with_absolute_paths
from bpeflow.corpus.split import find_boundary
from bpeflow.counting.work import OTHER_FILE_REMEDY
from bpeflow.dataset.chunk_encoder import EncodedChunk, Rest
from bpeflow.dataset.corpus_encoder import CorpusEncoder
from bpeflow.dataset.token_set import TokenSet
from bpeflow.dataset.token_writer import ArrayFile
from bpeflow.engines.coordinator import Coordinator, start_engine
from bpeflow.engines.engine import Call
from bpeflow.engines.probe import check_nodes
from bpeflow.errors import ConfigError

#: Bounds of a part's size in bytes of input, and the parts of a small corpus per slot. Small parts balance the load
#: better and lose less work with a node; large ones spend less of their time on starting.
_MIN_PART, _MAX_PART, _PER_SLOT = 16_000_000, 1_000_000_000, 4


@dataclass(frozen=True)
class PartOfChunk:
    """What a task returns of a chunk: an `EncodedChunk` without its arrays, but with their lengths."""

    ids: int
    ends: int
    rest: Rest
    ends_file: bool
    statistics: DocumentStatistics
    weight: int


@dataclass(frozen=True)
class EncodedPart:
    """A part of the corpus, encoded: its file, the dtype of its ids, and its chunks.

    The file has for each chunk first its ids, then the ends of its documents as int64.
    """

    name: str
    dtype: str
    chunks: list[PartOfChunk]


@dataclass(frozen=True)
class EncodeWork:
    """The work of encoding a corpus, in tasks. It is passed in a file, as tokenizers are too large for arguments."""

    folder: Path
    encoder: CorpusEncoder

    def encode_part(self, entries: list[CorpusEntry]) -> EncodedPart:
        """Encode a part of the corpus to chunks. Raises as `encode_file` does."""
        path = self.folder / f"{token_hex(8)}.part"
        chunks, dtype = [], "uint16"
        with closing(ArrayFile(path, path)) as file:
            for chunk in self._encoded(entries):
                file.append(chunk.ids)
                file.append(chunk.ends)
                dtype = chunk.ids.dtype.name
                lengths = len(chunk.ids), len(chunk.ends)
                chunks.append(PartOfChunk(*lengths, chunk.rest, chunk.ends_file, chunk.statistics, chunk.weight))
        return EncodedPart(path.name, dtype, chunks)

    def _encoded(self, entries: list[CorpusEntry]) -> Iterator[EncodedChunk]:
        check_unchanged(entries, OTHER_FILE_REMEDY, may_grow=True, was_read=False)
        return replace(self.encoder, corpus=Corpus(self.encoder.corpus.sources, entries)).encoded()


#: Runs a method of `EncodeWork` once for each tuple of arguments, and yields the results in any order, with the index.
RunTasks = Callable[[str, Sequence[tuple[Any, ...]]], Iterator[tuple[int, Any]]]


def encoded_chunks(work: CorpusEncoder, tokens: TokenSet, settings: EngineSettings) -> Iterator[EncodedChunk]:
    """Encode a corpus, and yield its chunks in order: with the local engine by `CorpusEncoder.encoded`, else in tasks.

    Raises as `CorpusEncoder.encoded`, and `EngineError` if the engine fails.
    """
    if settings.kind == "local":
        yield from work.encoded()
        return
    with _task_folder(tokens) as folder, _engine(EncodeWork(folder, work), settings) as (run, slots):
        total = work.corpus.known_bytes
        size = min(_MAX_PART, max(_MIN_PART, total // (_PER_SLOT * slots)))
        parts = divide(work, -(-total // size))
        waiting: dict[int, EncodedPart] = {}
        following = 0
        for index, done in run("encode_part", [(part,) for part in parts]):
            waiting[index] = done
            while following in waiting:
                yield from _chunks_of(waiting.pop(following), folder)
                following += 1


def check_distributable(corpus: Corpus, settings: EngineSettings) -> None:
    """Raise `ConfigError` if tasks cannot read a corpus."""
    if corpus.main_process_only and settings.kind != "local":
        raise ConfigError(
            f"engine {settings.kind}: standard input and iterables have one reader only; save the documents to files "
            "first"
        )


def divide(work: CorpusEncoder, parts: int) -> list[list[CorpusEntry]]:
    """Divide a corpus into parts of about the same number of bytes. Streams are not divided.

    Args:
        work: the corpus and its encoder.
        parts: number of parts. Some may be empty.
    """
    parts = max(parts, 1)
    ends = [work.corpus.known_bytes * number // parts for number in range(1, parts)]
    divided: list[list[CorpusEntry]] = [[] for _ in range(parts)]
    part = before = 0
    for entry in map(with_absolute_paths, work.corpus.entries):
        if isinstance(entry, CorpusFile):
            while part < len(ends) and ends[part] < before + entry.size:
                end = find_boundary(entry, max(ends[part] - before, entry.begin), work.encoder.rules)
                if end >= entry.size:
                    break
                if end > entry.begin:
                    divided[part].append(replace(entry, end=end))
                    entry = replace(entry, begin=end)
                part += 1
            before += entry.begin
        divided[part].append(entry)
        before += entry.weight
        while part < len(ends) and ends[part] <= before:
            part += 1
    return divided


def _chunks_of(part: EncodedPart, folder: Path) -> Iterator[EncodedChunk]:
    """Yield the chunks of a part, and remove its file."""
    path = folder / part.name
    with name_errors(path), path.open("rb") as stream:
        for number, chunk in enumerate(part.chunks):
            ids, ends = np.fromfile(stream, part.dtype, chunk.ids), np.fromfile(stream, np.int64, chunk.ends)
            yield EncodedChunk(number, ids, ends, chunk.rest, chunk.ends_file, chunk.statistics, chunk.weight)
    path.unlink()


# ---- running tasks ----


@contextmanager
def _engine(work: EncodeWork, settings: EngineSettings) -> Iterator[tuple[RunTasks, int]]:
    """Yield who runs tasks on an engine, and the number of its slots."""
    corpus = work.encoder.corpus
    engine = start_engine(settings)
    try:
        check_nodes(engine, work.folder, [*map(with_absolute_paths, corpus.entries)], OTHER_FILE_REMEDY)
        encoder = replace(work.encoder, corpus=Corpus(corpus.sources, []), num_threads=settings.cpus_per_task)
        file = work.folder / "work"
        file.write_bytes(pickle.dumps(replace(work, encoder=encoder)))
        coordinator = Coordinator(engine, settings.cpus_per_task, int(settings.task_memory), settings.retries)

        def run(method: str, arguments: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
            calls = (
                Call(f"encode {number} of {len(arguments)}", _run_task, (file, method, each))
                for number, each in enumerate(arguments, 1)
            )
            return ((index, report.value) for index, report in coordinator.run(calls))

        yield run, engine.slots
    finally:
        engine.stop()


def _run_task(file: Path, method: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(_read_work(file), method)(*arguments)


@lru_cache(maxsize=1)
def _read_work(file: Path) -> EncodeWork:
    """Read the work that `_engine` wrote; once in each process, as making a tokenizer takes a while."""
    work: EncodeWork = pickle.loads(file.read_bytes())  # noqa: S301 -- of this run's own folder
    return work


@contextmanager
def _task_folder(tokens: TokenSet) -> Iterator[Path]:
    """Yield a folder for the files of tasks, next to the output, and remove it at the end.

    Also removes the folders of killed processes. Those of live processes are locked.
    """
    output = Path(os.path.realpath(tokens.first)).parent
    name = f".{tokens.path.name}"
    for lock in output.glob(f"{glob.escape(name)}.*.tasks/lock"):
        if is_unlocked(lock):
            shutil.rmtree(lock.parent, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}.", suffix=".new", dir=output))
    try:
        with (folder / "lock").open("w") as file:
            hold_part(file)
            folder = folder.rename(folder.with_suffix(".tasks"))  # it has its name when it is locked
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
