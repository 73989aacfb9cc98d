"""Messages about mistakes in a corpus: visible in its first megabytes, or in the text that was not counted.

Before hours of work, `FirstLook` looks at the largest file of each source. A look at all files would take as long as
reading them.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from bpeflow._util.text import format_count, format_size
from bpeflow.corpus.compression import without_compression_suffix
from bpeflow.corpus.documents import RECORD_END, DocumentStatistics, StreamChunk
from bpeflow.corpus.files import BYTE_ORDER_MARK, InputFile, open_blocks, records
from bpeflow.corpus.sources import Corpus
from bpeflow.corpus.text_rules import Source, TextRules
from bpeflow.errors import CorpusError, PatternTimeoutError
from bpeflow.pretokenize.patterns import PUBLISHED_PATTERNS
from bpeflow.pretokenize.regex import Pretokenizer, simplest_pattern

if TYPE_CHECKING:
    from bpeflow.config import CountSettings

#: Bytes of text that are suspicious without a separator. Larger: more to read of files that have none. Smaller:
#: warnings about long books, which end with their files.
LOOK_BYTES = 8_000_000

#: Bytes of text in which to look for everything else. Larger: rarer strings are found; smaller: less time.
_USUAL_BYTES = 1_000_000

#: Bytes of text in which a pattern should match something.
_PATTERN_BYTES = 65_536

#: Strings that end or separate texts for other tools and models and do not occur in ordinary text or in HTML.
#: (``</s>`` occurs in HTML, but hardly at the end of a line or of a document.)
_END_OF_TEXT = re.compile(
    rb"<\|(?:endoftext|startoftext|im_start|im_end|eot_id|begin_of_text|end_of_text|start_header_id|end_header_id"
    rb"|end|eot)\|>|<(?:start|end)_of_turn>|<[be]os>|</s>(?=\r?\n|\xff)"
)

#: A line that is a JSON object.
_JSON_LINE = re.compile(rb'\{\s*"(?:[^"\\\n]|\\.)*"\s*:[^\n]*\}\s*(?:\n|$)')

log = logging.getLogger(__name__)


@dataclass
class FirstLook:
    """Looks at the start of a corpus and logs warnings.

    Attributes:
        rules: how its text becomes documents and pre-tokens. Only under ``invalid_utf8: error`` is a file of another
            format an error; otherwise it is a warning.
        remedy: end of the warning about end-of-text strings that are no special tokens, with ``{tokens}`` for the list
            of special tokens that has them; None for no such warning.
        undivided: whether a long text without a separator was found.
    """

    rules: TextRules
    remedy: str | None
    undivided: bool = False

    def look_at(self, entries: Iterable[InputFile]) -> None:
        """Look at the largest file of each source, except streams that can be read only once (see `watch`).

        Raises:
            CorpusError: a file cannot be read, or is in another format (see `Blocks.check`).
        """
        files = [file for entry in entries for file in entry.files]
        empty = [file for file in files if file.size == 0]
        _warn_of("empty", empty if 2 * len(empty) >= len(files) else [])  # a few are usual, as in source code
        has_records = any(file.format != "text" or file.location == "iterable" for file in files)
        if not has_records and any(source.text_field != ("text",) for source in self.rules.sources):
            log.warning("text_field: has no effect, because no input is JSON Lines or Parquet")
        if len(self.rules.sources) > 1:
            readers: defaultdict[str, list[InputFile]] = defaultdict(list)
            for file in files:
                readers[file.identity].append(file)
            shared = [same[0] for same in readers.values() if len(same) > 1]
            _warn_of("in several sources, and read for each of them", shared)
        largest: dict[int, InputFile] = {}
        for file in sorted(files, key=lambda file: -(file.size or 0)):
            if not file.main_process_only:
                largest.setdefault(file.source, file)
        for file in largest.values():
            with closing(self._blocks(file)) as blocks:
                self._check(file, blocks)

    def watch(self, entry: InputFile, chunks: Iterator[StreamChunk]) -> Iterator[StreamChunk]:
        """Yield the chunks of an entry that can be read only once, and look at the first ones."""
        first: list[bytearray] = []
        size = 0
        for chunk in chunks:
            yield chunk
            if size < LOOK_BYTES:
                first.append(chunk.data)
                size += len(chunk.data)
                if size >= LOOK_BYTES:
                    self._check(entry.files[0], first)
        if size < LOOK_BYTES:
            self._check(entry.files[0], first)

    def _blocks(self, file: InputFile) -> Generator[bytes, None, None]:
        if file.format == "parquet":
            texts = records().parquet_texts(file, self.rules)
            yield from (text + RECORD_END for text in texts if isinstance(text, bytes))
            return
        with open_blocks(file) as blocks:
            try:
                blocks.check("error")
            except CorpusError as error:
                if self.rules.invalid_utf8 == "error":
                    raise
                log.warning("%s", error)
                return
            yield from blocks

    def _check(self, file: InputFile, blocks: Iterable[bytes | bytearray]) -> None:
        """Log warnings about the start of a file."""
        name, delimiters = file.title, self.rules.delimiters
        separator = delimiters.separator
        sought = delimiters.separator_bytes if file.format == "text" else b""
        start = _first_bytes(blocks, LOOK_BYTES if sought else _USUAL_BYTES)
        data = start[:_USUAL_BYTES]
        if len(start) >= LOOK_BYTES and sought not in start:
            self.undivided = True
            log.warning(
                "%s: no %r in its first %s: if it has several documents, set separator to the text between them",
                name,
                separator,
                format_size(len(start)),
            )
        known = set(delimiters.all)
        found = Counter(match.decode() for match in _END_OF_TEXT.findall(data) if match not in known)
        if found and self.remedy is not None:
            special = list(delimiters.special_tokens)
            tokens = sorted(found, key=lambda token: "start" in token or "begin" in token)
            # The first one separates documents: of the known ones, if it does so here.
            tokens = [*special, *tokens] if separator and separator.encode() in data else [*tokens, *special]
            log.warning(
                "%s: %s in its first %s: %s",
                name,
                ", ".join(f"{token!r} {format_count(times, 'time')}" for token, times in found.items()),
                format_size(len(data)),
                self.remedy.format(tokens=tokens),
            )
        if file.format == "text" and file.guessed and (found_format := _other_format(file.name, data)):
            kind, remedy = found_format
            log.warning(
                "%s: read as plain text, marks and names of fields included, but looks like %s: %s (or use "
                "input_format='text' if that is meant)",
                name,
                kind,
                remedy,
            )
        if data and self.rules.pretokenizer.custom:
            text = data[:_PATTERN_BYTES].decode(errors="replace")
            with suppress(PatternTimeoutError):  # of which the counter will know the document
                if not self.rules.pretokenizer.finds_anything(text):
                    log.warning("%s: the pattern matches nothing in its first %s", name, format_size(len(text)))


def _other_format(name: str, data: bytes) -> tuple[str, str] | None:
    """Return which format a file read as text seems to have, by its first line or its name, and the remedy."""
    text = data.removeprefix(BYTE_ORDER_MARK).lstrip()
    ending = PurePath(without_compression_suffix(name)).suffix.lower()
    if _JSON_LINE.match(text):
        return "JSON Lines", "use input_format='jsonl', or name it .jsonl"
    if ending == ".json" and text[:1] in (b"[", b"{"):
        return "JSON", "convert it to JSON Lines, for instance by jq -c '.[]'"
    if ending in (".csv", ".tsv"):
        return "a table", "convert its texts to JSON Lines or Parquet"
    return None


def _warn_of(state: str, files: Sequence[InputFile]) -> None:
    if files:
        title = files[0].title
        subject = f"{title} is" if len(files) == 1 else f"{len(files):,} files, such as {title}, are"
        log.warning("%s %s", subject, state)


def _first_bytes(blocks: Iterable[bytes | bytearray], size: int) -> bytes:
    """Return the first bytes of a text, `size` or a block more."""
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) >= size:
            break
    return bytes(data)


# ---- after counting ----


def warn_of_empty_sources(sources: Sequence[Source], documents: DocumentStatistics) -> None:
    """Warn of sources of which nothing was counted: a mistyped `text_field` looks like many bad records."""
    for source, statistics in zip(sources, documents.sources, strict=False):
        if statistics.bad_records and not statistics.documents:
            log.warning("source %s: no record has text; is its text_field right?", source.name)


def why_nothing(corpus: Corpus, documents: DocumentStatistics, pretokenizer: Pretokenizer) -> str:
    """Return which corpus has no pre-tokens, and why."""
    files = corpus.files
    left_out = documents.skipped_documents + documents.bad_records
    if not documents.documents and all(file.location == "iterable" for file in files):
        return "nothing to count: the iterable gave no documents; if it is a generator, was it used before?"
    if left_out and documents.documents <= left_out:
        reason = "all documents were skipped"
    elif not documents.bytes and any(source.sample for source in corpus.sources) and corpus.known_bytes:
        reason = "no document is as small as max_bytes, or the corpus is empty"
    elif not documents.bytes:
        reason = "the corpus is empty"
    else:
        reason = "there is nothing but separators and special tokens"
        if pretokenizer.custom:
            reason = f"the pattern {pretokenizer.regex!r} matches nothing in the corpus, or {reason}"
    title = files[0].title if len(files) == 1 else f"{len(files):,} files, such as {files[0].title}"
    return f"nothing to count: {reason} ({title})"


def report_unmatched(documents: DocumentStatistics, settings: CountSettings) -> None:
    """Log how much of the text the pattern did not match: a warning if text is lost, or if it matched nothing."""
    unmatched, example = documents.unmatched_bytes, documents.unmatched_example
    if not unmatched:
        return
    percent = 100 * unmatched / (unmatched + documents.matched_bytes)
    share = f"{percent:.1f} % of the text ({format_size(unmatched)})"
    if settings.unmatched == "drop":
        log.warning(
            "pattern: %s is matched by nothing and dropped, e.g. %s; unmatched='isolate' keeps it", share, example
        )
    elif simplest_pattern(settings.pattern) == PUBLISHED_PATTERNS["superbpe"]:  # superwords are between its matches
        pass
    elif not documents.matched_bytes:
        log.warning("the pattern %r matches nothing in the corpus, e.g. in %s", settings.pattern, example)
    else:
        log.info("pattern: %s is between matches and makes pre-tokens of its own, e.g. %s", share, example)
