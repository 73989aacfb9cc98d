"""`first_text`: the beginning of a corpus in any format, for people to look at."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any

from bpeflow.config import CountSettings, make_settings
from bpeflow.corpus.chunk import RECORD_END, StreamChunk
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.documents import ChunkBuffer
from bpeflow.corpus.formats.jsonl import read_records
from bpeflow.corpus.reader import LONGEST_TEXT, ChunkReader, StreamReader
from bpeflow.corpus.sources import find_corpus
from bpeflow.pretokenize.regex import load_pretokenizer


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
    delimiters, pretokenizer = Delimiters(None), load_pretokenizer("gpt2")
    streams = StreamReader(found.sources, size + 1, LONGEST_TEXT, delimiters, pretokenizer, "replace")
    reader = ChunkReader(found.entries, size + 1, delimiters, pretokenizer, "replace", streams=streams)
    buffer, data, end = ChunkBuffer(), bytearray(), document_end.encode()
    for chunk in reader.chunks():
        text = bytes(buffer.read(chunk))
        if isinstance(chunk, StreamChunk) and chunk.holds != "text":
            if chunk.holds == "jsonl":
                source = found.sources[chunk.source]
                text = bytes(read_records(chunk, source.text_field, "replace", source.bad_records).data)
            text = text.replace(RECORD_END, end)
        data += text
        if len(data) > size:
            break
    is_whole = len(data) <= size
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(bytes(data[:size]), final=is_whole), is_whole
