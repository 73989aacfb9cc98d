"""Corpora to token files, and back."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import starmap
from operator import attrgetter
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Any, get_args

from bpeflow import flow
from bpeflow._util.memory import explain_memory_error
from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import CorpusFile
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.find import InputFormat, InputRules, find_inputs, listed_inputs
from bpeflow.corpus.formats.stream import StreamTask
from bpeflow.corpus.reader import LONGEST_TEXT, ChunkReader, StreamReader, check_unchanged
from bpeflow.corpus.sources import Source
from bpeflow.dataset.chunk_encoder import ChunkEncoder, EncodedChunk, NumberedChunk
from bpeflow.dataset.identity import tokenizer_hash
from bpeflow.dataset.token_file import (
    DtypeName,
    choose_dtype,
    index_path,
    new_token_file,
    sidecar_path,
)
from bpeflow.errors import ConfigError
from bpeflow.flow import Pipeline, QueueSpec, Stage, stall_watch
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.progress import Observer
from bpeflow.tokenizer.parallel import validate_threads
from bpeflow.tokenizer.tokenizer import BaseTokenizer

#: So many special tokens are named in an error.
_SHOWN = 5

#: What to do about a lack of memory.
_LESS_MEMORY = "use fewer threads (--threads) or a smaller --chunk_size; or add memory"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedCorpus:
    """What encoding a corpus gave.

    Attributes:
        written: the files: the ids, the sidecar, and the index if there is one.
        dtype: ``uint16`` or ``uint32``.
        tokens: how many, end tokens included.
        documents: how many documents it holds.
        skipped_documents: how many were left out for not being UTF-8.
        files: how many files the corpus has.
        bytes: how many bytes, separators included.
        seconds: wall time.
    """

    written: tuple[Path, ...]
    dtype: DtypeName
    tokens: int
    documents: int
    skipped_documents: int
    files: int
    bytes: int
    seconds: float


def encode_file(
    tokenizer: BaseTokenizer,
    src: str | Path | Sequence[str | Path],
    dst: str | Path,
    *,
    dtype: str = "auto",
    separator: str | None = None,
    end_token: str | None = None,
    special_tokens_as_text: bool = False,
    invalid_utf8: InvalidUtf8Policy = "error",
    index: bool = False,
    threads: int | None = None,
    chunk_size: int | None = None,
    input_format: InputFormat = "auto",
    text_field: str = "text",
    text_column: str = "text",
    observer: Observer | None = None,
) -> EncodedCorpus:
    """Encode a corpus to a token file, with a sidecar beside it (see `token_file`).

    The documents come in the order of ``src``, and each is what `Tokenizer.encode` makes of it, whatever the number of
    threads and the size of chunks. All files are there when all is done, or none.

    Args:
        tokenizer: what encodes.
        src: files, folders, globs, ``@lists`` of these, ``-`` for standard input, URLs that fsspec knows; compressed or
            not. The files of a folder or a glob come in the order of their paths, each file once.
        dst: the token file to write.
        dtype: ``auto``, ``uint16`` or ``uint32``.
        separator: what stands between documents, and is no part of them; by default the tokenizer's first special
            token; ``""`` for nothing but the ends of files.
        end_token: the special token that ends each document in the token file; by default the separator if it is a
            special token, else none; ``""`` for none.
        special_tokens_as_text: take special tokens inside documents for ordinary text: for corpora that are not to be
            trusted with them. (The separator still ends documents, unless it is ``""``.)
        invalid_utf8: ``error``, ``replace`` (with U+FFFD) or ``skip`` (leave the document out).
        index: write an index of the documents, too.
        threads: how many encode at once; by default one for each core.
        chunk_size: bytes of text that each takes at a time, by default a few MB; memory is a multiple of it.
        input_format: what the files hold: ``text``, ``jsonl``, ``parquet``, or ``auto``, as their names end.
        text_field: for JSON Lines, the field with the text; ``a.b`` is b in a.
        text_column: for Parquet, likewise.
        observer: progress callbacks.

    Raises:
        ConfigError: an option that does not fit the tokenizer; before any work.
        CorpusError: input that is missing or unreadable; `InvalidUtf8Error` with the place of what is not UTF-8.
        FormatError: `dst` is no regular file.
        OSError: `dst` cannot be written, with its name.
        WorkerDiedError: an encoder process was killed.
    """
    observer = observer or Observer()
    delimiters = _delimiters(tokenizer, separator, special_tokens_as_text)
    end = _end_token(tokenizer, end_token, delimiters.separator)
    chosen = choose_dtype(dtype, tokenizer.vocab_size)
    policy = _policy(invalid_utf8)
    corpus = CorpusEncoder(
        files=find_in_order([src] if isinstance(src, str | Path) else src, InputRules(format=input_format)),
        encoder=ChunkEncoder(
            tokenizer,
            delimiters,
            None if end is None else tokenizer.special_tokens[end],
            policy,
            Source(text_field=tuple(text_field.split(".")), text_column=tuple(text_column.split("."))),
        ),
        threads=validate_threads(threads),
        chunk_size=_checked_size(chunk_size),
    )
    path = Path(dst)
    check_not_input([path, sidecar_path(path), index_path(path)], [name for name, _ in named_files(corpus.files)])
    facts = _describe(corpus, end)
    total = None if any(size is None for _, size in named_files(corpus.files)) else corpus.bytes
    started = perf_counter()
    with explain_memory_error("encoding", _LESS_MEMORY), new_token_file(path, chosen, facts, index) as writer:
        statistics = DocumentStatistics()
        done = 0
        for chunk in corpus.encoded():
            writer.write(chunk.ids, chunk.ends)
            statistics += chunk.statistics
            done += chunk.weight
            observer.encoding(done, total)
        check_unchanged(corpus.files, "run again when it is complete", may_grow=True)
        writer.facts["skipped_documents"] = statistics.skipped_documents
    if statistics.skipped_documents:
        log.warning("%d of %d documents were skipped: not UTF-8", statistics.skipped_documents, statistics.documents)
    return EncodedCorpus(
        written=(path, sidecar_path(path), *([index_path(path)] if index else [])),
        dtype=chosen,
        tokens=writer.tokens,
        documents=writer.documents,
        skipped_documents=statistics.skipped_documents,
        files=len(named_files(corpus.files)),
        bytes=statistics.bytes,
        seconds=perf_counter() - started,
    )


# ---- what the options mean ----


def find_in_order(inputs: Sequence[str | Path], rules: InputRules | None = None) -> list[CorpusFile | StreamTask]:
    """The files that ``inputs`` name, in their order; those of a folder or a glob by their paths. Each of them once.

    Raises `CorpusError` as `find_inputs` does.
    """
    if not inputs:
        return find_inputs(inputs, InputRules())  # which says what is wrong
    files: dict[str, CorpusFile | StreamTask] = {}
    for entry in inputs:
        for listed in listed_inputs(entry):
            for file in find_inputs([listed], rules or InputRules()):
                files.setdefault(_real_name(file), file)
    return list(files.values())


def _real_name(file: CorpusFile | StreamTask) -> str:
    [(name, _)] = named_files([file])
    return name if isinstance(file, StreamTask) and file.files[0].location != "file" else os.path.realpath(name)


def named_files(files: Iterable[CorpusFile | StreamTask]) -> list[tuple[str, int | None]]:
    """The names and sizes of files."""
    named: list[tuple[str, int | None]] = []
    for file in files:
        if isinstance(file, CorpusFile):
            named.append((str(file.path), file.size))
        else:
            named += [(stream.name, stream.size) for stream in file.files]
    return named


def choose_separator(tokenizer: BaseTokenizer, separator: str | None) -> str | None:
    """What ends documents: the separator that was given, by default the first special token; None for ``""``."""
    if separator is None:
        return next(iter(tokenizer.special_tokens), None)
    return separator or None


def _delimiters(tokenizer: BaseTokenizer, separator: str | None, special_tokens_as_text: bool) -> Delimiters:
    specials = [] if special_tokens_as_text else list(tokenizer.special_tokens)
    return Delimiters(choose_separator(tokenizer, separator), specials)


def _end_token(tokenizer: BaseTokenizer, end_token: str | None, separator: str | None) -> str | None:
    if end_token is None:
        return separator if separator in tokenizer.special_tokens else None
    if end_token and end_token not in tokenizer.special_tokens:
        known = ", ".join(map(repr, list(tokenizer.special_tokens)[:_SHOWN])) or "none"
        raise ConfigError(f"end_token: {end_token!r} is no special token of the tokenizer, which has {known}")
    return end_token or None


def _policy(invalid_utf8: InvalidUtf8Policy) -> InvalidUtf8Policy:
    if invalid_utf8 not in (policies := get_args(InvalidUtf8Policy)):
        raise ConfigError(f"invalid_utf8: {invalid_utf8!r} is none of {', '.join(policies)}")
    return invalid_utf8


def _checked_size(chunk_size: int | None) -> int | None:
    if chunk_size is not None and chunk_size < 1:
        raise ConfigError(f"chunk_size: must be at least 1 byte, not {chunk_size}")
    return chunk_size


def check_not_input(outputs: Iterable[Path], files: Iterable[str]) -> None:
    """Raise `ConfigError` where an output would take the place of an input."""
    real = {os.path.realpath(file) for file in files}
    for path in outputs:
        if os.path.realpath(path) in real:
            raise ConfigError(f"{path}: is one of the input files, which would be lost; write to another one")


def _describe(corpus: CorpusEncoder, end_token: str | None) -> dict[str, Any]:
    """What the sidecar shall tell besides what it must."""
    from importlib.metadata import version  # slow to import

    encoder = corpus.encoder
    tokenizer = encoder.tokenizer
    return {
        "skipped_documents": 0,
        "tokenizer": {
            "sha256": tokenizer_hash(tokenizer.to_spec()),
            "vocab_size": tokenizer.vocab_size,
            "pattern": tokenizer.pattern,
        },
        "separator": encoder.delimiters.separator,
        "end_token": None if end_token is None else {"text": end_token, "id": encoder.end_id},
        "special_tokens": "as ids" if encoder.delimiters.special_tokens else "as text",
        "invalid_utf8": encoder.invalid_utf8,
        "bytes": corpus.bytes,
        "input": [{"path": name, "bytes": size} for name, size in named_files(corpus.files)],
        "bpeflow": version("bpeflow"),
    }


#: Bytes of text in a chunk, about. Larger: fewer hand-overs; smaller: less memory, and small corpora for many cores.
CHUNK_SIZE = {"threads": 4_000_000, "processes": 1_000_000}

#: Up to this size a corpus is encoded in this process, on one core if need be: starting processes would take longer.
SMALL_INPUT = 4_000_000

#: Chunks that may wait for the encoder processes. More would let more encoded chunks wait for one that takes long.
_QUEUED = 2


@dataclass(frozen=True)
class CorpusEncoder:
    """A corpus, and how it is going to be encoded.

    Attributes:
        files: the corpus, in the order of its documents.
        encoder: what to do with a chunk of it.
        threads: how many chunks to encode at once.
        chunk_size: bytes of text in a chunk, about; None for what suits the way that it is encoded in.
    """

    files: Sequence[CorpusFile | StreamTask]
    encoder: ChunkEncoder
    threads: int
    chunk_size: int | None

    @cached_property
    def bytes(self) -> int:
        """The size of the corpus."""
        return sum(file.weight for file in self.files)

    def encoded(self) -> Iterator[EncodedChunk]:
        """Encode the corpus: its chunks, in order. Raises as `ChunkEncoder.encode` does, and `WorkerDiedError`."""
        in_threads = _leaves_interpreter(self.encoder.tokenizer)
        main_process_only = any(isinstance(file, StreamTask) and file.main_process_only for file in self.files)
        in_process = in_threads or self.threads == 1 or main_process_only or self.bytes <= SMALL_INPUT
        chunk_size = self.chunk_size or CHUNK_SIZE["threads" if in_threads else "processes"]
        cancelled = Event() if main_process_only else None  # which implies in_process
        pipeline = Pipeline(
            flow.Source("chunk reader", _NumberedReader(self._reader(chunk_size, cancelled))),
            [
                Stage(
                    "encoder",
                    replace(self.encoder, threads=self.threads if in_threads else 1, cancelled=cancelled),
                    reads=QueueSpec("chunk_queue", max_items=_QUEUED, route=attrgetter("number")),
                    workers=1 if in_process else self.threads,
                )
            ],
            results=QueueSpec("encoded_queue"),
            preload=("bpeflow.dataset.chunk_encoder",),
        )
        with stall_watch(pipeline), closing(pipeline.run(inline=in_process)) as chunks:
            yield from _in_order(chunks)

    def _reader(self, chunk_size: int, cancelled: Event | None) -> ChunkReader:
        encoder = self.encoder
        pretokenizer = load_pretokenizer(encoder.tokenizer.pattern)
        delimiters, invalid_utf8 = encoder.delimiters, encoder.invalid_utf8
        streams = StreamReader(
            [encoder.source], chunk_size, LONGEST_TEXT, delimiters, pretokenizer, invalid_utf8, cancelled
        )
        return ChunkReader(self.files, chunk_size, delimiters, pretokenizer, invalid_utf8, streams=streams)


@dataclass(frozen=True)
class _NumberedReader:
    """The chunk reader's source function, picklable: it counts the chunks, so that they can be put in order again."""

    reader: ChunkReader

    def __call__(self) -> Iterator[NumberedChunk]:
        return starmap(NumberedChunk, enumerate(self.reader.chunks()))


def _in_order(chunks: Iterable[EncodedChunk]) -> Iterator[EncodedChunk]:
    waiting: dict[int, EncodedChunk] = {}
    following = 0
    for chunk in chunks:
        waiting[chunk.number] = chunk
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def _leaves_interpreter(tokenizer: BaseTokenizer) -> bool:
    """Whether other threads may use the interpreter meanwhile; the `regex` module of custom patterns keeps it."""
    return tokenizer.encoder == "native" and not load_pretokenizer(tokenizer.pattern).custom
