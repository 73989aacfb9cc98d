"""Readers: the stages that turn the entries of a corpus into chunks, and a check that its files have not changed.

A `ChunkReader` plans the chunks of files without reading most of their bytes. A `StreamReader` reads streams, and its
chunks carry their bytes. In a pipeline with several processes, the chunk reader passes streams on to stream readers;
in a single process it reads them itself.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from bpeflow._util.text import InvalidUtf8Policy, format_size
from bpeflow.corpus.chunk import Chunk, CorpusFile, StreamChunk
from bpeflow.corpus.documents import Delimiters
from bpeflow.corpus.first_look import FirstLook
from bpeflow.corpus.formats.content import check_content
from bpeflow.corpus.formats.jsonl import cut_lines, parse_line
from bpeflow.corpus.formats.parquet import read_rows, row_groups
from bpeflow.corpus.formats.records import SKIP_REMEDY, DocumentIterable, RecordChunks, RecordText, encode_document
from bpeflow.corpus.formats.stream import Blocks, StreamFile, StreamTask, open_blocks
from bpeflow.corpus.formats.stream_text import cut_text
from bpeflow.corpus.sources import CorpusEntry, Source, input_files
from bpeflow.corpus.split import plan_chunks
from bpeflow.errors import BadRecordError, CorpusError
from bpeflow.pretokenize.regex import Pretokenizer

log = logging.getLogger(__name__)

#: Lower bound for the limit on text that cannot be divided. Larger: longer lines and documents are accepted even under
#: a small memory limit; smaller: such a limit is kept more closely.
LONGEST_TEXT = 1 << 26


@dataclass(frozen=True)
class StreamReader:
    """The function of the stage that reads streams; picklable. Chunks of files pass through it unchanged.

    Attributes:
        sources: the sources by their numbers.
        chunk_size: bytes of text in a chunk, approximately.
        longest: upper bound on the bytes of text or of a line that cannot be divided. More are an error.
        delimiters: the separator, at which documents end, and the special tokens.
        pretokenizer: decides where a document may be cut.
        invalid_utf8: how to handle records that are not UTF-8. Under ``"skip"``, documents are not cut.
    """

    sources: Sequence[Source]
    chunk_size: int
    longest: int
    delimiters: Delimiters
    pretokenizer: Pretokenizer
    invalid_utf8: InvalidUtf8Policy

    def __call__(self, items: Iterable[Chunk | StreamTask]) -> Iterator[Chunk]:
        """Replace each stream among the items by its chunks."""
        for item in items:
            if isinstance(item, StreamTask):
                yield from self.read(item)
            else:
                yield item

    def read(self, task: StreamTask) -> Iterator[StreamChunk]:
        """Yield the chunks of streams. Raises `CorpusError` with the name of the stream and the position in it."""
        if task.sampled:
            return self._sampled(task.files)
        return chain.from_iterable(map(self._chunks, task.files))

    def _chunks(self, file: StreamFile) -> Iterator[StreamChunk]:
        if file.format == "parquet":
            yield from self._rows(file)
            return
        with self._open(file) as blocks:
            if file.format == "jsonl":
                yield from cut_lines(blocks, self.chunk_size, self.longest, file.source)
            else:
                may_cut = self.invalid_utf8 != "skip" and not self.pretokenizer.custom
                cutter = self.pretokenizer if may_cut else None
                yield from cut_text(blocks, self.chunk_size, self.delimiters, cutter, self.longest, file.source)

    @contextmanager
    def _open(self, file: StreamFile) -> Iterator[Blocks]:
        with open_blocks(file) as blocks:
            if self.invalid_utf8 == "error":
                check_content(blocks.start, file.title, blocks.compression)
            yield blocks

    def _rows(self, file: StreamFile) -> Iterator[StreamChunk]:
        chunks = RecordChunks(file.name, self.chunk_size, file.source)
        for document in self._row_documents(file):
            yield from chunks.add(document, bytes_read=0)
        yield from chunks.end(bytes_read=file.weight)

    # ---- documents one by one ----

    def _sampled(self, files: Sequence[StreamFile]) -> Iterator[StreamChunk]:
        """Yield the chunks of a random sample. Reads everything twice, first to select the documents of the sample."""
        source = self.sources[files[0].source]
        sample = source.sample
        assert sample is not None, "a sampled task belongs to a source with a sample"  # noqa: S101 -- for the type checker
        threshold = sample.threshold(
            (sample.number(file_index, index), len(document))
            for file_index, file in enumerate(files)
            for index, document in enumerate(self._documents(file))
            if isinstance(document, bytes)
        )
        for file_index, file in enumerate(files):
            chunks = RecordChunks(file.name, self.chunk_size, file.source)
            for index, document in enumerate(self._documents(file)):
                if not isinstance(document, bytes) or sample.number(file_index, index) < threshold:
                    yield from chunks.add(document, bytes_read=0)
            yield from chunks.end(bytes_read=file.weight)

    def _documents(self, file: StreamFile) -> Iterator[RecordText]:
        """Yield the documents of a stream, including skipped ones."""
        if file.format == "parquet":
            yield from self._row_documents(file)
            return
        with self._open(file) as blocks:
            if file.format == "jsonl":
                source = self.sources[file.source]
                for chunk in cut_lines(blocks, self.chunk_size, self.longest):
                    for number, line in enumerate(chunk.data.split(b"\n"), chunk.line):
                        yield from parse_line(
                            line, number, chunk.path, source.text_field, self.invalid_utf8, source.bad_records
                        )
                return
            for chunk in cut_text(blocks, self.chunk_size, self.delimiters, None, self.longest):
                data = bytes(chunk.data)
                for document in self.delimiters.documents(data):
                    start, end = document.pieces[0][0], document.pieces[-1][1]
                    where = f"{chunk.path}: the document from byte {chunk.offset + start:,} on"
                    yield encode_document(data[start:end], where, self.invalid_utf8)

    def _row_documents(self, file: StreamFile) -> Iterator[RecordText]:
        source = self.sources[file.source]
        for row, value in read_rows(file, source.text_column):
            where = f"{file.name}: row {row:,}"
            if value is not None:
                yield encode_document(value, where, self.invalid_utf8)
                continue
            error = BadRecordError(f"{where}: the text is null; {SKIP_REMEDY}")
            if source.bad_records == "error":
                raise error
            yield error


@dataclass(frozen=True)
class ChunkReader:
    """The source function of a pipeline; picklable. In files, it looks for the ends of chunks and reads little else.

    Attributes:
        files: the corpus, or a part of it: files that can be divided, streams, and iterables.
        chunk_size: bytes of text in a chunk, approximately.
        delimiters: the separator, at which chunks end, and the special tokens.
        pretokenizer: decides where a document longer than a chunk may be cut.
        invalid_utf8: how to handle text that is not UTF-8. Under ``"skip"``, documents are not cut, because a document
            must be read as a whole to be skipped as a whole.
        longest: upper bound on the bytes that cannot be divided. More are an error.
        streams: reads the streams in this process; None to pass them on to stream readers.
        look: looks at entries that can be read only once.
    """

    files: Sequence[CorpusFile | StreamTask | DocumentIterable]
    chunk_size: int
    delimiters: Delimiters
    pretokenizer: Pretokenizer
    invalid_utf8: InvalidUtf8Policy
    longest: int = sys.maxsize
    streams: StreamReader | None = None
    look: FirstLook | None = None

    def __call__(self) -> Iterator[Chunk | StreamTask]:
        """Yield the chunks of the corpus, and the streams that this process does not read."""
        for file in self.files:
            if isinstance(file, CorpusFile):
                yield from self._planned(file)
            elif isinstance(file, DocumentIterable):
                yield from self._watched(file, file.chunks(self.chunk_size, self.invalid_utf8))
            elif self.streams is not None:
                yield from self._watched(file, self.streams.read(file))
            else:
                yield from _split_task(file)

    def chunks(self) -> Iterator[Chunk]:
        """Yield all chunks. The reader must not pass streams on: it reads them itself, or the corpus has none."""
        for item in self():
            if isinstance(item, StreamTask):
                raise TypeError(f"{item} must be read by a stream reader")
            yield item

    def _watched(self, file: CorpusEntry, chunks: Iterator[StreamChunk]) -> Iterator[StreamChunk]:
        return chunks if self.look is None else self.look.watch(file, chunks)

    def _planned(self, file: CorpusFile) -> Iterator[Chunk]:
        may_cut = self.invalid_utf8 != "skip"
        return plan_chunks([file], self.chunk_size, self.delimiters, self.pretokenizer, may_cut, self.longest)


def _split_task(task: StreamTask) -> Iterator[StreamTask]:
    """Yield a task for each row group of a Parquet file, to be read in parallel; yield other tasks unchanged."""
    if not task.has_row_groups:
        yield task
        return
    for group in row_groups(task.files[0]):
        yield StreamTask((group,))


def check_unchanged(entries: Iterable[CorpusEntry], remedy: str, may_grow: bool = False, was_read: bool = True) -> None:
    """Check that no local file was changed or replaced since it was found.

    Args:
        entries: the entries of the corpus to check.
        remedy: end of the error message, which says what to do.
        may_grow: whether to accept a file that has become longer, such as a log that is still being written. The
            appended part was not read, and a warning says so.
        was_read: whether the entries have been read, and not only found.

    Raises:
        CorpusError: a file was changed or replaced, or cannot be read any more.
    """
    for entry in entries:
        for file in input_files(entry):
            if file.location != "file":
                continue
            try:
                status = Path(file.name).stat()
            except OSError as error:
                raise CorpusError(f"cannot read {file.name}: {error.strerror}; {remedy}") from error
            is_same = file.inode in (0, status.st_ino)
            if may_grow and is_same and file.size is not None and status.st_size > file.size:
                log.warning("%s has grown: only its first %s were read", file.name, format_size(file.size))
            elif (status.st_size, status.st_mtime_ns) != (file.size, file.modified):
                if not was_read:
                    raise CorpusError(
                        f"{file.name} has another size or modification time than when it was found; {remedy}"
                    )
                raise CorpusError(
                    f"{file.name} was changed while it was read, so old and new content may be mixed; {remedy}"
                )
