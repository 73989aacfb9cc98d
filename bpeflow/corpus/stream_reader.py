"""The stream reader: streams in, chunks that bring their bytes along out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import Event

from bpeflow.corpus.chunk import StreamChunk
from bpeflow.corpus.cutting import cut_lines, cut_text
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.documents import InvalidUtf8Policy
from bpeflow.corpus.plan import Chunk
from bpeflow.corpus.records import NULL_REMEDY, RecordChunks, checked_document, parse_line
from bpeflow.corpus.sources import Source
from bpeflow.corpus.streams import StreamFile, open_blocks
from bpeflow.errors import CorpusError
from bpeflow.pretokenize import Pretokenizer


@dataclass(frozen=True, slots=True)
class StreamTask:
    """Streams to be read one after another: one, or all of a source that a sample is drawn from (``sampled``)."""

    files: tuple[StreamFile, ...]
    sampled: bool = False

    @property
    def only_here(self) -> bool:
        """Whether one of them can be read in the calling process only."""
        return any(file.only_here for file in self.files)

    @property
    def weight(self) -> int:
        """How much of the corpus it is, by the sizes of files."""
        return sum(file.size or 0 for file in self.files)


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
        given_up: set by those who take the chunks when they have failed: `GivenUp` is raised if they come to be read
            from standard input, which may keep us waiting.
    """

    sources: Sequence[Source]
    chunk_size: int
    longest: int
    delimiters: Delimiters
    pretokenizer: Pretokenizer
    invalid_utf8: InvalidUtf8Policy
    given_up: Event | None = None

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
        with open_blocks(file, self.given_up) as blocks:
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
        assert sample is not None, "asked for with a sample only"  # noqa: S101 -- for the type checker
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
        from bpeflow.corpus.parquet import read_rows

        for row, value in read_rows(file, self.sources[file.source].text_column):
            where = f"{file.name}: row {row:,}"
            if value is not None:
                yield checked_document(value, where, self.invalid_utf8)
            elif self.invalid_utf8 == "skip":
                yield None
            else:
                raise CorpusError(f"{where}: no text but null; {NULL_REMEDY}")
