"""`EncodedCorpus`: the result of encoding a corpus to token files, just now or earlier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpeflow._util.text import Described, format_count, format_size, one_line
from bpeflow.corpus.sources import Corpus
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.dataset.token_file import (
    DtypeName,
    load_document_offsets,
    open_token_files,
    read_sidecar,
    sidecar_path,
)
from bpeflow.dataset.token_set import TokenSet, already_exists
from bpeflow.errors import FormatError

#: The most files that a summary lists by name.
_LISTED_FILES = 6


@dataclass(frozen=True)
class EncodedCorpus(Described):
    """The result of encoding a corpus.

    Attributes:
        written: the files: for each token file the ids, the sidecar and, if requested, the index.
        dtype: ``uint16`` or ``uint32``.
        tokens: number of ids, including end tokens.
        documents: number of documents in the token files.
        end_token: the special token after each document; None if nothing separates them.
        val_tokens: number of ids in the validation split, included in `tokens`.
        val_documents: number of documents in the validation split, included in `documents`.
        skipped_documents: number of documents left out because they are not UTF-8.
        bad_records: number of records left out because they have no text.
        files: number of files in the corpus.
        bytes: size of the corpus, including separators.
        input_bytes: size of the corpus as it is stored, compressed or in JSON.
        seconds: wall time; 0 if the token files were complete already (`resume`).

    >>> from tempfile import TemporaryDirectory
    >>> from bpeflow import Tokenizer
    >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
    >>> with TemporaryDirectory() as folder:
    ...     encoded = tokenizer.encode_documents(["low", "lower"], f"{folder}/train.bin")
    >>> encoded.tokens, encoded.documents, encoded.bytes_per_token
    (8, 2, 1.0)
    """

    written: tuple[Path, ...]
    dtype: DtypeName
    tokens: int
    documents: int
    end_token: str | None
    val_tokens: int
    val_documents: int
    skipped_documents: int
    bad_records: int
    files: int
    bytes: int
    input_bytes: int
    seconds: float

    @property
    def bytes_per_token(self) -> float | None:
        """Compression, with separators and end tokens: more is better. None if there are no tokens."""
        return self.bytes / self.tokens if self.tokens else None

    def describe(self) -> Iterator[tuple[str, str]]:
        """Yield labelled lines. One without a label belongs to the line before it."""
        stored = self.input_bytes or self.bytes  # the size of standard input is unknown
        other_size = format_size(stored) != format_size(self.bytes)
        rate = f"{format_size(stored / max(self.seconds, 1e-9))}/s{' of input' if other_size else ''}"
        time = f"in {self.seconds:.1f} s, {rate}, " if self.seconds else "earlier, "
        size = format_size(self.bytes) + (f" of text from {format_size(stored)}" if other_size else "")
        skipped = f", {self.skipped_documents:,} skipped" if self.skipped_documents else ""
        bad_records = f", {format_count(self.bad_records, 'bad record')} left out" if self.bad_records else ""
        documents = format_count(self.documents, "document") + skipped + bad_records
        tokens = f"{format_count(self.tokens, 'token')} ({self.dtype}) in {documents}"
        yield "encoded", f"{size} {time}{tokens}"
        if self.val_documents:
            documents = format_count(self.val_documents, "document")
            yield "", f"of these {format_count(self.val_tokens, 'token')} in {documents} for validation"
        if self.end_token is not None:
            yield "", f"documents end with {self.end_token}"
        yield "written", one_line(_list_files(self.written))


def _list_files(paths: Sequence[Path]) -> str:
    if len(paths) <= _LISTED_FILES:
        return ", ".join(map(str, paths))
    return f"{paths[0]} … {paths[-1]} ({len(paths):,} files)"


def read_result(corpus: Corpus, tokens: TokenSet, input_bytes: int, seconds: float) -> EncodedCorpus:
    """Return what the token files of a set hold, by their sidecars.

    Args:
        corpus: the corpus.
        tokens: the set.
        input_bytes: size of the corpus as it is stored.
        seconds: wall time.
    """
    splits = {split: open_token_files(path) for split, path in tokens.splits.items()}
    files, facts = [file for parts in splits.values() for file in parts], splits["train"][0].facts
    documents = facts["split_documents"]
    return EncodedCorpus(
        written=tuple(path for file in files for path in tokens.files_of(file.path)),
        dtype=tokens.dtype,
        tokens=sum(file.tokens for file in files),
        documents=sum(documents.values()),
        end_token=end_token["text"] if (end_token := facts["end_token"]) else None,
        val_tokens=sum(file.tokens for file in splits.get("val", ())),
        val_documents=documents.get("val", 0),
        skipped_documents=facts["skipped_documents"],
        bad_records=facts["bad_records"],
        files=sum(corpus.file_counts()),
        bytes=facts["text_bytes"],
        input_bytes=input_bytes,
        seconds=seconds,
    )


def finished_encoding(corpus: Corpus, tokens: TokenSet, facts: Mapping[str, Any]) -> EncodedCorpus:
    """Return what the existing token files of a set hold.

    Args:
        corpus: the corpus.
        tokens: the set.
        facts: the content of the sidecars that would be written.

    Raises:
        AlreadyExistsError: they are incomplete, or of another corpus, tokenizer or settings. The message says which.
    """
    path = tokens.existing_files()[0]
    try:
        first, written = read_sidecar(path), path.stat().st_mtime_ns
        earlier = Fingerprint(
            first.facts["settings"],
            [[file["path"], file["bytes"], None] for file in first.facts["input"]],
        )
        now = Fingerprint(
            facts["settings"],
            [
                [file.name, file.size, file.modified if (file.modified or 0) > written else None]
                for file in corpus.files
            ],
        )
        if changes := now.differences(earlier):
            reason = f", and is of something else ({'; '.join(changes)})"
        else:
            result = read_result(corpus, tokens, corpus.known_bytes, 0.0)
            for output in result.written:
                if tokens.has_index and output.suffix == path.suffix:
                    load_document_offsets(output)
            return result
    except (FormatError, OSError) as error:
        reason = f", but is not complete ({error})"
    except (KeyError, TypeError, AttributeError):
        reason = f", and {sidecar_path(path).name} does not say how it was encoded"
    raise already_exists(path, reason)
