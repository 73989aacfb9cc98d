"""`CorpusReader` turns the entries of a corpus into chunks.

The chunks of plain files are planned without reading most of their bytes. Streams are read, and their chunks carry
their bytes. In a pipeline with several processes, one stage plans and other ones read the streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bpeflow.corpus.checks import FirstLook
from bpeflow.corpus.documents import Chunk, StreamChunk
from bpeflow.corpus.files import InputFile, open_blocks, records
from bpeflow.corpus.split import cut_text, line_rules, plan_chunks
from bpeflow.corpus.text_rules import TextRules


@dataclass(frozen=True)
class CorpusReader:
    """Turns the entries of a corpus into chunks. Picklable, and so are its methods, the functions of stages.

    Attributes:
        rules: how text becomes documents, and where they may be cut.
        chunk_size: bytes of text in a chunk, approximately.
        look: looks at entries that can be read only once.
    """

    rules: TextRules
    chunk_size: int
    look: FirstLook | None = None

    def read(self, entries: Iterable[InputFile]) -> Iterator[Chunk]:
        """Yield the chunks of all entries. Of plain files, only the ends of chunks are read.

        Raises:
            CorpusError: an entry cannot be read. The message has its name and the position in it.
        """
        for entry in entries:
            if entry.plain:
                yield from self._planned(entry)
            elif self.look and entry.main_process_only:
                yield from self.look.watch(entry, self._streamed(entry))
            else:
                yield from self._streamed(entry)

    def plan(self, entries: Iterable[InputFile]) -> Iterator[Chunk | InputFile]:
        """Yield the chunks of plain files, and the streams, to be read by other processes with `read_streams`."""
        for entry in entries:
            if entry.plain:
                yield from self._planned(entry)
            elif entry.format == "parquet":
                yield from records().row_groups(entry)  # which can be read in parallel
            else:
                yield entry

    def read_streams(self, items: Iterable[Chunk | InputFile]) -> Iterator[Chunk]:
        """Replace each stream among the items by its chunks. Raises as `read` does."""
        for item in items:
            if isinstance(item, Chunk):
                yield item
            else:
                yield from self.read([item])

    def _planned(self, file: InputFile) -> Iterator[Chunk]:
        return plan_chunks(file, self.chunk_size, self.rules)

    def _streamed(self, entry: InputFile) -> Iterator[StreamChunk]:
        if entry.sampled:
            return self._sampled(entry.sampled)
        if entry.documents is not None or entry.format == "parquet":
            return self._gathered(self._documents(entry), entry)
        return self._cut(entry, self.rules)

    def _gathered(self, texts: Iterable[Any], file: InputFile) -> Iterator[StreamChunk]:
        chunks: Iterator[StreamChunk] = records().record_chunks(texts, file, self.chunk_size, self.rules)
        return chunks

    def _cut(self, file: InputFile, rules: TextRules) -> Iterator[StreamChunk]:
        """Yield the chunks of a stream of text or of lines of JSON."""
        with open_blocks(file) as blocks:
            blocks.check(self.rules.invalid_utf8)
            if file.format == "jsonl":
                yield from cut_text(blocks, self.chunk_size, line_rules(rules), file.source, "jsonl")
            else:
                yield from cut_text(blocks, self.chunk_size, rules, file.source)

    # ---- documents one by one ----

    def _sampled(self, files: Sequence[InputFile]) -> Iterator[StreamChunk]:
        """Yield the chunks of a random sample. Reads everything twice, first to select the documents of the sample."""
        source = self.rules.sources[files[0].source]
        sample = source.sample
        assert sample is not None, "a sampled task belongs to a source with a sample"  # noqa: S101 -- for the type checker
        threshold = sample.threshold(
            (sample.number(file_index, index), len(document))
            for file_index, file in enumerate(files)
            for index, document in enumerate(self._documents(file))
            if isinstance(document, bytes)
        )
        for file_index, file in enumerate(files):
            chosen = (
                document
                for index, document in enumerate(self._documents(file))
                if not isinstance(document, bytes) or sample.number(file_index, index) < threshold
            )
            yield from self._gathered(chosen, file)

    def _documents(self, file: InputFile) -> Iterator[Any]:
        """Yield the documents of a stream, each a `RecordText`, including skipped ones."""
        if file.documents is not None:
            yield from records().iterable_texts(file.documents, self.rules)
        elif file.format == "parquet":
            yield from records().parquet_texts(file, self.rules)
        else:
            for chunk in self._cut(file, replace(self.rules, invalid_utf8="skip")):  # under which no document is cut
                if chunk.holds == "jsonl":
                    yield from (text for _, text in records().parse_lines(chunk, self.rules))
                    continue
                data = bytes(chunk.data)
                for document in self.rules.delimiters.documents(data):
                    start, end = document.pieces[0][0], document.pieces[-1][1]
                    where = f"{chunk.path}: the document from byte {chunk.offset + start:,} on"
                    yield records().encode_document(data[start:end], where, self.rules.invalid_utf8)
