"""`encode_file`: encodes a corpus to a token file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Any, get_args

from bpeflow import flow
from bpeflow._util.memory import explain_memory_error
from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import CorpusFile
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.find import InputFormat, InputRules, find_inputs, listed_inputs
from bpeflow.corpus.first_look import FirstLook
from bpeflow.corpus.formats.stream import StreamTask
from bpeflow.corpus.reader import LONGEST_TEXT, ChunkReader, StreamReader, check_unchanged
from bpeflow.corpus.sources import Source
from bpeflow.dataset.chunk_encoder import ChunkEncoder, EncodedChunk, NumberedChunk
from bpeflow.dataset.identity import tokenizer_hash
from bpeflow.dataset.token_file import DtypeName, choose_dtype, index_path, new_token_file, sidecar_path
from bpeflow.errors import ConfigError
from bpeflow.flow import Pipeline, QueueSpec, Stage, in_order, stall_watch
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.progress import Observer
from bpeflow.tokenizer.parallel import validate_threads
from bpeflow.tokenizer.tokenizer import BaseTokenizer

#: Approximate size of chunks, in bytes of text. Larger: fewer hand-overs between workers. Smaller: less memory, and
#: more parallelism for small corpora.
CHUNK_SIZE = {"threads": 4_000_000, "processes": 1_000_000}

#: Corpora of up to this many bytes are encoded without worker processes. Larger: more corpora are encoded on one core.
#: Smaller: more runs pay for starting processes, which takes longer than encoding.
SMALL_INPUT = 4_000_000

#: Chunks in the queue for each encoder. More: more encoded chunks accumulate in memory while one that takes long is
#: being encoded. Fewer: encoders wait for the reader, or for an encoder whose turn it is.
_CHUNKS_PER_WORKER = 2

#: Number of special tokens that an error message lists.
_SPECIAL_TOKENS_IN_ERROR = 5

#: Remedy in the error message when memory runs out.
_LESS_MEMORY = "use fewer threads (--threads) or a smaller --chunk_size; or add memory"

#: What happens to end-of-text strings that are no special tokens of the tokenizer.
_END_OF_TEXT = "no special tokens of this tokenizer, so encoded as ordinary text"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedCorpus:
    """The result of encoding a corpus.

    Attributes:
        written: the files: the ids, the sidecar and, if requested, the index.
        dtype: ``uint16`` or ``uint32``.
        tokens: number of ids, including end tokens.
        documents: number of documents in the token file.
        skipped_documents: number of documents left out because they are not UTF-8.
        files: number of files in the corpus.
        bytes: size of the corpus, including separators.
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
    """Encode a corpus to a token file, with a sidecar next to it (see `bpeflow.dataset.token_file`).

    The documents are in the order of `src`. The ids of each are those of `Tokenizer.encode`, regardless of `threads`
    and `chunk_size`. If encoding fails, no files are left.

    Args:
        tokenizer: the tokenizer.
        src: files, folders, globs, ``@lists`` of these, ``-`` for standard input, and URLs that fsspec supports;
            compressed or not. The files of a folder or glob are in the order of their paths. Each file is encoded once.
        dst: the token file to write.
        dtype: ``auto``, ``uint16`` or ``uint32``.
        separator: the text between documents, which is not part of them; by default the tokenizer's first special
            token. With ``""`` only the ends of files separate documents.
        end_token: the special token that ends each document in the token file; by default the separator if it is a
            special token, else none. ``""`` means none.
        special_tokens_as_text: encode special tokens in documents as ordinary text, for untrusted corpora. The
            separator still ends documents, unless it is ``""``.
        invalid_utf8: what to do with input that is not UTF-8: ``error``, ``replace`` (by U+FFFD) or ``skip`` (the
            document).
        index: also write an index of the documents.
        threads: number of encoder threads or processes; by default one per core.
        chunk_size: bytes of text per encoder and step; by default a few MB. Memory use is a multiple of it.
        input_format: ``text``, ``jsonl``, ``parquet``, or ``auto`` to choose by file name.
        text_field: the field of JSON Lines that holds the text. ``a.b`` is field b of field a.
        text_column: the column of Parquet that holds the text. ``a.b`` is as for `text_field`.
        observer: progress callbacks.

    Returns:
        The files that were written, and statistics of the corpus.

    Raises:
        ConfigError: an option is invalid or does not fit the tokenizer; raised before any work.
        CorpusError: input is missing, unreadable, or not UTF-8 (`InvalidUtf8Error`, which has the position).
        FormatError: `dst` is not a regular file.
        OSError: `dst` cannot be written. The error names the file.
        WorkerDiedError: an encoder process was killed.

    >>> from tempfile import TemporaryDirectory
    >>> from bpeflow import Tokenizer, load_tokens
    >>> tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|endoftext|>"])
    >>> with TemporaryDirectory() as folder:
    ...     corpus, out = Path(folder, "corpus.txt"), Path(folder, "train.bin")
    ...     _ = corpus.write_text("ab<|endoftext|>c", encoding="utf-8")
    ...     encoded = encode_file(tokenizer, corpus, out)
    ...     print(encoded.documents, load_tokens(out).tolist())
    2 [97, 98, 256, 99, 256]
    """
    observer = observer or Observer()
    delimiters = _delimiters(tokenizer, separator, special_tokens_as_text)
    end = _end_token(tokenizer, end_token, delimiters.separator)
    ids_dtype = choose_dtype(dtype, tokenizer.vocab_size)
    policy = _validate_policy(invalid_utf8)
    corpus = CorpusEncoder(
        files=find_in_order(
            [src] if isinstance(src, str | Path) else src, InputRules(format=input_format, invalid_utf8=policy)
        ),
        encoder=ChunkEncoder(
            tokenizer,
            delimiters,
            None if end is None else tokenizer.special_tokens[end],
            policy,
            Source(text_field=tuple(text_field.split(".")), text_column=tuple(text_column.split("."))),
        ),
        threads=validate_threads(threads),
        chunk_size=_validate_chunk_size(chunk_size),
    )
    path = Path(dst)
    check_not_input([path, sidecar_path(path), index_path(path)], [name for name, _ in named_files(corpus.files)])
    facts = _describe(corpus, end)
    total = None if any(size is None for _, size in named_files(corpus.files)) else corpus.bytes
    started = perf_counter()
    with explain_memory_error("encoding", _LESS_MEMORY), new_token_file(path, ids_dtype, facts, index) as writer:
        corpus.look.look_at(corpus.files)
        statistics = DocumentStatistics()
        done = 0
        for chunk in corpus.encoded():
            writer.write(chunk.ids, chunk.ends)
            statistics += chunk.statistics
            done += chunk.weight
            observer.encoding(done, total)
        check_unchanged(corpus.files, "run again when it is complete", may_grow=True)
        writer.facts["skipped_documents"] = statistics.skipped_documents
    if not writer.tokens:
        log.warning("%s: no ids, because there is no text in the corpus", path)
    if statistics.skipped_documents:
        log.warning("%d of %d documents were skipped: not UTF-8", statistics.skipped_documents, statistics.documents)
    return EncodedCorpus(
        written=(path, sidecar_path(path), *([index_path(path)] if index else [])),
        dtype=ids_dtype,
        tokens=writer.tokens,
        documents=writer.documents,
        skipped_documents=statistics.skipped_documents,
        files=len(named_files(corpus.files)),
        bytes=statistics.bytes,
        seconds=perf_counter() - started,
    )


# ---- options ----


def find_in_order(inputs: Sequence[str | Path], rules: InputRules | None = None) -> list[CorpusFile | StreamTask]:
    """Return the files of `inputs` in the given order, those of a folder or glob by path, and each file once.

    Raises `CorpusError` as `find_inputs` does.
    """
    if not inputs:
        return find_inputs(inputs, InputRules())  # raises the error for missing input
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
    """Return the names and sizes of files. A size that is not known is None."""
    named: list[tuple[str, int | None]] = []
    for file in files:
        if isinstance(file, CorpusFile):
            named.append((str(file.path), file.size))
        else:
            named += [(stream.name, stream.size) for stream in file.files]
    return named


def choose_separator(tokenizer: BaseTokenizer, separator: str | None) -> str | None:
    """Return the text that ends documents: by default the first special token. None, for ``""``, means no separator."""
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
        known = ", ".join(map(repr, list(tokenizer.special_tokens)[:_SPECIAL_TOKENS_IN_ERROR])) or "none"
        raise ConfigError(f"end_token: {end_token!r} is not a special token of the tokenizer, which has {known}")
    return end_token or None


def _validate_policy(invalid_utf8: InvalidUtf8Policy) -> InvalidUtf8Policy:
    if invalid_utf8 not in (policies := get_args(InvalidUtf8Policy)):
        raise ConfigError(f"invalid_utf8: {invalid_utf8!r} is not one of {', '.join(policies)}")
    return invalid_utf8


def _validate_chunk_size(chunk_size: int | None) -> int | None:
    if chunk_size is not None and chunk_size < 1:
        raise ConfigError(f"chunk_size: must be at least 1 byte, not {chunk_size}")
    return chunk_size


def check_not_input(outputs: Iterable[Path], files: Iterable[str]) -> None:
    """Raise `ConfigError` if an output would replace an input."""
    inputs = {os.path.realpath(file) for file in files}
    for path in outputs:
        if os.path.realpath(path) in inputs:
            raise ConfigError(f"{path}: is one of the input files and would be overwritten; choose another output file")


def _describe(corpus: CorpusEncoder, end_token: str | None) -> dict[str, Any]:
    """Return the content of the sidecar besides its required fields."""
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


# ---- the pipeline ----


@dataclass(frozen=True)
class CorpusEncoder:
    """A corpus and the way to encode it.

    Attributes:
        files: the corpus, in the order of its documents.
        encoder: encodes a chunk.
        threads: number of chunks to encode at once.
        chunk_size: approximate bytes of text in a chunk; None for the default (`CHUNK_SIZE`).
    """

    files: Sequence[CorpusFile | StreamTask]
    encoder: ChunkEncoder
    threads: int
    chunk_size: int | None

    @cached_property
    def look(self) -> FirstLook:
        """The first look at the corpus, for warnings."""
        encoder = self.encoder
        as_text = encoder.tokenizer.special_tokens and not encoder.delimiters.special_tokens  # by request
        remedy = None if as_text else _END_OF_TEXT
        return FirstLook([encoder.source], encoder.delimiters, encoder.invalid_utf8, remedy)

    @cached_property
    def bytes(self) -> int:
        """The size of the corpus."""
        return sum(file.weight for file in self.files)

    def encoded(self) -> Iterator[EncodedChunk]:
        """Encode the corpus and yield its chunks in order.

        Raises as `ChunkEncoder.encode` does, and `WorkerDiedError` if an encoder process is killed.
        """
        releases_lock = _releases_interpreter_lock(self.encoder.tokenizer)
        main_process_only = any(isinstance(file, StreamTask) and file.main_process_only for file in self.files)
        use_threads = releases_lock or self.threads == 1 or main_process_only or self.bytes <= SMALL_INPUT
        chunk_size = self.chunk_size or CHUNK_SIZE["threads" if releases_lock else "processes"]
        workers = self.threads if releases_lock or not use_threads else 1
        pipeline = Pipeline(
            flow.Source("chunk reader", _NumberedReader(self._reader(chunk_size))),
            [
                Stage(
                    "encoder",
                    self.encoder,
                    reads=QueueSpec("chunk_queue", max_items=_CHUNKS_PER_WORKER * workers, route=attrgetter("number")),
                    workers=workers,
                )
            ],
            results=QueueSpec("encoded_queue"),
            preload=("bpeflow.dataset.chunk_encoder",),
        )
        with stall_watch(pipeline), closing(pipeline.run("threads" if use_threads else "processes")) as chunks:
            yield from in_order(chunks, attrgetter("number"))

    def _reader(self, chunk_size: int) -> ChunkReader:
        encoder = self.encoder
        pretokenizer = load_pretokenizer(encoder.tokenizer.pattern)
        delimiters, invalid_utf8 = encoder.delimiters, encoder.invalid_utf8
        streams = StreamReader([encoder.source], chunk_size, LONGEST_TEXT, delimiters, pretokenizer, invalid_utf8)
        return ChunkReader(
            self.files, chunk_size, delimiters, pretokenizer, invalid_utf8, streams=streams, look=self.look
        )


@dataclass(frozen=True)
class _NumberedReader:
    """The picklable source function of the pipeline. It numbers the chunks, so that their order can be restored."""

    reader: ChunkReader

    def __call__(self) -> Iterator[NumberedChunk]:
        return starmap(NumberedChunk, enumerate(self.reader.chunks()))


def _releases_interpreter_lock(tokenizer: BaseTokenizer) -> bool:
    """Return whether other threads can run during encoding. The `regex` module, for custom patterns, holds the lock."""
    return tokenizer.encoder == "native" and not load_pretokenizer(tokenizer.pattern).custom
