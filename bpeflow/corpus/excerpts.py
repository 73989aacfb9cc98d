"""Texts of a corpus, in any format, for people to look at: its beginning, and a sample from places all over it."""

from __future__ import annotations

import codecs
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from bpeflow.config import CountSettings, make_settings
from bpeflow.corpus.chunk import RECORD_END, Chunk, CorpusFile
from bpeflow.corpus.documents import Delimiters
from bpeflow.corpus.formats.stream import StreamTask
from bpeflow.corpus.open_chunk import ChunkBuffer, open_chunk
from bpeflow.corpus.reader import LONGEST_TEXT, CorpusReader
from bpeflow.corpus.sources import Corpus, CorpusEntry, find_corpus, input_files
from bpeflow.corpus.split import find_boundary
from bpeflow.corpus.text_rules import TextRules
from bpeflow.errors import BpeflowError
from bpeflow.pretokenize.regex import load_pretokenizer

#: Bytes of text in a sample. Larger: steadier figures; smaller: less time, of which reading takes most.
SAMPLE_BYTES = 400_000

#: Places that the sample is taken from.
_PLACES = 25

#: Upper bound on the bytes of text that cannot be divided, such as a line of JSON Lines. Longer text is not sampled.
_LONGEST = 1 << 24


def first_text(corpus: Mapping[str, Any], size: int, document_end: str = "\n") -> tuple[str, bool]:
    """Return the first `size` bytes of a corpus as text, and whether that is all of it.

    Args:
        corpus: settings of `bpeflow.config.CountSettings`. Bytes that are not UTF-8 are replaced.
        size: upper bound in bytes. A character that does not fit is left out.
        document_end: the text to put after each record. In plain text, documents end as they do there.

    Raises:
        ConfigError: a setting is invalid.
        CorpusError: input is missing or unreadable.
    """
    found = find_corpus(make_settings(CountSettings, {**corpus, "invalid_utf8": "replace"}))
    rules = TextRules(load_pretokenizer("gpt2"), Delimiters(None), "replace", found.sources)
    buffer, data = ChunkBuffer(), bytearray()
    for chunk in CorpusReader(rules, size + 1, LONGEST_TEXT).read(found.entries):
        opened = open_chunk(chunk, rules, buffer)
        data += bytes(opened.data).replace(RECORD_END, document_end.encode()) if opened.has_records else opened.data
        if len(data) > size:
            break
    is_whole = len(data) <= size
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(bytes(data[:size]), final=is_whole), is_whole


@dataclass(frozen=True)
class TextSample:
    """A sample of a corpus.

    Attributes:
        texts: by the name of the source, pieces of documents between special tokens.
        description: where the sample is from, or why there is none.
    """

    texts: Mapping[str, tuple[str, ...]]
    description: str


def sample_corpus(settings: Mapping[str, Any], wanted: int = SAMPLE_BYTES) -> TextSample:
    """Take a sample of the corpus that the settings of a run describe; an empty one if it cannot be read any more.

    Files are read in places at equal distances, streams (compressed files, JSON Lines, Parquet) from their beginning.
    """
    values = {name: settings[name] for name in CountSettings.model_fields if name in settings}
    try:
        texts = _sample(CountSettings.model_validate(values), wanted)
    except (BpeflowError, OSError, ValueError) as error:
        return TextSample({}, f"No sample of the corpus: {str(error).splitlines()[0]}.")
    if not texts:
        return TextSample({}, "No sample of the corpus, which could be read only once or from the network.")
    return TextSample(texts, "a sample of the corpus that it was trained on, so text that is new will take more tokens")


def _sample(settings: CountSettings, wanted: int) -> dict[str, tuple[str, ...]]:
    corpus = find_corpus(settings)
    local = [entry for entry in corpus.entries if all(file.location == "file" for file in input_files(entry))]
    total = sum(entry.weight for entry in local)
    texts: defaultdict[str, list[str]] = defaultdict(list)
    reader = _PieceReader(settings, corpus, max(wanted // _PLACES, 1))
    begin = 0
    for entry in local:
        # The places of the corpus that are in this entry. A small source has at least one, its start.
        places = range(-(-begin * _PLACES // max(total, 1)), -(-(begin + entry.weight) * _PLACES // max(total, 1)))
        offsets = [place * total // _PLACES - begin for place in places]
        source = corpus.sources[_source_of(entry)].name
        if offsets or source not in texts:
            texts[source] += reader.read(entry, offsets or [0])
        begin += entry.weight
    return {source: tuple(pieces) for source, pieces in texts.items()}


def _source_of(entry: CorpusEntry) -> int:
    return entry.files[0].source if isinstance(entry, StreamTask) else getattr(entry, "source", 0)


class _PieceReader:
    """Reads pieces of the entries of a corpus."""

    def __init__(self, settings: CountSettings, corpus: Corpus, size: int) -> None:
        self._rules = TextRules(
            load_pretokenizer(settings.pattern, settings.unmatched, settings.normalizer),
            Delimiters(settings.document_separator, settings.special_tokens),
            "replace",
            [replace(source, bad_records="skip") for source in corpus.sources],
        )
        self._reader = CorpusReader(self._rules, size, _LONGEST)
        self._buffer = ChunkBuffer()

    def read(self, entry: CorpusEntry, offsets: list[int]) -> Iterator[str]:
        """Yield the texts of a piece at each of these offsets, or of as many as do not overlap."""
        if isinstance(entry, StreamTask):
            whole = replace(entry, sampled=False)
            yield from self._texts(islice(self._reader.read([whole]), len(offsets)))
        elif isinstance(entry, CorpusFile):
            end = 0
            for offset in offsets:
                begin = end
                if offset > end:
                    begin = find_boundary(entry, offset, self._rules, _LONGEST)
                for chunk in islice(self._reader.read([replace(entry, begin=begin)]), 1):
                    end = chunk.offset + chunk.length
                    yield from self._texts(iter([chunk]))

    def _texts(self, chunks: Iterator[Chunk]) -> Iterator[str]:
        for chunk in chunks:
            for _, texts in open_chunk(chunk, self._rules, self._buffer).documents():
                yield from (text.decode() for text in texts or () if text)
