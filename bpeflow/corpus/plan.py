"""The plan: a corpus divided into chunks that can be read and counted on their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from bpeflow.corpus.boundaries import BoundaryFinder
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.files import CorpusFile
from bpeflow.errors import ConfigError, CorpusError
from bpeflow.pretokenize import Pretokenizer

LOOK_AHEAD_BYTES = 1 << 20
"""How far past its size a chunk looks for a separator before a document is cut. Larger: chunks of whole documents even
where those are long; smaller: chunks nearer to the size asked for, and less to read for the plan."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """``length`` bytes of the file ``path`` from byte ``offset`` on; ``ends_file`` if they are its last.

    ``source``: the number of the source that the file is of.
    """

    path: str
    offset: int
    length: int
    ends_file: bool
    source: int = 0

    @property
    def weight(self) -> int:
        """How much of the corpus it is, by the sizes of files."""
        return self.length


def plan_chunks(
    files: Iterable[CorpusFile],
    chunk_size: int,
    delimiters: Delimiters,
    pretokenizer: Pretokenizer,
    cut_documents: bool = True,
    longest: int = sys.maxsize,
) -> Iterator[Chunk]:
    """Divide files, or parts of them, into chunks of about ``chunk_size`` bytes; in order, without gap or overlap.
    Empty files give none.

    A chunk ends after the first separator at or after its size, looking ahead `LOOK_AHEAD_BYTES` (and no further than
    once its size again, so that small chunks stay cheap to plan); failing that, inside a document, at a safe cut of
    the pattern. Where that is not allowed (a custom pattern; ``cut_documents=False``, as ``invalid_utf8: skip`` needs,
    which drops whole documents) at the next separator however far, or at the end of the file.

    Every ``chunk_size`` gives the same pre-tokens in total, and the same documents. The plan is lazy, and holds one
    open file and one window of it in memory.

    ConfigError if ``chunk_size`` is below 1; CorpusError for a file that has vanished or shrunk since it was found, and
    for about ``longest`` bytes in which a chunk may not end.
    What was appended to a file since then is not read.
    """
    if chunk_size < 1:
        raise ConfigError(f"the chunk size must be at least 1 byte, not {chunk_size}")
    cutter = _cutter(pretokenizer, cut_documents)
    return chain.from_iterable(_file_chunks(file, chunk_size, delimiters, cutter, longest) for file in files)


def find_boundary(
    file: CorpusFile,
    target: int,
    delimiters: Delimiters,
    pretokenizer: Pretokenizer,
    cut_documents: bool = True,
    longest: int = sys.maxsize,
) -> int:
    """Return where a file may be divided: at byte ``target`` or soon after it, as chunks are; at the latest at its end.

    CorpusError for a file that has vanished or shrunk since it was found, and for no boundary in ``longest`` bytes.
    """
    with _boundaries(file, delimiters, _cutter(pretokenizer, cut_documents), longest) as finder:
        return finder.next_boundary(target, LOOK_AHEAD_BYTES)


def _file_chunks(
    file: CorpusFile, chunk_size: int, delimiters: Delimiters, cutter: Pretokenizer | None, longest: int
) -> Iterator[Chunk]:
    with _boundaries(file, delimiters, cutter, longest) as finder:
        reach = min(chunk_size, LOOK_AHEAD_BYTES)
        offset, stop = file.begin, file.size if file.end is None else file.end
        while offset < stop:
            target = offset + chunk_size
            end = stop if target >= stop else min(finder.next_boundary(target, reach), stop)
            yield Chunk(str(file.path), offset, end - offset, end == file.size, file.source)
            offset = end


@contextmanager
def _boundaries(
    file: CorpusFile, delimiters: Delimiters, cutter: Pretokenizer | None, longest: int
) -> Iterator[BoundaryFinder]:
    """Open a file, see that it is as long as it was, and find boundaries in it."""
    try:
        with file.path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size < file.size:
                raise CorpusError(f"{file.path} shrank from {file.size} to {size} bytes; run again when it is complete")
            yield BoundaryFinder(stream, file.size, delimiters, cutter, longest)
    except OSError as error:
        raise CorpusError(f"cannot read {file.path}: {error.strerror}") from error


def _cutter(pretokenizer: Pretokenizer, cut_documents: bool) -> Pretokenizer | None:
    return pretokenizer if cut_documents and not pretokenizer.custom else None
