"""Encoding in tasks, on a Ray cluster.

The corpus is divided into parts, each encoded by a task of its own into a file: a sequence of chunks that the calling
process joins in order, as if it had encoded them itself.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from secrets import token_hex

from bpeflow._util.atomic import name_errors
from bpeflow.corpus.files import InputFile
from bpeflow.corpus.plan import SegmentPlan
from bpeflow.corpus.sources import Corpus, check_unchanged
from bpeflow.counting.cluster import OTHER_FILE_REMEDY, connect, task_folder
from bpeflow.dataset.corpus_encoder import CorpusEncoder, EncodedChunk, Place
from bpeflow.dataset.token_set import TokenSet
from bpeflow.flow import in_order

#: Bounds of a part's size in bytes of input, and the parts of a small corpus per slot. Small parts balance the load
#: better and lose less work with a node; large ones spend less of their time on starting.
_MIN_PART, _MAX_PART, _PER_SLOT = 16_000_000, 1_000_000_000, 4


@dataclass(frozen=True)
class EncodeTasks:
    """The function of tasks, and what it needs."""

    folder: Path
    encoder: CorpusEncoder

    def encode_part(self, entries: list[InputFile]) -> str:
        """Encode a part of the corpus, and return the name of a file with its pickled chunks.

        Raises as `encode_file` does.
        """
        check_unchanged(entries, OTHER_FILE_REMEDY, may_grow=True)
        path = self.folder / f"{token_hex(8)}.part"
        with name_errors(path), path.open("wb") as file:
            for chunk in replace(self.encoder, corpus=Corpus(self.encoder.corpus.sources, entries)).encoded():
                pickle.dump(chunk, file, pickle.HIGHEST_PROTOCOL)
        return path.name


def encoded_chunks(work: CorpusEncoder, tokens: TokenSet, begin: Place) -> Iterator[EncodedChunk]:
    """Encode a corpus from a place on, and yield its chunks in order.

    With the local engine this is `CorpusEncoder.encoded`. Tasks always encode the whole corpus.

    Raises as `CorpusEncoder.encoded`, and `EngineError` if the cluster or one of its nodes fails.
    """
    settings = tokens.options.engine
    if settings.kind == "local":
        yield from work.encoded(begin)
        return
    output = Path(os.path.realpath(tokens.first)).parent
    with task_folder(output, f".{tokens.path.name}") as folder, connect(settings) as cluster:
        parts = _parts(work, min(_MAX_PART, max(_MIN_PART, work.corpus.known_bytes // (_PER_SLOT * cluster.slots))))
        calls = ((number, f"encode part {number}", (part,)) for number, part in enumerate(parts))
        encoder = replace(work, corpus=Corpus(work.corpus.sources, []), num_threads=settings.cpus_per_task)
        ended = cluster.run(EncodeTasks(folder, encoder), EncodeTasks.encode_part, calls, folder)
        for _, report in in_order(ended, itemgetter(0)):
            yield from _read_chunks(folder / report.value)


def _parts(work: CorpusEncoder, size: int) -> Iterator[list[InputFile]]:
    """Divide a corpus into parts of about `size` bytes."""
    return SegmentPlan([entry.absolute() for entry in work.corpus.entries], size, work.encoder.rules).parts()


def _read_chunks(path: Path) -> Iterator[EncodedChunk]:
    """Yield the chunks of a part, and remove its file."""
    with name_errors(path), path.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)  # noqa: S301 -- of this run's own folder
    path.unlink()
