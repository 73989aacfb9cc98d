"""Texts of a corpus, in any format, for people to look at: its beginning, and a sample from places all over it."""

from __future__ import annotations

import codecs
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from bpeflow.config import CountSettings, make_settings
from bpeflow.corpus.documents import RECORD_END, Delimiters
from bpeflow.corpus.open_chunk import open_chunk
from bpeflow.corpus.plan import SegmentPlan
from bpeflow.corpus.reader import CorpusReader
from bpeflow.corpus.sources import find_corpus
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
    data = bytearray()
    for chunk in CorpusReader(rules, size + 1).read(found.entries):
        opened = open_chunk(chunk, rules)
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
    """Take a sample of the corpus that the settings of a run describe; an empty one if it cannot be read any more."""
    try:
        texts = sample_texts(settings, wanted)
    except (BpeflowError, OSError, ValueError) as error:
        return TextSample({}, f"No sample of the corpus: {str(error).splitlines()[0]}.")
    if not texts:
        return TextSample({}, "No sample of the corpus, which could be read only once or from the network.")
    return TextSample(texts, "a sample of the corpus that it was trained on, so text that is new will take more tokens")


def sample_texts(values: Mapping[str, Any], wanted: int = SAMPLE_BYTES) -> dict[str, tuple[str, ...]]:
    """Return the texts of a `TextSample` of the corpus that the settings of a run describe.

    Files are read in places at equal distances, streams (compressed files, JSON Lines) from their beginning.
    Raises `ConfigError`, `CorpusError` and `OSError`.
    """
    of_counting = CountSettings.model_fields.keys() & values.keys()
    lenient = {"bad_records": "skip", "invalid_utf8": "replace"}
    settings = make_settings(CountSettings, {name: values[name] for name in of_counting} | lenient)
    corpus = find_corpus(settings)
    rules = replace(TextRules.of(settings, corpus.sources), longest=_LONGEST)
    reader = CorpusReader(rules, max(wanted // _PLACES, 1))
    local = [file for file in corpus.files if file.location == "file"]
    size = max(sum(file.weight for file in local) // _PLACES, 1)
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for number, source in enumerate(corpus.sources):
        files = [file for file in local if file.source == number]
        for part in SegmentPlan(files, size, rules).parts():
            places = max(round(sum(entry.weight for entry in part) / size), 1)  # several in a stream, which is one part
            for chunk in islice(reader.read(part), places):
                for _, pieces in open_chunk(chunk, rules).documents():
                    texts[source.name] += [piece.decode() for piece in pieces or () if piece]
    return {name: tuple(pieces) for name, pieces in texts.items()}
