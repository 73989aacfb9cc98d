"""The stream reader: streams in, chunks that bring their bytes along out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Event

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import Chunk, CorpusFile, StreamChunk
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.formats.iterable import DocumentIterable
from bpeflow.corpus.formats.jsonl import cut_lines, parse_line
from bpeflow.corpus.formats.parquet import read_rows, row_groups
from bpeflow.corpus.formats.records import NULL_REMEDY, RecordChunks, checked_document
from bpeflow.corpus.formats.stream import StreamFile, StreamTask, open_blocks
from bpeflow.corpus.formats.text import cut_text
from bpeflow.corpus.sources import CorpusEntry, Source, input_files
from bpeflow.corpus.split import plan_chunks
from bpeflow.errors import CorpusError
from bpeflow.pretokenize.regex import Pretokenizer


@dataclass(frozen=True)
class StreamReader:
    """What each stream reader runs: a stage function, picklable. Chunks of other files pass through it.

    Attributes:
        sources: what there is to know of the sources, by their numbers.
        chunk_size: bytes of text in a chunk, about.
        longest: bytes of a document, or of a line, that cannot be divided: more are an error.
        delimiters: documents end at the separator.
        pretokenizer: tells where a document may be cut.
        invalid_utf8: what to do with records that are not UTF-8; under ``skip`` no document is cut.
        cancelled: set by those who take the chunks when they have failed: `CancelledError` is raised if they come to be read
            from standard input, which may keep us waiting.
    """

    sources: Sequence[Source]
    chunk_size: int
    longest: int
    delimiters: Delimiters
    pretokenizer: Pretokenizer
    invalid_utf8: InvalidUtf8Policy
    cancelled: Event | None = None

    def __call__(self, items: Iterable[Chunk | StreamTask]) -> Iterator[Chunk]:
        for item in items:
            if isinstance(item, StreamTask):
                yield from self.read(item)
            else:
                yield item

    def read(self, task: StreamTask) -> Iterator[StreamChunk]:
        """The chunks of the streams. Raises `CorpusError`, which names the stream and the place in it."""
        if task.sampled:
            return self._sampled(task.files)
        return chain.from_iterable(map(self._chunks, task.files))

    def _chunks(self, file: StreamFile) -> Iterator[StreamChunk]:
        if file.format == "parquet":
            yield from self._rows(file)
            return
        with open_blocks(file, self.cancelled) as blocks:
            if file.format == "jsonl":
                yield from cut_lines(blocks, self.chunk_size, self.longest, file.source)
            else:
                may_cut = self.invalid_utf8 != "skip" and not self.pretokenizer.custom
                cutter = self.pretokenizer if may_cut else None
                yield from cut_text(blocks, self.chunk_size, self.delimiters, cutter, self.longest, file.source)

    def _rows(self, file: StreamFile) -> Iterator[StreamChunk]:
        chunks = RecordChunks(file.name, self.chunk_size, file.source)
        for document in self._row_documents(file):
            yield from chunks.add(document, taken=0)
        yield from chunks.end(taken=file.size or 0)

    # ---- documents one by one ----

    def _sampled(self, files: Sequence[StreamFile]) -> Iterator[StreamChunk]:
        """Read everything twice: to learn which documents are of the sample, and to take them."""
        source = self.sources[files[0].source]
        sample = source.sample
        assert sample is not None, "asked for with a sample only"
        threshold = sample.threshold(
            (sample.number(number, place), len(document))
            for number, file in enumerate(files)
            for place, document in enumerate(self._documents(file))
            if document is not None
        )
        for number, file in enumerate(files):
            chunks = RecordChunks(file.name, self.chunk_size, file.source)
            for place, document in enumerate(self._documents(file)):
                if document is None or sample.number(number, place) < threshold:
                    yield from chunks.add(document, taken=0)
            yield from chunks.end(taken=file.size or 0)

    def _documents(self, file: StreamFile) -> Iterator[bytes | None]:
        """The documents of a stream; None for each that is to be skipped."""
        if file.format == "parquet":
            yield from self._row_documents(file)
            return
        with open_blocks(file) as blocks:
            if file.format == "jsonl":
                field = self.sources[file.source].text_field
                for chunk in cut_lines(blocks, self.chunk_size, self.longest):
                    for number, line in enumerate(chunk.data.split(b"\n"), chunk.line):
                        yield from parse_line(line, number, chunk.path, field, self.invalid_utf8)
                return
            for chunk in cut_text(blocks, self.chunk_size, self.delimiters, None, self.longest):
                data = bytes(chunk.data)
                for document in self.delimiters.documents(data):
                    start, end = document.pieces[0][0], document.pieces[-1][1]
                    where = f"{chunk.path}: the document from byte {chunk.offset + start:,} on"
                    yield checked_document(data[start:end], where, self.invalid_utf8)

    def _row_documents(self, file: StreamFile) -> Iterator[bytes | None]:
        for row, value in read_rows(file, self.sources[file.source].text_column):
            where = f"{file.name}: row {row:,}"
            if value is not None:
                yield checked_document(value, where, self.invalid_utf8)
            elif self.invalid_utf8 == "skip":
                yield None
            else:
                raise CorpusError(f"{where}: no text but null; {NULL_REMEDY}")


@dataclass(frozen=True)
class ChunkReader:
    """What the chunk reader runs: a source function, picklable. It looks for the ends of chunks and reads little else.

    Attributes:
        files: the corpus, or a part of it: files to be divided, and streams.
        chunk_size: bytes of text in a chunk, about.
        delimiters: chunks end at the separator.
        pretokenizer: tells where a document may be cut that is longer than a chunk.
        invalid_utf8: under ``skip`` no document is cut, for it must be seen whole to be skipped whole.
        longest: bytes of a chunk that cannot be divided: more are an error.
        streams: reads the streams here; without it they are handed on, for others to read.
    """

    files: Sequence[CorpusFile | StreamTask | DocumentIterable]
    chunk_size: int
    delimiters: Delimiters
    pretokenizer: Pretokenizer
    invalid_utf8: InvalidUtf8Policy
    longest: int = sys.maxsize
    streams: StreamReader | None = None

    def __call__(self) -> Iterator[Chunk | StreamTask]:
        for file in self.files:
            if isinstance(file, CorpusFile):
                yield from self._planned(file)
            elif isinstance(file, DocumentIterable):
                yield from file.chunks(self.chunk_size, self.invalid_utf8)
            elif self.streams is not None:
                yield from self.streams.read(file)
            else:
                yield from _divided(file)

    def chunks(self) -> Iterator[Chunk]:
        """All chunks: for readers that hand no stream on, because they read them or have none."""
        for item in self():
            if isinstance(item, StreamTask):
                raise TypeError(f"{item} is to be read by others")
            yield item

    def _planned(self, file: CorpusFile) -> Iterator[Chunk]:
        may_cut = self.invalid_utf8 != "skip"
        return plan_chunks([file], self.chunk_size, self.delimiters, self.pretokenizer, may_cut, self.longest)


def _divided(task: StreamTask) -> Iterator[StreamTask]:
    """The row groups of a Parquet file, to be read in parallel; other streams as they are."""
    if task.sampled or task.files[0].format != "parquet":
        yield task
        return
    for group in row_groups(task.files[0]):
        yield StreamTask((group,))


log = logging.getLogger(__name__)


def check_unchanged(entries: Iterable[CorpusEntry], remedy: str, may_grow: bool = False) -> None:
    """Raise `CorpusError` for a file of this machine that was changed, or replaced, since it was found.

    With `may_grow` one that is longer now is taken for a log that goes on being written: what has come since then was
    not read, and a warning says so.
    """
    for entry in entries:
        for name, size, modified, place in input_files(entry):
            if place != "file":
                continue
            try:
                status = Path(name).stat()
            except OSError as error:
                raise CorpusError(f"cannot read {name}: {error.strerror}; {remedy}") from error
            if may_grow and size is not None and status.st_size > size:
                log.warning("%s has %d bytes now: those after the first %d are left out", name, status.st_size, size)
            elif (status.st_size, status.st_mtime_ns) != (size, modified):
                raise CorpusError(f"{name} was changed while it was read, which may have given some of both; {remedy}")


#: Text that cannot be divided is taken up to this length, however small the limit is.
LONGEST_TEXT = 1 << 26
