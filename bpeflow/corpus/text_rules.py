"""`TextRules`: how the text of a corpus becomes documents and pre-tokens, as one record that is passed whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from bpeflow._util.machine import default_memory_limit
from bpeflow._util.text import BadRecordsPolicy, InvalidUtf8Policy
from bpeflow.corpus.documents import RECORD_END, Delimiters
from bpeflow.pretokenize.cutter import Cutter, load_cutter
from bpeflow.pretokenize.native import Scanner, why_regex
from bpeflow.pretokenize.regex import Pretokenizer, load_pretokenizer

if TYPE_CHECKING:
    from bpeflow.config import CountSettings  # pydantic, which workers do without

#: The limit on text that cannot be divided, in bytes, unless a memory limit admits more. Learning takes about 12 bytes
#: for each of a word, and encoding up to 10. Larger: longer lines and documents are accepted. Smaller: less memory for
#: damaged input.
LONGEST_TEXT = 1 << 26

#: The remedy for documents that are not UTF-8.
UTF8_REMEDY = "use invalid_utf8='replace' to put U+FFFD there, or invalid_utf8='skip' to leave out such documents"

#: The remedy for lists of texts in place of texts.
FLATTEN_REMEDY = (
    "give the texts one by one, as in (text for batch in batches for text in batch), or the batches to "
    "Tokenizer.train_from_iterator"
)

#: Bits for the size of a document in an entry of the heap that selects a sample. More than any document needs.
_SIZE_BITS = 48


@dataclass(frozen=True, slots=True)
class Sample:
    """A random sample of the documents of a source.

    Every document gets a pseudo-random number that depends only on the seed and on its position (index of the file in
    the source, index of the document in the file). Documents are taken in ascending order of their numbers for as long
    as they fit into `max_bytes` together. So a sample does not depend on chunks, on workers or on the format of the
    files.

    Attributes:
        max_bytes: upper bound on the bytes of all documents in the sample.
        seed: chooses another sample of the same documents.
    """

    max_bytes: int
    seed: int = 0

    def number(self, file: int, document: int) -> int:
        """Return the pseudo-random number of a document, an integer of 64 bits."""
        return int.from_bytes(blake2b(b"%d %d %d" % (self.seed, file, document), digest_size=8).digest(), "big")

    def threshold(self, documents: Iterable[tuple[int, int]]) -> int:
        """Return the number from which on documents are left out.

        Args:
            documents: the number and the size of every document. Only those in the sample are kept in memory, at a few
                dozen bytes each.
        """
        threshold = 1 << 64
        taken: list[int] = []  # a heap of (number, size) as one integer; negated, so that the greatest is at the top
        total = 0
        for number, size in documents:
            if number >= threshold:
                continue
            heappush(taken, -(number << _SIZE_BITS | size))
            total += size
            while total > self.max_bytes:
                last = -heappop(taken)
                threshold = last >> _SIZE_BITS
                total -= last & ((1 << _SIZE_BITS) - 1)
        return threshold


@dataclass(frozen=True, slots=True)
class Source:
    """A source, without its files.

    Attributes:
        name: its name in reports.
        weight: how many times each of its documents counts, a whole number (`whole_weights`).
        sample: the random sample to draw from it; None for all documents.
        text_field: for records, the path of the field or column with the text.
    """

    name: str = "input"
    weight: int = 1
    sample: Sample | None = None
    text_field: tuple[str, ...] = ("text",)


@dataclass(frozen=True)
class TextRules:
    """How the text of a corpus becomes documents and pre-tokens. Picklable.

    Attributes:
        pretokenizer: the pattern, the normalizer, and what to do with text that the pattern does not match.
        delimiters: the separator, at which documents end, and the special tokens.
        invalid_utf8: how to handle text that is not UTF-8.
        sources: the sources by their numbers.
        bad_records: how to handle records without text.
        keep_separator: whether a separator inside a record, where it ends no document, is ordinary text. By default it
            is removed, as a special token is.
        longest: upper bound on the bytes of a text or a line that cannot be divided (see `bounded`). More are an error.
    """

    pretokenizer: Pretokenizer
    delimiters: Delimiters
    invalid_utf8: InvalidUtf8Policy = "error"
    sources: Sequence[Source] = (Source(),)
    bad_records: BadRecordsPolicy = "error"
    keep_separator: bool = False
    longest: int = LONGEST_TEXT

    @classmethod
    def of(cls, settings: CountSettings, sources: Sequence[Source]) -> TextRules:
        """Return the rules that settings describe. Raises `PatternError` or `ConfigError` if they are invalid."""
        rules = cls(
            load_pretokenizer(settings.pattern, settings.unmatched, settings.normalizer),
            Delimiters(settings.document_separator, settings.special_tokens),
            settings.invalid_utf8,
            sources,
            settings.bad_records,
        )
        return rules.bounded(settings.memory_limit)

    def bounded(self, memory_limit: int | None = None) -> TextRules:
        """Return the rules with the upper bound on text that cannot be divided, under a memory limit, if one is set.

        If the pattern divides documents, such a text is a long word. Other documents are longer, so half of the
        available memory is the limit by default.
        """
        if memory_limit is None and self.cutter is None:
            memory_limit = default_memory_limit()
        return replace(self, longest=max((memory_limit or 0) // 16, LONGEST_TEXT))

    @cached_property
    def scanner(self) -> Scanner:
        """What finds the pre-tokens: the native scanner, or the `regex` module if that is not possible."""
        return "native" if why_regex(self.pretokenizer) is None else "regex"

    @property
    def cutter(self) -> Cutter | None:
        """Finds the safe cuts that may divide a document; None if documents are kept whole.

        A pattern that cannot be compiled has no safe cuts. And a document must be read as a whole to be skipped as a
        whole.
        """
        return None if self.invalid_utf8 == "skip" else load_cutter(self.pretokenizer)

    @cached_property
    def record_delimiters(self) -> Delimiters:
        """The delimiters in a chunk of records, in which only the end of a record ends a document."""
        tokens = [*self.delimiters.special_tokens]
        if self.delimiters.separator is not None and not self.keep_separator:
            tokens.append(self.delimiters.separator)
        return Delimiters(None, tokens, RECORD_END)
